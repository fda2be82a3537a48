"""AdamW: clipping, fp32 moments, decay of matrices chosen by their names, warmup and schedule."""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlm.config import OptimizerConfig, RunConfig
from jaxlm.layers.parameters import from_paths, paths

# Which parameters decay, by their path; the first pattern that matches decides. Shapes cannot tell: Canon taps have two
# dimensions, stacked norm scales would too. A parameter that no line knows is an error, so a family that brings a new
# kind of parameter adds its line here. A tied head is the embedding and has no path of its own.
DECAY_RULES: tuple[tuple[str, bool], ...] = (
    (r"(.*/)?(qkv|out|gate_up|up|down|bcx|router|query|key_value|gate|rates)/kernel", True),
    (r"(.*/)?experts/(gate_up|down)", True),
    (r"head/table", True),
    (r"(embedding|positions)/table", False),
    (r"(.*/)?(qkv|out|gate_up|up|down|rates)/bias", False),
    (r"(.*/)?\w*norm/(scale|bias)", False),
    (r"(.*/)?(canon_[abcd]|taps)/(kernel|bias)", False),
    (r"(.*/)?memory/start/(matrices/\d+|scale)", False),
    (r"memory_tokens/table|(.*/)?attention/persistent", False),
)


def decays(path: str) -> bool:
    """Whether weight decay touches the parameter at `path` ("layers/00/attention/qkv/kernel")."""
    for pattern, decayed in DECAY_RULES:
        if re.fullmatch(pattern, path):
            return decayed
    raise ValueError(f"no line of DECAY_RULES in {__name__} says whether parameter {path!r} decays")


def decay_mask(params: Any) -> Any:
    """The tree of `params` with True where weight decay applies."""
    return from_paths({path: decays(path) for path, _ in paths(params)})


def learning_rate(config: RunConfig, step: Any, xp: Any = np) -> Any:
    """The rate of the update that follows `step` updates; `xp` is numpy on the host, jax.numpy inside a jitted step.

    It rises linearly over `warmup_share` of the steps, so that the first update is not lost to a rate of 0, reaches
    the peak with the last of them, and ends at exactly `final_share` of the peak with the last update of the schedule:
    along a cosine, or after a stable phase along a line over the last `decay_share` of the steps (wsd: warmup, stable,
    decay; MiniCPM, arXiv 2404.06395). A constant rate stays at the peak.
    """
    optimizer, peak, num_steps = config.optimizer, config.train.learning_rate, config.train.num_steps
    warmup = math.floor(optimizer.warmup_share * num_steps)
    update = step + 1
    if optimizer.schedule == "cosine":
        progress = xp.clip((update - warmup) / max(num_steps - warmup, 1), 0.0, 1.0)
        share = optimizer.final_share + (1 - optimizer.final_share) * 0.5 * (1 + xp.cos(math.pi * progress))
    elif optimizer.schedule == "wsd":
        decay = math.floor(optimizer.decay_share * num_steps)
        share = 1 - (1 - optimizer.final_share) * xp.clip((update - (num_steps - decay)) / max(decay, 1), 0.0, 1.0)
    else:
        share = 1.0
    return peak * xp.where(update <= warmup, update / max(warmup, 1), share)


def build_optimizer(config: RunConfig) -> optax.GradientTransformation:
    """The optimizer of a run, with its schedule inside; gradients come in as the mean over the global batch."""
    settings: OptimizerConfig = config.optimizer
    clip = optax.clip_by_global_norm(settings.clip_norm) if settings.clip_norm > 0 else optax.identity()

    def rate(step: jax.Array) -> jax.Array:
        return learning_rate(config, step, jnp)

    return optax.chain(
        clip,
        optax.scale_by_adam(b1=settings.beta1, b2=settings.beta2, eps=settings.eps, mu_dtype=jnp.float32),
        optax.add_decayed_weights(settings.weight_decay, mask=decay_mask),
        optax.scale_by_learning_rate(rate),
    )
