"""Kernels that stand for library ops: which, when, and why.

`KERNELS` maps an op of the standard library to candidates, the best first; `choose` takes the first
that the target's numerics allow and that applies to the call. Where none does, the op's body is
emitted. Numerics: `exact` computes bit for bit what the body does, `equivalent` the same sums with
f32 accumulation in another order, `fast` may round inside where the body doesn't (or not, where it
does).

A kernel's code is a template over the op's parameters by name, and over its generics:
`F.linear({x}, {weight})`. An argument gets parentheses where its place needs them. Functions it
calls that PyTorch doesn't have are in `torch_support`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from linnet.dtypes import DType
from linnet.emit.code import Code, Level
from linnet.emit.torch_ops import Context
from linnet.emit.torch_target import TorchTarget
from linnet.ir.core import Function, TensorType


@dataclass(frozen=True, slots=True)
class Use:
    """One call of a library op, as kernels look at it."""

    function: Function
    target: TorchTarget
    makers: Mapping[str, str]
    """For each argument made by a call, the source of the function called."""
    numbers: frozenset[str]
    """The arguments that are constants: in code they are Python numbers."""

    def given(self, name: str) -> bool:
        """Whether an optional argument is there."""
        return name in self.function.arguments

    def type(self, name: str) -> TensorType:
        return self.function.inputs[self.function.arguments.index(name)].type

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

    @property
    def rows(self) -> int:
        """How many vectors the first argument is made of."""
        shape = self.function.inputs[0].type.shape
        return self.function.inputs[0].type.size // max(shape[-1], 1)

    @property
    def reads_host(self) -> bool:
        """Whether code may look at the values of tensors: not if it is compiled or captured. On a
        GPU it has to wait for them, once for each layer of a long prompt, which is little."""
        return not self.target.compiled

    @property
    def calls_out(self) -> bool:
        """Whether a support function that looks at values may be called, in compiled code as it
        is: on a CPU that costs nothing."""
        return self.reads_host or (self.target.on_cpu and self.target.mode == "inductor")

    @property
    def at_host(self) -> bool:
        """Whether the value of the scalar `at` is."""
        return self.reads_host or "at" in self.numbers


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute an op."""

    name: str
    numerics: str
    why: str
    code: str | Callable[[Use], str]
    applies: Callable[[Use], bool] = lambda use: True
    updates: str | None = None
    """The parameter that it writes in place and gives back; `code` is then a statement."""


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
        return fill(self._template(), self.use, context, arguments)

    def statements(self, context: Context, arguments: Mapping[str, Code]) -> list[str]:
        return [fill(self._template(), self.use, context, arguments).text]

    def _template(self) -> str:
        code = self.kernel.code
        return code if isinstance(code, str) else code(self.use)


_PLACE = re.compile(r"\{(\w+)\}")


def fill(template: str, use: Use, context: Context, arguments: Mapping[str, Code]) -> Code:
    """A template with its arguments in place; other names are generics."""
    for name in _SUPPORT_CALL.findall(template):
        context.helper(name)

    def argument(match: re.Match[str]) -> str:
        name = match[1]
        if name not in arguments:
            bound = use.function.bound(name)
            assert isinstance(bound, int)
            return str(bound)
        before, after = template[: match.start()], template[match.end() :]
        alone = before.endswith(("(", ", ", "= ")) and (not after or after[0] in ",)")
        return arguments[name].text if alone else arguments[name].atom

    text = _PLACE.sub(argument, template)
    return Code(text, Level.MUL if _infix(template) else Level.ATOM)


_SUPPORT_CALL = re.compile(r"(?<![\w.])([a-z]\w*_\w+)\(")
"""A call of a support function: a plain name with an underscore."""


def _infix(template: str) -> bool:
    """Whether a template is an operator at its outermost level."""
    depth = 0
    for i, character in enumerate(template):
        depth += character in "([{"
        depth -= character in ")]}"
        if depth == 0 and template[i : i + 3] in (" + ", " * ", " / ", " - "):
            return True
    return False


def choose(use: Use) -> Kernel | None:
    """The kernel for a call; `None` where its body is best or all there is."""
    for kernel in KERNELS.get(use.function.source, ()):
        if use.target.allows(kernel.numerics) and kernel.applies(use):
            return kernel
    return None


# --- conditions -----------------------------------------------------------------------------


def _narrow(use: Use) -> bool:
    return use.dtype in (DType.F16, DType.BF16)


def _few_rows(use: Use) -> bool:
    """So few that reading the weight takes all the time. Where a processor has instructions for
    products of bf16 matrices, the library is ahead from 8 rows on."""
    most = {DType.F32: 8, DType.F16: 8, DType.BF16: 4}.get(use.dtype, 0)
    return use.target.on_cpu and use.target.compiled and 0 < use.rows <= most


def _one_row(use: Use) -> bool:
    return use.target.on_cpu and use.rows == 1 and use.dtype == DType.BF16


def _scaled(use: Use) -> bool:
    """The scale is a number, which is how PyTorch takes it."""
    return "scale" in use.numbers


def _alone(use: Use) -> bool:
    """One query, so that the query heads of a group can be the rows of one matrix."""
    return _scaled(use) and use.dim("Q") == 1 and use.dim("H") != use.dim("Hk")


def _eager_norm(use: Use) -> bool:
    return "eps" in use.numbers and not use.target.compiled


def _causal(use: Use) -> bool:
    """The mask is the causal one of a whole sequence."""
    source = use.makers.get("mask", "")
    return source == "std.nn.attention::causal_mask" and use.dim("Q") == use.dim("K")


# --- code -----------------------------------------------------------------------------------

_SDPA = "F.scaled_dot_product_attention"


def _linear(use: Use) -> str:
    return f"F.linear({{x}}, {{weight}}{', {bias}' if use.given('bias') else ''})"


def _reshaped(use: Use) -> str:
    shape = use.function.results[0].type.shape
    return f".reshape({', '.join(map(str, shape))})"


def _few_rows_code(use: Use) -> str:
    code = "few_rows({weight}, {x})"
    if use.given("bias"):
        code = f"({code} + {{bias}}{'.float()' if _narrow(use) else ''})"
    if _narrow(use):
        code += ".bfloat16()" if use.dtype == DType.BF16 else ".half()"
    return code if len(use.function.results[0].type.shape) == 2 else code + _reshaped(use)


def _one_row_code(use: Use) -> str:
    alone = len(use.type("x").shape) == 1
    code = f"torch.mv({{weight}}, {'{x}' if alone else '{x}.reshape(-1)'})"
    code = f"({code} + {{bias}})" if use.given("bias") else code
    return code if alone else code + _reshaped(use)


def _attention(use: Use) -> str:
    grouped = "Hk" in dict(use.function.generics) and use.dim("H") != use.dim("Hk")
    extra = ", enable_gqa=True" if grouped else ""
    if not use.given("mask"):
        return f"{_SDPA}({{query}}, {{key}}, {{value}}, scale={{scale}}{extra})"
    if _causal(use):
        return f"{_SDPA}({{query}}, {{key}}, {{value}}, is_causal=True, scale={{scale}}{extra})"
    mask = "attention_bias({mask}, {query})"
    return f"{_SDPA}({{query}}, {{key}}, {{value}}, {mask}, scale={{scale}}{extra})"


def _attention_rows(use: Use) -> str:
    grouped = "Hk" in dict(use.function.generics) and use.dim("H") != use.dim("Hk")
    extra = ", enable_gqa=True" if grouped else ""
    mask = "attention_bias({mask}[:, None], {query})"
    return f"{_SDPA}({{query}}, {{key}}, {{value}}, {mask}, scale={{scale}}{extra})"


def _folded(mask: str) -> Callable[[Use], str]:
    def code(use: Use) -> str:
        queries = "{query}.reshape({B}, {Hk}, -1, {D})"
        bias = f", {mask}" if use.given("mask") or "at" in use.function.arguments else ""
        call = f"{_SDPA}({queries}, {{key}}, {{value}}{bias}, scale={{scale}})"
        return f"{call}.reshape({{B}}, {{H}}, 1, {{D}})"

    return code


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "std.nn.linear::linear": (
        Kernel(
            "few_rows",
            "equivalent",
            "a few rows on a CPU under inductor: one loop that reads the weight once",
            _few_rows_code,
            _few_rows,
        ),
        Kernel(
            "torch.mv",
            "equivalent",
            "one bf16 row on a CPU: the library's matrix product is slower than this",
            _one_row_code,
            _one_row,
        ),
        Kernel("F.linear", "equivalent", "the library's matrix product", _linear),
    ),
    "std.nn.embedding::embedding": (
        Kernel(
            "F.embedding",
            "exact",
            "rows of the table; an id outside of it is an error",
            "F.embedding({ids}, {table})",
        ),
    ),
    "std.nn.norm::rms_norm": (
        Kernel(
            "F.rms_norm",
            "equivalent",
            "one call instead of six",
            "F.rms_norm({x}, ({H},), {weight}, {eps})",
            lambda use: _eager_norm(use) and not _narrow(use),
        ),
        Kernel(
            "F.rms_norm",
            "fast",
            "one call instead of six; the normalised value isn't rounded before the weight",
            "F.rms_norm({x}, ({H},), {weight}, {eps})",
            _eager_norm,
        ),
    ),
    "std.nn.norm::layer_norm": (
        Kernel(
            "F.layer_norm",
            "equivalent",
            "one call instead of ten",
            lambda use: (
                "F.layer_norm({x}, ({H},), {weight}, "
                + ("{bias}, {eps})" if use.given("bias") else "None, {eps})")
            ),
            _eager_norm,
        ),
    ),
    "std.nn.activations::relu": (Kernel("F.relu", "exact", "the same", "F.relu({x})"),),
    "std.nn.activations::sigmoid": (
        Kernel("torch.sigmoid", "equivalent", "one call, f32 inside", "torch.sigmoid({x})"),
    ),
    "std.nn.activations::silu": (
        Kernel("F.silu", "equivalent", "one call, f32 inside", "F.silu({x})"),
    ),
    "std.nn.activations::gelu": (
        Kernel("F.gelu", "equivalent", "one call, f32 inside", 'F.gelu({x}, approximate="tanh")'),
    ),
    "std.nn.activations::gelu_erf": (
        Kernel("F.gelu", "equivalent", "one call with an exact error function", "F.gelu({x})"),
    ),
    "std.nn.softmax::softmax": (
        Kernel("torch.softmax", "equivalent", "one call, f32 inside", "torch.softmax({x}, -1)"),
    ),
    "std.nn.attention::causal_mask": (
        Kernel(
            "tril",
            "exact",
            "the same, made at once",
            lambda use: "causal_mask({Q}, {K})",
            lambda use: use.target.on_cpu,
        ),
    ),
    "std.nn.attention::attention": (
        Kernel(_SDPA, "equivalent", "scores are never stored", _attention, _scaled),
    ),
    "std.nn.attention::attention_rows": (
        Kernel(_SDPA, "equivalent", "scores are never stored", _attention_rows, _scaled),
    ),
    "std.nn.attention::grouped_attention": (
        Kernel(
            f"{_SDPA}, grouped",
            "equivalent",
            "one query: the heads of a group are rows of one product, keys are read once",
            _folded("attention_bias({mask}, {query})"),
            _alone,
        ),
        Kernel(_SDPA, "equivalent", "scores are never stored", _attention, _scaled),
    ),
    "std.nn.attention::grouped_attention_rows": (
        Kernel(
            f"{_SDPA}, grouped",
            "equivalent",
            "one query: the heads of a group are rows of one product, keys are read once",
            _folded("attention_bias({mask}[:, None], {query})"),
            _alone,
        ),
        Kernel(_SDPA, "equivalent", "scores are never stored", _attention_rows, _scaled),
    ),
    "std.nn.attention::cached_attention": (
        Kernel(
            "cached_attention",
            "equivalent",
            "reads the cache only as far as it is filled",
            "cached_attention({query}, {key}, {value}, {scale}, {at})",
            lambda use: _scaled(use) and use.calls_out,
        ),
        Kernel(
            f"{_SDPA}, grouped",
            "equivalent",
            "one query: the heads of a group are rows of one product, keys are read once",
            _folded("position_bias({at}.reshape(1, 1), {S}, {query})"),
            _alone,
        ),
        Kernel(
            _SDPA,
            "equivalent",
            "scores are never stored",
            lambda use: (
                f"{_SDPA}({{query}}, {{key}}, {{value}}, "
                "position_bias({at} + torch.arange({Q}, device={query}.device)[:, None], {S}, "
                "{query}), scale={scale}"
                + (", enable_gqa=True)" if use.dim("H") != use.dim("Hk") else ")")
            ),
            _scaled,
        ),
    ),
    "std.nn.attention::cached_attention_rows": (
        Kernel(
            "cached_attention_rows",
            "equivalent",
            "reads the cache only as far as any row has filled it",
            "cached_attention_rows({query}, {key}, {value}, {scale}, {at})",
            lambda use: _scaled(use) and use.calls_out and use.target.on_cpu and use.dim("B") > 0,
        ),
        Kernel(
            f"{_SDPA}, grouped",
            "equivalent",
            "the heads of a group are rows of one product, keys are read once",
            lambda use: (
                f"{_SDPA}({{query}}.reshape({{B}}, {{Hk}}, -1, {{D}}), {{key}}, {{value}}, "
                "position_bias({at}[:, None, None, None], {S}, {query}), scale={scale})"
                ".reshape({B}, {H}, 1, {D})"
            ),
            _scaled,
        ),
    ),
    "std.nn.cache::write_at": (
        Kernel(
            "slice",
            "exact",
            "writes one position in place",
            "write_span({cache}, {value}, {at})",
            lambda use: use.at_host,
            updates="cache",
        ),
        Kernel(
            "index_copy_",
            "exact",
            "writes one position in place, without waiting for its value",
            "write_position({cache}, {value}, {at})",
            updates="cache",
        ),
    ),
    "std.nn.cache::write_span": (
        Kernel(
            "slice",
            "exact",
            "writes the span in place",
            "write_span({cache}, {value}, {at})",
            lambda use: use.at_host,
            updates="cache",
        ),
        Kernel(
            "index_copy_",
            "exact",
            "writes one position in place, without waiting for its value",
            "write_position({cache}, {value}, {at})",
            lambda use: use.dim("N") == 1,
            updates="cache",
        ),
        Kernel(
            "index_copy_",
            "exact",
            "writes the span in place, without waiting for its start",
            "write_positions({cache}, {value}, {at})",
            lambda use: use.dim("N") <= use.dim("S"),
            updates="cache",
        ),
    ),
    "std.nn.cache::write_rows": (
        Kernel(
            "indexed assignment",
            "exact",
            "writes one position a row in place",
            "write_rows({cache}, {value}, {at})",
            updates="cache",
        ),
    ),
    "std.nn.cache::write_slot": (
        Kernel(
            "slice",
            "exact",
            "writes the span of one row in place",
            "write_slots({cache}, {value}, {slot}.reshape(1), {at})",
            lambda use: use.reads_host and "slot" not in use.numbers,
            updates="cache",
        ),
        Kernel(
            "index_copy_",
            "exact",
            "writes the span of one row in place, without waiting for which",
            "write_slots_at_once({cache}, {value}, {slot}.reshape(1), {at})",
            lambda use: use.dim("N") <= use.dim("S") and "slot" not in use.numbers,
            updates="cache",
        ),
    ),
    "std.nn.cache::write_slots": (
        Kernel(
            "slices",
            "exact",
            "writes the span of each row in place",
            "write_slots({cache}, {value}, {slots}, {at})",
            lambda use: use.reads_host,
            updates="cache",
        ),
        Kernel(
            "index_copy_",
            "exact",
            "writes the span of each row in place, without waiting for which",
            "write_slots_at_once({cache}, {value}, {slots}, {at})",
            lambda use: use.dim("N") <= use.dim("S"),
            updates="cache",
        ),
    ),
    "std.nn.cache::write_tokens": (
        Kernel(
            "indexed assignment",
            "exact",
            "writes each token's position in place",
            "write_tokens({cache}, {value}, {rows}, {positions})",
            lambda use: use.reads_host,
            updates="cache",
        ),
        Kernel(
            "indexed assignment",
            "exact",
            "writes each token's position in place, without waiting for which",
            "write_tokens_at_once({cache}, {value}, {rows}, {positions})",
            updates="cache",
        ),
    ),
    "std.nn.decoding::argmax": (
        Kernel(
            "argmax", "exact", "the first of equals, in one call", "torch.argmax({x}, -1).int()"
        ),
    ),
}
