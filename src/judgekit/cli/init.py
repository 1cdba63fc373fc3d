"""`judgekit init`: a first reward.yaml, by questions or by options."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from judgekit.cli.console import many, one_line, say
from judgekit.errors import ConfigError
from judgekit.rollouts.rows import given

if TYPE_CHECKING:
    from judgekit.cli.look import Looked


class Task(NamedTuple):
    """What the rollouts are, and the rules for them."""

    about: str
    graders: str
    weights: dict[str, float]
    """Of the rules alone; a judge takes a part."""
    rule: str = ""
    """Condition that a rollout must fulfil before a judge is asked; empty: there must be a judge, and it is always asked."""
    judge: str = "{use: judge, judge: main}"
    judge_says: str = "the score is read from the probabilities of one token"
    compares: bool = False
    """Whether responses to one prompt are compared, so that a trainer must hand over whole groups."""


RUBRIC_FILE = "rubric.toml"
RUBRIC = """\
# Criteria, judged one by one. The score: the weights of those that are met, over all weights above 0.
name = "rubric"
template = "rubric"      # rubric_reference shows the judge ground_truth, too
# scale = [1, 5]         # marks, in place of met or not met

[[criteria]]
id = "answers"
text = "The response gives the person what they asked for, or says plainly what cannot be given and what comes nearest."
weight = 3
must_have = true         # if it is not met, the score is 0

[[criteria]]
id = "true"
text = "What the response states as a fact is true."
weight = 2               # below 0: something that a response must not do

[[criteria]]
id = "to_the_point"
text = "Every part of the response serves the request: no detours, no repetition, no praise of itself."
weight = 1
"""
"""What `init` writes as RUBRIC_FILE."""
_ROWS_CRITERIA = "# Each row brings criteria of its own, in {criteria}; those of this file are not asked about, only its template and scale count.\n"
_BRIEF = """\
  brief: {use: length, soft_max: 4000, hard_max: 8000}
"""
_OPEN = "{use: judge, judge: main, template: open}"
TASKS = {
    "maths": Task(
        "a problem with one final answer; `ground_truth` holds it",
        """\
  # is the answer mathematically equal to the reference? needs: pip install 'judgekit-rl[math]'
  correct: {use: math}
  # 1 up to 2,000 characters, 0 from 4,000
  brief: {use: length, soft_max: 2000, hard_max: 4000}
""",
        {"correct": 0.9, "brief": 0.1},
        "correct >= 1",
    ),
    "answer": Task(
        "a question with a short answer; `ground_truth` holds it",
        """\
  # is the final number the reference's? (use: text_match for words)
  correct: {use: final_answer}
  brief: {use: length, soft_max: 1000, hard_max: 2000}
""",
        {"correct": 0.9, "brief": 0.1},
        "correct >= 1",
    ),
    "words": Task(
        "a question whose answer is a word, a name or a phrase; `ground_truth` holds it",
        """\
  # is what the response commits to the reference?
  correct: {use: text_match, part: committed, ignore_case: true}
  # 1 up to 200 characters, 0 from 1,000
  brief: {use: length, soft_max: 200, hard_max: 1000}
""",
        {"correct": 0.7, "brief": 0.3},
        "correct >= 1",
    ),
    "choice": Task(
        "a question with options to choose from; `ground_truth` holds the right one's letter, text or number",
        """\
  # does it choose the right option? options: where a row has them, or a list of them; first: 1 if numbers count from 1
  correct: {use: multiple_choice, options: extra.options}
  brief: {use: length, soft_max: 1000, hard_max: 2000}
""",
        {"correct": 0.9, "brief": 0.1},
        "correct >= 1",
    ),
    "code": Task(
        "a program to write; `ground_truth` holds the test cases",
        """\
  # the share of test cases that the program passes, in a sandbox. Ordinary containers forbid it: install bubblewrap and allow
  # user namespaces, give sandbox: the URL of a sandbox service, or write isolation: none (plain processes of your user)
  passes: {use: code}
  format: {use: code_block}
""",
        {"passes": 0.9, "format": 0.1},
        "passes > 0",
    ),
    "tools": Task(
        "a task for an agent; `messages` holds its tool calls, `ground_truth` those that are right",
        """\
  # do the calls match the reference's, in any order? (tools: where the definitions are, for checks: bfcl)
  calls: {use: tool_calls}
  # no calls beyond those
  efficient: {use: tool_efficiency}
""",
        {"calls": 0.9, "efficient": 0.1},
        "calls > 0",
    ),
    "instructions": Task(
        "a request with constraints that can be checked; `extra` has IFEval's `instruction_id_list` and `kwargs`",
        """\
  # the share of the constraints that the response satisfies
  follows: {use: instructions}
  brief: {use: length, soft_max: 4000, hard_max: 8000}
""",
        {"follows": 0.9, "brief": 0.1},
        "follows > 0",
        judge=_OPEN,
    ),
    "open": Task(
        "a request without one right answer",
        _BRIEF,
        {},
        judge=_OPEN,
    ),
    "rubric": Task(
        "a request whose answer is judged by written criteria",
        _BRIEF,
        {},
        judge=f"{{use: rubric, judge: main, rubric: {RUBRIC_FILE}}}",
        judge_says="a call for each criterion; the score is what is met of their weights. judgekit ships rubrics, too: helpfulness, …",
    ),
    "preference": Task(
        "a request whose responses are compared with each other; rows may be pairs, `chosen` and `rejected`",
        _BRIEF,
        {},
        judge="{use: pairwise, judge: main}",
        judge_says="responses meet over a few rounds, places alternate; the score is the chance of beating an average member",
        compares=True,
    ),
}
SYNONYMS = {
    "trivia": "words", "text": "words", "math": "maths", "mathematics": "maths", "qa": "answer", "answers": "answer", "coding": "code", "programming": "code",
    "multiple-choice": "choice", "multiple_choice": "choice", "mcq": "choice", "choices": "choice",
    "tool": "tools", "agent": "tools", "trajectories": "tools", "ifeval": "instructions", "chat": "open",
    "open-ended": "open", "writing": "open", "rubrics": "rubric", "criteria": "rubric",
    "preferences": "preference", "pairs": "preference", "pairwise": "preference", "dpo": "preference",
}  # fmt: skip
JUDGES = {
    "none": "rules only",
    "vllm": "a model in this process, by vLLM",
    "ray": "a model behind named Ray actors",
    "http": "a server that speaks OpenAI's API",
}
SERVE = {
    "ray": "judgekit serve --engine ray --name judge --model {model} --gpus 1",
    "http": "judgekit serve --model {model} --no-auth    # or a server of yours at {url}",
}
NEXT = {
    "none": "judgekit grade {path} rollouts.jsonl --out graded.jsonl --ledger ledger.jsonl",
    "verl": """\
python3 -m verl.trainer.main_ppo \\
    reward.reward_manager.source=importlib \\
    reward.reward_manager.module.path=pkg://judgekit_verl \\
    reward.reward_manager.name=JudgeKitRewardManager \\
    +reward.reward_kwargs.judgekit_config="{path}" \\
    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=judgekit_verl.JudgeKitAgentLoopManager \\
    "$@"    # your own arguments""",
    "skyrl": 'python -m judgekit_skyrl.main environment.skyrl_gym.judgekit.config="{path}" "$@"    # your own arguments',
    "trl": 'GRPOTrainer(…, reward_funcs=judgekit_reward("{path}"))    # from judgekit_trl import judgekit_reward',
    "verifiers": """\
export JUDGEKIT_REWARD="{path}"
# in your TOML:
[env.taskset.task.rewards.judgekit]
fn = "judgekit.bridges.verifiers:reward\"""",
    "openrlhf": """\
export JUDGEKIT_REWARD="{path}"
echo "from judgekit.bridges.openrlhf import reward_func" > reward.py
# beside your own arguments: --reward.remote_url reward.py""",
    "slime": """\
export JUDGEKIT_REWARD="{path}"
# beside your own arguments: --custom-rm-path judgekit.bridges.slime.reward --group-rm
#   --custom-reward-post-process-path judgekit.bridges.slime.normalise""",
    "nemo-gym": """\
judgekit serve-rewards "{path}"{group}
# the resources server of your agent: http://127.0.0.1:8080""",
    "areal": """\
# in your script, with an absolute path:
#   workflow_kwargs = dict(reward="{path}", gconfig=config.gconfig, tokenizer=config.tokenizer_path)
#   trainer.train(workflow="judgekit.bridges.areal.JudgedRLVRWorkflow", workflow_kwargs=workflow_kwargs)""",
}
EXCLUSION = "a rollout whose reward is missing leaves its group's statistics and gets no gradient"
SCHEMA = "reward.schema.json"
NO_EXCLUSION = {
    "openrlhf": "OpenRLHF takes numbers only: a reward that is missing ends the run; a number here would be paid instead"
}
"""Trainers that cannot be told that there is no reward, and what the file says of it."""
ONE_BY_ONE = ("verifiers", "openrlhf")
"""Trainers that hand over each response by itself, so that nothing can compare it."""


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("reward.yaml"),
    trainer: Annotated[
        str | None, typer.Option("--from", help=f"The trainer that calls it: {', '.join(NEXT)}.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Some of your rows: the columns and the kind of task are guessed from them."),
    ] = None,
    task: Annotated[str | None, typer.Option(help=f"{', '.join(TASKS)}.")] = None,
    judge: Annotated[str | None, typer.Option(help=f"{', '.join(JUDGES)}.")] = None,
    model: Annotated[str | None, typer.Option(help="The judge's model: a name or a folder.")] = None,
    url: Annotated[
        str | None, typer.Option(help="The server's address, such as http://127.0.0.1:8000/v1.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a first reward.yaml. What is not given as an option is asked, or has a default where nobody can answer."""
    from judgekit.cli.look import look
    from judgekit.ledger.output_files import check_targets

    check_targets([path], inputs=[data], force=force)
    looked = None if data is None else look(data)
    trainer = _chosen("--from", "Which trainer calls it?", trainer, dict.fromkeys(NEXT, ""), "none")
    task = _chosen_task(SYNONYMS.get(task or "", task), looked, data)
    judge = _chosen_judge(judge, task)
    _check(task, judge, trainer, model, url)
    if judge != "none":
        model = model or _asked("The judge's model?", "Qwen/Qwen2.5-1.5B-Instruct")
    if judge == "http":
        url = url or _asked("The server's address?", "http://127.0.0.1:8000/v1")
    quoted = shlex.quote(str(path))
    grade = NEXT["none"].format(path=quoted)
    mapping = ""
    if looked is not None and looked.answered:
        grade = grade.replace("rollouts.jsonl", f"{shlex.quote(str(data))}{looked.mapping}")
        mapping = f"# {one_line(grade)}\n"
    criteria = looked.criteria if looked is not None else ""
    options = looked.options if looked is not None else ""
    _write(path, mapping + reward_yaml(task, judge, model or "", url or "", trainer, criteria, options))
    say(f"wrote {path}, and beside it {SCHEMA} for your editor; check it with: judgekit lint {quoted}")
    if task == "rubric":
        _write_rubric(path.parent / RUBRIC_FILE, criteria)
    _tell_next(path, grade, task, judge, trainer, {"model": model, "url": url})


def _check(task: str, judge: str, trainer: str, model: str | None, url: str | None) -> None:
    """Raise ConfigError if what was chosen does not go together."""
    if TASKS[task].compares and trainer in ONE_BY_ONE:
        raise ConfigError(
            f"--task {task} compares the responses to a prompt, and {trainer} hands them over one by one: give --task open or rubric"
        )
    for option, value, of in (("--model", model, ("vllm", "ray", "http")), ("--url", url, ("http",))):
        if value is not None and judge not in of:
            raise ConfigError(f"{option} is of a judge: give --judge {' or '.join(of)}, too")


def _tell_next(
    path: Path, grade: str, task: str, judge: str, trainer: str, server: Mapping[str, str | None]
) -> None:
    """Say how to start the judge, and how to grade or train."""
    if judge in SERVE:
        say(f"\nstart the judge:\n{SERVE[judge].format_map(server)}")
    if trainer == "none":
        say(f"\ngrade:\n{grade}")
        return
    shown = path if trainer == "trl" else f"$PWD/{path}" if not path.is_absolute() else path
    group = (
        " --group 8    # as many responses as your trainer makes to a prompt" if TASKS[task].compares else ""
    )
    say(f"\ntrain:\n{NEXT[trainer].format(path=shown, group=group)}")


def _write_rubric(path: Path, criteria: str) -> None:
    """Write a rubric to begin with; one that is there is the user's own work. *criteria*: as in `reward_yaml`."""
    from judgekit.ledger.output_files import whole_file

    if path.exists():
        say(f"{path} is there already: its criteria are the ones that are judged")
        return
    with whole_file(path) as file:
        file.write((_ROWS_CRITERIA.format(criteria=criteria) if criteria else "") + RUBRIC)
    say(f"wrote {path}: {'each row brings its criteria' if criteria else 'put your criteria into it'}")


def _chosen_task(task: str | None, looked: Looked | None, data: Path | None) -> str:
    """Return the kind of task: as given, else as asked, where the user's rows make a guess."""
    guessed = looked.task if looked is not None and task is None else "answer"
    if looked is not None:
        for line in _told(looked, data, guessed if task is None else ""):
            say(line)
    return _chosen("--task", "What are the rollouts?", task, {k: t.about for k, t in TASKS.items()}, guessed)


def _chosen_judge(judge: str | None, task: str) -> str:
    """Return the kind of judge: as given, else as asked. Raises ConfigError for none where the task needs one."""
    if needs_judge(task) and judge == "none":
        raise ConfigError(
            f"--task {task} needs a judge: by rules alone an empty response would be worth most; give --judge "
            f"{' or '.join(list(JUDGES)[1:])}"
        )
    judges = {k: about for k, about in JUDGES.items() if k != "none" or not needs_judge(task)}
    return _chosen("--judge", "Which judge?", judge, judges, next(iter(judges)))


def _write(path: Path, text: str) -> None:
    """Write the reward file, and beside it the schema that editors check it by, unless there is one."""
    from judgekit.cli.json_schema import reward_schema
    from judgekit.ledger.output_files import whole_file

    with whole_file(path) as file:
        file.write(f"# yaml-language-server: $schema={SCHEMA}\n{text}")
    if not (schema := path.parent / SCHEMA).exists():
        with whole_file(schema) as file:
            file.write(json.dumps(reward_schema(), indent=1, ensure_ascii=False) + "\n")


def _told(looked: Looked, data: Path | None, guessed: str) -> Iterator[str]:
    """Yield what was found in the user's rows, a line each."""
    yield f"{data}: {many(looked.rows, 'row')} looked at"
    for field in ("prompt", "response", "ground_truth", "messages", "group"):
        values = [value for r in looked.rollouts if given(value := getattr(r, field))]
        if values:
            yield f"  {field:<13}{one_line(looked.column(field))}: {_kind(values)}"
    if not looked.answered:
        yield "  there are no responses: these are prompts, for a trainer"
    if guessed:
        yield f"  task         {guessed}: {looked.why}"


def _kind(values: Sequence[Any]) -> str:
    kinds = {
        "text"
        if isinstance(v, str)
        else "a number"
        if isinstance(v, int | float)
        else "a list"
        if isinstance(v, list | tuple)
        else "an object"
        for v in values
    }
    return " or ".join(sorted(kinds))


def needs_judge(task: str) -> bool:
    """Whether no rule tells a good response from an empty one."""
    return not TASKS[task].rule


def reward_yaml(
    task: str,
    judge: str,
    model: str,
    url: str,
    trainer: str = "none",
    criteria: str = "",
    options: str = "",
) -> str:
    """The file's text: a key of `TASKS`, a key of `JUDGES` (not "none" if the task needs one), a judge's model and address, a key of `NEXT`.

    *criteria*: where rows have a rubric of their own, as a dotted path; "": nowhere. *options*: the settings of
    `multiple_choice` for the rows; "": they are at `extra.options`.
    """
    chosen = TASKS[task]
    weights = dict(chosen.weights)
    lines = [
        f"# The reward of {chosen.about}.",
        "# judgekit graders lists what else there is; docs/rewards.md explains the tree and the settings.",
        "graders:",
        chosen.graders.rstrip("\n").replace("options: extra.options", options or "options: extra.options"),
    ]
    if judge != "none":
        asked = chosen.judge
        if task == "rubric" and criteria:
            asked = asked.replace("}", f", criteria_field: {criteria}}}")
        lines.append(f"  # {chosen.judge_says}\n  judge: {asked}")
        weights = {name: round(0.6 * weight, 3) for name, weight in weights.items()} | {"judge": 0.4}
        engine = {"vllm": "vllm", "ray": "ray", "http": "openai"}[judge]
        where = {
            "vllm": f"model: {_quoted(model)}",
            "ray": "name: judge",
            "http": f"url: {_quoted(url)}, model: {_quoted(model)}",
        }[judge]
        lines += ["judges:", f"  main: {{engine: {engine}, {where}}}"]
    weighted = f"{{weighted: {{{', '.join(f'{name}: {weight:g}' for name, weight in weights.items())}}}}}"
    lines.append("reward:")
    if needs_judge(task):
        lines += [
            "  # a long response loses a share of its score, and a short one gains none",
            "  product: [judge, brief]",
        ]
    elif judge != "none":
        lines += [
            "  # the judge is asked only where the rule is content",
            f'  gate: {{if: "{chosen.rule}", then: {weighted}, otherwise: 0}}',
        ]
    else:
        lines += [
            "  # what is not content pays for right rollouts only, or empty ones would be paid",
            f'  gate: {{if: "{chosen.rule}", then: {weighted}, otherwise: 0}}',
        ]
    lines += [
        "runner:",
        f"  # {NO_EXCLUSION.get(trainer, EXCLUSION)}",
        f"  missing_reward: {'raise' if trainer in NO_EXCLUSION else 'exclude'}",
        "  # stop when more of a grader's evaluations than this fail in a step",
        "  max_failure_rate: 0.2",
        "# every grade, with prompts and responses: judgekit view ledger.jsonl",
        "ledger: {path: ledger.jsonl, texts: true}",
    ]
    return "\n".join(lines) + "\n"


def _chosen(option: str, question: str, value: str | None, choices: dict[str, str], default: str) -> str:
    if value is None:
        value = default
        if sys.stdin is not None and sys.stdin.isatty():
            say(question)
            for name, about in choices.items():
                say(f"  {name:<8}{about}".rstrip())
            value = _asked("", default)
    if value not in choices:
        raise ConfigError(f"{option}: there is no {value!r}; there are {', '.join(choices)}")
    return value


def _asked(question: str, default: str) -> str:
    """What a person types; the default where there is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        return default
    answer: str = typer.prompt(question or "Choose", default=default)
    return answer.strip()


def _quoted(text: str) -> str:
    """As a YAML string in double quotes, which are JSON's."""
    return json.dumps(text)
