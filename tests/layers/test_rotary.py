"""Rotary positions against transformers' Llama."""

import jax
import numpy as np
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from jaxlm.layers.rotary import rotate


def test_equals_transformers_at_every_position() -> None:
    B, T, N, H, theta = 2, 33, 3, 12, 5000.0
    x = jax.random.normal(jax.random.key(0), (B, T, N, H))
    config = LlamaConfig(
        hidden_size=N * H,
        num_attention_heads=N,
        head_dim=H,
        rope_parameters={"rope_theta": theta, "rope_type": "default"},
    )
    positions = torch.arange(T)[None] + 7
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
    expected, _ = apply_rotary_pos_emb(*(torch.tensor(np.asarray(x)).swapaxes(1, 2),) * 2, cos, sin)
    ours = rotate(x, positions.numpy(), theta)
    np.testing.assert_allclose(ours, expected.swapaxes(1, 2).numpy(), atol=1e-5)
