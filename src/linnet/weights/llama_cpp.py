"""llama.cpp's names for a model's tensors, and what they are called in Transformers.

Facts from llama.cpp's converter: it renames tensors, and for the llama architecture reorders the
rows of the query and key projections so that each head's rotary pairs stand side by side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from linnet.weights.checkpoint import CheckpointError

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
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
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
COMPUTED = ("rope_freqs.weight",)
"""Tensors that a model computes itself."""


def transformers_names(
    metadata: Mapping[str, object], stored: Sequence[str], where: str
) -> dict[str, tuple[str, int | None]]:
    """For each tensor's public name, its stored name, and its heads if its rows were reordered.

    An architecture that is not known keeps llama.cpp's own names.
    """
    if metadata.get("general.architecture") != "llama":
        return {name: (name, None) for name in stored}
    heads = _heads(metadata, "llama.attention.head_count", where)
    kv_heads = _heads(metadata, "llama.attention.head_count_kv", where, heads)
    names: dict[str, tuple[str, int | None]] = {}
    for name in stored:
        if name in COMPUTED:
            continue
        match = _BLOCK.fullmatch(name)
        if match and match[2] in _LAYER:
            public = f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"
        else:
            public = _TOP.get(name, name)
        reordered = {"attn_q": heads, "attn_k": kv_heads}.get(match[2] if match else "")
        names[public] = (name, reordered if name.endswith(".weight") else None)
    return names


def _heads(
    metadata: Mapping[str, object], key: str, where: str, default: int | None = None
) -> int:
    value = metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 16:
        raise CheckpointError(f"{where}: `{key}` must be a number of heads, found {value!r}")
    return value
