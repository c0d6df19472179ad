"""KerasHub's side of its measurement: run by an interpreter that has KerasHub and not Linnet.

    python keras_hub_run.py JOB

JOB is a JSON file: the model's sizes, the folder of its weights (an `.npy` each, by parameter
path), the prompt, how many tokens to generate and how often, and where the result goes.

KerasHub generates in one compiled program: the prompt and the places to fill together, then a step
a token. The time to the first token is that of generating one. A step's time is what generating all
of them takes longer than generating just the last one of as many.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"


def main(job_path: str) -> None:
    import numpy as np

    job = json.loads(Path(job_path).read_text(encoding="utf-8"))
    imported = time.perf_counter()
    import jax
    import keras
    import keras_hub

    started = time.perf_counter()
    model = load(job, keras_hub)
    load_s = time.perf_counter() - started
    prompt, new = job["prompt"], job["new"]

    def generated(ids: list[int], count: int) -> tuple[list[int], float]:
        """`count` tokens after `ids`, and the seconds it took."""
        tokens = np.zeros((1, len(ids) + count), np.int32)
        tokens[0, : len(ids)] = ids
        mask = np.zeros_like(tokens)
        mask[0, : len(ids)] = 1
        begun = time.perf_counter()
        found = model.generate({"token_ids": tokens, "padding_mask": mask}, stop_token_ids=None)
        chosen = np.asarray(found["token_ids"])[0, len(ids) :].tolist()
        return chosen, time.perf_counter() - begun

    begun = time.perf_counter()
    tokens, _ = generated(prompt, new)
    generated(prompt, 1)
    compile_s = time.perf_counter() - begun
    last = [*prompt, *tokens[:-1]]
    samples: dict[str, list[float]] = {"ttft_ms": [], "decode_tok_s": []}
    for run in range(job["warmup"] + job["runs"]):
        _, first = generated(prompt, 1)
        chosen, all_of_them = generated(prompt, new)
        _, one = generated(last, 1)
        if chosen != tokens:
            raise RuntimeError("two runs of one prompt gave different tokens")
        if run >= job["warmup"]:
            samples["ttft_ms"].append(first * 1e3)
            samples["decode_tok_s"].append((new - 1) / (all_of_them - one))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ids = np.asarray([prompt], np.int32)
    logits = model({"token_ids": ids, "padding_mask": np.ones_like(ids)})
    np.save(job["logits"], np.asarray(logits)[0, -1])
    result: dict[str, Any] = {
        "samples": samples,
        "tokens": tokens,
        "load_s": load_s,
        "import_s": started - imported,
        "compile_s": compile_s,
        "peak_mem": peak,
        "versions": {
            "keras-hub": keras_hub.__version__,
            "keras": keras.__version__,
            "jax": jax.__version__,
        },
    }
    Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")


def load(job: dict[str, Any], keras_hub: Any) -> Any:
    """A Llama of KerasHub's with the weights of the job, each where it belongs."""
    import numpy as np

    sizes = job["sizes"]
    heads, width = sizes["Heads"], sizes["H"] // sizes["Heads"]
    backbone = keras_hub.models.LlamaBackbone(
        vocabulary_size=sizes["Vocab"],
        num_layers=sizes["Layers"],
        num_query_heads=heads,
        num_key_value_heads=sizes["KvHeads"],
        hidden_dim=sizes["H"],
        intermediate_dim=sizes["Inner"],
        rope_max_wavelength=sizes["RopeTheta"],
        layer_norm_epsilon=1e-5,
        tie_word_embeddings=job["tied"],
        dtype={"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[job["dtype"]],
    )

    def weight(path: str) -> Any:
        return np.load(Path(job["weights"]) / f"{path}.npy", mmap_mode="r")

    backbone.token_embedding.embeddings.assign(weight("embedding.weight"))
    if not job["tied"]:
        backbone.token_embedding.reverse_embeddings.assign(weight("lm_head.weight").T)
    backbone.layer_norm.scale.assign(weight("norm.weight"))
    for i, layer in enumerate(backbone.transformer_layers):
        at = f"layers.{i}"
        attention = layer._self_attention_layer
        for name, dense, count in (
            ("q", attention._query_dense, heads),
            ("k", attention._key_dense, sizes["KvHeads"]),
            ("v", attention._value_dense, sizes["KvHeads"]),
        ):
            found = weight(f"{at}.attention.{name}.weight").T
            dense.kernel.assign(found.reshape(sizes["H"], count, width))
        found = weight(f"{at}.attention.o.weight").T
        attention._output_dense.kernel.assign(found.reshape(heads, width, sizes["H"]))
        for name, dense in (
            ("gate", layer._feedforward_gate_dense),
            ("up", layer._feedforward_intermediate_dense),
            ("down", layer._feedforward_output_dense),
        ):
            dense.kernel.assign(weight(f"{at}.mlp.{name}.weight").T)
        norms = (layer._self_attention_layernorm, layer._feedforward_layernorm)
        for name, norm in zip(("attention_norm", "mlp_norm"), norms, strict=True):
            norm.scale.assign(weight(f"{at}.{name}.weight"))
    model = keras_hub.models.LlamaCausalLM(backbone=backbone, preprocessor=None)
    model.compile(sampler="greedy")
    return model


if __name__ == "__main__":
    main(sys.argv[1])
