"""Canon layers: short convolutions beside the residual stream at any of four places (PhysicsLM4, arXiv 2512.17351).

A after the norm before attention, B on [q, k, v] before the heads part, C after the norm before the feed-forward, D
inside the feed-forward; y = x + convolution(x).
"""

from __future__ import annotations

from jaxlm.config import ExecutionConfig
from jaxlm.layers.short_convolution import ShortConvolution
from jaxlm.model_config import ModelConfig


def canon(
    config: ModelConfig, execution: ExecutionConfig, place: str, channels: int, logical: str
) -> ShortConvolution | None:
    """The Canon layer at a place, None where the configuration has none there."""
    if place not in config.canon_set:
        return None
    return ShortConvolution(
        channels,
        kernel=config.canon_kernel,
        residual=config.canon_residual,
        bias=config.canon_bias,
        activation=config.canon_activation,
        logical=logical,
        dtype=execution.dtype,
    )
