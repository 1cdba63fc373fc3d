"""`judgekit init`: a first reward.yaml, by questions or by options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from judgekit.cli.console import say
from judgekit.errors import ConfigError


class Task(NamedTuple):
    """What the rollouts are, and the rules for them."""

    about: str
    graders: str
    weights: dict[str, float]
    """Of the rules alone; a judge takes a part."""
    rule: str = ""
    """Condition that a rollout must fulfil before a judge is asked; empty: there must be a judge, and it is always asked."""
    template: str = "default"


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
        template="open",
    ),
    "open": Task(
        "a request without one right answer",
        """\
  brief: {use: length, soft_max: 4000, hard_max: 8000}
""",
        {},
        template="open",
    ),
}
SYNONYMS = {
    "math": "maths", "mathematics": "maths", "qa": "answer", "answers": "answer", "coding": "code", "programming": "code",
    "tool": "tools", "agent": "tools", "trajectories": "tools", "ifeval": "instructions", "chat": "open",
    "open-ended": "open", "writing": "open",
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
}


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("reward.yaml"),
    trainer: Annotated[
        str | None, typer.Option("--from", help="The trainer that calls it: verl, skyrl, trl, or none.")
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
    from judgekit.ledger.files import check_targets, whole_file

    check_targets([path], inputs=[], force=force)
    trainer = _chosen("--from", "Which trainer calls it?", trainer, dict.fromkeys(NEXT, ""), "none")
    task = SYNONYMS.get(task or "", task)
    task = _chosen("--task", "What are the rollouts?", task, {k: t.about for k, t in TASKS.items()}, "answer")
    if needs_judge(task) and judge == "none":
        raise ConfigError(
            f"--task {task} needs a judge: by rules alone an empty response would be worth most; give --judge "
            f"{' or '.join(list(JUDGES)[1:])}"
        )
    judges = {k: about for k, about in JUDGES.items() if k != "none" or not needs_judge(task)}
    judge = _chosen("--judge", "Which judge?", judge, judges, next(iter(judges)))
    for option, value, of in (("--model", model, ("vllm", "ray", "http")), ("--url", url, ("http",))):
        if value is not None and judge not in of:
            raise ConfigError(f"{option} is of a judge: give --judge {' or '.join(of)}, too")
    if judge != "none":
        model = model or _asked("The judge's model?", "Qwen/Qwen2.5-1.5B-Instruct")
    if judge == "http":
        url = url or _asked("The server's address?", "http://127.0.0.1:8000/v1")
    with whole_file(path) as file:
        file.write(reward_yaml(task, judge, model or "", url or ""))
    say(f"wrote {path}; check it with: judgekit lint {path}")
    if judge in SERVE:
        say(f"\nstart the judge:\n{SERVE[judge].format(model=model, url=url)}")
    shown = path if trainer in ("none", "trl") else f"$PWD/{path}" if not path.is_absolute() else path
    say(f"\n{'grade' if trainer == 'none' else 'train'}:\n{NEXT[trainer].format(path=shown)}")


def needs_judge(task: str) -> bool:
    """Whether no rule tells a good response from an empty one."""
    return not TASKS[task].rule


def reward_yaml(task: str, judge: str, model: str, url: str) -> str:
    """The file's text: a key of `TASKS`, a key of `JUDGES` (not "none" if the task needs one), and a judge's model and address."""
    chosen = TASKS[task]
    weights = dict(chosen.weights)
    lines = [
        f"# The reward of {chosen.about}.",
        "# judgekit graders lists what else there is; docs/rewards.md explains the tree and the settings.",
        "graders:",
        chosen.graders.rstrip("\n"),
    ]
    if judge != "none":
        template = "" if chosen.template == "default" else f", template: {chosen.template}"
        lines.append(
            f"  # the score is read from the probabilities of one token\n  judge: {{use: judge, judge: main{template}}}"
        )
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
        "  # a rollout whose reward is missing leaves its group's statistics and gets no gradient",
        "  missing_reward: exclude",
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
    import json

    return json.dumps(text)
