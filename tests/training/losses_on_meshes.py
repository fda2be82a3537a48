"""Run by test_mesh.py in a process with 8 virtual devices: the same run on several meshes, as JSON on standard output.

Arguments: a JSON object of config sections, and the number of steps.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np

from jaxlm import randomness
from jaxlm.config import RunConfig
from jaxlm.data.loader import train_batches
from jaxlm.fields import build
from jaxlm.training.fingerprints import arrays_sha256, params_sha256
from jaxlm.training.run import open_run
from jaxlm.training.sharding import to_devices
from jaxlm.training.state import initial_state
from jaxlm.training.step import compile_step

MESHES: dict[str, dict[str, dict[str, Any]]] = {
    "one": {"execution": {"data_parallel": 1}},
    "one, accumulated": {"execution": {"data_parallel": 1}, "train": {"micro_batch": 4}},
    "data": {"execution": {"data_parallel": 8}},
    "data, accumulated": {"execution": {"data_parallel": 4}, "train": {"micro_batch": 4}},
    "data and fsdp": {"execution": {"data_parallel": 2, "fsdp": 4}},
    "fsdp, accumulated": {"execution": {"data_parallel": 1, "fsdp": 4}, "train": {"micro_batch": 4}},
}


def losses(values: dict[str, Any], steps: int) -> dict[str, Any]:
    run = open_run(build(RunConfig, values), "train")
    config = run.config
    objective = run.objective(run.phase(0).block_size)
    state = initial_state(run.model, run.optimizer, run.abstract, config.seed)
    num_rows = config.train.batch_size
    corruption = jax.jit(objective.corruption, static_argnums=3)
    out: dict[str, Any] = {"params": params_sha256(state["params"]), "batches": [], "masks": [], "losses": []}
    kernel = state["params"]["layers"]["00"]["attention"]["qkv"]["kernel"]
    out["shard"] = list(kernel.addressable_shards[0].data.shape)
    step, _ = compile_step(config, objective, run.optimizer, run.mesh, run.abstract)
    data = train_batches(run.windows, num_rows, config.seed)
    for number in range(steps):
        batch = to_devices(run.mesh, next(data))
        key = randomness.key(config.seed, "corruption", number)
        out["masks"].append(
            arrays_sha256({"mask": corruption(batch, key, np.arange(num_rows, dtype=np.int32), num_rows, number)})
        )
        out["batches"].append(arrays_sha256(batch))
        state, metrics = step(state, batch)
        out["losses"].append(float(metrics["loss"]))
    return out


def main(base: dict[str, Any], steps: int) -> None:
    found = {}
    for name, changes in MESHES.items():
        values = {**base, **{section: {**base.get(section, {}), **fields} for section, fields in changes.items()}}
        found[name] = losses(values, steps)
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
