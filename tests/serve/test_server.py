"""The server with the real SmolLM2-135M, through the official client, curl, and bare sockets."""

from __future__ import annotations

import concurrent.futures
import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.serve.conftest import KEY, NAME, Running, serving

pytestmark = pytest.mark.weights
ASK = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, timeout=300)


def chat(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(
        **{"model": NAME, "messages": ASK, "temperature": 0, "max_tokens": 20, **options}
    )


# --- the official client ----------------------------------------------------------------------


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).owned_by == "linnet"


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = chat(client)
    choice = answer.choices[0]
    assert choice.message.content == ANSWER and choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert answer.usage.prompt_tokens == 37 and answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == 45


def test_a_stream_is_the_same_in_pieces(client: openai.OpenAI) -> None:
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == ANSWER and len(chunks) > 5
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == 8


def test_logprobs_are_told(client: openai.OpenAI) -> None:
    answer = chat(client, logprobs=True, top_logprobs=3)
    told = answer.choices[0].logprobs.content
    assert "".join(one.token for one in told).startswith(ANSWER)
    for one in told:
        assert one.logprob <= 0 and bytes(one.bytes).decode() == one.token
        assert len(one.top_logprobs) == 3 and one.top_logprobs[0].token == one.token
        assert one.top_logprobs[0].logprob == one.logprob


def test_a_text_is_completed(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": NAME, "temperature": 0, "max_tokens": 6}
    both = client.completions.create(prompt=["Once upon a time", "One, two,"], **options)
    assert [choice.index for choice in both.choices] == [0, 1]
    for choice, prompt in zip(both.choices, ["Once upon a time", "One, two,"], strict=True):
        alone = client.completions.create(prompt=prompt, logprobs=2, **options)
        assert alone.choices[0].text == choice.text
        told = alone.choices[0].logprobs
        assert told is not None and "".join(told.tokens or []) == choice.text
        assert told.text_offset is not None and told.text_offset[:2] == [0, len(told.tokens[0])]  # type: ignore[index]
    pieces = client.completions.create(prompt="One, two,", stream=True, **options)
    assert "".join(chunk.choices[0].text for chunk in pieces) == both.choices[1].text


def test_seeds_and_choices(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"temperature": 1.2, "seed": 5, "max_tokens": 12, "n": 3}
    first, second = chat(client, **options), chat(client, **options)
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    assert len(set(texts)) > 1
    parts = {0: "", 1: "", 2: ""}
    for chunk in chat(client, stream=True, **options):
        for choice in chunk.choices:
            parts[choice.index] += choice.delta.content or ""
    assert list(parts.values()) == texts


def test_a_stop_string_ends_the_text(client: openai.OpenAI) -> None:
    answer = chat(client, stop=" France")
    assert answer.choices[0].message.content == "The capital of"
    assert answer.choices[0].finish_reason == "stop"
    streamed = chat(client, stop=" France", stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
    assert text == "The capital of"


def test_json_follows_its_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    format_ = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    for seed in range(3):
        answer = chat(client, response_format=format_, max_tokens=150, temperature=0.8, seed=seed)
        assert answer.choices[0].finish_reason == "stop"
        found = json.loads(answer.choices[0].message.content)
        assert set(found) == {"name", "age"} and 0 <= found["age"] <= 120
    with pytest.raises(openai.BadRequestError, match="schema"):
        broken = {"name": "x", "schema": {"type": "nothing"}}
        chat(client, response_format={"type": "json_schema", "json_schema": broken})


def test_errors_are_those_the_client_knows(server: Running, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="unknown parameter 'beams'"):
        chat(client, extra_body={"beams": 2})
    with pytest.raises(openai.NotFoundError, match="no model 'other'"):
        chat(client, model="other")
    with pytest.raises(openai.BadRequestError, match="cache holds 256") as long:
        chat(client, messages=[{"role": "user", "content": "word " * 400}])
    assert long.value.code == "context_length_exceeded"
    stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="API key"):
        chat(stranger)


def test_many_at_once_get_what_they_would_alone(client: openai.OpenAI) -> None:
    """Greedy and seeded ones, side by side, in fewer rows than there are of them."""
    asked: list[dict[str, Any]] = [
        {
            "messages": [{"role": "user", "content": f"Count from {i} to {i + 5}."}],
            "temperature": 0.9 * (i % 2),
            "seed": i,
            "max_tokens": 16,
        }
        for i in range(10)
    ]
    alone = [chat(client, **one).choices[0].message.content for one in asked]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        together = list(pool.map(lambda one: chat(client, **one).choices[0].message.content, asked))
    assert together == alone


# --- limits -----------------------------------------------------------------------------------


def post(server: Running, content: bytes, **headers: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {KEY}", **headers}
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, content=content, headers=headers, timeout=300)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[1]", b"\xff\xfe", b"[" * 50000, b'{"model": "x"}', b'"' * 999],
)
def test_garbage_is_a_bad_request(server: Running, content: bytes) -> None:
    found = post(server, content)
    assert found.status_code == 400
    assert found.json()["error"]["type"] == "invalid_request_error"


def test_a_large_body_is_refused(server: Running) -> None:
    assert post(server, b"x" * 100_001).status_code == 413

    def pieces():
        for _ in range(20):
            yield b"x" * 10_000

    found = httpx.post(
        f"{server.url}/v1/completions", content=pieces(),
        headers={"Authorization": f"Bearer {KEY}"},
    )  # fmt: skip
    assert found.status_code == 413 and "100000" in found.json()["error"]["message"]


def test_other_paths_and_methods_are_told_in_the_same_form(server: Running) -> None:
    assert httpx.get(f"{server.url}/v2").json()["error"]["message"] == "Not Found: GET /v2"
    assert httpx.get(f"{server.url}/v1/completions").status_code == 405


def test_a_full_queue_says_so(server: Running) -> None:
    body = {"model": NAME, "messages": ASK, "max_tokens": 16, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        found = list(pool.map(lambda _: post(server, json.dumps(body).encode()), range(30)))
    codes = [one.status_code for one in found]
    assert set(codes) == {200, 429} and codes.count(200) >= 12
    refused = next(one for one in found if one.status_code == 429)
    assert refused.json()["error"]["code"] == "queue_full" and "retry-after" in refused.headers


def metric(server: Running, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {KEY}"}).text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def wait_for(check: Any, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_ends_when_its_client_goes(server: Running, stream: bool) -> None:
    cancelled = 'linnet_requests_total{finish="cancelled"}'
    before = metric(server, cancelled)
    body = json.dumps({
        "model": NAME, "messages": ASK, "max_tokens": 200, "ignore_eos": True, "stream": stream,
    })  # fmt: skip
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        if stream:
            assert b"200 OK" in sock.recv(4096)
        else:
            wait_for(lambda: metric(server, "linnet_rows_used") > 0)
    wait_for(lambda: metric(server, cancelled) == before + 1)
    wait_for(lambda: metric(server, "linnet_rows_used") == 0)


def test_metrics_need_the_key_and_health_does_not(server: Running) -> None:
    assert httpx.get(f"{server.url}/metrics").status_code == 401
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert metric(server, "linnet_rows") == 4
    assert metric(server, "linnet_new_tokens_total") > 0
    assert metric(server, "linnet_first_token_seconds_count") > 0


# --- curl, the end, the page --------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_streams(server: Running) -> None:
    body = {"model": NAME, "messages": ASK, "temperature": 0, "max_tokens": 20, "stream": True}
    command = ["curl", "-sN", f"{server.url}/v1/chat/completions"]
    command += ["-H", f"Authorization: Bearer {KEY}", "-H", "Content-Type: application/json"]
    said = subprocess.run(
        [*command, "-d", json.dumps(body)], capture_output=True, text=True, check=True
    ).stdout
    events = [line.removeprefix("data: ") for line in said.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == ANSWER


def test_the_end_finishes_what_runs_and_refuses_what_comes(smollm2_gguf: Path) -> None:
    with serving(smollm2_gguf, "--rows", "2", "--max-seq", "128", "--drain", "60") as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        stream = chat(client, stream=True, max_tokens=60, extra_body={"ignore_eos": True})
        next(stream)
        running.process.terminate()
        time.sleep(0.3)
        with pytest.raises(openai.APIError):
            chat(client)
        *_, last = stream
        assert last.choices[0].finish_reason == "length"
        running.process.wait(timeout=60)


def test_the_end_does_not_wait_for_ever(smollm2_gguf: Path) -> None:
    with serving(smollm2_gguf, "--rows", "2", "--max-seq", "2048", "--drain", "0.5") as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        stream = chat(client, stream=True, max_tokens=2000, extra_body={"ignore_eos": True})
        next(stream)
        running.process.terminate()
        with pytest.raises(openai.APIError, match="shutting down"):
            for _ in stream:
                pass
        running.process.wait(timeout=30)


def test_a_deadline_ends_a_request(smollm2_gguf: Path) -> None:
    with serving(smollm2_gguf, "--rows", "1", "--max-seq", "512", "--deadline", "0.5") as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.APIStatusError, match="time is over") as caught:
            chat(client, max_tokens=400, extra_body={"ignore_eos": True})
        assert caught.value.status_code == 504


def test_the_page_chats_in_a_browser(server: Running) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        try:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no Chromium can be started: {str(error).splitlines()[0]}")
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(server.url)
        page.get_by_label("API key").fill(KEY)
        page.get_by_label("API key").press("Enter")
        sync_api.expect(page.locator("#model")).to_have_text(NAME)
        page.get_by_label("Message").fill("What is the capital of France?")
        page.get_by_label("Message").press("Enter")
        sync_api.expect(page.locator(".assistant")).to_have_text(ANSWER, timeout=30_000)
        sync_api.expect(page.locator("#figures")).to_contain_text("8 tokens")
        page.get_by_label("Message").fill("And write a very long story about it.")
        page.get_by_role("button", name="Send").click()
        page.get_by_role("button", name="Stop").click()
        sync_api.expect(page.get_by_role("button", name="Send")).to_be_visible()
        assert problems == []
        browser.close()
