"""The short convolution against torch's depthwise Conv1d and a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxlm.layers.parameters import bind, initialise
from jaxlm.layers.reading import Reading
from jaxlm.layers.short_convolution import ShortConvolution
from jaxlm.layers.structure import Structure

C, T, TAPS = 6, 11, 4


def canon(**changes) -> ShortConvolution:
    options = dict(kernel=TAPS, residual=True, bias=False, activation=False) | changes
    module = ShortConvolution(C, logical="embed", dtype="float32", **options)
    return bind(module, initialise(module, jax.random.key(3)))


def reading(structure: Structure | None = None, segments=None) -> Reading:
    return Reading(structure or Structure(1), jnp.zeros((1, 1), jnp.int32), segments)


@pytest.mark.parametrize(
    "changes", [{}, {"bias": True}, {"activation": True}, {"residual": False}, {"kernel": 2}], ids=str
)
def test_equals_torch_conv1d(changes) -> None:
    module = canon(**changes)
    x_BTC = jax.random.normal(jax.random.key(0), (2, T, C))
    taps = module.taps
    conv = torch.nn.Conv1d(C, C, taps, groups=C, padding=taps - 1, bias=module.bias is not None)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor(np.asarray(module.kernel[...]).T[:, None, :]))
        if module.bias is not None:
            conv.bias.copy_(torch.tensor(np.asarray(module.bias[...])))
        x = torch.tensor(np.asarray(x_BTC)).swapaxes(1, 2)
        y = conv(x)[:, :, :T]
        y = torch.nn.functional.silu(y) if module.activation else y
        expected = (x + y if module.residual else y).swapaxes(1, 2).numpy()
    np.testing.assert_allclose(module.whole(x_BTC, reading()), expected, atol=1e-6)


def test_starts_with_the_standard_deviation_of_the_reference() -> None:
    module = ShortConvolution(
        4096, kernel=4, residual=True, bias=False, activation=False, logical="embed", dtype="float32"
    )
    assert np.std(initialise(module, jax.random.key(0))["kernel"]) == pytest.approx(0.288, abs=0.005)


@pytest.mark.parametrize("pieces", [[1] * T, [T], [2, 1, 5, 3], [3, 8]], ids=str)
def test_extending_equals_the_whole(pieces) -> None:
    module = canon()
    x_BTC = jax.random.normal(jax.random.key(0), (2, T, C))
    cache, out, at = module.init_cache(2, T), [], 0
    for size in pieces:
        # A proposal that is not accepted must leave no trace.
        _, rejected = module.extend(100 + x_BTC[:, :3], reading(), cache)
        cache = module.commit(rejected, jnp.zeros(2, jnp.int32))
        y, proposal = module.extend(x_BTC[:, at : at + size], reading(), cache)
        cache = module.commit(proposal, jnp.full(2, size))
        out.append(y)
        at += size
    np.testing.assert_allclose(jnp.concatenate(out, axis=1), module.whole(x_BTC, reading()), atol=1e-6)


def test_rows_may_accept_different_numbers() -> None:
    module = canon()
    x_BTC = jax.random.normal(jax.random.key(0), (2, T, C))
    _, proposal = module.extend(x_BTC[:, :5], reading(), module.init_cache(2, T))
    cache = module.commit(proposal, jnp.array([2, 5]))
    y, _ = module.extend(jnp.stack([x_BTC[0, 2:4], x_BTC[1, 5:7]]), reading(), cache)
    whole = module.whole(x_BTC, reading())
    np.testing.assert_allclose(y, jnp.stack([whole[0, 2:4], whole[1, 5:7]]), atol=1e-6)


def test_a_tap_stops_at_the_start_of_its_document() -> None:
    module = canon()
    x_BTC = jax.random.normal(jax.random.key(0), (1, T, C))
    packed = module.whole(x_BTC, reading(segments=jnp.array([[1] * 4 + [2] * 7])))
    alone = module.whole(x_BTC[:, 4:], reading())
    np.testing.assert_allclose(packed[:, 4:], alone, atol=1e-6)


@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_noisy_taps_read_clean_text_in_earlier_blocks(block) -> None:
    """A plain loop over positions, offsets and the two halves."""
    module = canon()
    noisy, clean = np.random.default_rng(0).normal(size=(2, T, C)).astype(np.float32)
    kernel = np.asarray(module.kernel[...])
    expected = np.zeros((2 * T, C), np.float32)
    for half, own in enumerate((noisy, clean)):
        for t in range(T):
            y = own[t].copy()
            for offset in range(min(TAPS, t + 1)):
                source = own if half == 1 or (t - offset) // block == t // block else clean
                y += kernel[TAPS - 1 - offset] * source[t - offset]
            expected[half * T + t] = y
    out = module.whole(jnp.concatenate([noisy, clean])[None], reading(Structure(block, streams=2)))
    np.testing.assert_allclose(out[0], expected, atol=1e-5)
