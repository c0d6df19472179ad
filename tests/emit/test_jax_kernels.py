"""Every kernel of JAX's table against the body it stands for.

The cases and their tolerances are those of PyTorch's kernels: `exact` kernels give the same bits;
the others may be off by the rounding of sums in another order.
"""

from __future__ import annotations

import pytest

from linnet.emit.jax import JaxTarget, emit_jax, explain, optimised
from linnet.emit.jax_kernels import KERNELS
from linnet.emit.jax_target import NUMERICS
from tests.emit.running_jax import Outcome
from tests.emit.test_torch_kernels import ABSOLUTE, CASES, module_of

SEEN: set[tuple[str, str]] = set()


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, c in CASES.items() for d in c.dtypes])
def test_kernels_compute_what_their_body_does(name: str, dtype: str) -> None:
    case = CASES[name]
    lowered, arrays = module_of(case, dtype)
    module = optimised(lowered)
    exact = case.exact and "attention" not in name
    tolerance = 0.0 if exact else ABSOLUTE[dtype] * (4 if "norm" in name else 1)
    sources = set()
    for numerics in NUMERICS:
        target = JaxTarget(numerics)
        SEEN.update((row.op, row.kernel) for row in explain(module, target))
        source = emit_jax(module, target).partition("import jax")[2]
        if source not in sources:
            sources.add(source)
            Outcome(module, arrays, target=target).assert_close(tolerance, tolerance)


def test_every_kernel_is_tested_here() -> None:
    wanted = {(op, kernel.name) for op, kernels in KERNELS.items() for kernel in kernels}
    if len(SEEN) > 1:  # the tests above ran, all of them
        assert wanted - SEEN == set()


def test_explain_names_the_kernel_and_why() -> None:
    module = optimised(module_of(CASES["linear, one row"], "f32")[0])
    (row,) = explain(module)
    assert row.kernel == "linear_row" and "one row" in row.why and row.calls == 1
    (row,) = explain(module, JaxTarget("exact"))
    assert (row.kernel, row.why) == ("its body", "no kernel fits these types, exact")
