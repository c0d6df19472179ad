"""Every function of the language's accepted cases is lowered, verified, optimised and run.

Generics get the first small values that their `where` clauses allow. What the functions compute is
tested elsewhere; here nothing may fail, and no pass may change a result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from linnet.check import check_text, typed
from linnet.dtypes import KINDS, DType
from linnet.ir.core import Module, TensorType
from linnet.ir.generics import Bound, bound_tensor, require_facts
from linnet.ir.instantiate import BlockInstance, instantiate
from linnet.ir.interpreter import run
from linnet.ir.lower import Lowering
from linnet.ir.statics import Form, Present, Variant
from linnet.ir.verify import verify
from tests.ir.programs import optimised, sample
from tests.language.test_cases import CASES, Case

ACCEPTED = [case for case in CASES if not any(code[0] == "E" for _, code in case.expected)]
SIZES = (2, 4, 6, 1, 3, 8)


def bindings(generics: Sequence[typed.GenericParam]) -> Iterator[dict[str, Bound]]:
    """Small values for generics, the likeliest to be allowed first."""
    choices: list[Sequence[Bound]] = []
    for generic in generics:
        if generic.kind == "Dim":
            choices.append(SIZES)
        elif generic.kind == "Shape":
            choices.append([(2, 3)])
        else:
            allowed = KINDS[generic.kind]
            choices.append([DType.F32] if DType.F32 in allowed else [DType.I32])
    for values in itertools.islice(itertools.product(*choices), 3000):
        yield dict(zip((g.name for g in generics), values, strict=True))


def allowed(
    generics: Sequence[typed.GenericParam], where: Sequence[typed.Fact], outer: Mapping[str, Bound]
) -> dict[str, Bound] | None:
    for binding in bindings(generics):
        try:
            require_facts(where, {**outer, **binding}, "it")
        except ValueError:
            continue
        return binding
    return None


def form(type_: typed.Type, binding: Mapping[str, Bound]) -> Form:
    """Everything given, the first variant of an enum."""
    match type_:
        case typed.TensorT():
            return bound_tensor(type_, binding)
        case typed.OptionalT(inner):
            return Present(form(inner, binding))
        case typed.TupleT(items):
            return tuple(form(item, binding) for item in items)
        case typed.StructT(_, fields):
            return tuple(form(item, binding) for _, item in fields)
        case _:
            return Variant(0)


def lowerings(program: typed.Program) -> Iterator[Module]:
    instances: dict[str | None, BlockInstance | None] = {None: None}
    for key, block in program.blocks.items():
        binding = allowed(block.generics, block.where, {})
        if binding is not None:
            instances[key] = instantiate(program, key, binding)
    for key, function in program.functions.items():
        if key.startswith("std.") or function.block not in instances:
            continue
        instance = instances[function.block]
        outer = dict(instance.generics) if instance is not None else {}
        own = allowed(function.generics, function.where, outer)
        if own is None:
            continue
        lowering = Lowering(program)
        forms = tuple(form(param.type, {**outer, **own}) for param in function.params)
        main = lowering.specialise(key, instance, own, forms, "entry").function
        yield Module(lowering.functions, main.name)


def values(types: Sequence[TensorType]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [sample(random, t.shape, t.dtype) for t in types]


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_an_accepted_program_lowers_and_runs(case: Case) -> None:
    program = check_text(case.text, "case").require()
    for module in lowerings(program):
        verify(module)
        main = module.main
        inputs = values([value.type for value in main.inputs])
        weights = dict(
            zip((s.path for s in main.weights), values([s.value.type for s in main.weights]),
                strict=True)
        )  # fmt: skip
        results, states = run(module, inputs, weights)
        for name, other in optimised(module).items():
            again, after = run(other, inputs, weights)
            for a, b in zip([*results, *states.values()], [*again, *after.values()], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=name)
