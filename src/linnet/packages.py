"""Files behind module names: packages, `linnet.toml`, the standard library.

A package is a directory with `linnet.toml` and `src/`: its `crate` is `src/lib.linnet`, its
`crate.a.b` is `src/a/b.linnet`. A file on its own is a package of one module. `load_program` reads
the file asked for and every module it reaches, each once; nothing outside a package's `src/` is
read for it, whatever its paths and links say.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from linnet.diagnostics import Diagnostics, SourceFile, Span, printable
from linnet.syntax import ast, decode_source, parse, read_source
from linnet.syntax.tokens import KEYWORDS

STD = Path(os.path.realpath(__file__)).parent / "std"
MAX_PACKAGES = 100
"""How many packages one program may take in."""


@dataclass(frozen=True, slots=True)
class Package:
    """`prefix` starts the names of its modules, which are unique in a program."""

    prefix: str
    source: Path
    """Where its modules lie; for a single file, the file itself."""
    dependencies: Mapping[str, Package]
    is_single_file: bool = False


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
    if _is(Path.is_dir, path):
        package = _read_package(_real(path), diagnostics, {}, None)
        return _Loader(diagnostics).load_package(package) if package else Sources("crate")
    if not _is(Path.is_file, path):
        diagnostics.error("E1202", f"there is no file {printable(str(path))}", None)
        return Sources("crate")
    file = _real(path)
    home = _package_of(file, diagnostics)
    if home is None:
        return Sources("crate")
    package, parts = home
    loader = _Loader(diagnostics, {file: printable(str(path))})
    return loader.load(package, _module_name(package, parts), loader.read(file))


def load_text(text: str | bytes, name: str, diagnostics: Diagnostics) -> Sources:
    """The same for a source that is in no file: it can import the standard library."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    source = decode_source(data, name, diagnostics)
    package = Package("crate", Path(), {}, is_single_file=True)
    return _Loader(diagnostics).load(package, "crate", source)


def _package_of(file: Path, diagnostics: Diagnostics) -> tuple[Package, list[str]] | None:
    """The package a file belongs to and its module's path there; one of its own if it has none.

    None, and reported, where its package can't be read.
    """
    for folder in file.parents:
        if folder.name == "src" and _is(Path.is_file, folder.parent / "linnet.toml"):
            package = _read_package(folder.parent, diagnostics, {}, None)
            parts = list(file.relative_to(folder).with_suffix("").parts)
            return (package, parts) if package else None
    if STD in file.parents:
        return _STD_PACKAGE, list(file.relative_to(STD).with_suffix("").parts)
    return Package("crate", file, {}, is_single_file=True), ["lib"]


def _real(path: Path) -> Path:
    """A path with every link followed; unlike `Path.resolve` it takes loops of links."""
    return Path(os.path.realpath(path))


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Whether it is there; what can't be looked at (a name too long, a closed folder) isn't."""
    try:
        return kind(path)
    except (OSError, ValueError):
        return False


# --- linnet.toml ----------------------------------------------------------------------------


def _read_package(
    folder: Path, diagnostics: Diagnostics, seen: dict[Path, Package | None], prefix: str | None
) -> Package | None:
    """The package in a folder, with those it depends on; None, and reported, where it is broken."""
    import tomllib  # Most programs have no manifest, and don't wait for its reader.

    if folder in seen:
        return seen[folder]
    seen[folder] = None
    manifest = folder / "linnet.toml"

    def bad(message: str, help: str | None = None) -> None:
        diagnostics.error("E5001", f"{_shown(manifest)}: {message}", None, help=help)

    if len(seen) > MAX_PACKAGES:
        return bad(f"this program takes in more than {MAX_PACKAGES} packages")
    try:
        table = tomllib.loads(manifest.read_text(encoding="utf-8-sig"))
    except OSError as error:
        return bad(f"cannot be read: {error.strerror}", "a package has a `linnet.toml`")
    except (ValueError, RecursionError) as error:
        return bad(f"is not valid TOML: {error}")
    header = table.get("package")
    if not isinstance(header, dict):
        return bad("has no `[package]` table", 'begin with `[package]` and `name = "…"`')
    for key in ("name", "version", "language"):
        if key in header and not isinstance(header[key], str):
            return bad(f"`package.{key}` must be text, found {header[key]!r:.40}")
    if not header.get("name"):
        return bad("`package.name` is missing", 'add `name = "…"` under `[package]`')
    source = _real(folder / "src")
    if not source.is_relative_to(folder):
        return bad("its `src` leads out of the package")
    dependencies: dict[str, Package] = {}
    package = seen[folder] = Package(prefix or "crate", source, dependencies)
    entries = table.get("dependencies", {})
    if not isinstance(entries, dict):
        return bad("`dependencies` must be a table")
    for key, entry in entries.items():
        place = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(place, str) or "\0" in place:
            bad(f'the dependency `{printable(key)}` must be `{{ path = "…" }}`')
        elif key in ("std", *KEYWORDS) or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", key):
            bad(f"the dependency `{printable(key)}` needs another name: imports start with it")
        else:
            unique = _unique(key, {p.prefix for p in seen.values() if p})
            dependency = _read_package(_real(folder / place), diagnostics, seen, unique)
            if dependency:
                dependencies[key] = dependency
    return package


def _unique(key: str, used: set[str]) -> str:
    """The key, or with a number after it where another package has it."""
    number, name = 1, key
    while name in used:
        number += 1
        name = f"{key}.{number}"
    return name


# --- modules --------------------------------------------------------------------------------


class _Loader:
    """Reads modules, each once: the root, and what it and they import.

    `shown` says how a file is named in messages, where not by its path.
    """

    def __init__(self, diagnostics: Diagnostics, shown: Mapping[Path, str] | None = None):
        self.diagnostics = diagnostics
        self.shown = shown or {}
        self.pending: list[tuple[Package, str]] = []

    def load_package(self, package: Package) -> Sources:
        root = package.source / "lib.linnet"
        if not _is(Path.is_file, root):
            self.diagnostics.error(
                "E1202",
                f"there is no file {_shown(root)}",
                None,
                help="a package's root module is `src/lib.linnet`",
            )
            return Sources(package.prefix)
        return self.load(package, package.prefix, self.read(root))

    def load(self, package: Package, name: str, source: SourceFile | None) -> Sources:
        sources = Sources(name)
        if source is not None:
            self._add(sources, package, name, source)
        while self.pending:
            importer, module = self.pending.pop()
            for use in sources.files[module].uses:
                self._follow(sources, importer, module, use)
        return sources

    def read(self, file: Path) -> SourceFile | None:
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
        parts = parts or ["lib"]
        name = _module_name(target, parts)
        if name not in sources.files:
            file = self._find(target, parts, ".".join(n.text for n in use.path), span)
            source = self.read(file) if file else None
            if source is None:
                return
            self._add(sources, target, name, source)
        sources.imports[module, use.span.start] = name

    def _find(self, package: Package, parts: list[str], text: str, span: Span) -> Path | None:
        """A module's file; reported where there is none, or where it lies outside the package."""
        if package.is_single_file:
            self.diagnostics.error(
                "E1202",
                f"there is no module `{text}`: this file is in no package",
                span,
                help="put it in a package: a directory with `linnet.toml` and `src/lib.linnet`",
            )
            return None
        file = package.source.joinpath(*parts).with_suffix(".linnet")
        if not _is(Path.is_file, file):
            help = _near(package, text)
            self.diagnostics.error("E1202", f"there is no module `{text}`", span, help=help)
            return None
        # The library's own files may be links, as some installers make them.
        if package is not _STD_PACKAGE and not _real(file).is_relative_to(package.source):
            self.diagnostics.error("E1202", f"`{text}` leads out of its package", span)
            return None
        return _real(file)


def _module_name(package: Package, parts: list[str]) -> str:
    return package.prefix if parts == ["lib"] else ".".join([package.prefix, *parts])


def _near(package: Package, text: str) -> str | None:
    """The modules that may have been meant, or else all there are."""
    head = text.split(".")[0]
    files = sorted(f for f in package.source.rglob("*.linnet") if _is(Path.is_file, f))
    paths = [f.relative_to(package.source).with_suffix("").parts for f in files]
    modules = [".".join([head, *(path if path != ("lib",) else ())]) for path in paths]
    close = difflib.get_close_matches(text, modules, n=3, cutoff=0.8)
    if close:
        return f"did you mean {' or '.join(f'`{name}`' for name in close)}?"
    return f"there are {', '.join(f'`{name}`' for name in modules)}" if modules else None


def _shown(file: Path) -> str:
    """How a file is named in messages: from the working directory where it lies below it."""
    if file.is_relative_to(STD):
        return f"<std>/{file.relative_to(STD).as_posix()}"
    try:
        return printable(str(file.relative_to(Path.cwd())))
    except (ValueError, OSError):
        return printable(str(file))
