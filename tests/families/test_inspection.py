"""The attention weights that one looks at are those with which the model computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.families import build_model
from jaxlm.families.inspection import attention_weights
from jaxlm.layers import attention
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
