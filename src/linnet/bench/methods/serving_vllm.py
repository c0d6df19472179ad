"""vLLM for the benchmark of serving, in an environment of its own.

It reads a directory of the model's configuration, tokenizer and SafeTensors weights.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from vllm import SamplingParams  # type: ignore[import-not-found]
from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found]
from vllm.v1.engine.llm_engine import LLMEngine  # type: ignore[import-not-found]

from linnet import nest
from linnet.bench.serving import Load, Serve, Served

_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def prepare(name: str, weights: str | None, load: Load) -> tuple[Serve, int]:
    """Its engine, driven step by step as ours is; tokens in, tokens out."""
    if weights is None:
        raise ValueError("vLLM needs --weights: a directory with config.json and SafeTensors")
    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=weights, dtype=_DTYPES[load.dtype], max_model_len=load.cache,
            max_num_seqs=load.in_flight, enable_prefix_caching=False, skip_tokenizer_init=True,
            disable_log_stats=True,
        )
    )  # fmt: skip
    params = SamplingParams(
        temperature=0.0, max_tokens=load.new, min_tokens=load.new, ignore_eos=True,
        detokenize=False,
    )  # fmt: skip
    served = 0

    def serve(prompts: Sequence[list[int]]) -> list[Served]:
        nonlocal served
        left = deque(enumerate(prompts))
        submitted: dict[str, float] = {}
        first: dict[str, float] = {}
        tokens: dict[str, list[int]] = {}
        order: list[str] = []
        flying = 0
        while left or flying:
            while left and flying < load.in_flight:
                _, prompt = left.popleft()
                served += 1
                key = str(served)
                order.append(key)
                submitted[key] = time.perf_counter()
                engine.add_request(key, {"prompt_token_ids": list(prompt)}, params)
                flying += 1
            for output in engine.step():
                found = output.outputs[0]
                if found.token_ids:
                    first.setdefault(output.request_id, time.perf_counter())
                if output.finished:
                    tokens[output.request_id] = list(found.token_ids)
                    flying -= 1
        return [Served(tokens[key], first[key] - submitted[key]) for key in order]

    return serve, nest.find(name).generics["Vocab"]
