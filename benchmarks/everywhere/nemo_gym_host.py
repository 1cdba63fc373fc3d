"""NeMo-Gym's own HTTP client and models, as its agents send a response to be verified."""

import asyncio
import sys
import warnings

from samples import Sample, each, write
from tests.bridges.test_nemo_gym import body

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from nemo_gym import server_utils
    from nemo_gym.base_resources_server import BaseVerifyResponse

URL = sys.argv[1]


async def main() -> None:
    client = server_utils.set_global_aiohttp_client(server_utils.GlobalAIOHTTPAsyncClientConfig())

    async def ask(one: Sample) -> tuple[Sample, float | None, str]:
        asked = {"input": [{"role": "user", "content": one.prompt}]}
        sent = body(
            one.text,
            one.member,
            responses_create_params=asked,
            expected_answer=one.truth,
            _ng_task_index=one.group,
        )
        response = await server_utils.request("POST", URL, json=sent)
        if response.status != 200:
            return one, None, f"HTTP {response.status}"
        answer = BaseVerifyResponse.model_validate(await server_utils.get_response_json(response))
        return one, answer.reward, f"mask_sample, {answer.failure_kind}" if answer.mask_sample else ""

    found = await each(ask, groups=True)
    await client.close()
    write("NeMo-Gym, /verify", found)


asyncio.run(main())
