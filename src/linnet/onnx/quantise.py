"""Which weights of a model are held in blocks, and what their blocks are."""

from __future__ import annotations

import numpy as np

from linnet.dtypes import DType
from linnet.emit.bodies import INLINE, Places, expand, steps
from linnet.inputs import declared_inputs
from linnet.ir.instantiate import BlockInstance, ParameterSpec, bind_entry, entries
from linnet.ir.join import LINEAR
from linnet.ir.lower import lower
from linnet.loading import Loading
from linnet.onnx.packed import BITS, BLOCK, CARRIED, Packed, carry, quantise
from linnet.weights.bindings import BindingsError
from linnet.weights.floats import NUMPY, from_bf16
from linnet.weights.gguf import GgufCheckpoint


def pack_weights(loading: Loading, quantize: str, symmetric: bool) -> dict[str, Packed]:
    """The weights that linear layers multiply by, in blocks, by path: those whose rows are whole
    blocks. Raises `ValueError` where there are none."""
    linear = linear_weights(loading.instance)
    found = {
        spec.path: _packed(loading, spec, quantize, symmetric)
        for spec in loading.weights
        if spec.path in linear and spec.shape[1] % BLOCK == 0
    }
    if not found:
        raise ValueError(
            f"`{loading.instance.block.name}` has no linear layer of a multiple of {BLOCK} inputs "
            "to quantise"
        )
    return found


def linear_weights(instance: BlockInstance) -> set[str]:
    """The paths of weights that `linear` multiplies by in some entry. Each entry is looked at for
    its generics all 1, or all 2, whichever it takes."""
    found: set[str] = set()
    for name, entry in entries(instance).items():
        for size in (1, 2):
            generics = {generic.name: size for generic in entry.generics}
            try:
                given = declared_inputs(entry, generics)
                own = bind_entry(instance, name, given.arguments, generics)
                module = lower(instance, name, own, given.arguments)
            except ValueError:
                continue
            flat = expand(
                module,
                module.main,
                lambda op, callee: _Kept(callee.arguments) if callee.source == LINEAR else INLINE,
                Places(lambda path: path, frozenset()),
            )
            for step in steps(flat.body):
                if step.callee is not None:
                    weight = step.op.inputs[step.names.index("weight")]
                    found |= {flat.weights[weight]} if weight in flat.weights else set()
            break
    return found


class _Kept:
    """A call of `linear`, kept to be looked at."""

    updates = None

    def __init__(self, needs: tuple[str, ...]):
        self.needs = needs


def _packed(loading: Loading, spec: ParameterSpec, quantize: str, symmetric: bool) -> Packed:
    stored = _stored(loading, spec.path)
    if stored is not None and stored[0] in CARRIED[quantize]:
        return carry(spec.path, *stored)
    values = np.empty(spec.shape, NUMPY[spec.dtype])
    loading.read(spec.path, values)
    wide = from_bf16(values) if spec.dtype == DType.BF16 else values.astype(np.float32, copy=False)
    return quantise(spec.path, wide, BITS[quantize], symmetric)


def _stored(loading: Loading, path: str) -> tuple[str, np.ndarray] | None:
    """A weight's own blocks, where it is one quantised tensor of a GGUF file."""
    if not isinstance(loading.checkpoint, GgufCheckpoint):
        return None
    try:
        return loading.checkpoint.blocks(loading.bindings.tensor(path))
    except BindingsError:
        return None
