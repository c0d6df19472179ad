"""The benchmark: the workload, one real method in a process of its own, results kept whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linnet import nest
from linnet.bench import Workload, run_bench, save
from linnet.bench.machine import peak_memory, read_bandwidth
from linnet.bench.workload import random_weight


def test_the_prompt_is_the_same_for_every_method() -> None:
    ids = Workload(prompt=50).prompt_ids(1000)
    assert ids == Workload(prompt=50).prompt_ids(1000)
    assert len(ids) == 50 and all(62 <= token < 938 for token in ids)


def test_the_cache_is_the_next_multiple_of_256() -> None:
    assert Workload(prompt=512, new=128).cache == 768
    assert Workload(prompt=1, new=255).cache == 256


@pytest.mark.parametrize(
    ("given", "message"),
    [({"runs": 0}, "runs must be"), ({"dtype": "i8"}, "dtype must be"),
     ({"weights": "none"}, "weights must be")],
)  # fmt: skip
def test_a_workload_that_makes_no_sense(given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload(**given)


def test_random_weights_follow_from_their_path() -> None:
    first = random_weight("layers.0.up.weight", (4, 8))
    assert (first == random_weight("layers.0.up.weight", (4, 8))).all()
    assert not (first == random_weight("layers.1.up.weight", (4, 8))).any()
    assert abs(random_weight("norm.weight", (64,)).mean() - 1) < 0.1


def test_the_machine_is_measured() -> None:
    assert read_bandwidth(megabytes=8, seconds=0.01) > 1e8
    assert peak_memory() > 1 << 20


@pytest.mark.weights
def test_a_method_runs_and_its_row_is_kept(smollm2_gguf: Path, tmp_path: Path) -> None:
    card = nest.find("smollm2-135m-instruct")
    workload = Workload(prompt=8, new=3, runs=2, warmup=0)
    result = run_bench(card, workload, ["linnet-torch", "linnet-cudagraphs"])
    row = result["rows"]["linnet-torch"]
    assert len(row["samples"]["ttft_ms"]) == len(row["samples"]["decode_tok_s"]) == 2
    assert len(row["tokens"]) == 3 and row["peak_mem"] > 5e8
    out = tmp_path / "bench.json"
    save(out, result)
    other = {**result, "rows": {"transformers": {"absent": "not here"}}}
    save(out, other)
    (run,) = json.loads(out.read_text())["runs"]
    assert set(run["rows"]) >= {"linnet-torch", "transformers"}
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="no method 'x': there are transformers"):
        run_bench(nest.find("smollm2-135m-instruct"), Workload(), ["x"])
