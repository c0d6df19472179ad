"""Bindings: which checkpoint tensor each parameter of a model is.

`bindings.json` holds `{"format": 1, "bindings": {"layers.{i}.mlp.up.weight":
"model.layers.{i}.mlp.up_proj.weight", …}}`; `{i}` stands for a layer's index, any name in braces
for an index of its own. A parameter without a binding is the tensor of its own path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_INDEX = re.compile(r"\{([A-Za-z_]\w*)\}")


class BindingsError(ValueError):
    """Bindings that can't be read; says where and why."""


@dataclass(frozen=True, slots=True)
class Bindings:
    """Exact paths, then patterns in the order they were written."""

    exact: Mapping[str, str]
    patterns: tuple[tuple[re.Pattern[str], str], ...] = ()

    def tensor(self, path: str) -> str:
        """The name of the checkpoint's tensor for a parameter path."""
        if path in self.exact:
            return self.exact[path]
        for pattern, target in self.patterns:
            match = pattern.fullmatch(path)
            if match:
                return _INDEX.sub(lambda index: match[index[1]], target)
        return path


NONE = Bindings({})
"""Every parameter under its own path."""


def read_bindings(source: str | Path | Mapping[str, object]) -> Bindings:
    """Bindings from a file or the object in it; raises `BindingsError`."""
    if isinstance(source, Mapping):
        return _parse(source, "bindings")
    try:
        return _parse(json.loads(Path(source).read_text(encoding="utf-8")), str(source))
    except OSError as error:
        raise BindingsError(f"{source}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, BindingsError):
            raise
        raise BindingsError(f"{source} is no JSON: {error}") from error


def _parse(table: object, where: str) -> Bindings:
    if not isinstance(table, Mapping) or table.get("format") != 1:
        raise BindingsError(f'{where}: must be {{"format": 1, "bindings": {{…}}}}')
    entries = table.get("bindings")
    if not isinstance(entries, Mapping):
        raise BindingsError(f"{where}: `bindings` must map parameter paths to tensor names")
    exact: dict[str, str] = {}
    patterns: list[tuple[re.Pattern[str], str]] = []
    for path, name in entries.items():
        if not isinstance(path, str) or not isinstance(name, str) or not path or not name:
            raise BindingsError(f"{where}: `{path}` must be bound to a tensor's name")
        indices = _INDEX.findall(path)
        unknown = set(_INDEX.findall(name)) - set(indices)
        if unknown or len(set(indices)) != len(indices):
            raise BindingsError(
                f"{where}: `{path}` → `{name}`: each index stands once on the left, and only "
                "those of the left on the right"
            )
        if not indices:
            exact[path] = name
            continue
        parts = _INDEX.split(path)
        expression = "".join(
            f"(?P<{part}>[0-9]+)" if i % 2 else re.escape(part) for i, part in enumerate(parts)
        )
        patterns.append((re.compile(expression), name))
    return Bindings(exact, tuple(patterns))
