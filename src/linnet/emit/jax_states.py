"""States that travel together through generated JAX: nested dicts and lists of arrays.

Core IR threads each state as a value of its own, which for a model of thirty layers would be sixty
parameters and results. Here a function takes and gives one dict of them. `Bundles` knows which
values lie in which dict, and writes any set of them as one expression: the dict itself where it
holds just these (`state["attention"]`), else a new one (`{"key_cache": key_cache, …}`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from linnet.emit.lines import Statement, reroll_arrays
from linnet.ir.core import Value


def subscript(name: str, path: str) -> str:
    """A place in nested dicts and lists: `model["layers"][3]["norm"]`."""
    text = name
    for part in path.split(".") if path else ():
        text += f"[{part}]" if part.isdigit() else f'["{part}"]'
    return text


@dataclass(slots=True)
class Bundles:
    """The dicts and lists of one function, by the names that hold them."""

    arrays: Mapping[str, int]
    """The lengths of the arrays of blocks, by path."""
    place: dict[Value, tuple[str, str]] = field(default_factory=dict)
    """For each value in a dict, the name that holds it and the path there."""
    paths: dict[str, frozenset[str]] = field(default_factory=dict)
    """For each name, the paths of all that it holds."""
    lists: dict[str, str] = field(default_factory=dict)
    """For each array of blocks whose new states are collected, the list's name."""
    texts: dict[str, str] = field(default_factory=dict)
    """Expressions of arrays of blocks, or of their states, with the array's path."""

    def subscript(self, name: str, path: str) -> str:
        """A place in a dict; notes the arrays on the way."""
        parts = path.split(".") if path else []
        for i, part in enumerate(parts):
            if part.isdigit():
                before = ".".join(parts[:i])
                array = self.texts.get(name)
                if array is not None:
                    before = f"{array}.{before}" if before else array
                if before in self.arrays:
                    self.texts[subscript(name, ".".join(parts[:i]))] = before
        return subscript(name, path)

    def note(self, name: str, array: str) -> None:
        """Notes a list of an array's states."""
        self.texts[name] = array

    def holder(self, array: str, paths: Sequence[str]) -> str | None:
        """What holds the states of an array's blocks as a list."""
        for name, held in reversed(self.paths.items()):
            if held.issuperset(paths) and name not in self.lists.values():
                return self.subscript(name, array)
        return None

    def expression(
        self, values: Sequence[tuple[str, Value]], leaf: Callable[[Value], str], exact: bool
    ) -> str:
        """Values by path as one expression; what it holds beyond them does not matter unless
        `exact`."""
        if len(values) == 1 and not values[0][0]:
            return leaf(values[0][1])
        found = self._holding(values, exact)
        if found is not None:
            return self.subscript(*found)
        groups: dict[str, list[tuple[str, Value]]] = {}
        for path, value in values:
            head, _, rest = path.partition(".")
            groups.setdefault(head, []).append((rest, value))
        items = {head: self.expression(group, leaf, exact) for head, group in groups.items()}
        if all(head.isdigit() for head in items):
            last = max(map(int, items))
            return f"[{', '.join(items.get(str(i), 'None') for i in range(last + 1))}]"
        return "{" + ", ".join(f'"{head}": {text}' for head, text in items.items()) + "}"

    def _holding(self, values: Sequence[tuple[str, Value]], exact: bool) -> tuple[str, str] | None:
        """The name, and the path in it, of a dict that holds values by just these paths."""
        names: set[tuple[str, str]] = set()
        for path, value in values:
            name, place = self.place.get(value, ("", ""))
            if place != path and not place.endswith(f".{path}"):
                return None
            names.add((name, place[: len(place) - len(path)].rstrip(".")))
        if len(names) != 1:
            return None
        ((name, below),) = names
        lead = f"{below}." if below else ""
        held = {p.removeprefix(lead) for p in self.paths[name] if p.startswith(lead)}
        if exact and held != {path for path, _ in values}:
            return None
        return name, below

    def rerolled(self, statements: Sequence[Statement], taken: set[str]) -> list[Statement]:
        """Makes loops over arrays of statements that differ by the index alone."""
        found = list(statements)
        by_array: dict[str, list[str]] = {}
        for text, array in self.texts.items():
            by_array.setdefault(array, []).append(text)
        for array in sorted(by_array, key=lambda path: -path.count(".")):
            name = array.rsplit(".", 1)[-1]
            found = reroll_arrays(found, by_array[array], name, self.arrays[array], taken)
        return found
