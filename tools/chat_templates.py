"""Chat templates of our own that read or edit messages, for tests and benchmarks.

Each does what templates of public models are documented to do with a message: test for a word, replace words, split at one,
strip characters, trim white space, move the thinking. `@system`, `@user`, `@assistant` stand for what opens a turn, `@end` for what
ends one, `@begin` for what begins the prompt; `framed` puts a family's control tokens there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple


class ChatTemplate(NamedTuple):
    """A template, what it does with a message, and the words that it does it for."""

    text: str
    operations: tuple[str, ...]
    words: tuple[str, ...]
    framed: bool = True
    """Whether turns have control tokens around them; else headers of plain words."""


def _turns(content: str, before: str = "", generation: str = "{{ '@assistant' }}") -> str:
    """A template in which *content* is what becomes of `text`, a message's content."""
    return (
        f"{before}{{{{ '@begin' }}}}{{%- for m in messages %}}{{%- set text = m.content %}}"
        "{{- '@system' if m.role == 'system' else '@user' if m.role == 'user' else '@assistant' }}"
        f"{content}{{{{- '@end' }}}}{{%- endfor %}}{{%- if add_generation_prompt %}}{generation}{{%- endif %}}"
    )


_ANY = (
    "{{%- set ns = namespace(on=true) %}}{{%- for m in messages %}}{{%- if {off} %}}{{%- set ns.on = false %}}"
    "{{%- elif {on} %}}{{%- set ns.on = true %}}{{%- endif %}}{{%- endfor %}}"
)
_BY_SWITCH = "{{ '@assistant' }}{{ '' if ns.on else '(no thinking)\\n' }}"

READING: dict[str, ChatTemplate] = {
    "switches": ChatTemplate(
        _turns(
            "{{- text.replace('/no_think', '').replace('/think', '').strip() }}",
            _ANY.format(on="'/think' in m.content", off="'/no_think' in m.content"),
            _BY_SWITCH,
        ),
        ("test", "replace", "strip"),
        ("/think", "/no_think"),
    ),
    "switches of its own": ChatTemplate(
        _turns(
            "{{- text.replace('::slow', '').replace('::fast', '') }}",
            _ANY.format(on="'::slow' in m.content", off="'::fast' in m.content"),
            _BY_SWITCH,
        ),
        ("test", "replace"),
        ("::slow", "::fast"),
    ),
    "joined switch": ChatTemplate(
        _turns(
            "{{- text }}", _ANY.format(on="false", off="('%%no_' ~ 'plan%%') in m.content|lower"), _BY_SWITCH
        ),
        ("test",),
        ("%%no_plan%%", "%%NO_Plan%%"),
    ),
    "suffix": ChatTemplate(
        _turns("{{- text }}{{- '' if text.endswith('/nothink') else ' /nothink' }}"), ("test",), ("/nothink",)
    ),
    "prefix": ChatTemplate(
        _turns("{{- text[7:] if text.startswith('!direct') else text }}"), ("test",), ("!direct",)
    ),
    "removed": ChatTemplate(
        _turns("{{- text.replace('@@', '').replace('(eot)', '') | replace('~~~', '-') }}"),
        ("replace",),
        ("@@", "(eot)", "~~~"),
    ),
    "made markup": ChatTemplate(
        _turns("{{- text.replace('[img]', '(a picture)').replace('&lt;', '(') }}"),
        ("replace",),
        ("[img]", "&lt;"),
    ),
    "last part": ChatTemplate(_turns("{{- text.split('=====')[-1] }}"), ("split",), ("=====",)),
    "first part": ChatTemplate(
        _turns("{{- text.partition('(end of text)')[0] }}"), ("split",), ("(end of text)",)
    ),
    "moved thinking": ChatTemplate(
        _turns(
            "{%- if '::done' in text %}{{- '(thought: ' + text.split('::done')[0] + ')' + text.split('::done')[-1] }}"
            "{%- else %}{{- text }}{%- endif %}"
        ),
        ("test", "split", "move"),
        ("::done",),
    ),
    "dropped thinking": ChatTemplate(
        _turns(
            "{%- if '<reasoning>' in text and '</reasoning>' in text %}"
            "{{- text.split('<reasoning>')[0] + text.split('</reasoning>')[-1] }}{%- else %}{{- text }}{%- endif %}"
        ),
        ("test", "split", "move"),
        ("<reasoning>", "</reasoning>"),
    ),
    "answer of a pair": ChatTemplate(
        _turns(
            "{%- if '<answer>' in text and '</answer>' in text %}"
            "{{- text.split('<answer>')[1].split('</answer>')[0] }}{%- else %}{{- text }}{%- endif %}"
        ),
        ("test", "split"),
        ("<answer>", "</answer>"),
    ),
    "stripped characters": ChatTemplate(
        _turns("{{- text.lstrip('#').rstrip('*') }}"), ("strip",), ("####", "***")
    ),
    "stripped": ChatTemplate(
        _turns("{{- text.strip() }}{{- ' ' if '(sic)' in text }}"), ("strip", "test"), ("(sic)",)
    ),
    "trimmed": ChatTemplate(_turns("{{- text | trim }}"), ("trim",), ()),
    "trimmed and tested": ChatTemplate(
        _turns(
            "{{- text | trim }}",
            _ANY.format(on="false", off="'answer at once' in m.content | lower | trim"),
            _BY_SWITCH,
        ),
        ("trim", "test"),
        ("answer at once", "Answer AT once"),
    ),
    "headers": ChatTemplate(
        "{%- for m in messages %}{{- {'system': 'Rules: ', 'user': 'Human: ', 'assistant': 'Assistant: '}[m.role] }}"
        "{{- m.content | trim + '\n\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ 'Assistant: ' }}{%- endif %}",
        ("trim",),
        ("\n\nHuman: ", "\n\nAssistant: "),
        framed=False,
    ),
    "headers in a line": ChatTemplate(
        "{%- for m in messages %}{{- {'system': '', 'user': 'PERSON>> ', 'assistant': 'MACHINE>> '}[m.role] }}"
        "{{- m.content + ' ' }}{%- endfor %}{%- if add_generation_prompt %}{{ 'MACHINE>> ' }}{%- endif %}",
        (),
        ("PERSON>> ", " MACHINE>> "),
        framed=False,
    ),
    "words on lines": ChatTemplate(
        "{%- for m in messages %}{{- m.role + '\n' + m.content + '\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ 'assistant\n' }}{%- endif %}",
        (),
        ("\nuser\n", "\nassistant\n"),
        framed=False,
    ),
}
"""By what they do."""

OPERATIONS = ("test", "replace", "split", "strip", "trim", "move")

CHATML = {
    "@begin": "",
    "@system": "<|im_start|>system\\n",
    "@user": "<|im_start|>user\\n",
    "@assistant": "<|im_start|>assistant\\n",
    "@end": "<|im_end|>\\n",
}


def framed(template: str, frame: Mapping[str, str] = CHATML) -> str:
    """Return *template* with a family's control tokens."""
    for name, text in frame.items():
        template = template.replace(name, text)
    return template


def rendered(template: str, messages: list[dict[str, Any]], **variables: Any) -> str:
    """Render a template as transformers does."""
    return str(_compiled(template).render(messages=messages, **variables))


@lru_cache(maxsize=64)
def _compiled(template: str) -> Any:
    from jinja2 import Environment

    made = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    return made.from_string(template)
