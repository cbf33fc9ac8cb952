"""Chat templates: rendered as transformers renders them, and ended where they would not end by themselves."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.serve import template_meter
from engine.serve.chat_template import TEMPLATE_ERRORS, ChatTemplate
from engine.serve.template_meter import Meter, TemplateCancelledError, TemplateLimitError
from tests.support.chat_templates import HOSTILE, USUAL

MESSAGES = [
    {"role": "system", "content": "Be brief.\nBe kind."},
    {"role": "user", "content": 'Who said "é"?  '},
    {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nNobody."},
    {"role": "user", "content": "And 2 < 3 & 4?"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def _meter(*, messages: list[dict[str, str]] = MESSAGES, **more: Any) -> Meter:
    return Meter(sum(len(message["content"]) for message in messages), **{"cancelled": lambda: False, **more})


def _theirs(source: str) -> str:
    render: Any = render_jinja_template  # its own types are wrong
    rendered, _ = render([MESSAGES], chat_template=source, add_generation_prompt=True, **TOKENS)
    return str(rendered[0])


@pytest.mark.parametrize("name", USUAL)
def test_templates_are_rendered_as_transformers_does(name: str) -> None:
    ours = ChatTemplate(USUAL[name], TOKENS)
    assert ours.render(MESSAGES, _meter()) == _theirs(USUAL[name]) != ""


@pytest.mark.slow
def test_the_demo_models_template_is_rendered_as_transformers_does(demo_model: Path) -> None:
    source = (demo_model / "chat_template.jinja").read_text("utf-8")
    assert ChatTemplate(source, TOKENS).render(MESSAGES, _meter()) == _theirs(source)


def test_usual_templates_take_a_small_part_of_what_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of all of it, with conversations short and long."""
    monkeypatch.setattr(template_meter, "ALL_TIMES", template_meter.ALL_TIMES // 8)
    for source in USUAL.values():
        for messages in (MESSAGES, MESSAGES[:1] + MESSAGES[1:3] * 300 + MESSAGES[3:]):
            ChatTemplate(source, TOKENS).render(messages, _meter(messages=messages))


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_fill_memory_or_never_end_is_ended(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_meter, "ALL_TIMES", 4)
    monkeypatch.setattr(template_meter, "SPARE_CHARS", 100_000)
    with pytest.raises(TemplateLimitError) as refused:
        ChatTemplate(HOSTILE[name], TOKENS).render(MESSAGES, _meter())
    assert refused.value.problem.kind == "chat_template_limit"
    assert refused.value.sentence.startswith("The model's chat template ")


def test_a_template_has_ten_seconds_whatever_the_speed_of_the_pc() -> None:
    clock: Iterator[float] = itertools.count(0.0, 0.5)
    with pytest.raises(TemplateLimitError, match="not come to an end after 10 s"):
        ChatTemplate(HOSTILE["loops in loops"], {}).render(MESSAGES, _meter(clock=lambda: next(clock)))


def test_a_template_ends_when_nobody_waits_for_it() -> None:
    asked = itertools.count()
    with pytest.raises(TemplateCancelledError):
        ChatTemplate(HOSTILE["loops in loops"], {}).render(MESSAGES, _meter(cancelled=lambda: next(asked) > 100))


@pytest.mark.parametrize(
    "source",
    ["{{ messages[9].content }}", "{% for %}", "{{ 1 / 0 }}", "{{ raise_exception('no') }}", "{{ x|urlize }}",
     "{% for a in [1, 1] recursive %}{{ loop([1, 1]) }}{% endfor %}", "{{ ''.__class__.__mro__ }}",
     "{% include 'x' %}", "{{ lipsum(9) }}",
     "{% for a in 'x' %}" * 40 + "{% endfor %}" * 40, "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
     " " * (1 << 18) + "{{ 1 }}", "{% if 1 %}a" + "{% elif 1 %}b" * 7000 + "{% endif %}",
     "{{ messages[0].pop('role') }}"],
    ids=lambda source: source.strip()[:30],
)  # fmt: skip
def test_what_is_wrong_with_a_template_is_an_error_that_is_known(source: str) -> None:
    with pytest.raises(TEMPLATE_ERRORS):
        ChatTemplate(source, {}).render(MESSAGES, _meter())


def test_renderings_in_several_threads_count_by_themselves() -> None:
    from concurrent.futures import ThreadPoolExecutor

    template = ChatTemplate(USUAL["thoughts"], TOKENS)
    meters = [_meter() for _ in range(16)]
    with ThreadPoolExecutor(8) as threads:
        texts = set(threads.map(lambda meter: template.render(MESSAGES, meter), meters))
    assert len(texts) == 1
    assert len({meter._left for meter in meters}) == 1
