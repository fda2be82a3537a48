"""Attention against a plain softmax over a dense mask: each implementation, and each part of the layer."""

import functools

import jax
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig
from jaxlm.errors import UserError
from jaxlm.families import resolve
from jaxlm.layers import attention, attention_kernels
from jaxlm.layers.parameters import bind, variables
from jaxlm.layers.reading import Reading
from jaxlm.layers.structure import Structure
from jaxlm.model_config import ModelConfig
from tests.quick_jit import quick_jit
from tests.random_tree import random_tree

B, T, N, K, H = 2, 40, 4, 2, 8


def plain(q, k, v, seen):
    """float64, a loop over heads."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros_like(q)
    for n in range(N):
        scores = np.einsum("bth,bsh->bts", q[:, :, n], k[:, :, n // (N // K)]) / np.sqrt(H)
        weights = np.exp(np.where(seen, scores, -np.inf) - scores.max(-1, keepdims=True))
        out[:, :, n] = np.einsum("bts,bsh->bth", weights / weights.sum(-1, keepdims=True), v[:, :, n // (N // K)])
    return out


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(
    ("structure", "window"),
    [
        (Structure(1), 0),
        (Structure(1), 7),
        (Structure(0), 0),
        (Structure(0), 5),
        (Structure(6), 0),
        (Structure(5, 2), 0),
    ],
    ids=str,
)
def test_xla_and_blocked_equal_a_dense_softmax(structure, window, isolated, monkeypatch) -> None:
    monkeypatch.setattr(
        attention_kernels, "QUERY_BLOCK", 16
    )  # so that 40 positions are three blocks, one of them short
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (B, T, heads, H)) for key, heads in zip(keys, (N, K, K), strict=True))
    index = np.arange(T)
    seen = np.broadcast_to(structure.visible(index[:, None], index[None, :], T // structure.streams, window), (B, T, T))
    segments = None
    if isolated:
        one_stream = np.repeat([[1, 2, 3], [1, 1, 2]], [T // structure.streams // 3 + 2] * 3, axis=1)
        segments = np.tile(one_stream[:, : T // structure.streams], (1, structure.streams))
        seen = seen & (segments[:, :, None] == segments[:, None, :])
    expected = plain(q, k, v, seen)
    for implementation in ("xla", "blocked"):
        attend = functools.partial(
            attention_kernels.attend, structure=structure, window=window, implementation=implementation
        )
        out = quick_jit(attend)(q, k, v, segments_BT=segments)
        np.testing.assert_allclose(out, expected, atol=2e-6, rtol=0)


def test_cudnn_is_chosen_only_where_it_runs() -> None:
    choose = attention_kernels.choose
    assert choose("auto", backend="cpu", dtype="bfloat16", head_dim=48) == "blocked"
    assert choose("auto", backend="gpu", dtype="bfloat16", head_dim=48) == "cudnn"
    assert choose("auto", backend="gpu", dtype="float32", head_dim=48) == "xla"
    assert choose("auto", backend="gpu", dtype="bfloat16", head_dim=256) == "xla"
    assert choose("auto", backend="tpu", dtype="bfloat16", head_dim=64) == "xla"
    with pytest.raises(UserError, match=r"execution.attention is 'cudnn' .* multiple of 8"):
        choose("cudnn", backend="gpu", dtype="bfloat16", head_dim=20)


SHAPE = dict(hidden_size=10, num_heads=N, num_kv_heads=K, head_dim=H, sliding_window=5, layer_pattern="LG")
PARTS = [
    {},
    {"qk_norm": True},
    {"qk_norm": True, "norm": "rms_unit_offset"},
    {"use_bias": True, "positions": "none"},
    {"query_scalar": 20.0},
    {"rope_theta": 50.0, "rope_theta_local": 7.0, "qk_norm": True, "query_scalar": 3.0, "use_bias": True},
]


def rotated(x, theta):
    """float64: pairs (i, i + H/2) of each head as complex numbers."""
    angles = np.arange(T)[:, None] * theta ** (-2 * np.arange(H // 2) / H)
    turned = (x[..., : H // 2] + 1j * x[..., H // 2 :]) * np.exp(1j * angles)[:, None]
    return np.concatenate([turned.real, turned.imag], axis=-1)


@pytest.mark.parametrize("kind", ["G", "L"])
@pytest.mark.parametrize("parts", PARTS, ids=str)
def test_each_part_of_the_layer_against_its_formula(parts, kind) -> None:
    """Projection, head norms, then rotation, then the scale of the scores, window, and the way out."""
    config = resolve(ModelConfig(**SHAPE | parts))
    module = attention.Attention(config, ExecutionConfig(dtype="float32", attention="xla"), kind)
    unit = config.norm == "rms_unit_offset"
    params = random_tree(variables(module), spread=0.5, norm=0.0 if unit else 1.0)
    x_BTD = np.random.default_rng(1).standard_normal((B, T, 10)).astype(np.float32)

    def linear(x, name):
        return x @ np.asarray(params[name]["kernel"], np.float64) + np.asarray(params[name].get("bias", 0.0))

    qkv = linear(x_BTD, "qkv").reshape(B, T, N + 2 * K, H)
    q, k, v = np.split(qkv, [N, N + K], axis=2)
    if config.qk_norm:
        rms = [np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.norm_eps) for x in (q, k)]
        scales = [np.asarray(params[name]["scale"]) + unit for name in ("query_norm", "key_norm")]
        q, k = (x / size * scale for x, size, scale in zip((q, k), rms, scales, strict=True))
    if config.positions == "rope":
        theta = (config.rope_theta_local if kind == "L" else 0) or config.rope_theta
        q, k = rotated(q, theta), rotated(k, theta)
    q = q * np.sqrt(H / (config.query_scalar or H))  # `plain` divides by the root of H
    back = np.arange(T)[:, None] - np.arange(T)[None]
    seen = (back >= 0) & ((back < 5) | (kind == "G"))
    expected = linear(plain(q, k, v, seen).reshape(B, T, N * H), "out")

    reading = Reading(Structure(1), np.arange(T)[None])
    ours = quick_jit(lambda params, x_BTD: bind(module, params).whole(x_BTD, reading))(params, x_BTD)
    np.testing.assert_allclose(ours, expected, atol=2e-5)
