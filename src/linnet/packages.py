"""Files behind module names: packages, `linnet.toml`, the standard library.

A package is a directory with `linnet.toml` and `src/`: its `crate` is `src/lib.linnet`, its
`crate.a.b` is `src/a/b.linnet`. A file on its own is a package of one module. `load_program` reads
the file asked for and every module it reaches, each once; nothing outside a package's `src/` is
read for it, whatever its paths and links say.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from linnet.diagnostics import Diagnostics, SourceFile, Span
from linnet.syntax import ast, decode_source, parse, read_source

STD = Path(__file__).parent / "std"


@dataclass(frozen=True, slots=True)
class Package:
    """`prefix` starts the names of its modules, which are unique in a program."""

    prefix: str
    source: Path
    """Where its modules lie; for a single file, the file itself."""
    dependencies: Mapping[str, Package]

    @property
    def is_single_file(self) -> bool:
        return self.source.suffix == ".linnet"


@dataclass(slots=True)
class Sources:
    """A root module and all that it reaches, by module name (`std.nn.linear`, `crate.a`)."""

    root: str
    files: dict[str, ast.File] = field(default_factory=dict)
    imports: dict[tuple[str, int], str] = field(default_factory=dict)
    """For a module and the place of a `use` in it, the module meant; absent if not found."""

    def imported(self, module: str, use: ast.Use) -> str | None:
        return self.imports.get((module, use.span.start))


_STD_PACKAGE = Package("std", STD, {})


def load_program(path: Path, diagnostics: Diagnostics) -> Sources:
    """Reads a file, or a package's directory, and what it imports.

    Reports what can't be found (E1202), read (E5001) or parsed; the result holds the rest.
    """
    if path.is_dir():
        package = _read_package(path.resolve(), diagnostics, {}, None)
        loader = _Loader(diagnostics)
        return loader.load(package, "lib") if package else Sources("crate")
    if not path.is_file():
        diagnostics.error("E1202", f"no file {path}", None)
        return Sources("crate")
    package, parts = _package_of(path, diagnostics)
    return _Loader(diagnostics, {path.resolve(): str(path)}).load(package, ".".join(parts))


def load_text(text: str | bytes, name: str, diagnostics: Diagnostics) -> Sources:
    """The same for a source that is in no file: it can import the standard library."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    loader = _Loader(diagnostics)
    source = decode_source(data, name, diagnostics)
    return loader.load_source(Package("crate", Path("text.linnet"), {}), source)


def _package_of(path: Path, diagnostics: Diagnostics) -> tuple[Package, list[str]]:
    """The package a file belongs to and its module's path in it; a package of its own if none."""
    file = path.resolve()
    for folder in file.parents:
        if folder.name == "src" and (folder.parent / "linnet.toml").is_file():
            package = _read_package(folder.parent, diagnostics, {}, None)
            if package:
                return package, list(file.relative_to(folder).with_suffix("").parts)
    if STD in file.parents:
        return _STD_PACKAGE, list(file.relative_to(STD).with_suffix("").parts)
    return Package("crate", file, {}), ["lib"]


# --- linnet.toml ----------------------------------------------------------------------------


def _read_package(
    folder: Path, diagnostics: Diagnostics, seen: dict[Path, Package], prefix: str | None
) -> Package | None:
    if folder in seen:
        return seen[folder]
    manifest = folder / "linnet.toml"
    where = str(manifest)

    def bad(message: str, help: str | None = None) -> None:
        diagnostics.error("E5001", f"{where}: {message}", None, help=help)

    try:
        table = tomllib.loads(manifest.read_text(encoding="utf-8"))
    except OSError as error:
        return bad(f"cannot be read: {error.strerror}", "a package has a `linnet.toml`")
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        return bad(f"is not valid TOML: {error}")
    header = table.get("package")
    if not isinstance(header, dict):
        return bad("has no `[package]` table", '[package]\nname = "…"\nversion = "0.1.0"')
    for key in ("name", "version", "language"):
        if key in header and not isinstance(header[key], str):
            return bad(f"`package.{key}` must be text, found {header[key]!r}")
    if not header.get("name"):
        return bad("`package.name` is missing")
    dependencies: dict[str, Package] = {}
    package = Package(prefix or "crate", (folder / "src").resolve(), dependencies)
    seen[folder] = package
    entries = table.get("dependencies", {})
    if not isinstance(entries, dict):
        return bad("`dependencies` must be a table")
    for key, entry in entries.items():
        place = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(place, str) or not key.isidentifier() or key in ("std", "crate"):
            bad(f"dependency `{key}` must be `name = {{ path = \"…\" }}`, its name free to use")
            continue
        used = {p.prefix for p in seen.values()}
        unique = next(n for n in (key, *(f"{key}.{i}" for i in range(2, 999))) if n not in used)
        dependency = _read_package((folder / place).resolve(), diagnostics, seen, unique)
        if dependency:
            dependencies[key] = dependency
    return package


# --- modules --------------------------------------------------------------------------------


class _Loader:
    """Reads modules, each once, breadth first from the root."""

    def __init__(self, diagnostics: Diagnostics, shown: Mapping[Path, str] | None = None):
        self.diagnostics = diagnostics
        self.shown = shown or {}
        self.pending: list[tuple[Package, str]] = []

    def load(self, package: Package, path: str) -> Sources:
        name = _module_name(package, path.split("."))
        sources = Sources(name)
        file = self._file(package, path.split("."), None, "")
        if file is None:
            self.diagnostics.error(
                "E1202", f"the package has no {package.source / 'lib.linnet'}", None
            )
            return sources
        self._add(sources, package, name, self._read(file))
        self._drain(sources)
        return sources

    def load_source(self, package: Package, source: SourceFile) -> Sources:
        sources = Sources("crate")
        self._add(sources, package, "crate", source)
        self._drain(sources)
        return sources

    def _drain(self, sources: Sources) -> None:
        while self.pending:
            package, module = self.pending.pop()
            for use in sources.files[module].uses:
                self._follow(sources, package, module, use)

    def _read(self, file: Path) -> SourceFile:
        return read_source(file, self.diagnostics, self.shown.get(file) or _shown(file))

    def _add(self, sources: Sources, package: Package, name: str, source: SourceFile) -> None:
        sources.files[name] = parse(source, self.diagnostics)
        self.pending.append((package, name))

    def _follow(self, sources: Sources, package: Package, module: str, use: ast.Use) -> None:
        head, *parts = [name.text for name in use.path]
        span = use.path[0].span.to(use.path[-1].span)
        if head == "std":
            target = _STD_PACKAGE
        elif head == "crate":
            target = package
        elif head in package.dependencies:
            target = package.dependencies[head]
        else:
            known = ["std", "crate", *package.dependencies]
            self.diagnostics.error(
                "E1202",
                f"there is no package `{head}`",
                span,
                help=f"a path starts with {', '.join(f'`{k}`' for k in known)}",
            )
            return
        file = self._file(target, parts or ["lib"], span, ".".join([head, *parts]))
        if file is None:
            return
        name = _module_name(target, parts or ["lib"])
        if name not in sources.files:
            self._add(sources, target, name, self._read(file))
        sources.imports[module, use.span.start] = name

    def _file(self, package: Package, parts: list[str], span: Span | None, text: str) -> Path | None:
        """A module's file; reported where there is none, or where it lies outside the package."""
        if package.is_single_file:
            if parts == ["lib"]:
                return package.source
            self.diagnostics.error(
                "E1202",
                f"there is no module `{text}`: this file is in no package",
                span,
                help="put it in a package: a directory with `linnet.toml` and `src/lib.linnet`",
            )
            return None
        file = package.source.joinpath(*parts).with_suffix(".linnet")
        if not file.is_file():
            self.diagnostics.error(
                "E1202", f"there is no module `{text}`", span, help=_near(package, parts, text)
            )
            return None
        if not file.resolve().is_relative_to(package.source):
            self.diagnostics.error("E1202", f"`{text}` leads out of its package", span)
            return None
        return file.resolve()


def _module_name(package: Package, parts: list[str]) -> str:
    return package.prefix if parts == ["lib"] else ".".join([package.prefix, *parts])


def _near(package: Package, parts: list[str], text: str) -> str | None:
    head = text.split(".")[0]
    modules = [
        ".".join([head, *file.relative_to(package.source).with_suffix("").parts])
        for file in sorted(package.source.rglob("*.linnet"))
    ]
    close = difflib.get_close_matches(text, modules, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(f'`{name}`' for name in close)}?"
    return f"`{head}` has {', '.join(f'`{name}`' for name in modules)}" if modules else None


def _shown(file: Path) -> str:
    """How a file is named in messages: from the working directory where it lies below it."""
    if file.is_relative_to(STD):
        return f"<std>/{file.relative_to(STD).as_posix()}"
    try:
        return str(file.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(file)
