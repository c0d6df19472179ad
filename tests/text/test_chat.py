"""Chat templates: as Transformers renders them, in a sandbox, within limits."""

from __future__ import annotations

import pytest

from linnet.text import ChatTemplateError, render_chat
from linnet.text.chat import MAX_TEMPLATE

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <there> & \"you\""},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Bye"},
]
TEMPLATES = {
    "chatml": (
        "{% for m in messages %}\n<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "llama2": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] "
        "{{ m.content | trim }} [/INST]{% elif m.role == 'assistant' %} {{ m.content }} "
        "{{ eos_token }}{% endif %}{% endfor %}"
    ),
    "loop controls and blocks": (
        "{% for m in messages %}\n    {% if m.role == 'system' %}\n        {% continue %}\n"
        "    {% endif %}\n    {{ loop.index }}: {{ m | tojson }}\n{% endfor %}"
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("add", [True, False])
def test_renders_as_transformers_does(name: str, add: bool) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    (expected,), _ = utils.render_jinja_template(
        [MESSAGES], chat_template=TEMPLATES[name], add_generation_prompt=add, **special
    )
    found = render_chat(
        TEMPLATES[name], MESSAGES, add_generation_prompt=add, special_tokens=special
    )
    assert found == expected


def test_a_template_can_refuse() -> None:
    with pytest.raises(ChatTemplateError, match="refuses the conversation: roles must alternate"):
        render_chat("{{ raise_exception('roles must alternate') }}", MESSAGES)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "not safe|unsafe"),
        ("{% for", "the chat template"),
        ("{{ 1 / 0 }}", "failed"),
        ("{{ messages[9].content }}", "the chat template"),
        ("{{ nothing.at.all }}", "undefined"),
        ("{% for i in range(1000000) %}x{% endfor %}", "counts beyond"),
        ("{{ 'x' * 100000000 }}", "gives over"),
        ("x" * (MAX_TEMPLATE + 1), "is longer than"),
    ],
)
def test_a_bad_template_is_one_error(template: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        render_chat(template, MESSAGES)


def test_messages_have_roles() -> None:
    with pytest.raises(ChatTemplateError, match="has a `role`"):
        render_chat("", [{"content": "hi"}])
