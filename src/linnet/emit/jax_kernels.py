"""Kernels that stand for library ops in generated JAX: which, when, and why.

`KERNELS` maps an op of the standard library to candidates, the best first; `choose` takes the first
that the target's numerics allow and that applies to the call. Where none does, the op's body is
emitted, which XLA fuses: an op is here only if JAX has a function for it that a reader knows, or if
its body does more work than it needs. Numerics: `exact` computes bit for bit what the body does,
`equivalent` the same in another order, `fast` may round inside where the body doesn't.

A kernel's code is a template over the op's parameters by name, and over its generics. Functions it
calls that JAX doesn't have are in `jax_support`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from linnet.dtypes import DType
from linnet.emit.code import Code, Level
from linnet.emit.jax_ops import DTYPES, NARROW, Context
from linnet.emit.jax_target import JaxTarget
from linnet.ir.core import Function


@dataclass(frozen=True, slots=True)
class Use:
    """One call of a library op, as kernels look at it."""

    function: Function

    def dim(self, name: str) -> int:
        """What a `Dim` generic is bound to."""
        found = self.function.bound(name)
        assert isinstance(found, int)
        return found

    @property
    def dtype(self) -> DType:
        """What `T` is bound to."""
        found = self.function.bound("T")
        assert isinstance(found, DType)
        return found


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute an op."""

    name: str
    numerics: str
    why: str
    code: str | Callable[[Use], str]
    applies: Callable[[Use], bool] = lambda use: True
    updates: str | None = None
    """The parameter that it gives back changed: XLA writes it in place where it can."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A kernel for a call."""

    kernel: Kernel
    use: Use

    @property
    def updates(self) -> str | None:
        return self.kernel.updates

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(_PLACE.findall(self._template()))

    def expression(self, context: Context, arguments: Mapping[str, Code]) -> Code:
        """The template with its arguments in place."""
        template = self._template()
        for name in _SUPPORT_CALL.findall(template):
            context.helper(name)

        def argument(match: re.Match[str]) -> str:
            name = match[1]
            if name not in arguments:
                return str(self.use.dim(name))
            before, after = template[: match.start()], template[match.end() :]
            alone = before.endswith(("(", ", ", "= ")) and (not after or after[0] in ",)")
            return arguments[name].text if alone else arguments[name].atom

        return Code(_PLACE.sub(argument, template), Level.ATOM)

    def _template(self) -> str:
        code = self.kernel.code
        return code if isinstance(code, str) else code(self.use)


_PLACE = re.compile(r"\{(\w+)\}")
_SUPPORT_CALL = re.compile(r"(?<![\w.])([a-z]\w*_\w+)\(")
"""A call of a support function: a plain name with an underscore."""


def choose(use: Use, target: JaxTarget) -> Kernel | None:
    """The kernel for a call; `None` where its body is best or all there is."""
    for kernel in KERNELS.get(use.function.source, ()):
        if target.allows(kernel.numerics) and kernel.applies(use):
            return kernel
    return None


# --- the table ------------------------------------------------------------------------------


def _narrow(use: Use) -> bool:
    return use.dtype in NARROW


def _in_f32(code: str) -> Callable[[Use], str]:
    """A function of `{x}` computed in f32 and rounded once."""

    def made(use: Use) -> str:
        wide = code.replace("{x}", "{x}.astype(jnp.float32)")
        return f"{wide}.astype({DTYPES[use.dtype]})"

    return made


def _unary(name: str, code: str) -> tuple[Kernel, ...]:
    why = "JAX's own, with a derivative that is good at the edges"
    return (
        Kernel(name, "equivalent", why, code, lambda use: use.dtype == DType.F32),
        Kernel(name, "equivalent", f"{why}; f32 inside", _in_f32(code), _narrow),
    )


def _fits(use: Use) -> bool:
    """Whether a span is no longer than the cache."""
    return use.dim("N") <= use.dim("S")


def _one_row(use: Use) -> bool:
    rows = use.function.inputs[use.function.arguments.index("x")].type
    return rows.size == rows.shape[-1] and use.dtype != DType.F64


def _linear_row(use: Use) -> str:
    bias = ", {bias}" if "bias" in use.function.arguments else ""
    return f"linear_row({{x}}, {{weight}}{bias})"


def _over_cache(places: str) -> tuple[Kernel, ...]:
    return (
        Kernel(
            "cached_attention",
            "equivalent",
            "reads the part of the cache that is filled",
            f"cached_attention({{query}}, {{key}}, {{value}}, {{scale}}, {places})",
            lambda use: use.dtype != DType.F64,
        ),
    )


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "std.nn.linear::linear": (
        Kernel(
            "linear_row",
            "equivalent",
            "one row: XLA reads the weight as it lies, and does not for a row times a matrix",
            _linear_row,
            _one_row,
        ),
    ),
    "std.nn.attention::cached_attention": _over_cache("{at} + jnp.arange({Q}, dtype=jnp.int32)"),
    "std.nn.attention::cached_attention_rows": _over_cache("{at}[:, None, None, None]"),
    "std.nn.activations::relu": (Kernel("jax.nn.relu", "exact", "the same", "jax.nn.relu({x})"),),
    "std.nn.activations::sigmoid": _unary("jax.nn.sigmoid", "jax.nn.sigmoid({x})"),
    "std.nn.activations::silu": _unary("jax.nn.silu", "jax.nn.silu({x})"),
    "std.nn.activations::gelu": _unary("jax.nn.gelu", "jax.nn.gelu({x})"),
    "std.nn.activations::gelu_erf": _unary("jax.nn.gelu", "jax.nn.gelu({x}, approximate=False)"),
    "std.nn.softmax::softmax": _unary("jax.nn.softmax", "jax.nn.softmax({x}, axis=-1)"),
    "std.nn.embedding::embedding": (
        Kernel(
            "jnp.take",
            "exact",
            "rows of the table",
            'jnp.take({table}, {ids}, axis=0, mode="clip")',
        ),
    ),
    "std.nn.cache::write_at": (
        Kernel(
            "dynamic_update_slice",
            "exact",
            "one position, where the body writes the whole cache",
            "write_span({cache}, {value}, {at})",
            updates="cache",
        ),
    ),
    "std.nn.cache::write_span": (
        Kernel(
            "dynamic_update_slice",
            "exact",
            "the span alone, where the body writes the whole cache",
            "write_span({cache}, {value}, {at})",
            _fits,
            updates="cache",
        ),
    ),
    "std.nn.cache::write_rows": (
        Kernel(
            "scatter",
            "exact",
            "one position a row, where the body writes the whole cache",
            "write_rows({cache}, {value}, {at})",
            updates="cache",
        ),
    ),
    "std.nn.cache::write_slot": (
        Kernel(
            "scatter",
            "exact",
            "the span of one row, where the body writes the whole cache",
            "write_slots({cache}, {value}, {slot}.reshape(1), {at})",
            _fits,
            updates="cache",
        ),
    ),
    "std.nn.cache::write_slots": (
        Kernel(
            "scatter",
            "exact",
            "the spans alone, where the body writes the whole cache",
            "write_slots({cache}, {value}, {slots}, {at})",
            _fits,
            updates="cache",
        ),
    ),
    "std.nn.cache::write_tokens": (
        Kernel(
            "scatter",
            "exact",
            "each token's position, where the body writes the whole cache",
            "write_tokens({cache}, {value}, {rows}, {positions})",
            updates="cache",
        ),
    ),
}
