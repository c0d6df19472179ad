"""Checking: a source's syntax trees to a typed program, or diagnostics that say why not.

`check_file`, `check_text` are the way in; `typed` holds what comes out, `dims` the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from linnet.check import typed
from linnet.check.modules import check_program
from linnet.diagnostics import Diagnostic, Diagnostics, LinnetError
from linnet.packages import Sources, load_program, load_text


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found; `program` is there if and only if there are no errors."""

    program: typed.Program | None
    diagnostics: list[Diagnostic]
    sources: Sources

    @property
    def ok(self) -> bool:
        return self.program is not None

    def require(self) -> typed.Program:
        """The program; raises `LinnetError` with the diagnostics where there are errors."""
        if self.program is None:
            raise LinnetError(self.diagnostics)
        return self.program


def check_file(path: str | Path) -> CheckResult:
    """Checks a `.linnet` file, or a package's directory, and all it imports."""
    diagnostics = Diagnostics()
    return _finish(load_program(Path(path), diagnostics), diagnostics)


def check_text(text: str | bytes, name: str = "<text>") -> CheckResult:
    """Checks a source that is in no file; it can import the standard library."""
    diagnostics = Diagnostics()
    return _finish(load_text(text, name, diagnostics), diagnostics)


def _finish(sources: Sources, diagnostics: Diagnostics) -> CheckResult:
    program = check_program(sources, diagnostics)
    return CheckResult(program, diagnostics.final(), sources)


__all__ = ["CheckResult", "check_file", "check_text"]
