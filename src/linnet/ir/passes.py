"""The passes over Core IR, and the order they run in.

Each is a function from module to module; the text form (`printer`, `parse`) tests them one by one.
"""

from __future__ import annotations

from collections.abc import Collection

from linnet.ir.core import Module
from linnet.ir.dce import dce
from linnet.ir.hoist import hoist
from linnet.ir.inline import inline
from linnet.ir.join import join_linears
from linnet.ir.simplify import cse, fold_constants

__all__ = [
    "NUMERICS",
    "cse",
    "dce",
    "fold_constants",
    "hoist",
    "inline",
    "join_linears",
    "optimise",
]

NUMERICS = ("exact", "equivalent", "fast")
"""How far results may stray from the bodies computed as written: not; by the order of additions;
by lower precision inside kernels too."""


def optimise(
    module: Module,
    numerics: str = "equivalent",
    *,
    expand: Collection[str] = (),
    keep: Collection[str] = (),
) -> Module:
    """All passes, in order; gives a module with its weight-only work in `prepare`.

    `expand` names the library ops whose bodies an emitter would rather have (a `swiglu` expanded
    shows its two projections, which are then joined), `keep` those that it wants to see called even
    where they read only weights. `exact` joins no projections. Raises `ValueError` for other
    `numerics`.
    """
    if numerics not in NUMERICS:
        raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}, not {numerics!r}")
    module = dce(cse(fold_constants(inline(module, expand))))
    if numerics != "exact":
        module = join_linears(module)
    return hoist(module, keep)
