"""The cards that ship: each has its model's shape, and a checkpoint's tensor for each weight."""

from __future__ import annotations

import json
import math
import re

import pytest

from linnet import nest
from linnet.check import check_file
from linnet.dtypes import DType
from linnet.ir.instantiate import BlockInstance, instantiate, parameters

PARAMETERS = {
    "smollm2-135m-instruct": 134_515_008,
    "smollm2-1.7b-instruct": 1_711_376_384,
    "tinyllama-1.1b-chat": 1_100_048_384,
}
ENTRIES = {
    *("forward", "next_token", "prefill", "decode", "prefill_slots", "prefill_packed"),
    *("decode_rows", "generate", "generate_until", "sample"),
    *("decode_first", "prefill_slot", "copy_row"),
}


def instance(card: nest.Card) -> BlockInstance:
    tied = "tied-head" in card.tags

    def present(path: str) -> bool:
        return not path.endswith(".bias") and not (tied and path.startswith("lm_head"))

    program = check_file(card.source).require()
    return instantiate(program, card.root, card.generics, present)


def test_the_cards_are_these() -> None:
    assert set(PARAMETERS) <= set(nest.names())


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_card_has_its_models_shape(name: str) -> None:
    card = nest.find(name)
    weights = [spec for spec in parameters(instance(card)) if spec.kind != "state"]
    assert sum(math.prod(spec.shape) for spec in weights) == PARAMETERS[name]
    assert {spec.dtype for spec in weights} == {card.dtype} == {DType.BF16}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_tensor_is_bound_to_each_weight(name: str) -> None:
    card = nest.find(name)
    assert card.bindings is not None
    bindings = json.loads(card.bindings.read_text(encoding="utf-8"))
    assert bindings["format"] == 1
    bound = {
        pattern.replace("{i}", str(i))
        for pattern in bindings["bindings"]
        for i in range(card.generics["Layers"])
    }
    paths = {spec.path for spec in parameters(instance(card)) if spec.kind != "state"}
    assert paths <= bound
    assert {re.sub(r"\d+", "{i}", path) for path in paths} >= bindings["bindings"].keys() - {
        "lm_head.weight"
    }


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_card_has_every_entry_of_a_decoder(name: str) -> None:
    card = nest.find(name)
    functions = check_file(card.source).require().functions.values()
    found = {f.name for f in functions if f.kind == "entry" and (f.block or "").endswith(card.root)}
    assert found == ENTRIES
