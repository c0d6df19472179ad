"""The command line: what it prints, its exit status, how fast it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linnet.cli import app

GOOD = """module m
pub block B<H: Dim> where H > 0 {
    param w: Tensor[H, 2 * H; f32]
    pub entry f() -> f32 { return w[0, 0] }
}
"""
BAD = "module m\nfn f(x: f32) -> f32 { return y }\nfn g(x: f32) -> f16 { return x }\n"


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def good(tmp_path: Path) -> str:
    (tmp_path / "good.linnet").write_text(GOOD)
    return str(tmp_path / "good.linnet")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    (tmp_path / "bad.linnet").write_text(BAD)
    return str(tmp_path / "bad.linnet")


def test_check_says_what_is_proven(good: str) -> None:
    assert run("check", good) == (0, f"{good}: proven, with 1 module\n", "")


def test_check_shows_every_error(good: str, bad: str) -> None:
    status, out, err = run("check", bad, good)
    assert status == 1
    assert "error[E1201]" in err and "error[E2103]" in err and f"{bad}: 2 errors" in err
    assert out == f"{good}: proven, with 1 module\n"


def test_check_as_one_document(good: str, bad: str) -> None:
    status, out, _ = run("check", "--json", bad, good)
    document = json.loads(out)
    assert status == 1 and not document["ok"]
    first, second = document["files"]
    assert [d["code"] for d in first["diagnostics"]] == ["E1201", "E2103"]
    assert first["diagnostics"][0]["span"]["line"] == 2
    assert second == {"file": good, "ok": True, "diagnostics": []}


def test_check_of_no_file() -> None:
    status, _, err = run("check", "nothing.linnet")
    assert status == 1 and "no file nothing.linnet" in err


def test_a_wrong_command_line_is_status_2() -> None:
    assert run("check")[0] == 2
    assert run("frobnicate")[0] == 2


def test_inspect_lists_weights_with_symbols_or_numbers(good: str) -> None:
    assert run("inspect", "--parameters", good)[1] == "param   w  Tensor[H, 2 * H; f32]\n"
    bound = run("inspect", "--parameters", good, "--bind", "H=3")[1]
    assert bound == "param   w  Tensor[3, 6; f32]\n"


def test_inspect_of_a_model_of_the_registry() -> None:
    status, out, _ = run("inspect", "--parameters", "smollm2-135m-instruct", "--json")
    rows = json.loads(out)
    assert status == 0
    by_path = {row["path"]: row for row in rows}
    assert by_path["layers.29.mlp.down.weight"]["shape"] == [576, 1536]
    assert by_path["lm_head.weight"]["optional"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["inspect", "nothing"], "no model 'nothing'"),
        (["inspect", "GOOD", "--parameters", "--bind", "X=1"], "has no generic 'X'"),
        (["inspect", "GOOD", "--parameters", "--bind", "H=f32"], "H is a Dim"),
        (["inspect", "GOOD", "--bind", "H"], "--bind takes NAME=VALUE"),
        (["inspect", "GOOD", "--bind", "H=x"], "neither an integer nor a dtype"),
        (["inspect", "GOOD", "--root", "C"], "no block 'C'"),
        (["emit-torch", "GOOD", "--entry", "f"], "needs a value for `H: Dim`"),
        (["emit-torch", "GOOD", "--entry", "f", "--bind", "H=0"], "H > 0"),
        (["emit-torch", "GOOD", "--entry", "g", "--bind", "H=2"], "no entry `g`"),
        (["emit-torch", "GOOD", "--entry", "f", "--bind", "H=2", "--mode", "x"], "mode must be"),
        (["run", "nothing", "hi"], "no model 'nothing'"),
        (["run", "smollm2-135m-instruct", "hi", "--compile", "x"], "--compile must be"),
        (["run", "smollm2-135m-instruct", "hi", "--temperature", "-1"], "temperature must be"),
        (["bench"], "which model?"),
        (["bench", "smollm2-135m-instruct", "--methods", "x", "--random"], "no method 'x'"),
        (["bench", "smollm2-135m-instruct", "--prompt", "0"], "prompt must be at least 1"),
    ],
)
def test_a_mistake_is_one_message(good: str, args: list[str], message: str) -> None:
    status, _, err = run(*(good if arg == "GOOD" else arg for arg in args))
    assert status == 1
    assert err.startswith("error: ") and message in err
    assert "Traceback" not in err


def test_emit_torch_needs_no_framework(good: str) -> None:
    code = (
        "import sys\nfrom linnet.cli import app\n"
        f"app(['emit-torch', {good!r}, '--entry', 'f', '--bind', 'H=2'], standalone_mode=False)\n"
        "loaded = {'torch', 'jax', 'onnx', 'transformers'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "def f(model):" in done.stdout


def test_emit_torch_to_a_file(good: str, tmp_path: Path) -> None:
    target = tmp_path / "f.py"
    assert run("emit-torch", good, "--entry", "f", "--bind", "H=2", "-o", str(target))[0] == 0
    compile(target.read_text(), "f.py", "exec")
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".tmp"] == []


def test_explain_gives_reasons() -> None:
    status, out, _ = run("explain", "smollm2-135m-instruct", "--entry", "decode", "--bind",
                         "MaxSeq=64")  # fmt: skip
    assert status == 0 and "std.nn.linear::linear" in out


def test_what_checking_imports() -> None:
    """No framework, and not even numpy: the compiler's core stands alone."""
    code = (
        "import sys, linnet, linnet.check, linnet.cli\n"
        "heavy = {'numpy', 'torch', 'jax', 'onnx', 'rich', 'tokenizers', 'transformers'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_registry_is_listed() -> None:
    status, out, _ = run("nest", "list")
    assert status == 0 and out.count("\n") == 3 and out.startswith("smollm2-1.7b-instruct")


def test_methods_are_listed_with_reasons() -> None:
    status, out, _ = run("bench", "--list")
    assert status == 0 and "linnet-inductor" in out
