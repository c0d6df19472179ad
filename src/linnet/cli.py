"""The command line: parses arguments, calls one function, prints.

Exit status 0 when all is well, 1 when a source has errors or an input can't be used, 2 when the
command line itself is wrong. What is slow to import is imported by the command that needs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linnet.backends import BACKENDS, find_backend

if TYPE_CHECKING:
    from linnet.check import CheckResult
    from linnet.check.typed import Program

app = typer.Typer(
    name="linnet",
    help="One checked source for a neural network, every runtime's own fast path.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    app()


@contextmanager
def _errors_shown() -> Iterator[None]:
    """What a user can cause is one message on standard error and exit status 1."""
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    except ModuleNotFoundError as error:
        extras = {"torch": "torch", "tokenizers": "text", "safetensors": "weights",
                  "transformers": "bench", "psutil": "bench", "jinja2": "text",
                  "jax": "jax", "jaxlib": "jax", "flax": "jax",
                  "onnx": "onnx", "onnxruntime": "onnx",
                  "fastapi": "serve", "uvicorn": "serve", "prometheus_client": "serve",
                  "starlette": "serve", "llguidance": "serve"}  # fmt: skip
        name = (error.name or "").partition(".")[0]
        if name not in extras:
            raise
        typer.echo(f"error: this needs {name}: pip install 'linnet[{extras[name]}]'", err=True)
        raise typer.Exit(1) from error


def _version(value: bool) -> None:
    if value:
        from linnet import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


# --- sources --------------------------------------------------------------------------------


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Sources, or packages' directories.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Prove sources right, with all they import; or say what is wrong."""
    from linnet.check import check_file
    from linnet.diagnostics import to_json

    results = [(file, check_file(file)) for file in files]
    if as_json:
        document = {
            "ok": all(result.ok for _, result in results),
            "files": [
                {"file": str(file), "ok": result.ok, "diagnostics": to_json(result.diagnostics)}
                for file, result in results
            ],
        }
        typer.echo(json.dumps(document, indent=1))
    else:
        for file, result in results:
            _show_diagnostics(file, result)
    raise typer.Exit(0 if all(result.ok for _, result in results) else 1)


def _show_diagnostics(file: Path, result: CheckResult) -> None:
    from linnet.diagnostics import render

    if result.diagnostics:
        typer.echo(render(result.diagnostics), err=True)
        typer.echo("", err=True)
    errors = sum(d.is_error for d in result.diagnostics)
    if errors:
        typer.echo(f"{file}: {errors} error{'s' if errors > 1 else ''}", err=True)
    else:
        modules = len(result.sources.files)
        typer.echo(f"{file}: proven, with {modules} module{'s' if modules > 1 else ''}")


BindOption = Annotated[
    list[str] | None,
    typer.Option("--bind", help="Generics as NAME=VALUE, several between commas.", metavar="…"),
]
RootOption = Annotated[str | None, typer.Option(help="The root block, where there are several.")]


@app.command()
def inspect(
    source: Annotated[str, typer.Argument(help="A source, a package's directory, or a model.")],
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Every weight: path, shape, dtype.")
    ] = False,
    bind: BindOption = None,
    root: RootOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show a source's blocks and entries, or the manifest of its weights."""
    from linnet import outline

    with _errors_shown():
        program, root, given = _open(source, root, bind)
        if parameters:
            table = outline.manifest(program, root, given)
            if as_json:
                typer.echo(json.dumps([row.to_json() for row in table], indent=1))
            else:
                typer.echo(outline.format_manifest(table))
        else:
            typer.echo(outline.describe(program, root))


def _open(
    source: str, root: str | None, bind: list[str] | None
) -> tuple[Program, str | None, dict[str, Any]]:
    """A source's checked program with the generics asked for; a model's card brings its own."""
    from linnet.check import check_file
    from linnet.nest.card import find

    given: dict[str, Any] = {}
    path = Path(source)
    if not path.exists() or (path / "nest.toml").is_file():
        card = find(source)
        path, root = card.source, root or card.root
        given = {**card.generics, "T": card.dtype}
    return check_file(path).require(), root, given | _bindings(bind or [])


def _bindings(items: list[str]) -> dict[str, Any]:
    from linnet.dtypes import DType

    bound: dict[str, Any] = {}
    for item in (part for text in items for part in text.split(",") if part):
        name, equals, value = item.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--bind takes NAME=VALUE, found {item!r}")
        if value.isdigit():
            bound[name] = int(value)
        elif value in set(DType):
            bound[name] = DType(value)
        else:
            raise ValueError(f"--bind {name}: {value!r} is neither an integer nor a dtype")
    return bound


HavingOption = Annotated[
    list[str] | None,
    typer.Option("--with", help="An optional member that is there, as `lm_head.weight`."),
]
ModeOption = Annotated[str, typer.Option("--mode", help="eager, inductor or cudagraphs.")]
NumericsOption = Annotated[str, typer.Option(help="exact, equivalent or fast.")]
SourceArgument = Annotated[
    str, typer.Argument(help="A source, a package's directory, or a model of the registry.")
]


@app.command()
def emit_torch(
    source: SourceArgument,
    entry: Annotated[str, typer.Option(help="The entry to emit.")] = "forward",
    bind: BindOption = None,
    having: HavingOption = None,
    root: RootOption = None,
    numerics: NumericsOption = "fast",
    mode: ModeOption = "eager",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file to write.")] = None,
) -> None:
    """Print the PyTorch source of an entry."""
    with _errors_shown():
        from linnet.emit.source import entry_module, torch_source

        program, root, given = _open(source, root, bind)
        module = entry_module(
            program, entry, given, root=root, having=having or (), numerics=numerics
        )
        text = torch_source(module, numerics=numerics, mode=mode)
        if output is None:
            typer.echo(text, nl=False)
        else:
            _write(output, text)


@app.command()
def emit_jax(
    source: SourceArgument,
    entry: Annotated[str, typer.Option(help="The entry to emit.")] = "forward",
    bind: BindOption = None,
    having: HavingOption = None,
    root: RootOption = None,
    numerics: NumericsOption = "fast",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file to write.")] = None,
) -> None:
    """Print the JAX source of an entry."""
    with _errors_shown():
        from linnet.emit.jax import JaxTarget, optimised
        from linnet.emit.jax import emit_jax as emitted
        from linnet.emit.source import lowered_entry

        program, root, given = _open(source, root, bind)
        module = lowered_entry(program, entry, given, root=root, having=having or ())
        text = emitted(optimised(module), JaxTarget(numerics))
        if output is None:
            typer.echo(text, nl=False)
        else:
            _write(output, text)


@app.command()
def emit_stablehlo(
    source: SourceArgument,
    entry: Annotated[str, typer.Option(help="The entry to emit.")] = "forward",
    bind: BindOption = None,
    having: HavingOption = None,
    root: RootOption = None,
    numerics: NumericsOption = "fast",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file to write.")] = None,
) -> None:
    """Print an entry as a StableHLO program."""
    with _errors_shown():
        from linnet.emit.source import lowered_entry
        from linnet.emit.stablehlo import emit_stablehlo as emitted
        from linnet.emit.stablehlo import optimised

        program, root, given = _open(source, root, bind)
        module = lowered_entry(program, entry, given, root=root, having=having or ())
        text = emitted(optimised(module, numerics), numerics)
        if output is None:
            typer.echo(text, nl=False)
        else:
            _write(output, text)


@app.command()
def emit_onnx(
    source: SourceArgument,
    entry: Annotated[str, typer.Option(help="The entry to emit.")] = "forward",
    bind: BindOption = None,
    having: HavingOption = None,
    root: RootOption = None,
    numerics: NumericsOption = "fast",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file to write: .onnx, or text.")
    ] = None,
) -> None:
    """Print an entry as an ONNX graph, or save it; without its weights."""
    with _errors_shown():
        from linnet.emit.onnx import OnnxTarget, optimised
        from linnet.emit.onnx_proto import checked, text
        from linnet.emit.source import lowered_entry

        program, root, given = _open(source, root, bind)
        module = lowered_entry(program, entry, given, root=root, having=having or ())
        model = checked(optimised(module, numerics), OnnxTarget(numerics=numerics))
        if output is None:
            typer.echo(text(model))
        elif output.suffix == ".onnx":
            _write(output, model.SerializeToString())
        else:
            _write(output, text(model).encode())


@app.command()
def explain(
    source: SourceArgument,
    entry: Annotated[str, typer.Option(help="The entry to explain.")] = "forward",
    bind: BindOption = None,
    having: HavingOption = None,
    root: RootOption = None,
    numerics: NumericsOption = "fast",
    mode: ModeOption = "eager",
    backend: Annotated[str, typer.Option(help="torch or onnx.")] = "torch",
) -> None:
    """Tell which kernel each library op of an entry gets, and why."""
    with _errors_shown():
        from linnet.emit import onnx
        from linnet.emit.source import entry_module, lowered_entry, torch_explained

        if backend not in ("torch", "onnx"):
            raise ValueError(f"--backend must be torch or onnx, found {backend!r}")
        if backend == "onnx" and mode != "eager":
            raise ValueError("--mode is PyTorch's")
        program, root, given = _open(source, root, bind)
        if backend == "onnx":
            lowered = lowered_entry(program, entry, given, root=root, having=having or ())
            target = onnx.OnnxTarget(numerics=numerics)
            rows = onnx.explain(onnx.optimised(lowered, numerics), target)
        else:
            module = entry_module(
                program, entry, given, root=root, having=having or (), numerics=numerics
            )
            rows = torch_explained(module, numerics=numerics, mode=mode)
        for row in rows:
            typer.echo(f"{row.calls:4} × {row.op}({row.types})")
            typer.echo(f"       {row.kernel}: {row.why}")


def _write(path: Path, content: str | bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    temporary.replace(path)


# --- running --------------------------------------------------------------------------------


@app.command()
def run(
    model: Annotated[str, typer.Argument(help="A model of the registry, or a card's directory.")],
    prompt: Annotated[str | None, typer.Argument(help="The prompt; else standard input.")] = None,
    backend: Annotated[str, typer.Option(help=f"{', '.join(BACKENDS)}.")] = "torch",
    compile: Annotated[str | None, typer.Option(help="no, inductor or cudagraphs.")] = None,
    numerics: Annotated[str | None, typer.Option(help="exact, equivalent or fast.")] = None,
    dtype: Annotated[str, typer.Option(help="f32, f16 or bf16.")] = "f32",
    quantize: Annotated[str | None, typer.Option(help="int4 or int8: weights in blocks.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …")] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights to use instead.")] = None,
    max_seq: Annotated[int, typer.Option(min=1, help="Positions of the cache.")] = 2048,
    max_new_tokens: Annotated[int, typer.Option("-n", "--max-new-tokens", min=1)] = 256,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 for all.")] = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: Annotated[int | None, typer.Option(help="Draws the same tokens again.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Text to end at.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="The prompt as it is, without chat.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Beside eager Transformers: speed and distance.")
    ] = False,
) -> None:
    """Generate text, and tell how fast."""
    from linnet.text.sampling import SamplingParams

    with _errors_shown():
        options = _backend_options(backend, compile, numerics, quantize, dtype, device)
        text = prompt if prompt is not None else sys.stdin.read()
        params = SamplingParams(temperature, top_k, top_p, min_p, repetition_penalty, seed=seed)
        from linnet.conversation import converse

        converse(
            model,
            text,
            backend=backend,
            options=options,
            weights=weights,
            max_seq=max_seq,
            max_new_tokens=max_new_tokens,
            params=params,
            stop=stop or [],
            raw=raw,
            compare=compare,
        )


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="A model of the registry, or a card's directory.")],
    backend: Annotated[str, typer.Option(help=f"{', '.join(BACKENDS)}.")] = "torch",
    compile: Annotated[str | None, typer.Option(help="no, inductor or cudagraphs.")] = None,
    numerics: Annotated[str | None, typer.Option(help="exact, equivalent or fast.")] = None,
    dtype: Annotated[str, typer.Option(help="f32, f16 or bf16.")] = "f32",
    quantize: Annotated[str | None, typer.Option(help="int4 or int8: weights in blocks.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …")] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights to use instead.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Requests that run at once.")] = 16,
    max_seq: Annotated[int, typer.Option(min=1, help="Tokens of a request, all in all.")] = 2048,
    budget: Annotated[int, typer.Option(min=1, help="Prompt tokens a step takes in.")] = 256,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait.")] = 256,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="LINNET_API_KEY", help="The key that clients must give.")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 1 << 20,
    deadline: Annotated[float, typer.Option(min=0, help="Seconds of a request.")] = 600.0,
    drain: Annotated[float, typer.Option(min=0, help="Seconds to finish in when ended.")] = 30.0,
    warmup: Annotated[
        bool, typer.Option(help="Compile every size before the first request.")
    ] = True,
) -> None:
    """Serve a model to OpenAI's clients."""
    with _errors_shown():
        options = _backend_options(backend, compile, numerics, quantize, dtype, device)
        from linnet.serve.command import serve
        from linnet.serve.server import Limits

        serve(
            model,
            backend=backend,
            options=options,
            weights=weights,
            rows=rows,
            max_seq=max_seq,
            budget=budget,
            queue=queue,
            host=host,
            port=port,
            api_key=api_key,
            limits=Limits(body=max_body, deadline_s=deadline),
            drain_s=drain,
            warm=warmup,
        )


def _backend_options(
    backend: str,
    compile: str | None,
    numerics: str | None,
    quantize: str | None,
    dtype: str,
    device: str | None,
) -> dict[str, Any]:
    """What a backend's `load` is given. Raises `ValueError` for what it doesn't take."""
    if compile not in (None, "no", "inductor", "cudagraphs"):
        raise ValueError(f"--compile must be no, inductor or cudagraphs, found {compile!r}")
    given = {
        "compile": False if compile == "no" else compile,
        "numerics": numerics,
        "quantize": quantize,
    }
    given = {name: value for name, value in given.items() if value is not None}
    for name in given.keys() - set(find_backend(backend).options):
        raise ValueError(f"--{name} is nothing that the backend {backend} takes")
    return {**given, "dtype": dtype, **({} if device is None else {"device": device})}


@app.command()
def bench(
    model: Annotated[str | None, typer.Argument(help="A model of the registry.")] = None,
    methods: Annotated[
        str, typer.Option(help="Names between commas, or `all` that can run here.")
    ] = "all",
    list_methods: Annotated[bool, typer.Option("--list", help="Show every method.")] = False,
    profile: Annotated[str, typer.Option(help="gpu or cpu: the sizes to begin with.")] = "cpu",
    prompt: Annotated[int | None, typer.Option(help="Tokens of the prompt.")] = None,
    new: Annotated[int | None, typer.Option(help="Tokens to generate.")] = None,
    runs: Annotated[int | None, typer.Option(help="Counted runs.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Runs before.")] = None,
    dtype: Annotated[str | None, typer.Option(help="f32, f16 or bf16.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each method.")] = None,
    random: Annotated[bool, typer.Option("--random", help="Random weights of the shape.")] = False,
    out: Annotated[Path | None, typer.Option(help="A result file to add to.")] = None,
) -> None:
    """Measure ways of running a model side by side."""
    import dataclasses

    from linnet.bench import PROFILES, run_bench, save
    from linnet.bench.methods import METHODS, why_not
    from linnet.bench.report import print_run

    if list_methods:
        for name, listing in METHODS.items():
            reason = why_not(listing)
            typer.echo(f"{name:24} {listing.title:36} {reason or 'can run'}")
        return
    with _errors_shown():
        from linnet import nest

        if model is None:
            raise ValueError(f"which model? There are {', '.join(nest.names())}")
        if profile not in PROFILES:
            raise ValueError(f"--profile must be one of {', '.join(PROFILES)}")
        given = {
            "prompt": prompt, "new": new, "runs": runs, "warmup": warmup, "dtype": dtype,
            "threads": threads, "weights": "random" if random else None,
        }  # fmt: skip
        workload = dataclasses.replace(
            PROFILES[profile], **{k: v for k, v in given.items() if v is not None}
        )
        names = (
            [name for name, listing in METHODS.items() if not why_not(listing)]
            if methods == "all"
            else methods.split(",")
        )
        card = nest.find(model)
        if not random:
            nest.fetch(card.weights)
        result = run_bench(
            card, workload, names, on_row=lambda name, _: typer.echo(f"{name}: done", err=True)
        )
        if out is not None:
            save(out, result)
        print_run(result)


nest_app = typer.Typer(help="The registry of models.", no_args_is_help=True)
app.add_typer(nest_app, name="nest")


@nest_app.command("list")
def nest_list() -> None:
    """Show the models of the registry."""
    from linnet.nest.card import find, names

    with _errors_shown():
        for name in names():
            typer.echo(f"{name:28} {find(name).summary}")


@nest_app.command("fetch")
def nest_fetch(model: str) -> None:
    """Download a model's weights; prints where they are."""
    from linnet import nest

    with _errors_shown():
        typer.echo(nest.fetch(nest.find(model).weights))


if __name__ == "__main__":
    main()
