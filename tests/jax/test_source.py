"""Generated JAX at a tiny size: every entry of the Llama source against the interpreter, and what
its gradients are.

A layer's sums have at most 24 terms of numbers about 1, and there are three layers: 1e-5 is some
hundred times the rounding.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import linnet.torch
from linnet.dtypes import DType
from linnet.emit.jax import optimised
from linnet.ir.core import TensorType
from linnet.ir.instantiate import bind_entry
from linnet.ir.interpreter import run
from linnet.ir.lower import lower
from linnet.jax.source import JaxModel, load_source
from tests.jax.test_llama import ENTRIES
from tests.torch.models import GENERICS, PROGRAM, llama_weights, tokens

CLOSE = 1e-5
OWN = {"generate": {"N": 6}, "generate_until": {"N": 6}, "sample": {"N": 6}}


def load(numerics: str = "fast", **options) -> JaxModel:
    generics = {**GENERICS, **options.pop("generics", {})}
    options = {"cache": False, "weights": llama_weights(), **options}
    return load_source(PROGRAM, root="Llama", generics=generics, numerics=numerics, **options)


@pytest.fixture(scope="module", params=["exact", "fast"])
def model(request: pytest.FixtureRequest) -> JaxModel:
    return load(request.param)


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_compute_what_the_interpreter_says(model: JaxModel, name: str) -> None:
    entry, inputs = name.split(" ")[0], ENTRIES[name]
    arrays = [np.asarray(x) for x in inputs]
    declared = {float: DType.F32, int: DType.I32}
    types = [
        TensorType(array.shape, declared.get(type(x)) or DType({"int32": "i32", "int64": "i64"}[
            str(array.dtype)]))
        for x, array in zip(inputs, arrays, strict=True)
    ]  # fmt: skip
    own = bind_entry(model.instance, entry, types, OWN.get(entry, {}))
    module = optimised(lower(model.instance, entry, own, types))
    random = np.random.default_rng(3)
    states = {path: random.standard_normal(array.shape).astype(np.float32)
              for path, array in model.states.items()}  # fmt: skip
    expected, after = run(module, arrays, llama_weights(), states)
    model.states = {path: jnp.array(array) for path, array in states.items()}
    found = model.run_entry(entry, inputs, **OWN.get(entry, {}))
    found = found if isinstance(found, tuple) else (found,)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(model.to_numpy(x), y, CLOSE, CLOSE)
    for path, array in after.items():
        np.testing.assert_allclose(model.states[path], array, CLOSE, CLOSE)


def test_it_has_the_interface_of_a_runtime() -> None:
    model = load()
    assert model.name == "jax"
    assert str(model.entries["decode"]).startswith("decode(token: Tensor[2, 1; i32], pos: i32)")
    assert model.generics["MaxSeq"] == 16 and model.dtype == DType.F32
    given = llama_weights()
    assert set(model.state_dict()) == set(given)
    for path, array in model.state_dict().items():
        np.testing.assert_array_equal(array, given[path])
    logits = model.run_entry("prefill", [tokens(2, 5), 0])
    assert isinstance(logits, jax.Array)
    np.testing.assert_array_equal(model.argmax(logits), np.asarray(logits).argmax(-1))
    assert "def decode(model, state, token, pos):" in model.generated_source("decode")
    assert model.compile_s > 0
    one = load(generics={"Batch": 1})
    assert one.weight_bytes >= sum(w.nbytes for w in given.values())


def test_states_start_at_zero_and_go_back_to_it() -> None:
    model = load()
    first = np.asarray(model.run_entry("decode", [tokens(2, 1), 0]))
    assert any(np.asarray(state).any() for state in model.states.values())
    model.reset_state()
    np.testing.assert_array_equal(model.run_entry("decode", [tokens(2, 1), 0]), first)


def test_no_step_copies_a_cache() -> None:
    """All states are donated, and what a step needs beside them is less than two of the six: it
    reads a quarter of two of them at a time."""
    model = load(generics={"MaxSeq": 512, "Batch": 1})
    model.run_entry("decode", [tokens(1, 1), 0])
    memory = model.executable("decode").memory
    states = [state.nbytes for state in model.states.values()]
    assert memory.aliased == sum(states)
    assert memory.temporaries < 2 * states[0]


def test_weight_only_work_is_done_once() -> None:
    model = load()
    for length in (3, 4, 5):
        model.run_entry("prefill", [tokens(2, length), 0])
    assert len(model._derived) == 2  # the cosines and the sines


@pytest.mark.parametrize(
    ("entry", "inputs", "message"),
    [
        ("decod", [], "has no entry `decod`"),
        ("decode", [tokens(2, 1)], r"takes 2 inputs \(token, pos\), 1 given"),
        ("decode", [tokens(3, 1), 0], r"`token` must be .*Tensor\[2, 1; i32\]"),
        ("decode", [tokens(2, 1), 0.5], "`pos` must be an integer that i32 holds, not 0.5"),
    ],
)
def test_inputs_that_do_not_fit(model: JaxModel, entry, inputs, message) -> None:
    with pytest.raises(ValueError, match=message):
        model.run_entry(entry, inputs)


def test_numerics_must_be_one_there_is() -> None:
    with pytest.raises(ValueError, match="numerics must be one of exact, equivalent, fast"):
        load("loose")


# --- functions ------------------------------------------------------------------------------


def test_a_function_of_the_parameters_gives_what_the_entry_does() -> None:
    model = load()
    f = model.function("forward")
    expected = np.asarray(model.run_entry("forward", [tokens(2, 5)]))
    np.testing.assert_allclose(f.apply(f.parameters, tokens(2, 5)), expected, CLOSE, CLOSE)
    np.testing.assert_allclose(jax.jit(f)(tokens(2, 5)), expected, CLOSE, CLOSE)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(f)(tokens(2, 5)), expected, CLOSE, CLOSE)


def test_a_function_with_states_gives_new_ones_back() -> None:
    model = load()
    f = model.function("decode")
    with pytest.raises(ValueError, match="`decode` has states: use `apply_with_state"):
        f.apply(f.parameters, tokens(2, 1), 0)
    logits, state = jax.jit(f.apply_with_state)(f.parameters, f.state(), tokens(2, 1), 0)
    expected = np.asarray(model.run_entry("decode", [tokens(2, 1), 0]))
    np.testing.assert_allclose(logits, expected, CLOSE, CLOSE)
    for path, array in model.states.items():
        np.testing.assert_allclose(state[path], array, CLOSE, CLOSE)


def test_parameters_that_do_not_fit_are_named() -> None:
    f = load().function("forward")
    given = dict(f.parameters)
    del given["norm.weight"]
    with pytest.raises(ValueError, match=r"the parameter `norm\.weight` is not given"):
        f.apply(given, tokens(2, 5))
    given["norm.weight"] = jnp.zeros(3)
    with pytest.raises(ValueError, match=r"`norm.weight` must be f32\[24\], found float32\[3\]"):
        f.apply(given, tokens(2, 5))
    with pytest.raises(ValueError, match="has no entry `forwards`"):
        load().function("forwards")


def loss_of(logits, targets):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    return -picked.mean()


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_gradients_are_those_of_pytorch(numerics: str) -> None:
    """The loss is a mean over ten tokens of numbers about 4, its gradients are sums of products of
    about a hundred terms: 1e-5 is some hundred roundings."""
    prompt, targets = tokens(2, 5), tokens(2, 5, seed=9)
    f = load(numerics).function("forward")

    def loss(parameters):
        return loss_of(f.apply(parameters, prompt), targets)

    value, found = jax.jit(jax.value_and_grad(loss))(f.parameters)
    expected = torch_gradients(prompt, targets)
    assert set(found) == set(expected["gradients"])
    np.testing.assert_allclose(value, expected["loss"], CLOSE)
    for path, gradient in expected["gradients"].items():
        np.testing.assert_allclose(found[path], gradient, 1e-4, CLOSE, err_msg=path)


def torch_gradients(prompt: np.ndarray, targets: np.ndarray) -> dict:
    """The same loss by PyTorch's own generated source and autograd."""
    from linnet.emit.torch import TorchTarget, emit

    model = linnet.torch.load(PROGRAM, root="Llama", generics=GENERICS, weights=llama_weights())
    types = [TensorType(prompt.shape, DType.I32)]
    own = bind_entry(model.instance, "forward", types, {})
    emitted = emit(optimised(lower(model.instance, "forward", own, types)), TorchTarget())
    names: dict = {}
    exec(emitted.source, names)
    weights = {p: torch.tensor(w, requires_grad=True) for p, w in llama_weights().items()}
    logits = names["forward"](names["new_model"](weights), torch.from_numpy(prompt))
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), torch.from_numpy(targets).long().reshape(-1)
    )
    loss.backward()
    gradients = {path: w.grad.numpy() for path, w in weights.items() if w.grad is not None}
    return {"loss": loss.item(), "gradients": gradients}


def test_gradients_are_those_of_finite_differences() -> None:
    """Along one random direction, in f64: the error of a central difference is of order step²."""
    generics = {**GENERICS, "T": "f64"}
    weights = {path: w.astype(np.float64) for path, w in llama_weights().items()}
    prompt, targets = tokens(2, 5), tokens(2, 5, seed=9)
    with jax.enable_x64(True):
        model = load_source(PROGRAM, root="Llama", generics=generics, weights=weights)
        f = model.function("forward")
        random = np.random.default_rng(7)
        along = {p: random.standard_normal(w.shape) for p, w in weights.items()}

        def loss(step):
            moved = {p: w + step * along[p] for p, w in f.parameters.items()}
            return loss_of(f.apply(moved, prompt), targets)

        loss = jax.jit(loss)
        step = 1e-3  # norms and softmax are computed in f32: 1e-7 / 1e-3 is the noise
        difference = (loss(step) - loss(-step)) / (2 * step)
        np.testing.assert_allclose(jax.jacfwd(loss)(0.0), difference, 2e-3, 2e-3)
        np.testing.assert_allclose(jax.grad(loss)(0.0), difference, 2e-3, 2e-3)
