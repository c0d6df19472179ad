"""The element types of the language, under the names every part of Linnet uses for them."""

from __future__ import annotations

from enum import StrEnum


class DType(StrEnum):
    """An element type; its value is its name in source (`bf16`)."""

    BOOL = "bool"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"

    @property
    def bits(self) -> int:
        """Width in bits; a `bool` takes one byte of memory."""
        return 8 if self is DType.BOOL else int(self.value.lstrip("biuf"))

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self in FLOATS

    @property
    def is_integer(self) -> bool:
        return self in INTEGERS

    @property
    def is_signed(self) -> bool:
        return self.value[0] in "if" or self is DType.BF16

    @property
    def integer_range(self) -> tuple[int, int]:
        """Smallest and largest value; only for integer dtypes."""
        if not self.is_integer:
            raise ValueError(f"{self} is no integer dtype")
        if self.is_signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
INTEGERS = frozenset(
    {DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64}
)
NUMERICS = FLOATS | INTEGERS

KINDS: dict[str, frozenset[DType]] = {
    "DType": frozenset(DType),
    "Numeric": NUMERICS,
    "Integer": INTEGERS,
    "Float": FLOATS,
}
"""What a dtype generic of each kind may stand for."""
