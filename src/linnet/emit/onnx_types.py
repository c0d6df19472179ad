"""What dtypes ONNX Runtime's kernels compute in, and what stands in where one is lacking.

ONNX defines most operators for every dtype; providers have kernels for some. A dtype that an
operator has no kernel for is computed in a wider one that holds all of its values, and the result
is cast back: integers wrap and floats round, once, which is what the language says of both.
"""

from __future__ import annotations

from linnet.dtypes import DType

_I8, _I16, _I32, _I64 = DType.I8, DType.I16, DType.I32, DType.I64
_U8, _U16, _U32, _U64 = DType.U8, DType.U16, DType.U32, DType.U64
_FLOAT = frozenset({DType.F32, DType.F64})
_INTEGER = frozenset({_I8, _I16, _I32, _I64, _U8, _U16, _U32, _U64})
_BOTH = _FLOAT | _INTEGER
_HALF = frozenset({DType.F16, DType.BF16})

CPU: dict[str, frozenset[DType]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Abs"), _BOTH),
    "Mod": _BOTH,
    "Neg": _FLOAT | {_I8, _I16, _I32, _I64},
    **dict.fromkeys(("Min", "Max", "Clip"), _BOTH - {_I16, _U16}),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"), _INTEGER),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), frozenset({DType.BOOL})),
    **dict.fromkeys(("Exp", "Log", "Sqrt", "Sin", "Cos", "Tanh", "Reciprocal"), _FLOAT),
    "Equal": _BOTH | {DType.BOOL},
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _BOTH),
    "Where": _FLOAT | {_I8, _U8, _I32, _U32, _I64},
    "IsNaN": _FLOAT | _HALF,
    "MatMul": _FLOAT | {_I32, _I64, _U32, _U64},
    **dict.fromkeys(("FusedMatMul", "Softmax", "Sigmoid"), _FLOAT),
    **dict.fromkeys(("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ArgMax"),
                    _FLOAT | {_I32, _I64}),
    "Expand": _BOTH | {DType.BOOL, DType.F16},
}  # fmt: skip
"""For each operator whose dtypes matter, those that the CPU provider computes in."""

_HALF_ON_GPU = frozenset(
    {"Add", "Sub", "Mul", "Div", "Neg", "Abs", "Exp", "Log", "Sqrt", "Sin", "Cos", "Tanh",
     "Reciprocal", "Sigmoid", "Where", "Expand", "Min", "Max"}
)  # fmt: skip
"""Operators that GPU providers have for f16 and bf16 with one rounding. Sums are f32 there too."""

_WIDER = {
    DType.F16: DType.F32, DType.BF16: DType.F32, DType.BOOL: _U8,
    _I8: _I32, _I16: _I32, _I32: _I64, _U8: _I32, _U16: _I32, _U32: _I64, _U64: _I64,
}  # fmt: skip


def compute_dtype(op: str, dtype: DType, on_cpu: bool) -> DType:
    """The dtype that an operator is computed in for values of a dtype.

    u64 becomes i64, its two's complement, for sums and products only.
    """
    kernels = CPU[op]
    if not on_cpu and op in _HALF_ON_GPU:
        kernels = kernels | _HALF
    while dtype not in kernels:
        dtype = _WIDER[dtype]
    return dtype


ONNX: dict[DType, int] = {
    DType.BOOL: 9, _I8: 3, _I16: 5, _I32: 6, _I64: 7, _U8: 2, _U16: 4, _U32: 12, _U64: 13,
    DType.F16: 10, DType.BF16: 16, DType.F32: 1, DType.F64: 11,
}  # fmt: skip
"""ONNX's numbers of the dtypes (`TensorProto.DataType`)."""
