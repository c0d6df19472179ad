"""A running server with the real SmolLM2-135M, as users start it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

NAME = "smollm2-135m-instruct"
KEY = "a-secret"


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def end(self) -> int:
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=90)


@contextmanager
def serving(weights: Path, *options: str) -> Iterator[Running]:
    """`linnet serve` on a free port, until it is ended."""
    command = [sys.executable, "-m", "linnet.cli", "serve", NAME, "--weights", str(weights)]
    command += ["--port", "0", "--no-warmup", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r"on (http://\S+)", line):
            break
    else:
        pytest.fail(f"the server ended: {said}")
    try:
        yield Running(process, found[1])
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def server(smollm2_gguf: Path) -> Iterator[Running]:
    options = ("--rows", "4", "--max-seq", "256", "--queue", "12", "--api-key", KEY)
    with serving(smollm2_gguf, *options, "--max-body", "100000") as running:
        yield running
