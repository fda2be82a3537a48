"""Run by test_mesh.py in a process with 8 virtual devices: one gradient in several layouts, as JSON on standard output.

For each objective, by layout: the largest deviation from the gradient of one device and one forward, as a share of the
largest entry of the same parameter; and the mean loss.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlm import randomness
from jaxlm.config import ExecutionConfig, ModelConfig, ObjectiveConfig
from jaxlm.families import build_model
from jaxlm.objectives import build_objective
from jaxlm.training.sharding import make_mesh, param_shardings, to_devices
from jaxlm.training.step import gradients
from tests.quick_jit import quick_jit

ROWS, T, V, STEP = 8, 13, 61, 2
LAYOUTS = {"1 x 8": (1, 1), "2 x 4, accumulated": (1, 2), "4 devices x 2": (4, 1)}
OPTIONS: dict[str, Any] = {"crop_share": 0.5, "mask_noise_std": 0.3, "mask_noise_steps": 9}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "full": {},
    "blocks": {"block_size": 5},
    "full with options": {"anneal_steps": 6, **OPTIONS},
    "blocks with options": {"block_size": 5, "shift": True, **OPTIONS},
}


def main() -> None:
    shape = dict(num_layers=1, hidden_size=32, intermediate_size=48, num_heads=2, num_kv_heads=1, head_dim=16)
    config = ModelConfig(family="dhara", vocab_size=V, max_positions=T, init_std=0.1, **shape)
    model = build_model(config, ExecutionConfig(dtype="float32"))
    params = model.init(jax.random.key(0))
    tokens = np.random.default_rng(0).integers(0, V - 1, (ROWS, T + 1), dtype=np.int32)
    # Rows of very different weight: the mean of what the forwards find for themselves would be far off.
    scored = np.arange(T + 1)[None] <= np.array([13, 13, 4, 1, 13, 7, 2, 0])[:, None]
    rows = {"tokens": tokens, "segment_ids": np.ones_like(tokens), "loss_mask": scored}
    key, found = randomness.key(0, "corruption", STEP), {}
    for name, fields in OBJECTIVES.items():
        objective = build_objective(ObjectiveConfig(kind="diffusion", **fields), model, mask_token_id=V - 1)
        by_layout: dict[str, Any] = {}
        for layout, (devices, accumulation) in LAYOUTS.items():
            mesh = make_mesh(ExecutionConfig(data_parallel=devices))
            shardings = param_shardings(mesh, model.abstract_params(), model.logical_axes())
            one = quick_jit(
                lambda p, b, o=objective, a=accumulation, m=mesh, s=shardings: gradients(
                    o, p, b, key, jnp.int32(STEP), a, m, s
                )
            )
            by_layout[layout] = jax.device_get(one(params, to_devices(mesh, rows)))
        first = by_layout["1 x 8"][0]
        found[name] = {
            layout: {
                "loss": float(means["loss"]),
                "deviation": max(
                    float(np.abs(a - b).max() / np.abs(b).max())
                    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(first), strict=True)
                ),
            }
            for layout, (grads, means) in by_layout.items()
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
