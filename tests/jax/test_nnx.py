"""The Llama source as Flax NNX modules: paths, values, gradients, training."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from linnet.jax import to_nnx
from linnet.jax.nnx import Model, State
from tests.jax.test_source import CLOSE, load, loss_of
from tests.torch.models import llama_weights, tokens


@pytest.fixture
def module() -> Model:
    return to_nnx(load().function("forward"))


def paths(module: nnx.Module, *filters) -> set[str]:
    state: Any = nnx.state(module, *filters)
    return {".".join(map(str, path)) for path, _ in nnx.to_flat_state(state)}


def test_the_paths_are_those_of_the_parameters(module: Model) -> None:
    assert paths(module) == set(llama_weights())
    assert paths(module, nnx.Param) == set(llama_weights())
    blocks: Any = module
    np.testing.assert_array_equal(
        blocks.layers[2].attention.q.weight[...], llama_weights()["layers.2.attention.q.weight"]
    )


def test_calling_it_runs_the_entry(module: Model) -> None:
    expected = load().run_entry("forward", [tokens(2, 5)])
    np.testing.assert_allclose(module(tokens(2, 5)), expected, CLOSE, CLOSE)
    compiled = nnx.jit(lambda module, given: module(given))
    np.testing.assert_allclose(compiled(module, tokens(2, 5)), expected, CLOSE, CLOSE)


def test_gradients_are_those_of_the_function(module: Model) -> None:
    prompt, targets = tokens(2, 5), tokens(2, 5, seed=9)
    found = nnx.grad(lambda module: loss_of(module(prompt), targets))(module)
    f = load().function("forward")
    expected = jax.grad(lambda p: loss_of(f.apply(p, prompt), targets))(f.parameters)
    flat = {".".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(found)}
    assert set(flat) == set(expected)
    for path, gradient in expected.items():
        np.testing.assert_allclose(flat[path], gradient, CLOSE, CLOSE, err_msg=path)


def test_it_trains(module: Model) -> None:
    prompt, targets = tokens(2, 5), tokens(2, 5, seed=9)
    optimizer = nnx.Optimizer(module, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer):
        loss, gradients = nnx.value_and_grad(lambda m: loss_of(m(prompt), targets))(module)
        optimizer.update(module, gradients)
        return loss

    losses = [float(step(module, optimizer)) for _ in range(20)]
    assert losses[-1] < losses[0] / 2
    before = load().run_entry("forward", [tokens(2, 5)])
    assert np.abs(np.asarray(module(tokens(2, 5))) - np.asarray(before)).max() > 0.1


def test_states_are_variables_that_a_call_replaces() -> None:
    model = load()
    module = to_nnx(model.function("decode"), state=True)
    assert paths(module, State) == set(model.states)
    for position in range(3):
        step = tokens(2, 1, seed=position)
        expected = model.run_entry("decode", [step, position])
        np.testing.assert_allclose(module(step, position), expected, CLOSE, CLOSE)
    for path, array in model.states.items():
        at: Any = module
        for part in path.split("."):
            at = at[int(part)] if part.isdigit() else getattr(at, part)
        np.testing.assert_allclose(at[...], array, CLOSE, CLOSE)


def test_an_entry_with_states_needs_them() -> None:
    module = to_nnx(load().function("decode"))
    with pytest.raises(ValueError, match="`decode` has states"):
        module(tokens(2, 1), 0)
