"""Which parameters decay, what the rate is at each step, and that moments are fp32."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import RunConfig
from jaxlm.families import build_model
from jaxlm.families.registry import FAMILIES
from jaxlm.layers.parameters import paths
from jaxlm.training.optimizer import build_optimizer, decays, learning_rate

MATRICES = ("qkv/kernel", "out/kernel", "gate_up/kernel", "down/kernel")


def test_without_gradients_only_matrices_shrink(tiny: Callable[..., RunConfig]) -> None:
    # Canon taps have two dimensions like a matrix, so a rule by shape would fail here (nanodo's default decays all).
    config = tiny(
        model={"canon_set": "ABCD", "canon_bias": True, "tie_embeddings": False},
        train={"learning_rate": 0.01},
        optimizer={"warmup_share": 0.0, "schedule": "constant"},
    )
    params = build_model(config.model).init(jax.random.key(0))
    optimizer = build_optimizer(config)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    moved = {path for path, update in paths(updates) if bool(jnp.any(update != 0))}
    assert moved == {path for path, _ in paths(params) if path.endswith(MATRICES) or path == "head/table"}
    after = jax.tree.map(jnp.add, params, updates)
    kernel, shrunk = (dict(paths(tree))["layers/00/attention/qkv/kernel"] for tree in (params, after))
    np.testing.assert_allclose(shrunk, kernel * (1 - 0.01 * config.optimizer.weight_decay), rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_of_every_family_has_a_rule(family: str, tiny: Callable[..., RunConfig]) -> None:
    config = tiny(model={"family": family, "canon_set": "ABCD" if "canon" in family else ""})
    assert {decays(path) for path, _ in paths(build_model(config.model).abstract_params())} == {True, False}


def test_an_unknown_parameter_is_an_error() -> None:
    with pytest.raises(ValueError, match="layers/00/memory/w"):
        decays("layers/00/memory/w")


def test_the_rate_rises_peaks_and_ends_where_it_should(tiny: Callable[..., RunConfig]) -> None:
    config = tiny(
        train={"total_tokens": 100 * 128, "learning_rate": 0.5}, optimizer={"warmup_share": 0.1, "final_share": 0.2}
    )
    rates = [float(learning_rate(config, step)) for step in range(100)]
    assert rates[:10] == pytest.approx([0.05 * (i + 1) for i in range(10)])  # the first update is not lost to rate 0
    assert rates[99] == pytest.approx(0.1)
    middle = 0.1 + 0.4 * 0.5 * (1 + math.cos(math.pi * 45 / 90))
    assert rates[54] == pytest.approx(middle)
    assert all(a > b for a, b in zip(rates[9:], rates[10:], strict=False))
    constant = tiny(train={"learning_rate": 0.5}, optimizer={"schedule": "constant", "warmup_share": 0.0})
    assert {float(learning_rate(constant, step)) for step in range(20)} == {0.5}


def test_warmup_stable_decay_is_three_straight_lines(tiny: Callable[..., RunConfig]) -> None:
    wsd = {"schedule": "wsd", "warmup_share": 0.1, "decay_share": 0.25, "final_share": 0.2}
    config = tiny(train={"total_tokens": 40 * 128, "learning_rate": 0.5}, optimizer=wsd)
    rates = [float(learning_rate(config, step)) for step in range(40)]
    rise = [0.5 * n / 4 for n in range(1, 5)]
    fall = [0.5 * (1 - 0.8 * n / 10) for n in range(1, 11)]  # the tenth update of ten is the last, at a fifth
    assert rates == pytest.approx(rise + 26 * [0.5] + fall)
    never = tiny(train={"learning_rate": 0.5}, optimizer={**wsd, "warmup_share": 0.0, "decay_share": 0.0})
    assert {float(learning_rate(never, step)) for step in range(20)} == {0.5}


@pytest.mark.parametrize("schedule", ["cosine", "constant", "wsd"])
def test_the_rate_in_the_step_is_the_one_on_the_host(schedule: str, tiny: Callable[..., RunConfig]) -> None:
    config = tiny(optimizer={"schedule": schedule})
    steps = np.arange(20)
    inside = jax.jit(lambda step: learning_rate(config, step, jnp))(steps)
    np.testing.assert_allclose(inside, learning_rate(config, steps), rtol=1e-5)


def test_moments_are_float32_even_for_bfloat16_gradients(tiny: Callable[..., RunConfig]) -> None:
    config = tiny()
    params = build_model(config.model).init(jax.random.key(0))
    optimizer = build_optimizer(config)
    state = optimizer.init(params)
    gradients = jax.tree.map(jnp.ones_like, params)
    _, state = optimizer.update(gradients, state, params)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(state)}
    assert dtypes == {jnp.dtype("float32"), jnp.dtype("int32")}
