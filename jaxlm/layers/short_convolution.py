"""A short causal depthwise convolution along the sequence: the part of Canon layers and of LFM2's gated convolutions.

y_t = sum_j w_j x_{t-(k-1)+j}: the last tap multiplies the current position. The convolution stays causal in
bidirectional models too. Legend: B rows, T positions, b new positions, L positions of a stream, C channels, k taps.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from jaxlm.layers.parameters import Uniform, parameter
from jaxlm.layers.reading import Cache, Reading
from jaxlm.layers.recompute import recomputed


class ShortConvolution(nnx.Module):
    """The convolution over C channels; `residual` adds the input, `activation` is SiLU on what the taps give.

    The taps start uniform in +-1/sqrt(k), as PyTorch's Conv1d does (standard deviation 0.288 at k = 4): the reference
    warns that a start of 0.02 is not wise.
    """

    def __init__(
        self,
        channels: int,
        *,
        kernel: int,
        residual: bool = False,
        bias: bool = False,
        activation: bool = False,
        logical: str,
        dtype: DTypeLike,
    ) -> None:
        self.kernel = parameter((kernel, channels), Uniform(kernel**-0.5), (None, logical))
        self.bias = parameter((channels,), Uniform(kernel**-0.5), (logical,)) if bias else None
        self.residual, self.activation, self.dtype = residual, activation, jnp.dtype(dtype)
        self.taps, self.channels = kernel, channels

    def whole(self, x_BTC: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, C] to [B, T, C]. With two streams, see `_noisy_sources`."""
        return recomputed(lambda x: self._whole(x, reading))(x_BTC)

    def _whole(self, x_BTC: jax.Array, reading: Reading) -> jax.Array:
        if reading.structure.streams == 1:
            return self._combine([_back(x_BTC, o, reading.segments_BT) for o in range(self.taps)])
        noisy_BLC, clean_BLC = jnp.split(x_BTC, 2, axis=1)
        segments_BL = None if reading.segments_BT is None else jnp.split(reading.segments_BT, 2, axis=1)[1]
        clean = [_back(clean_BLC, o, segments_BL) for o in range(self.taps)]
        noisy = self._noisy_sources(noisy_BLC, clean, reading, segments_BL)
        return jnp.concatenate([self._combine(noisy), self._combine(clean)], axis=1)

    def _noisy_sources(
        self, noisy_BLC: jax.Array, clean: list[jax.Array], reading: Reading, segments_BL: jax.Array | None
    ) -> list[jax.Array]:
        """The inputs of the taps of the noisy half.

        When a block is being written, the blocks before it are finished: so a tap that reaches into an earlier block
        must read the clean half there, and only taps within the block read noise.
        """
        index_L = jnp.arange(noisy_BLC.shape[1])
        out = []
        for o, clean_source in enumerate(clean):
            same_L = reading.structure.block(index_L - o) == reading.structure.block(index_L)
            out.append(jnp.where(same_L[:, None], _back(noisy_BLC, o, segments_BL), clean_source))
        return out

    def _combine(self, sources: list[jax.Array]) -> jax.Array:
        """Sums taps x sources, where sources[o] holds what lies o positions back; adds bias, activation, residual."""
        kernel_kC = self.kernel[...].astype(self.dtype)
        y = sources[0] * kernel_kC[self.taps - 1]
        for o in range(1, self.taps):
            y = y + sources[o] * kernel_kC[self.taps - 1 - o]
        if self.bias is not None:
            y = y + self.bias[...].astype(self.dtype)
        if self.activation:
            y = jax.nn.silu(y)
        return sources[0] + y if self.residual else y

    def init_cache(self, batch: int, length: int) -> Cache:
        """The last k-1 accepted inputs of each row; zeros before the start."""
        del length
        return {"inputs": jnp.zeros((batch, self.taps - 1, self.channels), self.dtype)}

    def extend(self, x_BbC: jax.Array, reading: Reading, cache: Cache) -> tuple[jax.Array, Cache]:
        """New positions [B, b, C] after the cached inputs; the proposal holds all of them, for `commit` to cut."""
        inputs_BC = jnp.concatenate([cache["inputs"], x_BbC], axis=1)
        b, reach = x_BbC.shape[1], self.taps - 1
        y_BbC = self._combine([inputs_BC[:, reach - o : reach - o + b] for o in range(self.taps)])
        return y_BbC, {"inputs": inputs_BC}

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache:
        """Keeps the last k-1 inputs up to the n-th new one."""
        cut = jax.vmap(lambda inputs_SC, n: jax.lax.dynamic_slice_in_dim(inputs_SC, n, self.taps - 1, axis=0))
        return {"inputs": cut(cache["inputs"], n_B)}


def _back(x_BTC: jax.Array, offset: int, segments_BT: jax.Array | None) -> jax.Array:
    """What lies `offset` positions back: zero before the start, or the document's start if segments are given."""
    if offset == 0:
        return x_BTC
    length = x_BTC.shape[1]
    shifted = jnp.pad(x_BTC, ((0, 0), (offset, 0), (0, 0)))[:, :length]
    if segments_BT is None:
        return shifted
    before_BT = jnp.pad(segments_BT, ((0, 0), (offset, 0)), constant_values=-1)[:, :length]
    return jnp.where((before_BT == segments_BT)[:, :, None], shifted, 0)
