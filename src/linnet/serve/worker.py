"""The thread that the engine runs on, and what other threads may ask of it.

Requests come in through a list, answers go out through each request's `on_step`; the engine never
waits for anyone who reads or writes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from linnet.serve.engine import Engine
from linnet.serve.request import Completion, QueueFull, Refused, Request

_LOG = logging.getLogger("linnet.serve")
_FAILURES = 3
"""So many steps in a row that fail, and the worker counts as broken."""


class Closing(RuntimeError):
    """The server is shutting down: nothing new is taken."""


@dataclass(slots=True, eq=False)
class Job:
    """A request handed to the worker."""

    request: Request
    on_refused: Callable[[Exception], None]
    """Called, on the engine's thread, where the engine does not take it after all."""
    completion: Completion | None = None
    cancelled: bool = False


class Worker:
    """Runs an engine on a thread of its own."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self._inbox: deque[Job] = deque()
        self._wake = threading.Condition()
        self._jobs: set[Job] = set()
        self._closing = False
        self._ends_at = float("inf")
        self._failures = 0
        self._thread = threading.Thread(target=self._work, name="linnet-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def healthy(self) -> bool:
        return self._thread.is_alive() and self._failures < _FAILURES

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def queued(self) -> int:
        """Answers that have no row yet."""
        return self.engine.waiting + sum(job.request.n for job in tuple(self._inbox))

    def submit(self, job: Job) -> Job:
        """Hands a request over. Raises `Refused`, `QueueFull`, `Closing`."""
        self.engine.check(job.request)
        with self._wake:
            if self._closing:
                raise Closing("the server is shutting down")
            if self.queued + job.request.n > self.engine.queue:
                raise QueueFull(f"{self.queued} requests are waiting already: try again later")
            self._inbox.append(job)
            self._wake.notify()
        return job

    def cancel(self, job: Job) -> None:
        """Ends a request at the next step, wherever it is."""
        job.cancelled = True
        if job.completion is not None:
            self.engine.cancel(job.completion)

    def drain(self, seconds: float) -> None:
        """Takes nothing new from now on; what is still not done after some seconds is ended."""
        with self._wake:
            self._closing = True
            self._ends_at = time.perf_counter() + seconds
            self._wake.notify()

    def stop(self, seconds: float) -> None:
        """Drains, and waits for the thread's end."""
        self.drain(seconds)
        if self._thread.is_alive():
            self._thread.join()

    # On the thread.

    def _work(self) -> None:
        while True:
            with self._wake:
                while not (self._inbox or self.engine.busy or self._closing):
                    self._wake.wait()
                if self._closing and not self._inbox and not self.engine.busy:
                    return
            self._take_in()
            if time.perf_counter() > self._ends_at:
                for job in self._jobs:
                    self.cancel(job)
            try:
                self.engine.step()
                self._failures = 0
            except Exception:  # Those it served have been told; the next may fare better.
                _LOG.exception("a step failed")
                self._failures += 1
            self._jobs = {job for job in self._jobs if job.completion and not job.completion.done}

    def _take_in(self) -> None:
        while self._inbox:
            job = self._inbox[0]
            try:
                job.completion = self.engine.submit(job.request)
            except (Refused, QueueFull) as error:
                job.on_refused(error)
            except Exception as error:  # A grammar that its library can't take, say.
                _LOG.exception("a request could not be begun")
                job.on_refused(error)
            else:
                self._jobs.add(job)
                if job.cancelled:
                    self.engine.cancel(job.completion)
            self._inbox.popleft()
