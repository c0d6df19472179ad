"""The tree of blocks that generated source works on."""

from __future__ import annotations

from collections.abc import Mapping

import torch

DTYPES: dict[str, torch.dtype] = {
    "bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u8": torch.uint8, "u16": torch.int64, "u32": torch.int64,
    "u64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
    "f64": torch.float64,
}  # fmt: skip
"""The torch dtype that holds each element type, as generated source has it."""


class Block:
    """Holds the weights, states and children of one block."""


def build_tree(tensors: Mapping[str, torch.Tensor]) -> Block:
    """A tree from tensors by attribute path; a number in a path is a place in a list."""
    root = Block()
    for path, tensor in tensors.items():
        *parents, name = path.split(".")
        here: Block | list = root
        for part, following in zip(parents, [*parents[1:], name], strict=False):
            new = list if following.isdigit() else Block
            if isinstance(here, list):
                here.extend(new() for _ in range(len(here), int(part) + 1))
                here = here[int(part)]
            else:
                here = vars(here).setdefault(part, new())
        setattr(here, name, tensor)
    return root


def attribute(block: Block, path: str) -> torch.Tensor:
    """The tensor at a path below a block."""
    found: object = block
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else getattr(found, part)
    assert isinstance(found, torch.Tensor)
    return found
