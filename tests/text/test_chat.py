"""Chat templates: as Transformers renders them, from plain data, with one kind of error."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.text import ChatTemplateError, Tokenizer, render_chat
from linnet.text.chat import MAX_TEMPLATE

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'Hi <there> & "you" {{ 1 }}'},
    # Transformers adds the first of these two from the other.
    {"thinking": "hm", "role": "assistant", "content": "Hello! 👋🏽", "reasoning_content": "hm"},
    {"role": "user", "content": " Bye\n"},
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"a": ["é", 1.5, None]}}}]
# The shapes that well-known models' templates have, in words of our own.
TEMPLATES = {
    "chatml": (
        "{% for m in messages %}\n<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "brackets, the system prompt within the first turn": (
        "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
        "{% set turns = messages[1:] %}{% else %}{% set turns = messages %}{% endif %}"
        "{{ bos_token }}{% for m in turns %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% if m.role == 'user' %}[INST] {% if loop.first and system is defined %}<<SYS>>\n"
        "{{ system }}\n<</SYS>>\n\n{% endif %}{{ m.content | trim }} [/INST]"
        "{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
    ),
    "headers, tools, a date": (
        "{{- bos_token }}\n{%- if not date_string is defined %}\n"
        "    {%- set date_string = strftime_now('%Y') if strftime_now is defined else '-' %}\n"
        "{%- endif %}\n{%- if tools is not none %}{{- 'Tools: ' }}\n"
        "    {%- for t in tools %}\n        {{- t | tojson(indent=4) }}\n        {{- '\\n\\n' }}\n"
        "    {%- endfor %}\n{%- endif %}\n{%- for message in messages %}\n"
        "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
        " + message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|start_header_id|>assistant' }}\n{%- endif %}"
    ),
    "other names of roles, a namespace": (
        "{% set ns = namespace(last='none', count=0) %}{% for m in messages %}"
        "{% if m.role == 'system' %}{% continue %}{% endif %}{% set ns.count = ns.count + 1 %}"
        "{% set ns.last = 'model' if m.role == 'assistant' else m.role %}"
        "<start_of_turn>{{ ns.last }}\n{{ m.content | trim }}<end_of_turn>\n"
        "{% if ns.count >= 3 %}{% break %}{% endif %}{% endfor %}{{ ns.last ~ ns.count }}"
    ),
    "macros, reversed turns, thinking": (
        "{%- macro turn(m, last=false) -%}\n<|{{ m.role }}|>{%- if m.reasoning_content is defined"
        " and m.reasoning_content is not none %}<think>{{ m.reasoning_content }}</think>"
        "{% endif %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}{%- endmacro -%}\n"
        "{%- for m in messages[::-1] %}{{ turn(m, last=loop.last) }}{% endfor %}"
        "{{ messages | map(attribute='role') | join('+') | upper }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    ),
    "what is trained on": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
    ),
    "blocks and loop controls": (
        "{% for m in messages %}\n    {% if m.role == 'system' %}\n        {% continue %}\n"
        "    {% endif %}\n    {{ loop.index }}: {{ m | tojson }}\n{% endfor %}"
    ),
    "captured text, filters, calls, formats": (
        "{% set t %}{% for m in messages %}{{ m.content|replace('i','!') }}{% endfor %}{% endset %}"
        "{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}{{ t }}{% endcall %}"
        "{% filter upper %}x{{ t[:3] }}{% endfilter %}{{ '%s-%03d' % ('a', 7) }}"
        "{{ '{}:{}'.format(1, [1, ('a', none)]) }}{{ {'k': [1, 2]} }}{{ 3 * 'ab' ~ 2 ** 5 }}"
        "{{ messages | batch(2) | list | length }}{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}"
        "{% endfor %}{{ range(3) | list }}{{ tools is none }}{{ documents }}{{ nothing }}"
    ),
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["", "tools"])
def test_renders_as_transformers_does(name: str, add: bool, tools: list[dict] | None) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    more: dict[str, Any] = {"enable_thinking": False, "tools": tools}
    (expected,), _ = utils.render_jinja_template(
        [MESSAGES],
        chat_template=TEMPLATES[name],
        add_generation_prompt=add,
        **more,
        **SPECIAL,
    )
    found = render_chat(
        TEMPLATES[name], MESSAGES, add_generation_prompt=add, special_tokens=SPECIAL, **more
    )
    assert found == expected


@pytest.mark.weights
@pytest.mark.parametrize("count", range(1, 5))
@pytest.mark.parametrize("add", [True, False])
def test_the_real_template_is_rendered_as_transformers_does(
    smollm2: Tokenizer, transformers_smollm2, count: int, add: bool
) -> None:
    template = smollm2.chat_template
    assert template is not None
    for messages in (MESSAGES[:count], MESSAGES[1 : count + 1]):
        special = smollm2.special_tokens
        found = render_chat(template, messages, add_generation_prompt=add, special_tokens=special)
        assert found == transformers_smollm2.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=add
        )
        expected = transformers_smollm2.apply_chat_template(messages, add_generation_prompt=add)
        assert smollm2.encode(found, add_special=False) == expected["input_ids"]


def test_what_is_none_is_left_out() -> None:
    template = "{{ messages[0].content is defined }}"
    assert render_chat(template, [{"role": "assistant", "content": None}]) == "False"


def test_a_template_can_refuse() -> None:
    with pytest.raises(ChatTemplateError, match="refuses the conversation: roles must alternate"):
        render_chat("{{ raise_exception('roles must alternate') }}", MESSAGES)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "not safe|unsafe"),
        ("{{ messages[0].update(role='x') }}", "not safe|unsafe"),
        ("{% for", "the chat template failed"),
        ("{% include 'file' %}", "the chat template failed"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[9].content }}", "has no element 9"),
        ("{{ nothing.at.all }}", "undefined"),
        ("{{ messages | tojson(sort_keys='x', separators=1) }}", "the chat template failed"),
        ("{% generation %}", "the chat template failed"),
        ("x" * (MAX_TEMPLATE + 1), "is longer than"),
    ],
)
def test_a_bad_template_is_one_error(template: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        render_chat(template, MESSAGES)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"content": "x"}], "message 0 has no `role`"),
        (["x"], "message 0 has no `role`"),
        (
            [{"role": "user", "content": object()}],
            "message 0 holds a object: a chat template takes",
        ),
    ],
)
def test_messages_are_plain_data(messages: list[Any], message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        render_chat("{{ messages }}", messages)
    with pytest.raises(ChatTemplateError, match="`tools` holds a function"):
        render_chat("", MESSAGES, tools=[render_chat])
