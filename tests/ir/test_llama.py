"""The Llama source at a tiny size: against NumPy, and its entries against one another."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.check import check_file
from linnet.dtypes import DType
from linnet.ir.core import TensorType
from linnet.ir.instantiate import bind_entry, instantiate
from linnet.ir.lower import lower
from linnet.ir.passes import optimise
from linnet.ir.verify import verify
from tests.ir.programs import Model

SOURCE = Path(linnet.__file__).parent / "nest/models/llama/model.linnet"
PROGRAM = check_file(SOURCE).require()
SIZES = {"Vocab": 23, "H": 16, "Heads": 4, "KvHeads": 2, "Inner": 20, "Layers": 2, "MaxSeq": 12,
         "RopeTheta": 500, "T": "f32"}  # fmt: skip


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def tiny(batch: int = 1, *, tied: bool = False) -> Model:
    absent = ["bias", "lm_head"] if tied else ["bias"]
    return Model.of(PROGRAM, {**SIZES, "Batch": batch}, absent=absent, seed=3)


def tokens(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, SIZES["Vocab"], shape).astype(np.int32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def reference(model: Model, ids: np.ndarray) -> np.ndarray:
    """The logits of whole sequences, written out in NumPy and f64."""
    w = {path: x.astype(np.float64) for path, x in model.weights.items()}
    heads, kv, width = 4, 2, 4
    angle = np.arange(ids.shape[1])[:, None] * 500.0 ** (-np.arange(0, width, 2) / width)
    cosine, sine = (np.tile(f(angle), 2) for f in (np.cos, np.sin))

    def norm(x: np.ndarray, path: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[f"{path}.weight"]

    def split(x: np.ndarray, n: int) -> np.ndarray:
        return x.reshape(*x.shape[:2], n, width).transpose(0, 2, 1, 3)

    def rope(x: np.ndarray) -> np.ndarray:
        turned = np.concatenate([-x[..., width // 2 :], x[..., : width // 2]], -1)
        return x * cosine + turned * sine

    x = w["embedding.weight"][ids]
    for i in range(2):
        at = f"layers.{i}"
        y = norm(x, f"{at}.attention_norm")
        q, k, v = (y @ w[f"{at}.attention.{name}.weight"].T for name in "qkv")
        q, k, v = rope(split(q, heads)), rope(split(k, kv)), split(v, kv)
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(width)
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = share / share.sum(-1, keepdims=True) @ v
        mixed = mixed.transpose(0, 2, 1, 3).reshape(x.shape)
        x = x + mixed @ w[f"{at}.attention.o.weight"].T
        y = norm(x, f"{at}.mlp_norm")
        gate, up = (y @ w[f"{at}.mlp.{name}.weight"].T for name in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{at}.mlp.down.weight"].T
    head = w.get("lm_head.weight", w["embedding.weight"])
    return norm(x, "norm") @ head.T


@pytest.mark.parametrize("tied", [False, True])
def test_forward_is_the_formula(tied: bool) -> None:
    model, ids = tiny(tied=tied), tokens(2, 7)
    expected = reference(model, ids)
    close(model.run("forward", ids).result, expected)
    np.testing.assert_allclose(
        model.run("forward", ids, wide=True).result, expected, rtol=1e-6, atol=1e-6
    )
    assert not model.states
    assert model.run("next_token", ids).result.tolist() == expected[:, -1].argmax(-1).tolist()


def test_prefill_then_decode_is_forward() -> None:
    model, ids = tiny(batch=2), tokens(2, 9)
    expected = reference(model, ids)
    first = model.run("prefill", ids[:, :4], np.int32(0)).result
    close(first, expected[:, 3])
    more = model.run("prefill", ids[:, 4:6], np.int32(4)).result
    close(more, expected[:, 5])
    for pos in range(6, 9):
        found = model.run("decode", ids[:, pos : pos + 1], np.int32(pos)).result
        close(found, expected[:, pos])


def test_slots_then_rows_is_forward() -> None:
    model = tiny(batch=3)
    prompts = [tokens(5, seed=1), tokens(3, seed=2)]
    padded = np.stack([np.pad(p, (0, 5 - len(p))) for p in prompts]).astype(np.int32)
    found = model.run("prefill_slots", padded, i32(2, 0), i32(5, 3)).result
    for row, prompt in zip(found, prompts, strict=True):
        close(row, reference(model, prompt[None])[0, -1])
    # Row 1 is idle: what it computes is of no interest, and it writes nothing.
    longer = [np.append(p, t) for p, t in zip(prompts, [7, 9], strict=True)]
    found = model.run("decode_rows", i32(9, 0, 7)[:, None], i32(3, -1, 5)).result
    close(found[2], reference(model, longer[0][None])[0, -1])
    close(found[0], reference(model, longer[1][None])[0, -1])
    assert not model.states["layers.0.attention.key_cache"][1].any()


def test_packed_then_rows_is_forward() -> None:
    model = tiny(batch=3)
    prompts = [tokens(4, seed=1), tokens(2, seed=2)]
    ids = np.concatenate([*prompts, [0, 0]]).astype(np.int32)[None]
    found = model.run(
        "prefill_packed",
        ids,
        i32(1, 1, 1, 1, 2, 2, -1, -1),
        i32(0, 1, 2, 3, 0, 1, -1, -1),
        i32(0, 0, 0, 0, 1, 1, -1, -1),
        i32(3, 5),
    ).result
    for row, prompt in zip(found, prompts, strict=True):
        close(row, reference(model, prompt[None])[0, -1])
    found = model.run("decode_rows", i32(0, 5, 6)[:, None], i32(-1, 4, 2)).result
    for row, prompt, token in zip(found[1:], prompts, [5, 6], strict=True):
        longer = np.append(prompt, token)[None]
        close(row, reference(model, longer)[0, -1])


def greedy(model: Model, ids: np.ndarray, count: int) -> np.ndarray:
    for _ in range(count):
        following = reference(model, ids)[:, -1].argmax(-1)
        ids = np.concatenate([ids, following[:, None]], 1)
    return ids[:, -count:]


def test_generate_is_greedy_decoding() -> None:
    model, ids = tiny(batch=2), tokens(2, 3, seed=5)
    expected = greedy(model, ids, 6)
    out = model.run("generate", ids, N=6)
    assert out.result.tolist() == expected.tolist()
    assert [op.attrs["trips"] for op in out.module.main.ops if op.kind == "while"] == [5]
    assert model.run("generate", ids, N=1).result.tolist() == expected[:, :1].tolist()


def test_generate_until_ends_with_the_stop() -> None:
    model, ids = tiny(), tokens(1, 3, seed=5)
    expected = greedy(model, ids, 6)[0].tolist()
    stop = expected[3]
    given = expected.index(stop) + 1
    found, count = model.run("generate_until", ids, np.int32(stop), N=6).results
    assert count == given
    assert found[0].tolist() == expected[:given] + [stop] * (6 - given)
    found, count = model.run("generate_until", ids, np.int32(expected[0]), N=6).results
    assert count == 1 and found[0].tolist() == [expected[0]] * 6


def test_generate_until_waits_for_every_row() -> None:
    model, ids = tiny(batch=2), tokens(2, 3, seed=5)
    expected = greedy(model, ids, 6)
    stop = int(expected[0, 1])
    found, count = model.run("generate_until", ids, np.int32(stop), N=6).results
    ends = [row.tolist().index(stop) + 1 if stop in row else 6 for row in expected]
    assert count == max(ends)
    for row, greedily, end in zip(found, expected, ends, strict=True):
        assert row.tolist() == greedily[:end].tolist() + [stop] * (6 - end)


def test_sampling_follows_from_the_key() -> None:
    model, ids = tiny(), tokens(1, 3, seed=5)
    key = np.array([1, 2], np.int64)
    for temperature in (0, 1e-4):
        cold = model.run("sample", ids, key, np.float32(temperature), N=5).result
        assert cold.tolist() == greedy(model, ids, 5).tolist()
    warm = [model.run("sample", ids, key, np.float32(2), N=5).result for _ in range(2)]
    other = model.run("sample", ids, key + 1, np.float32(2), N=5).result
    assert warm[0].tolist() == warm[1].tolist() != other.tolist()


def test_a_layer_is_one_function_and_the_model_reads_each_weight_once() -> None:
    model = tiny()
    module = model.lowered("decode", [TensorType((1, 1), DType.I32), TensorType((), DType.I32)])
    calls = [
        (f.name, op.attrs["at"])
        for f in module.functions.values()
        for op in f.ops
        if op.kind == "call" and str(op.attrs["at"]).startswith("layers")
    ]
    assert calls == [("llama_extend", "layers.0"), ("llama_extend", "layers.1")]
    assert {slot.path for slot in module.main.weights} == set(model.weights)
    fast = optimise(module, "fast", expand=["std.nn.mlp::swiglu"])
    joined = [path for path in fast.derived if path.endswith("weight")]
    assert joined == [
        "@layers.0.attention.attention_extend.q_k_v_weight",
        "@layers.0.mlp.swi_glu_forward.gate_up_weight",
        "@layers.1.attention.attention_extend.q_k_v_weight",
        "@layers.1.mlp.swi_glu_forward.gate_up_weight",
    ]


def test_depth_costs_little() -> None:
    sizes = {**SIZES, "H": 576, "Heads": 9, "KvHeads": 3, "Vocab": 49152, "Layers": 30}
    start = time.perf_counter()
    instance = instantiate(PROGRAM, None, sizes, lambda path: "bias" not in path)
    arguments = [TensorType((1, 1), DType.I32), TensorType((), DType.I32)]
    module = lower(instance, "decode", bind_entry(instance, "decode", arguments), arguments)
    verify(optimise(module))
    # About 0.15 s on two busy cores; the bound tells a blow-up with depth from a slow machine.
    assert time.perf_counter() - start < 3
