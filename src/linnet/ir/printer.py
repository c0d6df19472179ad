"""Core IR as text, and stable: the same module always gives the same characters.

    entry decode from crate::Tiny.decode<H = 4, T = f32, S = [1, 2]>
      input tokens: i32[1, 2] = tokens
      param weight: f32[8, 4] = embedding.weight
      x: f32[1, 2, 4] = gather weight, tokens {axes = [0]}
      return x

A function's first line says its kind, name and source; then one line for each input (with the
source parameter it belongs to), weight and state; then the operations; then what it returns, and
the new states after `next`. `parse.py` reads this text back.
"""

from __future__ import annotations

import json

from linnet.dtypes import DType
from linnet.ir.core import Attr, Function, Module, Op, Slot, Value


def print_module(module: Module, *, locations: bool = False) -> str:
    """A module as text; with `locations`, where each operation comes from in the source."""
    parts = [f"module {module.entry}\n"]
    parts += [print_function(f, locations=locations) for f in module.functions.values()]
    if module.prepare is not None:
        parts.append(f"prepare {', '.join(module.derived)}\n")
        parts.append(print_function(module.prepare, locations=locations))
    return "\n".join(parts)


def print_function(function: Function, *, locations: bool = False) -> str:
    """One function as text, with a line end."""
    header = _header(function)
    lines = [f"{header} // {function.location}" if locations and function.location else header]
    names = function.arguments or tuple(value.name for value in function.inputs)
    for value, argument in zip(function.inputs, names, strict=True):
        lines.append(f"input {_typed(value)} = {argument}")
    lines += [_slot(slot) for slot in (*function.weights, *function.states)]
    for op in function.ops:
        text = print_op(op)
        lines.append(f"{text} // {op.location}" if locations and op.location else text)
    lines.append(f"return {_names(function.results)}".rstrip())
    if function.states:
        lines.append(f"next {_names(function.new_states)}")
    return "\n  ".join(lines) + "\n"


def print_op(op: Op) -> str:
    """One operation as text."""
    outputs = ", ".join(map(_typed, op.outputs))
    text = f"{op.kind} {_names(op.inputs)}".rstrip()
    if op.attrs:
        text += f" {{{', '.join(f'{k} = {print_attr(v)}' for k, v in op.attrs.items())}}}"
    return f"{outputs} = {text}" if outputs else text


def print_attr(value: Attr) -> str:
    """An attribute as text: `1`, `0.5`, `true`, `bf16`, `"text"`, `[1, 2]`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DType):
        return value.value
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(print_attr, value))}]"
    return repr(value)


def _header(function: Function) -> str:
    bound = ", ".join(f"{name} = {print_attr(value)}" for name, value in function.generics)
    source = f" from {function.source}" if function.source else ""
    return f"{function.kind} {function.name}{source}" + (f"<{bound}>" if bound else "")


def _slot(slot: Slot) -> str:
    return f"{slot.kind} {_typed(slot.value)} = {slot.path}"


def _typed(value: Value) -> str:
    return f"{value.name}: {value.type}"


def _names(values: tuple[Value, ...]) -> str:
    return ", ".join(value.name for value in values)
