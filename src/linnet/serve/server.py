"""The HTTP server: OpenAI's endpoints over one engine.

A request is read and checked here (`protocol`), becomes requests of the engine (`worker`), and its
steps come back through a queue of its own. What is slow, text into tokens and schemas into
grammars, runs on other threads, so that `/health` always answers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from importlib import resources
from typing import Any

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from linnet.generate import encode_prompt
from linnet.serve.answers import Answer
from linnet.serve.engine import Engine
from linnet.serve.grammar import Grammars
from linnet.serve.metrics import Metrics
from linnet.serve.protocol import ApiError, Asked, read_chat, read_completion
from linnet.serve.request import Completion, QueueFull, Refused, Request, Step
from linnet.serve.worker import Closing, Job, Worker
from linnet.text.errors import ChatTemplateError
from linnet.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a client may ask for."""

    body: int = 1 << 20
    """Bytes of a body."""
    body_s: float = 30.0
    """Seconds in which it has to come."""
    deadline_s: float = 600.0
    """Seconds from a request to its end."""


class Server:
    """The application, and the worker behind it."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        api_key: str | None = None,
        limits: Limits | None = None,
    ):
        if engine.tokenizer is None:
            raise Refused("a server needs a tokenizer")
        self.engine = engine
        self.tokenizer: Tokenizer = engine.tokenizer
        self.name = name
        self.limits = limits or Limits()
        self.metrics = Metrics(engine)
        engine.on_finish = self.metrics.finished
        self.worker = Worker(engine)
        self.grammars = Grammars(self.tokenizer)
        self._key = api_key
        spelled = (self.tokenizer.token_bytes(i) for i in range(self.tokenizer.vocab_size))
        self._longest_token = max(map(len, spelled))
        self.app = self._application()

    def _application(self) -> FastAPI:
        @contextlib.asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            self.worker.start()
            yield
            await asyncio.to_thread(self.worker.stop, 0.0)

        app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
        app.add_api_route("/", self.page, methods=["GET"], response_class=HTMLResponse)
        app.add_api_route("/health", self.health, methods=["GET"])
        app.add_api_route("/metrics", self.told_metrics, methods=["GET"])
        app.add_api_route("/v1/models", self.models, methods=["GET"])
        app.add_api_route("/v1/models/{name:path}", self.model, methods=["GET"])
        app.add_api_route("/v1/completions", self.completions, methods=["POST"])
        app.add_api_route("/v1/chat/completions", self.chat, methods=["POST"])
        app.add_exception_handler(ApiError, self._on_api_error)  # type: ignore[arg-type]
        app.add_exception_handler(HTTPException, self._on_http_error)  # type: ignore[arg-type]
        app.add_exception_handler(ClientDisconnect, self._on_disconnect)  # type: ignore[arg-type]
        return app

    # Errors.

    async def _on_api_error(self, request: HttpRequest, error: ApiError) -> Response:
        self.metrics.refused.labels(str(error.status)).inc()
        headers = {"Retry-After": "1"} if error.status in (429, 503) else {}
        # What is left of a body that was not read would be taken for the next request.
        if error.status in (401, 408, 413):
            headers["Connection"] = "close"
        return JSONResponse(error.body(), error.status, headers)

    async def _on_http_error(self, request: HttpRequest, error: HTTPException) -> Response:
        message = f"{error.detail}: {request.method} {request.url.path}"
        return await self._on_api_error(request, ApiError(error.status_code, message))

    async def _on_disconnect(self, request: HttpRequest, error: ClientDisconnect) -> Response:
        return Response(status_code=499)

    # What needs no model.

    async def page(self) -> HTMLResponse:
        text = (resources.files("linnet.serve") / "page.html").read_text(encoding="utf-8")
        return HTMLResponse(text, headers={"Content-Security-Policy": _POLICY})

    async def health(self) -> Response:
        """200 while requests are taken, 503 when shutting down or broken."""
        if self.worker.closing:
            return JSONResponse({"status": "closing"}, 503)
        if not self.worker.healthy:
            return JSONResponse({"status": "broken"}, 503)
        return JSONResponse({"status": "ok"})

    async def told_metrics(self, request: HttpRequest) -> Response:
        self._authorise(request)
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def models(self, request: HttpRequest) -> dict[str, Any]:
        self._authorise(request)
        return {"object": "list", "data": [self._described()]}

    async def model(self, name: str, request: HttpRequest) -> dict[str, Any]:
        self._authorise(request)
        self._check_model(name)
        return self._described()

    def _described(self) -> dict[str, Any]:
        return {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "linnet",
            "max_model_len": self.engine.max_seq,
        }

    # Completions.

    async def completions(self, request: HttpRequest) -> Response:
        return await self._serve(request, chat=False)

    async def chat(self, request: HttpRequest) -> Response:
        return await self._serve(request, chat=True)

    async def _serve(self, http: HttpRequest, chat: bool) -> Response:
        self._authorise(http)
        body = await self._body(http)
        asked, requests = await asyncio.to_thread(self._read, body, chat)
        steps: asyncio.Queue[Told] = asyncio.Queue()
        answer = Answer.begin(
            uuid.uuid4().hex, chat, self.name, self.tokenizer, asked.logprobs is not None
        )
        jobs = self._submit(requests, steps)
        if asked.stream:
            # The first step also tells whether the engine takes it, while a status can be given.
            first = await self._first(http, steps, jobs)
            events = self._events(answer, asked, jobs, steps, first)
            return StreamingResponse(
                events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
            )
        try:
            completions = await self._until_gone(http, self._all(jobs, steps))
        finally:
            self._cancel(jobs)
        for completion in completions:
            _raise_failed(completion)
        return JSONResponse(answer.whole(completions))

    def _authorise(self, http: HttpRequest) -> None:
        if self._key is None:
            return
        scheme, _, given = http.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            given.strip().encode(), self._key.encode()
        ):
            raise ApiError(
                401, "give the server's API key as a bearer token", code="invalid_api_key"
            )

    async def _body(self, http: HttpRequest) -> Any:
        limit = self.limits.body
        large = ApiError(413, f"the body has more than the {limit} bytes that are taken")
        length = http.headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit:
            raise large
        data = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_s):
                async for part in http.stream():
                    data += part
                    if len(data) > limit:
                        raise large
        except TimeoutError as error:
            raise ApiError(408, "the body did not come in time") from error
        try:
            return json.loads(bytes(data))
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the body is no JSON: {error}") from error

    def _check_model(self, name: str) -> None:
        if name != self.name:
            raise ApiError(
                404,
                f"there is no model {name!r} here: this server has {self.name!r}",
                param="model",
                code="model_not_found",
            )

    def _read(self, body: Any, chat: bool) -> tuple[Asked, list[Request]]:
        """A body as requests of the engine. On a thread of its own; raises `ApiError`."""
        asked = read_chat(body) if chat else read_completion(body)
        self._check_model(asked.model)
        try:
            constraint = None if asked.schema is None else self.grammars.of_schema(asked.schema)
            prompts = [self._chat_prompt(asked)] if chat else map(self._prompt, asked.prompts)
            requests = []
            for prompt in prompts:
                room = self.engine.max_seq - len(prompt) + 1
                request = Request(
                    prompt,
                    max_new_tokens=min(asked.max_tokens or room, max(room, 1)),
                    params=asked.params,
                    stop=asked.stop,
                    stop_tokens=asked.stop_tokens,
                    ignore_eos=asked.ignore_eos,
                    n=asked.n,
                    logprobs=asked.logprobs,
                    deadline_s=self.limits.deadline_s,
                    constraint=constraint,
                )
                self._check_length(len(prompt))
                self.engine.check(request)
                requests.append(request)
        except (Refused, ChatTemplateError) as error:
            raise ApiError(400, str(error)) from error
        if (total := sum(request.n for request in requests)) > self.engine.queue:
            raise ApiError(
                400, f"{total} answers at once are more than the queue of {self.engine.queue}"
            )
        return asked, requests

    def _chat_prompt(self, asked: Asked) -> list[int]:
        self._check_text("".join(str(message["content"]) for message in asked.messages))
        try:
            return encode_prompt(self.tokenizer, asked.messages)  # type: ignore[arg-type]
        except ValueError as error:
            raise ApiError(400, str(error), param="messages") from error

    def _prompt(self, prompt: str | tuple[int, ...]) -> Sequence[int]:
        if not isinstance(prompt, str):
            if any(not -(1 << 31) <= token < 1 << 31 for token in prompt):
                raise ApiError(400, "prompt has tokens that are no token ids", param="prompt")
            return prompt
        self._check_text(prompt)
        try:
            return self.tokenizer.encode(prompt)
        except ValueError as error:
            raise ApiError(400, str(error), param="prompt") from error

    def _check_text(self, text: str) -> None:
        """Refuses what can't fit before any time goes into it."""
        if len(text) > self.engine.max_seq * self._longest_token:
            self._check_length(len(text) // self._longest_token)

    def _check_length(self, tokens: int) -> None:
        if tokens > self.engine.max_seq:
            raise ApiError(
                400,
                f"the prompt has at least {tokens} tokens, this server's cache holds "
                f"{self.engine.max_seq}",
                param="prompt",
                code="context_length_exceeded",
            )

    # The engine's side.

    def _submit(self, requests: Sequence[Request], steps: asyncio.Queue[Told]) -> list[Job]:
        loop = asyncio.get_running_loop()
        jobs: list[Job] = []

        def tell(told: Told) -> None:
            # A loop that is closed has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(steps.put_nowait, told)

        try:
            for number, request in enumerate(requests):
                base = number * request.n

                def on_step(step: Step, base: int = base) -> None:
                    tell((base + step.choice, step))

                request = dataclasses.replace(request, on_step=on_step)
                jobs.append(self.worker.submit(Job(request, lambda error: tell((-1, error)))))
        except Exception as error:
            self._cancel(jobs)
            raise _as_api_error(error) from error
        return jobs

    def _cancel(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job.completion is None or not job.completion.done:
                self.worker.cancel(job)

    async def _first(
        self, http: HttpRequest, steps: asyncio.Queue[Told], jobs: Sequence[Job]
    ) -> Told:
        try:
            index, step = await self._until_gone(http, steps.get())
        except BaseException:
            self._cancel(jobs)
            raise
        if isinstance(step, Exception):
            self._cancel(jobs)
            raise _as_api_error(step)
        if step.finish not in (None, "stop", "length"):
            self._cancel(jobs)
            raise _failure(step.finish, None)
        return index, step

    async def _until_gone(self, http: HttpRequest, work: Any) -> Any:
        """What a coroutine gives; ends it with `ClientDisconnect` when the client goes."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(http))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ClientDisconnect
        finally:
            task.cancel()
            gone.cancel()

    async def _all(self, jobs: Sequence[Job], steps: asyncio.Queue[Told]) -> list[Completion]:
        left = sum(job.request.n for job in jobs)
        while left:
            _, step = await steps.get()
            if isinstance(step, Exception):
                raise _as_api_error(step)
            left -= step.finish is not None
        return [job.completion for job in jobs if job.completion is not None]

    async def _events(
        self,
        answer: Answer,
        asked: Asked,
        jobs: Sequence[Job],
        steps: asyncio.Queue[Told],
        first: Told,
    ) -> AsyncIterator[str]:
        """The lines of a stream. When the client goes, this is ended where it waits."""
        left = sum(job.request.n for job in jobs)
        try:
            if answer.chat:
                for index in range(left):
                    yield _event(answer.first(index))
            told = first
            while True:
                index, step = told
                if isinstance(step, Exception):
                    yield _event(_as_api_error(step).body())
                    return
                if step.finish not in (None, "stop", "length"):
                    yield _event(_failure(step.finish, None).body())
                    return
                chunk = answer.chunk(index, step)
                if chunk is not None:
                    yield _event(chunk)
                left -= step.finish is not None
                if not left:
                    break
                told = await steps.get()
            if asked.include_usage:
                done = [job.completion for job in jobs if job.completion is not None]
                yield _event(answer.last(done))
            yield "data: [DONE]\n\n"
        finally:
            self._cancel(jobs)


Told = tuple[int, Step | Exception]
"""A step of a choice, by its number among all of an HTTP request's; or why there is none."""

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
)


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


async def _gone(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFull):
        return ApiError(429, str(error), code="queue_full")
    if isinstance(error, Closing):
        return ApiError(503, str(error), code="closing")
    if isinstance(error, Refused):
        return ApiError(400, str(error))
    return ApiError(500, "the request could not be begun")


def _failure(finish: str | None, error: str | None) -> ApiError:
    if finish == "deadline":
        return ApiError(504, "the request's time is over", code="deadline")
    if finish == "cancelled":
        return ApiError(503, "the server ended the request: it is shutting down", code="closing")
    return ApiError(500, error or "the model failed")


def _raise_failed(completion: Completion) -> None:
    for choice in completion.choices:
        if choice.finish not in ("stop", "length"):
            raise _failure(choice.finish, choice.error)
