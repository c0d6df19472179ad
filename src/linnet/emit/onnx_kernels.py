"""Operators that stand for library ops: which, when, and why.

`KERNELS` maps an op of the standard library to candidates, the best first; `choose` takes the first
that the target's numerics allow and that applies to the call. Where none does, the op's body is
emitted. Numerics are those of `emit.torch_kernels`. Attention is in `onnx_attention`, caches are in
`onnx_caches`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from linnet.dtypes import DType
from linnet.emit.bodies import INLINE, Places, Step, expand, steps
from linnet.emit.onnx_graph import Tensor
from linnet.emit.onnx_ops import Context, Operand, clamped, number
from linnet.emit.onnx_target import MS, OnnxTarget, Part
from linnet.ir.core import Function, Module, Op, TensorType, Value


@dataclass(frozen=True, slots=True)
class Use:
    """A library op's types and target, as kernels look at them."""

    function: Function
    target: OnnxTarget

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
    def result(self) -> TensorType:
        return self.function.results[0].type

    @property
    def computes(self) -> DType:
        """What kernels take floats in: f16 and bf16 as they are on a GPU, which adds in f32."""
        narrow = self.dtype in (DType.F16, DType.BF16)
        return DType.F32 if narrow and self.target.on_cpu else self.dtype


@dataclass(slots=True)
class Call:
    """One call on its way to nodes."""

    context: Context
    use: Use
    step: Step
    operands: Mapping[str, Operand]
    values: dict[Value, Operand]
    """All values so far; a kernel that computes an earlier one as well may set it."""
    calls: Mapping[Value, Step]
    """For each value made by a call, the call."""
    facts: Facts

    def value(self, name: str) -> Value:
        """The IR value of an argument."""
        return self.step.op.inputs[self.step.names.index(name)]

    def name(self, argument: str) -> str:
        """An argument, whole."""
        return self.context.whole(self.operands[argument])

    def wide(self, argument: str) -> str:
        """A float argument, whole, in the dtype that kernels compute in."""
        return self.context.cast(
            self.name(argument), self.operands[argument].type.dtype, self.use.computes
        )

    def rounded(self, name: str) -> Operand:
        """A result in that dtype as the op's own."""
        type_ = self.use.result
        narrow = self.context.cast(name, self.use.computes, self.use.dtype)
        return Operand(narrow, type_, type_.shape)

    def typed(self, name: str, shape: tuple[int, ...], dtype: DType) -> str:
        """Notes the type of what an operator of ONNX Runtime's own gives."""
        self.context.builder.types.setdefault(name, Tensor(shape, dtype))
        return name

    def maker(self, value: Value, source: str) -> Step | None:
        """The call of a library op that made a value."""
        step = self.calls.get(value)
        found = step is not None and step.callee is not None and step.callee.source == source
        return step if found else None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of weights: their paths, and how derived ones are computed."""

    paths: Mapping[Value, str]
    derived: Mapping[str, Value]
    """For each derived path, its value in `prepare`, whose calls are written out."""
    makers: Mapping[Value, Op]
    """The operations of `prepare`."""
    sources: Mapping[Value, str]
    """The paths of the weights it reads."""
    half: Callable[[Value], str | None]
    """The name of the first half of a weight's last axis; `None` for what is no weight."""

    def prepared(self, value: Value) -> Value | None:
        """A derived value as `prepare` computes it."""
        return self.derived.get(self.paths.get(value, ""))

    def parts(self, value: Value, packed: Mapping[str, tuple[Part, ...]]) -> tuple[Part, ...]:
        """The packed parts of a linear layer's weight: its own, or of those joined in it."""
        path = self.paths.get(value, "")
        if path in packed:
            return packed[path]
        inner = self.prepared(value)
        made = self.makers.get(inner) if inner is not None else None
        if made is None or made.kind != "concat" or made.attrs["axis"] != 0:
            return ()
        found = [packed.get(self.sources.get(part, ""), ()) for part in made.inputs]
        return _merged([part for parts in found for part in parts]) if all(found) else ()


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    """Parts one after the other, those that are quantised alike as one."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if last is not None and replace(part, name=last.name, rows=last.rows) == last:
            found[-1] = replace(last, name=f"{last.name}+{part.name}", rows=last.rows + part.rows)
        else:
            found.append(part)
    return tuple(found)


def find_facts(
    module: Module, paths: Mapping[Value, str], half: Callable[[Value], str | None]
) -> Facts:
    """What `prepare` tells of the entry's weights."""
    if module.prepare is None:
        return Facts(paths, {}, {}, {}, half)
    places = Places(lambda path: path, frozenset())
    flat = expand(module, module.prepare, lambda op, callee: INLINE, places)
    makers = {value: step.op for step in steps(flat.body) for value in step.op.outputs}
    derived = dict(zip(module.derived, flat.body.results, strict=True))
    return Facts(paths, derived, makers, flat.weights, half)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute an op."""

    name: str
    numerics: str
    why: str
    write: Callable[[Call], Operand]
    applies: Callable[[Use], bool] = lambda use: True


@dataclass(frozen=True, slots=True)
class Chosen:
    """A kernel for a call, as `bodies.expand` wants it."""

    kernel: Kernel
    use: Use

    @property
    def needs(self) -> tuple[str, ...]:
        return self.use.function.arguments

    @property
    def updates(self) -> str | None:
        """Nothing is written in place: ONNX has values only, and the runtime gives them memory."""
        return None


def choose(use: Use, table: Mapping[str, tuple[Kernel, ...]]) -> Kernel | None:
    """The kernel for a call; `None` where its body is best or all there is."""
    for kernel in table.get(use.function.source, ()):
        if use.target.allows(kernel.numerics) and kernel.applies(use):
            return kernel
    return None


# --- linear layers --------------------------------------------------------------------------


def _linear(call: Call) -> Operand:
    context, use = call.context, call.use
    parts = call.facts.parts(call.value("weight"), use.target.packed)
    call.context.packed.update((part.name, part) for part in parts)
    x = call.wide("x")
    shape = use.result.shape
    if parts:
        rows = [_packed(call, x, part, (*shape[:-1], part.rows)) for part in parts]
        found = rows[0] if len(rows) == 1 else context.one("Concat", rows, axis=len(shape) - 1)
    else:
        found = _product(call, x, call.wide("weight"), shape)
    if use.given("bias"):
        found = context.one("Add", [found, call.wide("bias")])
    return call.rounded(found)


def _product(call: Call, x: str, weight: str, shape: tuple[int, ...]) -> str:
    """`x · weightᵀ` with the weight as it is stored."""
    context, dtype = call.context, call.use.computes
    given = call.use.type("x").shape
    if len(given) == 1:
        x = context.shaped(x, given, (1, *given))
        given, shape = (1, *given), (1, *shape)
    if call.use.target.contrib:
        found = context.one("FusedMatMul", [x, weight], domain=MS, transB=1)
        found = call.typed(found, shape, dtype)
    else:
        rows = call.use.result.size // max(shape[-1], 1)
        flat = context.shaped(x, given, (rows, given[-1]))
        found = context.one("Gemm", [flat, weight], transB=1)
        found = context.shaped(found, (rows, shape[-1]), shape)
    return context.shaped(found, shape, call.use.result.shape)


def _packed(call: Call, x: str, part: Part, shape: tuple[int, ...]) -> str:
    """`x · weightᵀ` by blocks. What is added to all values of a block is added once, times the sum
    of what the block is multiplied by."""
    context, dtype = call.context, call.use.computes
    weights = [f"{part.name}.blocks", f"{part.name}.scales"]
    weights += [f"{part.name}.zeros"] if part.zeros else []
    found = context.one(
        "MatMulNBits", [x, *weights], domain=MS, K=part.columns, N=part.rows, bits=part.bits,
        block_size=32, accuracy_level=call.use.target.accuracy,
    )  # fmt: skip
    found = call.typed(found, shape, dtype)
    if part.offsets:
        given = call.use.type("x").shape
        blocks = (*given[:-1], part.columns // 32)
        split = context.shaped(x, given, (*blocks, 32))
        sums = context.one("ReduceSum", [split, context.builder.integers([-1])], keepdims=0)
        offset = context.one("MatMul", [sums, f"{part.name}.offsets"])
        found = context.one("Add", [found, offset])
    return found


def _embedding(call: Call) -> Operand:
    context, use = call.context, call.use
    ids = call.operands["ids"]
    index = clamped(context, ids, call.value("ids"), use.dim("Vocab") - 1)
    index = context.whole(Operand(index, TensorType(ids.type.shape, DType.I64), ids.shape))
    path = call.facts.paths.get(call.value("table"), "")
    parts = use.target.packed.get(path, ())
    if parts:
        (part,) = parts
        context.packed[part.name] = part
        return Operand(_unpacked(call, index, part), use.result, use.result.shape)
    table = call.name("table")
    if table in context.wider:
        found = context.one("Gather", [context.wider[table], index], axis=0)
        return Operand(context.cast(found, DType.F32, use.dtype), use.result, use.result.shape)
    return Operand(context.one("Gather", [table, index], axis=0), use.result, use.result.shape)


def _unpacked(call: Call, index: str, part: Part) -> str:
    """Rows of a packed table as values: `(q - zero) · scale + offset`."""
    context = call.context
    lead = call.use.result.shape[:-1]
    blocks = (*lead, part.columns // 32)

    def rows(what: str) -> str:
        return context.one("Gather", [f"{part.name}.{what}", index], axis=0)

    found = rows("blocks")
    zero = context.scalar(float(1 << (part.bits - 1)), DType.F32)
    zeros = rows("zeros") if part.zeros else ""
    if part.bits == 4:
        found = _nibbles(context, found)
        zeros = _nibbles(context, zeros) if zeros else ""
    if zeros:
        count = part.columns // 32
        width = len(blocks)
        flat = context.shaped(zeros, (), (*lead, -(-count // 2) * 2 if part.bits == 4 else count))
        zeros = context.sliced(flat, [width - 1], [0], [count])
        zero = context.one("Cast", [context.shaped(zeros, blocks, (*blocks, 1))], to=DType.F32)
    values = context.one("Cast", [context.shaped(found, (), (*blocks, 32))], to=DType.F32)
    scales = context.one("Reshape", [rows("scales"), context.builder.integers((*blocks, 1))])
    values = context.one("Mul", [context.one("Sub", [values, zero]), scales])
    if part.offsets:
        columns = context.one("Gather", [f"{part.name}.offsets", index], axis=1)
        rank = len(lead)
        offsets = context.one("Transpose", [columns], perm=(*range(1, rank + 1), 0))
        offsets = context.one("Reshape", [offsets, context.builder.integers((*blocks, 1))])
        values = context.one("Add", [values, offsets])
    values = context.shaped(values, (*blocks, 32), call.use.result.shape)
    return context.cast(values, DType.F32, call.use.dtype)


def _nibbles(context: Context, x: str) -> str:
    """Two values a byte, the low half first, along a new last axis."""
    low = context.one("BitwiseAnd", [x, context.scalar(15, DType.U8)])
    high = context.one("BitShift", [x, context.scalar(4, DType.U8)], direction="RIGHT")
    last = context.builder.integers([-1])
    return context.one(
        "Concat", [context.one("Unsqueeze", [p, last]) for p in (low, high)], axis=-1
    )


# --- norms and elementwise ------------------------------------------------------------------


def _epsilon(call: Call) -> float:
    found = call.operands["eps"].number
    assert found is not None
    return float(found)


def _rms_norm(call: Call) -> Operand:
    """With the addition before it, where there is one: the sum is then an output as well."""
    context, use = call.context, call.use
    weight, eps = call.wide("weight"), _epsilon(call)
    added = context.makers.get(call.value("x"))
    shape, dtype = use.result.shape, use.computes
    exact_sum = dtype == use.dtype  # The sum is one rounded to T, which the kernel would not do.
    if use.target.contrib and exact_sum and len(shape) in (2, 3) and _adds(call, added):
        assert added is not None
        sides = [context.whole(call.values[value]) for value in added.inputs]
        names = context.builder.node(
            "SkipSimplifiedLayerNormalization", [*sides, weight], domain=MS, outputs=4, epsilon=eps
        )
        for name in (names[0], names[3]):
            call.typed(name, shape, dtype)
        call.values[added.output] = Operand(names[3], added.output.type, shape)
        return call.rounded(names[0])
    found = context.one("RMSNormalization", [call.wide("x"), weight], epsilon=eps, axis=-1)
    return call.rounded(found)


def _adds(call: Call, op: Op | None) -> bool:
    if op is None or op.kind != "add":
        return False
    return all(call.values[value].shape == value.type.shape for value in op.inputs)


def _rms_norm_rounded(call: Call) -> Operand:
    """The normalised value is rounded to the dtype before the weight multiplies it."""
    context, use = call.context, call.use
    ones = context.builder.constant([1.0] * use.dim("H"), (use.dim("H"),), DType.F32)
    eps = _epsilon(call)
    found = context.one("RMSNormalization", [call.wide("x"), ones], epsilon=eps, axis=-1)
    normal = context.cast(found, DType.F32, use.dtype)
    weight = call.name("weight")
    return Operand(
        context.computed("Mul", [normal, weight], use.dtype), use.result, use.result.shape
    )


def _layer_norm(call: Call) -> Operand:
    names = [call.wide("x"), call.wide("weight")]
    names += [call.wide("bias")] if call.use.given("bias") else []
    found = call.context.one("LayerNormalization", names, epsilon=_epsilon(call), axis=-1)
    return call.rounded(found)


def _silu(call: Call) -> Operand:
    x = call.operands["x"]
    name = call.context.cast(x.name, x.type.dtype, call.use.computes)
    if call.use.target.contrib:
        found = call.context.one("QuickGelu", [name], domain=MS, alpha=1.0)
        call.typed(found, x.shape, call.use.computes)
    else:
        found = call.context.one("Mul", [name, call.context.one("Sigmoid", [name])])
    narrow = call.context.cast(found, call.use.computes, call.use.dtype)
    return Operand(narrow, call.use.result, x.shape)


def _plain(op: str, **attrs) -> Callable[[Call], Operand]:
    def write(call: Call) -> Operand:
        x = call.operands["x"]
        name = call.context.cast(x.name, x.type.dtype, call.use.computes)
        found = call.context.one(op, [name], **attrs)
        narrow = call.context.cast(found, call.use.computes, call.use.dtype)
        return Operand(narrow, call.use.result, x.shape)

    return write


def _relu(call: Call) -> Operand:
    x, zero = call.operands["x"], number(call.context, call.use.result, 0.0)
    found = call.context.computed("Max", [x.name, zero.name], call.use.dtype)
    return Operand(found, call.use.result, x.shape)


def _softmax(call: Call) -> Operand:
    return call.rounded(call.context.one("Softmax", [call.wide("x")], axis=-1))


def _argmax(call: Call) -> Operand:
    """NaN counts as infinity: the first of both is taken."""
    context, x = call.context, call.operands["x"]
    dtype = x.type.dtype
    wide = context.wide("ArgMax", dtype)
    name = context.cast(call.name("x"), dtype, wide)
    if wide.is_float:
        most = context.scalar(float("inf"), wide)
        name = context.one("Where", [context.one("IsNaN", [name]), most, name])
    found = context.one("ArgMax", [name], axis=-1, keepdims=0)
    type_ = call.use.result
    return Operand(context.cast(found, DType.I64, type_.dtype), type_, type_.shape)


# --- conditions and table -------------------------------------------------------------------


def _narrow(use: Use) -> bool:
    return use.dtype in (DType.F16, DType.BF16)


def _f32(use: Use) -> bool:
    return use.computes == DType.F32


def _single(use: Use) -> bool:
    """Library functions compute in f32; an f64 stays what the body makes of it."""
    return use.dtype != DType.F64


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "std.nn.linear::linear": (
        Kernel("MatMul", "equivalent", "the provider's matrix product, in f32", _linear, _single),
    ),
    "std.nn.embedding::embedding": (
        Kernel("Gather", "exact", "rows of the table", _embedding),
    ),
    "std.nn.norm::rms_norm": (
        Kernel("RMSNormalization", "equivalent", "one operator, with the addition before it",
               _rms_norm, lambda use: not _narrow(use) and _single(use)),
        Kernel("RMSNormalization", "fast",
               "one operator; the normalised value isn't rounded before the weight",
               _rms_norm, _single),
        Kernel("RMSNormalization", "equivalent", "one operator in f32, then the weight",
               _rms_norm_rounded, lambda use: _narrow(use) and use.target.on_cpu),
    ),
    "std.nn.norm::layer_norm": (
        Kernel("LayerNormalization", "equivalent", "one operator", _layer_norm, _single),
    ),
    "std.nn.activations::relu": (Kernel("Max", "exact", "the same", _relu),),
    "std.nn.activations::sigmoid": (
        Kernel("Sigmoid", "equivalent", "one operator, f32 inside", _plain("Sigmoid"), _f32),
    ),
    "std.nn.activations::silu": (
        Kernel("SiLU", "equivalent", "one operator, f32 inside", _silu, _f32),
    ),
    "std.nn.activations::gelu": (
        Kernel("Gelu", "equivalent", "one operator, f32 inside",
               _plain("Gelu", approximate="tanh"), _f32),
    ),
    "std.nn.activations::gelu_erf": (
        Kernel("Gelu", "equivalent", "one operator with an exact error function",
               _plain("Gelu", approximate="none"), _f32),
    ),
    "std.nn.softmax::softmax": (
        Kernel("Softmax", "equivalent", "one operator, f32 inside", _softmax, _f32),
    ),
    "std.nn.decoding::argmax": (
        Kernel("ArgMax", "equivalent", "one operator; a NaN counts as infinity", _argmax,
               lambda use: use.dtype != DType.U64),
    ),
}  # fmt: skip
