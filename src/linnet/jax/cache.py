"""Compiled programs on disk, by what they were made from.

A file holds a digest of its content before it; one that is damaged, or was written by half, is
taken for none and written again. The folder is the user's own: it holds machine code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from pathlib import Path

from linnet import __version__
from linnet.folders import cache_dir

_MAGIC = b"linnet executable 1\n"
LIMIT = 2 << 30
"""Bytes that the folder may hold; what was used longest ago goes first."""


def default_folder() -> Path:
    return cache_dir() / "xla"


class ExecutableCache:
    """Executables by key. What can't be read or written is as if it weren't there."""

    def __init__(self, folder: Path, limit: int = LIMIT):
        self.folder = folder
        self.limit = limit

    def get(self, key: str) -> bytes | None:
        path = self.folder / key
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head, content = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        if head != _MAGIC + hashlib.sha256(content).digest():
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        temporary = self.folder / f".{key}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_bytes(_MAGIC + hashlib.sha256(content).digest() + content)
            temporary.replace(self.folder / key)
            self._prune(key)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _prune(self, newest: str) -> None:
        files = [(path, path.stat()) for path in self.folder.iterdir() if path.name != newest]
        total = (self.folder / newest).stat().st_size + sum(stat.st_size for _, stat in files)
        for path, stat in sorted(files, key=lambda pair: pair[1].st_mtime):
            if total <= self.limit:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size


def cache_key(text: str, target: str, flags: dict[str, bool]) -> str:
    """A digest of all that an executable depends on: its program, its compiler, its device."""
    parts = [text, target, repr(sorted(flags.items())), __version__, _processor()]
    parts += [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _processor() -> str:
    """The processor's features: code for one may use what another lacks."""
    found = [platform.machine(), platform.processor()]
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "flags", "Features"):
                found.append(value.strip())
            elif not line and len(found) > 2:
                break
    except OSError:
        pass
    return "\n".join(found)
