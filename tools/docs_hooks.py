"""What the documentation site has besides docs/: the adapters' pages, and references made from the code.

mkdocs calls these hooks (`make docs`). Pages under docs/ stay readable in the repository: their links to other folders lead
to pages here where there is one, and become plain text elsewhere.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import griffe
import typer
from mkdocs.structure.files import File, Files

from judgekit.cli import app

ROOT = Path(__file__).resolve().parent.parent
ADAPTERS = {f"adapters/{name}/README.md": f"hosts/{name}.md" for name in ("verl", "skyrl", "trl")}
"""Pages of the site that lie elsewhere in the repository."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    for source, page in ADAPTERS.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text, source, page)))
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    files.append(File.generated(config, "reference/reward-yaml.md", content=REWARD_YAML))
    for page, content in api().items():
        files.append(File.generated(config, f"reference/api/{page}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links that leave docs/ to the site's own pages."""
    source = page.file.src_uri
    return markdown if page.file.generated_by else _moved(markdown, f"docs/{source}", source)


def _moved(text: str, source: str, page: str) -> str:
    """The text of repository file *source* as site page *page*."""

    def link(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or ":" in path:
            return match[0]
        real = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        inside = ADAPTERS.get(real) or (real.removeprefix("docs/") if real.startswith("docs/") else None)
        if inside is None:
            return f"{label} (`{real}`)"
        there = posixpath.relpath(inside, posixpath.dirname(page) or ".")
        return f"{picture}[{label}]({there}{'#' + anchor if anchor else ''})"

    # links only: not what stands in code
    parts = re.split(r"(```.*?```|`[^`\n]*`)", text, flags=re.DOTALL)
    whole = "".join(part if i % 2 else part.replace("](", "](\x00") for i, part in enumerate(parts))
    return _LINK.sub(
        lambda m: link(re.match(_LINK, m[0].replace("\x00", ""))) if "\x00" in m[0] else m[0],  # type: ignore[arg-type]
        whole,
    ).replace("\x00", "")


def commands() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    lines = ["# Commands", "", (app.info.epilog or ""), ""]
    for name, command in group.commands.items():
        context = command.context_class(command, info_name=f"judgekit {name}")
        usage = command.get_usage(context).removeprefix("Usage: ")
        lines += [f"## {name}", "", f"```text\n{usage}\n```", "", _prose(command.help or ""), ""]
        rows = [record for param in command.get_params(context) if (record := _record(param, context))]
        if rows:
            lines += ["| | |", "|---|---|", *(f"| `{flag}` | {_cell(about)} |" for flag, about in rows), ""]
    return "\n".join(lines)


def _record(param: Any, context: Any) -> tuple[str, str] | None:
    if param.param_type_name == "argument":
        return param.name.upper(), getattr(param, "help", None) or ""
    found: tuple[str, str] | None = param.get_help_record(context)
    return found


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("[", "\\[")


REWARD_YAML = """# reward.yaml

```yaml
graders:            # a name of yours for each: what it is and its parameters
  correct: {use: final_answer}
  judge: {use: judge, judge: local}
judges:             # what graders ask, by a name of yours
  local: {engine: vllm, model: Qwen/Qwen2.5-1.5B-Instruct}
reward:             # how the grades become one number
  weighted: {correct: 0.6, judge: 0.4}
runner:             # limits, and what a missing reward becomes
  max_concurrency: 64
ledger: {path: ledger.jsonl, texts: true}
# audit: {grader: careful, watch: judge}    who checks the judge; rewards do not depend on it
```

Paths are relative to the file. `${NAME}` and `${NAME:-default}` read the environment. Nothing is converted or guessed: a
misspelt name is an error with the nearest right one. `judgekit lint FILE` checks a file without starting a judge, and
`judgekit schema` prints a JSON Schema for editors.

## graders

`use` names a grader of [the list](../graders.md), or `module:name` one of yours; `judgekit graders NAME` shows the parameters
of one. The module may lie beside the file. Every grader takes `fields` ([fields of other names](../graders.md)) and `trust`
([is the judge right?](../trust.md)).

## judges

`engine` is `vllm`, `ray`, `openai`, `reward_model` or `reward_model_http`; [Judges](../judges.md) has their parameters. In the
place of one judge, `{by: data_source, routes: {"math*": one, "*": another}}` chooses by a field of the rollout. All engines
take these `layers`:

::: judgekit.judges.layers.stack.LayerOptions
    options: {heading_level: 3, show_root_heading: false, show_root_toc_entry: false, show_if_no_docstring: true}

## reward

A [tree](../rewards.md#the-tree): `weighted`, `gate`, `switch`, `product`, `min`, `max`, `clip`, `fallback`, a grader's name, or
a number.

## runner

::: judgekit.run.settings.Settings
    options: {heading_level: 3, show_root_heading: false, show_root_toc_entry: false, show_if_no_docstring: true}

`retry` and a judge's retries:

::: judgekit.execution.limits.Retry
    options: {heading_level: 3, show_root_heading: false, show_root_toc_entry: false, show_if_no_docstring: true}

## ledger

::: judgekit.ledger.writer.Ledger
    options: {heading_level: 3, show_root_heading: false, show_root_toc_entry: false, members: false}

## audit

See [Audits](../audits.md).

::: judgekit.evidence.audit_settings.AuditSettings
    options: {heading_level: 3, show_root_heading: false, show_root_toc_entry: false, show_if_no_docstring: true}
"""
API: Mapping[str, Sequence[str]] = {
    "types": ["judgekit.types"],
    "reward": ["judgekit.reward.nodes"],
    "graders": ["judgekit.graders", "judgekit.graders.protocol"],
    "judges": ["judgekit.judges"],
    "config": ["judgekit.config"],
    "data": ["judgekit.data"],
    "ledger": ["judgekit.ledger.reader", "judgekit.ledger.schema"],
    "replay": ["judgekit.replay"],
    "metrics": ["judgekit.metrics"],
    "report": ["judgekit.report.warnings", "judgekit.report.marks", "judgekit.report.table"],
    "trackers": ["judgekit.trackers"],
    "trainers": ["judgekit.trainers"],
    "bridges": [
        f"judgekit.bridges.{path.stem}"
        for path in sorted((ROOT / "src/judgekit/bridges").glob("[!_]*.py"))
        if path.stem != "bridge"  # what they share
    ],
    "service": ["judgekit.service"],
    "attack": ["judgekit.attack"],
    "evidence": ["judgekit.evidence", "judgekit.evidence.certificate", "judgekit.graders.trust"],
    "testing": ["judgekit.testing", "judgekit.testing.pytest_plugin"],
    "errors": ["judgekit.errors"],
}
"""The pages of the Python API, a package each, with the modules that one imports by name. What a module exports is shown, else all that
is public in it; nothing twice."""


def api() -> dict[str, str]:
    """Return the pages of the Python API, by name; `index` has what `import judgekit` gives."""
    # read, not imported: bridges need their trainers
    package = griffe.load("judgekit", search_paths=[ROOT / "src"])
    pages: dict[str, str] = {}
    homes: dict[str, str] = {}
    for page, modules in API.items():
        lines = [f"# judgekit.{page}", ""]
        for name in modules:
            module = package[name.removeprefix("judgekit.")]
            shown = module.exports or [key for key, member in module.members.items() if not member.is_alias]
            own = {key: home for key in map(str, shown) if (home := module[key].canonical_path) not in homes}
            homes |= dict.fromkeys(own.values(), page)
            options = {"heading_level": 2, "show_root_heading": len(modules) > 1, "show_root_full_path": True}
            if module.exports:
                options["members"] = list(own)
            lines += [f"::: {name}", f"    options: {json.dumps(options)}", ""]
        pages[page] = "\n".join(lines)
    names = {
        name: package[name].canonical_path for name in map(str, package.exports) if not name.startswith("_")
    }
    lines = ["# Python API", "", "What `import judgekit` gives, and where it is described:", ""]
    for page in ("index", *API):
        found = [f"[`{name}`][{home}]" for name, home in names.items() if homes.get(home, "index") == page]
        if found:
            lines.append(
                f"- {'here' if page == 'index' else f'[judgekit.{page}]({page}.md)'}: {', '.join(found)}"
            )
    lines += ["", f"The packages: {', '.join(f'[judgekit.{page}]({page}.md)' for page in API)}.", ""]
    lines += [f"::: judgekit.{name}\n" for name, home in names.items() if home not in homes]
    pages["index"] = "\n".join(lines)
    return pages
