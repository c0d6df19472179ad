"""Where Linnet keeps things."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Where Linnet keeps what it fetched: `$LINNET_CACHE`, else the user's cache directory."""
    if value := os.environ.get("LINNET_CACHE"):
        return Path(value).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "linnet"
