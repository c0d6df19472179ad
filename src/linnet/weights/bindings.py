"""Bindings: which checkpoint tensors each parameter of a model is made of.

`bindings.json` holds `{"format": 1, "bindings": {"layers.{i}.mlp.up.weight":
"model.layers.{i}.mlp.up_proj.weight", …}}`; `{i}` stands for a layer's index, any name in braces
for an index of its own. Instead of a name, `{"concat": ["a", "b"], "axis": 0}` joins tensors and
`{"tensor": "a", "transpose": true}` exchanges the axes of a matrix. A parameter without a binding
is the tensor of its own path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

MAX_SIZE = 1 << 20
"""Bytes of a bindings file; patterns keep real ones to a few kB."""

_INDEX = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class BindingsError(ValueError):
    """Bindings that can't be read; says where and why."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a parameter is: one tensor, or several joined along an axis."""

    tensors: tuple[str, ...]
    axis: int = 0
    transpose: bool = False

    def __str__(self) -> str:
        listed = ", ".join(f"`{name}`" for name in self.tensors)
        if len(self.tensors) > 1:
            return f"{listed} joined along axis {self.axis}"
        return f"{listed} transposed" if self.transpose else listed


@dataclass(frozen=True, slots=True)
class Bindings:
    """Exact paths, then patterns in the order they were written."""

    exact: Mapping[str, Binding]
    patterns: tuple[tuple[re.Pattern[str], Binding], ...] = ()

    def of(self, path: str) -> Binding:
        """What the parameter at a path is made of."""
        if path in self.exact:
            return self.exact[path]
        for pattern, target in self.patterns:
            if match := pattern.fullmatch(path):
                names = [_INDEX.sub(lambda i, m=match: m[i[1]], t) for t in target.tensors]
                return replace(target, tensors=tuple(names))
        return Binding((path,))

    def tensor(self, path: str) -> str:
        """The name of the tensor that a parameter is; raises `BindingsError` for one that is
        joined or transposed."""
        binding = self.of(path)
        if binding != Binding(binding.tensors[:1]):
            raise BindingsError(f"`{path}` is {binding}, not a tensor as it is stored")
        return binding.tensors[0]


NONE = Bindings({})
"""Every parameter under its own path."""


def read_bindings(source: str | Path | Mapping[str, object]) -> Bindings:
    """Bindings from a file or the object in it; raises `BindingsError`."""
    if isinstance(source, Mapping):
        return _parse(source, "bindings")
    where = str(source)
    try:
        with Path(source).open("rb") as file:
            text = file.read(MAX_SIZE + 1)
        if len(text) > MAX_SIZE:
            raise BindingsError(f"{where} is over the limit of {MAX_SIZE} bytes")
        table = json.loads(text.decode("utf-8"), object_pairs_hook=lambda p: _once(p, where))
    except OSError as error:
        raise BindingsError(f"{where}: {error.strerror}") from error
    except BindingsError:
        raise
    except (ValueError, RecursionError) as error:
        raise BindingsError(f"{where} is no JSON: {error}") from error
    return _parse(table, where)


def _once(pairs: list[tuple[str, object]], where: str) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BindingsError(f"{where}: `{twice}` stands twice")
    return table


def _parse(table: object, where: str) -> Bindings:
    if not isinstance(table, Mapping) or table.get("format") != 1:
        raise BindingsError(f'{where}: must be {{"format": 1, "bindings": {{…}}}}')
    if unknown := table.keys() - {"format", "bindings"}:
        raise BindingsError(f"{where}: unknown key `{sorted(unknown)[0]}`")
    entries = table.get("bindings")
    if not isinstance(entries, Mapping):
        raise BindingsError(f"{where}: `bindings` must map parameter paths to tensor names")
    exact: dict[str, Binding] = {}
    patterns: list[tuple[re.Pattern[str], Binding]] = []
    for path, given in entries.items():
        binding = _binding(path, given, where)
        indices = _INDEX.findall(path)
        _check_indices(path, indices, binding, where)
        if not indices:
            exact[path] = binding
            continue
        parts = _INDEX.split(path)
        expression = "".join(
            f"(?P<{part}>[0-9]+)" if i % 2 else re.escape(part) for i, part in enumerate(parts)
        )
        patterns.append((re.compile(expression), binding))
    return Bindings(exact, tuple(patterns))


def _binding(path: object, given: object, where: str) -> Binding:
    match given:
        case str():
            binding = Binding((given,))
        case {"concat": [*names], "axis": int(axis), **rest} if not rest:
            binding = Binding(tuple(names), axis)
        case {"tensor": name, "transpose": bool(transpose), **rest} if not rest:
            binding = Binding((name,), transpose=transpose)
        case _:
            binding = Binding(())
    names_are_text = all(isinstance(name, str) and name for name in (path, *binding.tensors))
    if not names_are_text or not binding.tensors or isinstance(binding.axis, bool):
        raise BindingsError(
            f'{where}: `{path}` must be bound to a tensor\'s name, {{"concat": ["a", "b"], '
            '"axis": 0} or {"tensor": "a", "transpose": true}'
        )
    if not 0 <= binding.axis < 8:
        raise BindingsError(f"{where}: `{path}`: axis {binding.axis} is not from 0 to 7")
    return binding


def _check_indices(path: str, indices: list[str], binding: Binding, where: str) -> None:
    for text in (path, *binding.tensors):
        if "{" in _INDEX.sub("", text) or "}" in _INDEX.sub("", text):
            raise BindingsError(f"{where}: `{text}`: braces hold the name of an index, as in {{i}}")
    unknown = {index for name in binding.tensors for index in _INDEX.findall(name)} - set(indices)
    if unknown or len(set(indices)) != len(indices):
        raise BindingsError(
            f"{where}: `{path}` → {binding}: each index stands once on the left, and only those of "
            "the left on the right"
        )
