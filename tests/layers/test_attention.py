"""Each implementation of attention against a plain softmax over a dense mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.errors import UserError
from jaxlm.layers import attention_kernels
from jaxlm.layers.structure import Structure

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
        out = attention_kernels.attend(
            q,
            k,
            v,
            structure,
            window=window,
            segments_BT=None if segments is None else jnp.asarray(segments),
            implementation=implementation,
        )
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
