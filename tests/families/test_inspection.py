"""What one looks at is what the model computes with, and measures have the values that can be written down."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.families import Model, build_model
from jaxlm.families.inspection import (
    attention_entropy,
    attention_weights,
    effective_rank,
    expert_load,
    hidden_states,
)
from jaxlm.layers import attention
from jaxlm.layers.parameters import Tree
from jaxlm.layers.structure import Structure

T = 11


@pytest.mark.parametrize("block_size", [1, 4, 0], ids=["causal", "blocks", "bidirectional"])
def test_the_weights_times_the_values_are_what_attention_gave_in_the_forward_pass(block_size, monkeypatch) -> None:
    structure = Structure(block_size)
    config = ModelConfig(
        family="llama3_canon",
        canon_set="ABCD",
        vocab_size=128,
        num_layers=3,
        hidden_size=32,
        intermediate_size=48,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        layer_pattern="LGG",
        sliding_window=3,
        max_positions=32,
    )
    model = build_model(config, ExecutionConfig(dtype="float32", layers="unroll"))
    # Larger than a model's start, so that the weights are far from even.
    params = jax.tree.map(lambda x: 3 * x if x.ndim == 2 else x, model.init(jax.random.key(0)))
    tokens_BT = jax.random.randint(jax.random.key(1), (2, T), 0, 128)
    calls, attend = [], attention.attend

    def recorded(q, k, v, *args, **kwargs):
        out = attend(q, k, v, *args, **kwargs)
        calls.append((v, out))
        return out

    with monkeypatch.context() as patch:
        patch.setattr(attention, "attend", recorded)
        model.hidden(params, tokens_BT, structure)
    weights = attention_weights(model, params, tokens_BT, structure)
    assert list(weights) == ["00", "01", "02"]
    at = np.arange(T)
    for (v_BTKH, out_BTNH), kind, (weights_BNTT,) in zip(calls, "LGG", weights.values(), strict=True):
        expected = jnp.einsum("bnts,bsnh->btnh", weights_BNTT, jnp.repeat(v_BTKH, 2, axis=2), precision="highest")
        np.testing.assert_allclose(out_BTNH, expected, atol=1e-5)
        np.testing.assert_allclose(weights_BNTT.sum(-1), 1, atol=1e-5)
        seen_TT = structure.visible(at[:, None], at[None], T, 3 if kind == "L" else 0)
        assert np.array_equal(weights_BNTT.max(axis=(0, 1)) > 0, seen_TT)


def tiny(**parts) -> tuple[Model, Tree]:
    sizes = {"vocab_size": 128, "num_layers": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4}
    config = ModelConfig(**({"num_kv_heads": 2, "head_dim": 8, "max_positions": 32} | sizes | parts))
    model = build_model(config, ExecutionConfig(dtype="float32", layers="unroll"))
    return model, model.init(jax.random.key(0))


@pytest.mark.parametrize("n", [1, 5])
def test_an_identity_has_full_effective_rank_and_an_outer_product_has_one(n) -> None:
    assert effective_rank(3 * np.eye(n)) == pytest.approx(n)
    assert effective_rank(np.outer(np.arange(1, 9), np.arange(1, n + 1))) == pytest.approx(1)
    assert np.isnan(effective_rank(np.zeros((n, n))))


def test_effective_rank_is_the_exponential_of_the_entropy_of_the_singular_values() -> None:
    left, right = (np.linalg.qr(np.random.default_rng(i).normal(size=(n, 3)))[0] for i, n in enumerate((7, 5)))
    share = np.array([0.5, 0.25, 0.25])
    expected = 0.5**-0.5 * 0.25**-0.5
    assert effective_rank((left * 8 * share) @ right.T) == pytest.approx(expected)


def test_even_attention_has_the_entropy_of_what_it_sees_and_a_pointer_has_none() -> None:
    even, causal, pointer = np.full((T, T), 1 / T), np.tri(T) / np.arange(1, T + 1)[:, None], np.eye(T)
    weights_BNTT = np.stack([even, causal, pointer])[None].repeat(2, 0)
    expected = [np.log(T), np.log(np.arange(1, T + 1)).mean(), 0]
    np.testing.assert_allclose(attention_entropy(weights_BNTT), expected, atol=1e-12)


@pytest.mark.parametrize("repeats", [1, 2])
def test_the_last_hidden_state_under_the_final_norm_is_what_the_model_gives(repeats) -> None:
    model, params = tiny(layer_repeats=repeats)
    tokens_BT = jax.random.randint(jax.random.key(1), (2, T), 0, 128)
    states = hidden_states(model, params, tokens_BT, Structure(1))
    assert len(states) == 1 + 3 * repeats
    np.testing.assert_allclose(states["in"], params["embedding"]["table"][tokens_BT])
    last_BTD = list(states.values())[-1]
    final_BTD = model.bind(params).final_norm(last_BTD)
    np.testing.assert_allclose(final_BTD, model.hidden(params, tokens_BT, Structure(1)), atol=1e-5)


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_router_that_always_prefers_two_experts_gives_them_all_the_load(repeats) -> None:
    """A router of zeros leaves a tie, which the first two experts win."""
    model, params = tiny(family="moe", num_experts=4, layer_repeats=repeats)
    tokens_BT = jax.random.randint(jax.random.key(1), (2, T), 0, 128)
    loads = expert_load(model, params, tokens_BT, Structure(1))
    assert len(loads) == 3 * repeats
    for load_E in loads.values():
        assert load_E.shape == (4,)
        assert load_E.sum() == pytest.approx(1)
    assert max(load_E.max() for load_E in loads.values()) < 0.5
    router = params["layers"]["01"]["feed_forward"]["router"]
    router["kernel"] = jnp.zeros_like(router["kernel"])
    for name, load_E in expert_load(model, params, tokens_BT, Structure(1)).items():
        assert (load_E.tolist() == [0.5, 0.5, 0, 0]) == name.startswith("01")


def test_a_family_that_lengthens_the_row_is_run_as_it_runs_itself() -> None:
    model, params = tiny(family="titans_mac", segment_len=4, num_longterm_tokens=1, memory_chunk=2, memory_batch=4)
    tokens_BT = jax.random.randint(jax.random.key(1), (2, T), 0, 128)
    states = hidden_states(model, params, tokens_BT, Structure(1))
    final_BTD = model.bind(params).exit(list(states.values())[-1], T)
    np.testing.assert_allclose(final_BTD, model.hidden(params, tokens_BT, Structure(1)), atol=1e-5)


def test_a_model_without_experts_has_no_load() -> None:
    model, params = tiny()
    assert expert_load(model, params, np.zeros((1, T), int), Structure(1)) == {}
