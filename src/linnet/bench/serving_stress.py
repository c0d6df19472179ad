"""Far more clients than rows, a third of which go away midway; garbage, huge prompts, slow readers
and wrong keys among them.

    python -m linnet.bench.serving_stress http://127.0.0.1:8000 MODEL --seconds 60 --pid PID

Every answer that comes whole is compared with what the same request gets alone, asked before.
`/health` is asked all the while. Ends with a line of JSON, and exit status 1 where anything is not
as it should be: an answer that differs, a request without an answer or an error of the form that
is documented, `/health` later than a second, or memory that grows by more than a tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

PROMPTS = ("Count to ten.", "Name a colour.", "What is rain?", "Write a verse.", "Who was Bach?",
           "What is two and two?", "Say hello in French.", "Tell a joke.")  # fmt: skip


class Stress:
    """The clients of one server."""

    def __init__(self, url: str, model: str, key: str | None, new: int):
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.AsyncClient(base_url=url, headers=headers, timeout=600, limits=limits)
        self.model, self.new, self.keyed = model, new, key is not None
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.expected: dict[tuple[str, bool], str] = {}
        self.slowest_health = 0.0
        self.over = False

    def body(self, prompt: str, sampled: bool, **more: Any) -> dict[str, Any]:
        return {
            "model": self.model, "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.new, "temperature": 0.8 if sampled else 0.0, "seed": 1, **more,
        }  # fmt: skip

    async def learn(self) -> None:
        """What each request gets alone."""
        for prompt in PROMPTS:
            for sampled in (False, True):
                found = await self.client.post(
                    "/v1/chat/completions", json=self.body(prompt, sampled)
                )
                found.raise_for_status()
                text = found.json()["choices"][0]["message"]["content"]
                self.expected[prompt, sampled] = text

    async def one(self, random_: random.Random) -> None:
        """One client's request, of a kind drawn by chance."""
        kinds = {"whole": 6, "stream": 6, "gone": 6, "slow": 2, "garbage": 1, "huge": 1}
        if self.keyed:
            kinds["stranger"] = 1
        kind = random_.choices(list(kinds), list(kinds.values()))[0]
        prompt, sampled = random_.choice(PROMPTS), random_.random() < 0.5
        try:
            outcome = await getattr(self, f"_{kind}")(prompt, sampled, random_)
        except httpx.HTTPError as error:
            self.wrong.append(f"{kind}: {type(error).__name__}: {error}")
            outcome = "lost"
        self.counts[f"{kind}: {outcome}"] += 1

    async def _whole(self, prompt: str, sampled: bool, random_: random.Random) -> str:
        found = await self.client.post("/v1/chat/completions", json=self.body(prompt, sampled))
        if found.status_code == 429:
            await asyncio.sleep(1)
            return "429"
        return self._compared(prompt, sampled, found.status_code, lambda: found.json()["choices"][
            0
        ]["message"]["content"])  # fmt: skip

    async def _stream(self, prompt: str, sampled: bool, random_: random.Random) -> str:
        return await self._streamed(prompt, sampled, 0.0, None)

    async def _slow(self, prompt: str, sampled: bool, random_: random.Random) -> str:
        return await self._streamed(prompt, sampled, 0.2, None)

    async def _gone(self, prompt: str, sampled: bool, random_: random.Random) -> str:
        return await self._streamed(prompt, sampled, 0.0, random_.randrange(self.new))

    async def _streamed(
        self, prompt: str, sampled: bool, pause: float, leave_after: int | None
    ) -> str:
        body = self.body(prompt, sampled, stream=True)
        text, ended, events = "", False, 0
        async with self.client.stream("POST", "/v1/chat/completions", json=body) as found:
            if found.status_code == 429:
                await asyncio.sleep(1)
                return "429"
            async for line in found.aiter_lines():
                if line == "data: [DONE]":
                    ended = True
                elif line.startswith("data: "):
                    event = json.loads(line[6:])
                    text += "".join(c["delta"].get("content", "") for c in event["choices"])
                    events += 1
                    if leave_after is not None and events > leave_after:
                        return "left"
                    await asyncio.sleep(pause)
        if not ended:
            self.wrong.append(f"a stream of {prompt!r} ended without its end")
            return "cut"
        return self._compared(prompt, sampled, found.status_code, lambda: text)

    async def _garbage(self, prompt: str, sampled: bool, random_: random.Random) -> str:
        content = random_.choice(
            [b"{", b"[]", random_.randbytes(500), b'{"model": 1}', b"[" * 9999]
        )
        return await self._refused(content, 400)

    async def _huge(self, prompt: str, sampled: bool, random_: random.Random) -> str:
        body = self.body("many words " * 20_000, sampled)
        return await self._refused(json.dumps(body).encode(), 400)

    async def _stranger(self, prompt: str, sampled: bool, random_: random.Random) -> str:
        content = json.dumps(self.body(prompt, sampled)).encode()
        return await self._refused(content, 401, Authorization="Bearer wrong")

    async def _refused(self, content: bytes, status: int, **headers: str) -> str:
        found = await self.client.post("/v1/chat/completions", content=content, headers=headers)
        if found.status_code != status or "error" not in found.json():
            self.wrong.append(f"expected {status}, found {found.status_code}: {found.text[:200]}")
        return str(found.status_code)

    def _compared(self, prompt: str, sampled: bool, status: int, text: Any) -> str:
        if status != 200:
            self.wrong.append(f"{prompt!r}: status {status}")
            return str(status)
        if text() != self.expected[prompt, sampled]:
            self.wrong.append(f"{prompt!r} (sampled: {sampled}) got {text()!r}")
            return "differs"
        return "same"

    async def health(self) -> None:
        """Asks all the while, by connections of its own."""
        async with httpx.AsyncClient(base_url=self.client.base_url, timeout=60) as client:
            while not self.over:
                started = time.perf_counter()
                found = await client.get("/health")
                self.slowest_health = max(self.slowest_health, time.perf_counter() - started)
                if found.status_code != 200:
                    self.wrong.append(f"/health: {found.status_code}")
                await asyncio.sleep(0.2)

    async def run(self, clients: int, seconds: float, seed: int) -> None:
        """So many clients, each asking one request after the other."""
        end = time.monotonic() + seconds

        async def client(number: int) -> None:
            random_ = random.Random(seed * 10_000 + number)
            while time.monotonic() < end:
                await self.one(random_)

        watcher = asyncio.create_task(self.health())
        await asyncio.gather(*(client(number) for number in range(clients)))
        self.over = True
        await watcher


def resident_kib(pid: int | None) -> int | None:
    """A process's resident memory, where the system tells."""
    if pid is None:
        return None
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return None


async def _main(given: argparse.Namespace) -> dict[str, Any]:
    stress = Stress(given.url, given.model, given.key, given.new)
    await stress.learn()
    # A first round, so that what is allocated once is allocated.
    await stress.run(given.clients, given.seconds / 4, 1)
    before = resident_kib(given.pid)
    stress.over = False
    await stress.run(given.clients, given.seconds, 2)
    after = resident_kib(given.pid)
    if stress.slowest_health > 1.0:
        stress.wrong.append(f"/health took {stress.slowest_health:.2f} s")
    if before and after and after > 1.1 * before:
        stress.wrong.append(f"memory grew from {before} to {after} KiB")
    await stress.client.aclose()
    return {
        "requests": sum(stress.counts.values()),
        "outcomes": dict(sorted(stress.counts.items())),
        "slowest_health_s": round(stress.slowest_health, 3),
        "resident_mib": [kib and kib // 1024 for kib in (before, after)],
        "wrong": stress.wrong[:20],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--key")
    parser.add_argument("--clients", type=int, default=160)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--new", type=int, default=24, help="tokens of an answer")
    parser.add_argument("--pid", type=int, help="the server's process, to watch its memory")
    given = parser.parse_args()
    try:
        result = asyncio.run(_main(given))
    except httpx.ConnectError:
        parser.exit(2, f"no server answers at {given.url}: start one with `linnet serve`\n")
    print(json.dumps(result, indent=1))
    sys.exit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
