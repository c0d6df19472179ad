"""The engine: every request's tokens are those it would get alone, whatever else is served."""

from __future__ import annotations

import time

import numpy as np
import pytest

from linnet.runtime import Runtime
from linnet.serve import Completion, Engine, QueueFull, Refused, Request, Step
from linnet.text.sampling import SamplingParams
from tests.serve.models import VOCAB, alone, assert_same, prompt, small_model


@pytest.fixture(scope="module")
def model() -> Runtime:
    return small_model()


def requests(count: int, seed: int = 0, **options: object) -> list[Request]:
    """Requests of 1 to 40 prompt tokens and 1 to 20 new ones."""
    random = np.random.default_rng(seed)
    return [
        Request(
            prompt(int(random.integers(1, 41)), seed=100 * seed + i),
            max_new_tokens=int(random.integers(1, 21)),
            **options,  # type: ignore[arg-type]
        )
        for i in range(count)
    ]


def naive(model: Runtime, request: Request) -> list[int]:
    """Greedy tokens by whole sequences, without a cache."""
    tokens = list(request.prompt)
    for _ in range(request.max_new_tokens):
        logits = model.run_entry("forward", [np.array([tokens], np.int32)])
        tokens.append(int(model.to_numpy(logits)[0, -1].argmax()))
    return tokens[len(request.prompt) :]


@pytest.mark.parametrize("budget", [5, 16, 64])
def test_greedy_tokens_are_those_of_whole_sequences(model: Runtime, budget: int) -> None:
    asked = requests(14)
    model.reset_state()
    found = Engine(model, budget=budget).run(asked)
    for completion, request in zip(found, asked, strict=True):
        assert completion.tokens == naive(model, request)
        assert completion.finish == "length"


SAMPLED = SamplingParams(
    temperature=0.9, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.1,
    presence_penalty=0.2, frequency_penalty=0.1, logit_bias={3: 1.5, 5: -2.0}, seed=7,
)  # fmt: skip


@pytest.mark.parametrize("params", [SamplingParams(temperature=1.0, seed=3), SAMPLED])
def test_seeded_tokens_are_those_of_running_alone(model: Runtime, params: SamplingParams) -> None:
    asked = requests(10, 1, params=params) + requests(6, 2)
    expected = [alone(model, request) for request in asked]
    model.reset_state()
    found = Engine(model, budget=24).run(asked)
    assert_same(found, expected)


def test_requests_that_come_later_join_at_once(model: Runtime) -> None:
    asked = requests(8, 3)
    expected = [alone(model, request) for request in asked]
    model.reset_state()
    engine = Engine(model, budget=32)
    found: list[Completion] = []
    for request in asked:
        found.append(engine.submit(request))
        engine.step()
    while engine.busy:
        engine.step()
    assert_same(found, expected)
    running = engine.submit(Request(prompt(5), max_new_tokens=20))
    engine.step()
    late = engine.submit(Request(prompt(6, 1), max_new_tokens=2))
    engine.step()
    assert late.done and not running.done


def test_prompts_are_packed_and_steps_shared(model: Runtime) -> None:
    engine = Engine(model, budget=64)
    engine.run([Request(prompt(12, seed), max_new_tokens=5) for seed in range(4)])
    # All four prompts in one pass, which gives the first tokens; then four steps of all rows.
    assert engine.counts.prefill_passes == 1
    assert engine.counts.decode_steps == 4
    assert engine.counts.prompt_tokens == 48


def test_a_long_prompt_does_not_stall_the_others(model: Runtime) -> None:
    model.reset_state()
    engine = Engine(model, budget=8)
    running = engine.submit(Request(prompt(4), max_new_tokens=30))
    engine.step()
    long = engine.submit(Request(prompt(40, 1), max_new_tokens=3))
    for done in range(2, 7):
        before = engine.counts.prompt_tokens
        engine.step()
        assert engine.counts.prompt_tokens - before == 8
        assert len(running.tokens) == done + 1
    while engine.busy:
        engine.step()
    assert long.tokens == naive(model, long.request)
    assert running.tokens == naive(model, running.request)


def test_a_prefix_is_taken_over(model: Runtime) -> None:
    model.reset_state()
    engine = Engine(model, min_reuse=4)
    first = engine.run([Request(prompt(20), max_new_tokens=4)])[0]
    longer = [*first.request.prompt, *first.tokens, 1, 2, 3]
    second = engine.run([Request(longer, max_new_tokens=6)])[0]
    # The last token was never taken in.
    assert second.cached_tokens == 23
    assert second.tokens == naive(model, second.request)
    again = engine.run([Request(first.request.prompt, max_new_tokens=4)])[0]
    assert again.cached_tokens == 19
    assert again.tokens == first.tokens


def test_a_prefix_is_copied_from_a_row_in_use(model: Runtime) -> None:
    model.reset_state()
    engine = Engine(model, min_reuse=4)
    first = engine.submit(Request(prompt(20), max_new_tokens=30))
    engine.step()
    second = engine.submit(Request([*prompt(20), 9, 8], max_new_tokens=6))
    while engine.busy:
        engine.step()
    assert second.cached_tokens == 20 and engine.counts.copied_rows > 0
    assert second.tokens == naive(model, second.request)
    assert first.tokens == naive(model, first.request)


def test_prefixes_stay_exact_under_all_orders(model: Runtime) -> None:
    """Prompts that share beginnings of all lengths, in a small cache: rows are taken over, copied,
    moved and cut."""
    random = np.random.default_rng(5)
    base = prompt(50, 9)
    asked = []
    for i in range(40):
        kept = int(random.integers(1, 50))
        own = prompt(int(random.integers(0, 12)), 1000 + i)
        asked.append(Request((base[:kept] + own)[:60], int(random.integers(1, 12))))
    expected = [alone(model, request) for request in asked]
    model.reset_state()
    engine = Engine(model, budget=20, min_reuse=2)
    found, left = [], list(asked)
    while left or engine.busy:
        for _ in range(int(random.integers(0, 3))):
            if left:
                found.append(engine.submit(left.pop(0)))
        engine.step()
    assert_same(found, expected)
    assert engine.counts.cached_tokens > 100


def test_choices_share_their_prompt(model: Runtime) -> None:
    model.reset_state()
    params = SamplingParams(temperature=1.0, seed=11)
    engine = Engine(model)
    many = engine.run([Request(prompt(30), 8, params, n=3)])[0]
    assert many.done and engine.counts.prompt_tokens == 30 + 1 + 1
    assert len({tuple(choice.tokens) for choice in many.choices}) == 3
    one = alone(model, Request(prompt(30), 8, params))
    assert many.choices[0].tokens == one.tokens
    assert_same([alone(model, many.request)], [many])


def test_few_rows_are_decoded_by_themselves(model: Runtime) -> None:
    sizes: list[int] = []

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(model, name)

        def run_entry(self, name: str, inputs: list, **generics: int) -> object:
            if name == "decode_first":
                sizes.append(len(inputs[0]))
            return model.run_entry(name, inputs, **generics)

    model.reset_state()
    asked = [Request(prompt(5, i), max_new_tokens=n) for i, n in enumerate((3, 3, 3, 12))]
    expected = [naive(model, request) for request in asked]
    found = Engine(Watched()).run(asked)  # type: ignore[arg-type]
    assert [completion.tokens for completion in found] == expected
    assert sizes == [4] * 2 + [1] * 9


def test_the_cache_is_used_to_its_end(model: Runtime) -> None:
    asked = [Request(prompt(length, length), max_new_tokens=50) for length in (64, 63, 60, 49)]
    found = Engine(model, budget=16).run(asked)
    assert [len(completion.tokens) for completion in found] == [1, 2, 5, 16]
    for completion, request in zip(found, asked, strict=True):
        assert completion.tokens == naive(model, Request(request.prompt, len(completion.tokens)))


def test_stop_tokens_end_and_are_kept(model: Runtime) -> None:
    free = alone(model, Request(prompt(9), max_new_tokens=12))
    stop = free.tokens[4]
    first = free.tokens.index(stop)
    found = alone(model, Request(prompt(9), max_new_tokens=12, stop_tokens=(stop,)))
    assert found.tokens == free.tokens[: first + 1]
    assert found.finish == "stop"


def test_logprobs_are_those_of_the_model(model: Runtime) -> None:
    request = Request(prompt(9), 3, SamplingParams(temperature=1.0, seed=1), logprobs=4)
    found = alone(model, request)
    tokens = np.array([[*request.prompt, *found.tokens]], np.int32)
    logits = model.to_numpy(model.run_entry("forward", [tokens]))[0, 8:-1].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, told, token in zip(expected, found.choices[0].logprobs, found.tokens, strict=True):
        assert told.logprob == pytest.approx(row[token], abs=1e-4)
        assert [t for t, _ in told.top] == np.argsort(-row)[:4].tolist()


def test_steps_are_told_as_they_come(model: Runtime) -> None:
    steps: list[Step] = []
    completions: list[Completion] = []

    def on_step(step: Step) -> None:
        steps.append(step)
        if completions:  # Another thread may look at the choice as soon as it is told.
            assert completions[0].choices[step.choice].finish == step.finish

    engine = Engine(model)
    completions.append(engine.submit(Request(prompt(9), max_new_tokens=5, on_step=on_step)))
    while engine.busy:
        engine.step()
    found = completions[0]
    assert [step.token for step in steps] == found.tokens
    assert [step.finish for step in steps] == [None] * 4 + ["length"]


def test_cancelled_and_late_requests_end_with_what_they_have(model: Runtime) -> None:
    engine = Engine(model)
    rows = [engine.submit(Request(prompt(5, i), max_new_tokens=40)) for i in range(4)]
    waiting = engine.submit(Request(prompt(5, 9)))
    late = engine.submit(Request(prompt(5, 8), deadline_s=0.0))
    engine.step()
    engine.cancel(rows[1])
    engine.cancel(waiting)
    time.sleep(0.001)
    engine.step()
    assert rows[1].finish == "cancelled" and len(rows[1].tokens) == 2
    assert waiting.finish == "cancelled" and not waiting.tokens
    assert late.finish == "deadline" and not late.tokens
    while engine.busy:
        engine.step()
    assert [row.finish for row in rows] == ["length", "cancelled", "length", "length"]
    assert engine.rows.used == 0


def test_the_queue_is_bounded(model: Runtime) -> None:
    engine = Engine(model, queue=2)
    completions = [engine.submit(Request(prompt(3, i), 2)) for i in range(2)]
    with pytest.raises(QueueFull):
        engine.submit(Request(prompt(3)))
    engine.step()
    completions.append(engine.submit(Request(prompt(3), 2)))
    while engine.busy:
        engine.step()
    assert all(completion.done for completion in completions)
    assert all(c.done for c in engine.run([Request(prompt(3, i), 3) for i in range(9)]))


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (Request([]), "empty"),
        (Request(list(range(30)) * 3), "90 tokens, this server's cache holds 64"),
        (Request([1, VOCAB]), f"token {VOCAB} is not in the model's vocabulary"),
        (Request([1, -1]), "token -1"),
        (Request([1], 0), "max_new_tokens"),
        (Request([1], n=0), "n must be"),
        (Request([1], logprobs=-1), "logprobs"),
        (Request([1], stop=("x",)), "tokenizer"),
        (Request([1], params=SamplingParams(logit_bias={VOCAB: 1.0})), "logit_bias"),
    ],
)
def test_what_can_not_be_served_is_refused(model: Runtime, request_: Request, why: str) -> None:
    with pytest.raises(Refused, match=why):
        Engine(model).submit(request_)


def test_one_that_leaves_nothing_to_choose_does_not_take_the_others_along(model: Runtime) -> None:
    bans = SamplingParams(logit_bias=dict.fromkeys(range(VOCAB), -np.inf))
    found = Engine(model).run([Request(prompt(4), 3), Request(prompt(4, 1), 3, bans)])
    assert found[0].finish == "length" and len(found[0].tokens) == 3
    assert found[1].finish == "error" and "no token can be chosen" in str(found[1].choices[0].error)


def test_a_runtime_that_fails_ends_what_ran_and_serves_on() -> None:
    model = small_model()
    engine = Engine(model)
    first = engine.submit(Request(prompt(4), 9))
    engine.step()
    original = model.run_entry

    def broken(name: str, inputs: list, **generics: int) -> object:
        raise MemoryError("no memory")

    model.run_entry = broken  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        engine.step()
    assert first.finish == "error" and not engine.busy
    model.run_entry = original  # type: ignore[method-assign]
    found = engine.run([Request(prompt(4), 9)])[0]
    assert found.cached_tokens == 0 and found.tokens == naive(model, found.request)


def test_warming_up_leaves_no_size_to_compile() -> None:
    model = small_model(rows=2, max_seq=32)
    engine = Engine(model, budget=16)
    assert engine.warmup() > 0
    before = model.compile_s
    engine.run([Request(prompt(n, n), 4) for n in (3, 9, 20, 30)])
    assert model.compile_s == before


class Choosy:
    """Allows even tokens only, and ends after some; or breaks."""

    def __init__(self, count: int, breaks_at: int | None = None):
        self.left, self.breaks_at = count, breaks_at

    def mask(self) -> np.ndarray:
        if self.left == self.breaks_at:
            raise RuntimeError("too complex")
        return np.arange(VOCAB) % 2 == 0

    def accept(self, token: int) -> None:
        self.left -= 1

    @property
    def finished(self) -> bool:
        return self.left == 0


def test_a_constraint_is_kept_and_its_failure_is_its_own(model: Runtime) -> None:
    params = SamplingParams(temperature=1.5, seed=2)
    asked = [
        Request(prompt(5), 9, constraint=lambda: Choosy(4)),
        Request(prompt(5, 1), 9, params, constraint=lambda: Choosy(5)),
        Request(prompt(5, 2), 9, constraint=lambda: Choosy(5, breaks_at=3)),
        Request(prompt(5, 3), 9),
    ]
    model.reset_state()
    found = Engine(model).run(asked)
    assert [one.finish for one in found] == ["stop", "stop", "error", "length"]
    assert [len(one.tokens) for one in found] == [4, 5, 2, 9]
    assert all(token % 2 == 0 for one in found[:3] for token in one.tokens)
    assert "too complex" in str(found[2].choices[0].error)
    assert found[3].tokens == naive(model, asked[3])
