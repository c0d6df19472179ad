"""From source to results in one step, for the tests of this folder.

`evaluate` runs an entry through the interpreter as it was lowered, verifies it, runs it again
after each level of optimisation, and requires the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from linnet.check import check_text
from linnet.check.typed import Program
from linnet.dtypes import DType
from linnet.ir.core import Module, TensorType
from linnet.ir.instantiate import Argument, BlockInstance, bind_entry, instantiate, parameters
from linnet.ir.interpreter import run
from linnet.ir.lower import lower
from linnet.ir.passes import cse, dce, fold_constants, hoist, inline, join_linears, optimise
from linnet.ir.verify import verify

_DTYPES = {"bool": DType.BOOL, **{str(np.dtype(name)): dtype for name, dtype in [
    ("int8", DType.I8), ("int16", DType.I16), ("int32", DType.I32), ("int64", DType.I64),
    ("uint8", DType.U8), ("uint16", DType.U16), ("uint32", DType.U32), ("uint64", DType.U64),
    ("float16", DType.F16), ("float32", DType.F32), ("float64", DType.F64)]}}  # fmt: skip


@dataclass(frozen=True)
class BF16:
    """An input of dtype bf16, given as float values."""

    values: np.ndarray


@dataclass(frozen=True)
class Outcome:
    results: list[np.ndarray]
    states: dict[str, np.ndarray]
    module: Module

    @property
    def result(self) -> np.ndarray:
        (only,) = self.results
        return only


@dataclass
class Model:
    """A source with its root block's generics bound, random weights, and states."""

    instance: BlockInstance
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    states: dict[str, np.ndarray] = field(default_factory=dict)
    compiled: dict[object, tuple[Module, dict[str, Module]]] = field(default_factory=dict)

    @staticmethod
    def of(
        source: str | Program,
        generics: Mapping[str, object] | None = None,
        *,
        root: str | None = None,
        absent: Sequence[str] = (),
        seed: int = 0,
    ) -> Model:
        """Optional members whose path has a part in `absent` aren't there."""
        program = compiled(source) if isinstance(source, str) else source

        def present(path: str) -> bool:
            return not set(path.split(".")) & set(absent)

        instance = instantiate(program, root, generics, present)
        random = np.random.default_rng(seed)
        weights = {
            spec.path: sample(random, spec.shape, spec.dtype)
            for spec in parameters(instance)
            if spec.kind != "state"
        }
        return Model(instance, weights)

    def lowered(self, entry: str, arguments: Sequence[Argument], **generics: object) -> Module:
        bound = bind_entry(self.instance, entry, arguments, generics)
        module = lower(self.instance, entry, bound, arguments)
        verify(module)
        return module

    def run(self, entry: str, *inputs: object, wide: bool = False, **generics: object) -> Outcome:
        """Runs an entry, keeps its new states, and holds that optimising changes no result."""
        types = tuple(map(type_of, inputs))
        key = (entry, types, tuple(generics.items()))
        if key not in self.compiled:
            module = self.lowered(entry, types, **generics)
            self.compiled[key] = (module, optimised(module))
        module, others = self.compiled[key]
        flat = [array for x in inputs for array in arrays(x)]
        results, states = run(module, flat, self.weights, self.states, wide=wide)
        for name, other in others.items():
            again, after = run(other, flat, self.weights, self.states, wide=wide)
            for a, b in zip([*results, *states.values()], [*again, *after.values()], strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6, err_msg=name)
        self.states.update(states)
        return Outcome(results, states, module)


def compiled(source: str) -> Program:
    """The typed program of a source; a `module` line is put first if it has none."""
    text = source if "module " in source else f"module test\n{source}"
    return check_text(text).require()


def evaluate(source: str, *inputs: object, wide: bool = False, **generics: object) -> Outcome:
    """Runs the entry `f` of a source without blocks."""
    return Model.of(source).run("f", *inputs, wide=wide, **generics)


def optimised(module: Module) -> dict[str, Module]:
    """A module after each pass in turn, and after each whole pipeline, all of them verified."""
    found: dict[str, Module] = {}
    current = module
    for step in (inline, fold_constants, cse, dce, join_linears, hoist):
        current = step(current)
        found[step.__name__] = current
    for numerics in ("exact", "fast"):
        found[numerics] = optimise(module, numerics)
    found["expanded"] = optimise(module, expand=["std.nn.mlp::swiglu"])
    for name, other in found.items():
        try:
            verify(other)
        except Exception as error:
            raise AssertionError(f"after {name}: {error}") from error
    return found


def arrays(given: object) -> list[np.ndarray]:
    """The tensors of an input, flattened as an entry takes them."""
    if given is None or isinstance(given, str):
        return []
    if isinstance(given, tuple):
        return [array for part in given for array in arrays(part)]
    return [given.values if isinstance(given, BF16) else np.asarray(given)]


def type_of(given: object) -> Argument:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, tuple):
        return tuple(map(type_of, given))
    if isinstance(given, BF16):
        return TensorType(given.values.shape, DType.BF16)
    array = np.asarray(given)
    return TensorType(array.shape, _DTYPES[str(array.dtype)])


def sample(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Values of a tensor with no meaning of its own."""
    if dtype.is_float:
        return (random.standard_normal(shape) * 0.5).astype(np.float32)
    if dtype == DType.BOOL:
        return random.random(shape) < 0.5
    return random.integers(0, 5, shape)


def floats(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def f32(*values: float) -> np.ndarray:
    """A vector."""
    return np.array(values, np.float32)
