"""What a template from a stranger may cost: it ends, and memory stays bounded."""

from __future__ import annotations

import pytest

from linnet.text import ChatTemplateError, render_chat, sandbox

MESSAGES = [{"role": "user", "content": "hello" * 100}]
BIG = "{% set big = 'x' * 4000000 %}"
STORE = "{% set ns = namespace(s='x', l=[1]) %}"


def doubling(step: str) -> str:
    return STORE + "{% for i in range(99) %}" + step + "{% endfor %}{{ ns.l }}"


TOO_LARGE = {
    "joined": doubling("{% set ns.s = ns.s ~ ns.s %}"),
    "added": doubling("{% set ns.s = ns.s + ns.s %}"),
    "lists added": doubling("{% set ns.l = ns.l + ns.l %}"),
    "captured": doubling("{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = t %}"),
    "a list within itself": doubling("{% set ns.l = [ns.l, ns.l] %}"),
    "a tuple within itself": doubling("{% set ns.l = (ns.l, ns.l) %}"),
    "a dictionary within itself": doubling("{% set ns.l = {'a': ns.l, 'b': ns.l} %}"),
    "dictionaries made by call": doubling("{% set ns.l = dict(a=ns.l, b=ns.l) %}"),
    "repeated": "{{ 'x' * 100000000000 }}",
    "a list repeated": "{{ 100000000000 * [1] }}",
    "a power": "{{ 10 ** (10 ** 10) }}",
    "center": "{{ 'x' | center(100000000000) }}",
    "ljust": "{{ 'x'.ljust(100000000000) }}",
    "zfill": "{{ 'x'.zfill(100000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(100000000000) }}",
    "to_bytes": "{{ (5).to_bytes(100000000000) }}",
    "indent": "{{ 'x\ny' | indent(width=100000000000) }}",
    "tojson": "{{ messages | tojson(indent=100000000000) }}",
    "round": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "batch": "{{ messages | batch(100000000000, 'x') | list }}",
    "slice": "{{ messages | slice(100000000000) | list }}",
    "a width": "{{ '%100000000000d' % 1 }}",
    "many widths": "{{ ('%9999d' * 100000) % 1 }}",
    "a width given": "{{ '%*d' % (100000000000, 1) }}",
    "a width of format": "{{ '{:>100000000000}'.format(1) }}",
    "a width given to format": "{{ '{:>{}}'.format(1, 100000000000) }}",
    "the filter format": "{{ '%100000000000d' | format(1) }}",
    "format, many times": BIG + "{{ ('{0}' * 4000).format(big) }}",
    "replace": BIG + "{{ big.replace('x', big) }}",
    "the filter replace": BIG + "{{ big | replace('x', big) }}",
    "join": BIG + "{{ big.join('a' * 4000000) }}",
    "the filter join": BIG + "{{ ('a' * 4000000) | join(big) }}",
    "translate": BIG + "{{ big.translate({120: big}) }}",
    "wordwrap": BIG + "{{ big | wordwrap(1, wrapstring=big) }}",
    "mapped": BIG + "{{ ([big] * 1000) | map('upper') | join }}",
    "mapped attributes": "{{ ''.join((messages * 90000) | map(attribute='content')) }}",
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_value_has_a_size(name: str) -> None:
    with pytest.raises(ChatTemplateError, match="makes a value of over 16777216 characters"):
        render_chat(TOO_LARGE[name], MESSAGES)


TOO_LONG = {
    "loops": "{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
    "macros": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "a number's powers": (
        "{% set ns = namespace(n=7) %}{% for i in r %}{% set ns.n = ns.n * ns.n %}{% endfor %}"
    ),
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_template_has_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.2)
    with pytest.raises(ChatTemplateError, match=r"runs for over 0.2 s|makes a value of over"):
        render_chat("{% set r = range(10000) %}" + TOO_LONG[name], MESSAGES)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for i in range(1000000) %}x{% endfor %}", "counts beyond"),
        ("{{ 'x' * 16000000 }}" * 2, "gives over 16777216 characters"),
        (BIG + "{% set a = big | upper %}" * 99, "makes over 268435456 characters"),
        (
            "{% set t %}{% for i in range(10000) %}" + "y" * 99999 + "{% endfor %}{% endset %}",
            "makes over 268435456 characters",
        ),
        ("{{ namespace(a=1) }}", "writes a namespace out"),
        ("{{ lipsum() }}", "undefined"),
        ("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recursion"),
        ("{% block b %}{{ self.b() }}{% endblock %}", "recursion"),
        ("{{ " + "(" * 30000 + "1" + ")" * 30000 + " }}", "recursion"),
        ("{% for a in b %}" * 300 + "{% endfor %}" * 300, "recursion|nested"),
    ],
)
def test_other_ways_to_be_too_much(template: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        render_chat(template, MESSAGES)


def test_a_long_conversation_is_no_bother() -> None:
    template = (
        "{% set ns = namespace(all='') %}{% for m in messages %}"
        "{% set ns.all = ns.all ~ m.content|trim|replace('o', '0') ~ m|tojson(indent=2) %}"
        "{% endfor %}{{ ns.all }}"
    )
    messages = [{"role": "user", "content": "hello there " * 100}] * 300
    assert len(render_chat(template, messages)) > 700_000


def test_a_macro_may_take_what_the_sandbox_calls_its_own() -> None:
    template = "{% macro f(context, obj) %}{{ context }}{{ obj }}{% endmacro %}"
    assert render_chat(template + "{{ f(context=1, obj=2) }}", MESSAGES) == "12"
