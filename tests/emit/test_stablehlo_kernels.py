"""Every StableHLO kernel against the body it stands for, on the cases that PyTorch's are tested by.

`exact` gives the same bits where a kernel only moves values; the other levels add in another order.
"""

from __future__ import annotations

import pytest

from linnet.emit.stablehlo import optimised
from linnet.emit.stablehlo_kernels import KERNELS, choose
from linnet.ir.passes import NUMERICS
from tests.emit import test_torch_kernels as torch_cases
from tests.emit.running_stablehlo import Outcome

CASES = torch_cases.CASES
SEEN: set[str] = set()


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, c in CASES.items() for d in c.dtypes])
def test_kernels_compute_what_their_body_does(name: str, dtype: str) -> None:
    case = CASES[name]
    lowered, arrays = torch_cases.module_of(case, dtype)
    tolerance = 0.0 if case.exact else torch_cases.ABSOLUTE[dtype] * (4 if "norm" in name else 1)
    for numerics in NUMERICS:
        module = optimised(lowered, numerics)
        SEEN.update(f.source for f in module.functions.values() if choose(f, numerics))
        Outcome(module, arrays, numerics=numerics).assert_close(tolerance, tolerance)


def test_every_kernel_is_tested_here() -> None:
    if len(SEEN) > 1:  # the tests above ran, all of them
        assert set(KERNELS) - SEEN == set()
