"""Eager Transformers, the reference, and Transformers compiled with a static cache.

A GGUF is read by Transformers' own reader, so that the reference owes nothing to Linnet's.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from linnet import nest
from linnet.bench.workload import Workload, random_weight
from linnet.nest.card import Card
from linnet.weights import read_bindings


class Transformers:
    def __init__(self, compile: str = ""):
        self._compiles = bool(compile)
        self.compile_s = 0.0

    def prepare(self, card: Card, workload: Workload) -> None:
        import torch

        if workload.threads:
            torch.set_num_threads(workload.threads)
        self._torch: Any = torch
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[workload.dtype]
        if workload.weights == "random":
            self._model = _random_model(card, dtype)
        else:
            self._model = load_reference(nest.fetch(card.weights), dtype)
        self._step: Any = self._model.forward
        self._cache_size = workload.cache
        self._prompt = torch.tensor([workload.prompt_ids(card.generics["Vocab"])])
        if self._compiles:
            self._step = torch.compile(self._model.forward, dynamic=False)

    def _cache(self) -> Any:
        from transformers import DynamicCache, StaticCache

        config = self._model.config
        if self._compiles:
            return StaticCache(config=config, max_cache_len=self._cache_size)
        return DynamicCache(config=config)

    def first_token(self) -> int:
        torch = self._torch
        with torch.inference_mode():
            self._past = self._cache()
            output = self._model(
                self._prompt, past_key_values=self._past, use_cache=True, logits_to_keep=1
            )
            self._logits = output.logits[0, -1]
            self._last = self._logits.argmax(-1)
            self._position = self._prompt.shape[1]
            return int(self._last)

    def decode(self, count: int) -> list[int]:
        torch = self._torch
        tokens = []
        with torch.inference_mode():
            for _ in range(count):
                started = time.perf_counter()
                output = self._step(
                    self._last.reshape(1, 1),
                    past_key_values=self._past,
                    position_ids=torch.tensor([[self._position]]),
                    use_cache=True,
                )
                self._last = output.logits[0, -1].argmax(-1)
                self._position += 1
                tokens.append(int(self._last))
                if self._compiles and not self.compile_s:
                    self.compile_s = time.perf_counter() - started
        return tokens

    def logits(self) -> np.ndarray:
        self.first_token()
        return self._logits.float().numpy()

    def versions(self) -> dict[str, str]:
        import transformers

        return {"transformers": transformers.__version__, "torch": self._torch.__version__}


def load_reference(path: Path, dtype: Any) -> Any:
    """The checkpoint as Transformers loads it: a directory, or a GGUF file."""
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": dtype, "local_files_only": True}
    if path.suffix == ".gguf":
        options["gguf_file"] = path.name
        path = path.parent
    return AutoModelForCausalLM.from_pretrained(path, **options).eval()


def _random_model(card: Card, dtype: Any) -> Any:
    """A model of the card's shape with the random weights that every method has."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = card.generics
    tied = "tied-head" in card.tags
    config = LlamaConfig(
        vocab_size=sizes["Vocab"],
        hidden_size=sizes["H"],
        intermediate_size=sizes["Inner"],
        num_hidden_layers=sizes["Layers"],
        num_attention_heads=sizes["Heads"],
        num_key_value_heads=sizes["KvHeads"],
        max_position_embeddings=sizes["MaxSeq"],
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": float(sizes["RopeTheta"])},
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(dtype)
    model = model.to_empty(device="cpu").eval()
    assert card.bindings is not None
    bindings = read_bindings(card.bindings)
    with torch.no_grad():
        for path in parameter_paths(card, tied):
            target = model.get_parameter(bindings.tensor(path))
            target.copy_(torch.from_numpy(random_weight(path, tuple(target.shape))))
        # A model made on the meta device has no rotary frequencies yet.
        rotary = model.model.rotary_emb
        model.model.rotary_emb = type(rotary)(config=config)
    return model


def parameter_paths(card: Card, tied: bool) -> list[str]:
    """The parameters of a card's model, by path."""
    from linnet.check import check_file
    from linnet.dtypes import DType
    from linnet.ir.instantiate import instantiate, parameters

    program = check_file(card.source).require()
    absent = ("lm_head",) if tied else ()
    instance = instantiate(
        program,
        card.root,
        {**card.generics, "T": DType.F32},
        lambda path: not path.startswith(absent or "?") and not path.endswith("bias"),
    )
    return [spec.path for spec in parameters(instance) if spec.kind == "param"]
