"""`linnet serve`: loads a model, warms it up, and serves until it is told to end."""

from __future__ import annotations

import dataclasses
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from linnet import nest
from linnet.nest.fetch import PathSource
from linnet.serve.engine import Engine
from linnet.serve.server import Limits, Server


def serve(
    model: str,
    *,
    backend: str,
    options: dict[str, Any],
    weights: Path | None,
    rows: int,
    max_seq: int,
    budget: int,
    queue: int,
    host: str,
    port: int,
    api_key: str | None,
    limits: Limits,
    drain_s: float,
    warm: bool,
) -> None:
    """Serves a model of the registry until SIGTERM or SIGINT, then ends cleanly: running requests
    get `drain_s` seconds, new ones are refused."""
    card = nest.find(model)
    if weights is not None:
        card = dataclasses.replace(card, weights=PathSource(weights))
    path = nest.fetch(card.weights)
    tokenizer = nest.tokenizer(card, path)
    sizes = {"MaxSeq": min(max_seq, card.generics["MaxSeq"]), "Batch": rows}
    runtime = nest.load(card, backend=backend, generics=sizes, weights=path, **options)
    engine = Engine(runtime, tokenizer, budget=budget, queue=queue)
    if warm:
        seconds = engine.warmup()
        print(f"warmed up in {seconds:.1f} s", file=sys.stderr)
    server = Server(engine, card.name, api_key=api_key, limits=limits)
    run(server, host, port, drain_s)


def run(server: Server, host: str, port: int, drain_s: float = 30.0) -> None:
    """Runs a server until it is told to end."""
    config = uvicorn.Config(
        server.app,
        host=host,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=int(drain_s) + 5,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 << 10,
    )
    _Draining(config, server, drain_s).run()


class _Draining(uvicorn.Server):
    """Tells the worker as soon as the signal comes; uvicorn then waits for its connections."""

    def __init__(self, config: uvicorn.Config, server: Server, drain_s: float):
        super().__init__(config)
        self._server, self._drain_s = server, drain_s

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        for one in self.servers:
            for socket in one.sockets:
                host, port = socket.getsockname()[:2]
                print(f"serving {self._server.name} on http://{host}:{port}", file=sys.stderr)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A second signal ends what is still running at once.
        again = self._server.worker.closing
        self._server.worker.drain(0.0 if again else self._drain_s)
        super().handle_exit(signal.SIGTERM if not again else sig, frame)
