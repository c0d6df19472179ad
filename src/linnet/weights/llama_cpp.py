"""llama.cpp's names for a model's tensors, and what they are called in Transformers.

Facts from llama.cpp's converter (`convert_hf_to_gguf.py`, `gguf-py/gguf/tensor_mapping.py`): it
renames tensors, and for the llama architecture reorders the rows of the query and key projections
so that each head's rotary pairs stand side by side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linnet.weights.checkpoint import CheckpointError, quoted

_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class Architecture:
    """How llama.cpp has a family of models: the names inside a layer, and whether query and key
    rows are reordered."""

    layer: Mapping[str, str]
    reorders: bool = False


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(_LAYER, reorders=True),  # Llama, Mistral, SmolLM2, TinyLlama
    "qwen2": Architecture(_LAYER),
    "qwen3": Architecture(_LAYER | _QK_NORMS),
}
"""By `general.architecture`."""

COMPUTED = frozenset({"rope_freqs", "attn_rot_embd"})
"""Rotary tables, which a model computes itself."""


def transformers_names(
    metadata: Mapping[str, object], stored: Sequence[str], where: str
) -> dict[str, tuple[str, int | None]]:
    """For each tensor's public name, its stored name, and its heads if its rows were reordered.

    An architecture that is not known keeps llama.cpp's own names. Raises `CheckpointError` where
    the metadata gives no number of heads, or two tensors have one public name.
    """
    architecture = ARCHITECTURES.get(str(metadata.get("general.architecture")))
    if architecture is None:
        return {name: (name, None) for name in stored}
    heads: dict[str, int] = {}
    if architecture.reorders:
        heads["attn_q"] = _heads(metadata, "llama.attention.head_count", where)
        heads["attn_k"] = _heads(metadata, "llama.attention.head_count_kv", where, heads["attn_q"])
    names: dict[str, tuple[str, int | None]] = {}
    for name in stored:
        layer, part, leaf = match.groups() if (match := _NAME.fullmatch(name)) else (None, "", "")
        if part in COMPUTED:
            continue
        public = name
        if layer is None and part in _TOP:
            public = f"{_TOP[part]}.{leaf}"
        elif layer is not None and part in architecture.layer:
            public = f"model.layers.{layer}.{architecture.layer[part]}.{leaf}"
        if public in names:
            raise CheckpointError(
                f"{where}: {quoted(names[public][0])} and {quoted(name)} are both {quoted(public)}"
            )
        names[public] = (name, heads.get(part) if layer is not None else None)
    return names


def _heads(metadata: Mapping[str, object], key: str, where: str, default: int | None = None) -> int:
    value = metadata.get(key, default)
    if type(value) is not int or not 0 < value < 1 << 16:
        raise CheckpointError(
            f"{where}: `{key}` must be a number of heads, found {str(value)[:40]}"
        )
    return value
