"""What must be equal on every machine, mesh and backend: parameters at init, first batches and masks, first losses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxlm import fields, randomness
from jaxlm.config import FREE_BETWEEN_STARTS, RunConfig
from jaxlm.data.loader import train_batches
from jaxlm.layers.parameters import paths
from jaxlm.training.run import open_run
from jaxlm.training.sharding import to_devices
from jaxlm.training.state import initial_state
from jaxlm.training.step import compile_step

STEPS = 3
# How far apart first losses may be, in nats: another order of summation in fp32, or rounding to bf16 in between.
LOSS_TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}


def arrays_sha256(arrays: Mapping[str, Any]) -> str:
    """Of the names in sorted order, each with dtype, shape and the bytes of its values in C order."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        value = np.asarray(jax.device_get(arrays[name]))
        digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def params_sha256(params: Any) -> str:
    """`arrays_sha256` of a nested dict of parameters by their paths."""
    return arrays_sha256(dict(paths(params)))


def decisive(config: RunConfig) -> dict[str, Any]:
    """The fields that decide the result, by dotted name; not `execution`, bookkeeping, or where the data lie."""
    flat: dict[str, Any] = {}

    def add(values: Mapping[str, Any], prefix: str) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                add(value, f"{prefix}{name}.")
            else:
                flat[prefix + name] = value

    add(fields.to_dict(config), "")
    left_out = FREE_BETWEEN_STARTS | {"data.dir"}
    return {name: v for name, v in flat.items() if not name.startswith("execution.") and name not in left_out}


def config_sha256(config: RunConfig) -> str:
    """Of the decisive fields of a resolved configuration."""
    return hashlib.sha256(json.dumps(decisive(config), sort_keys=True).encode()).hexdigest()


def fingerprint(config: RunConfig) -> dict[str, Any]:
    """The object that `fingerprint` prints; makes STEPS updates of a run that `train` would start. See `commands.md`.

    `losses` are the training losses of the first updates, in nats; `dtype` is the compute type they were found in.
    """
    run = open_run(config, "train")
    resolved = run.config
    objective = run.objective(run.phase(0).block_size)
    state = initial_state(run.model, run.optimizer, run.abstract, resolved.seed)
    out: dict[str, Any] = {
        "config_sha256": config_sha256(resolved),
        "tokenizer_sha256": run.windows.fingerprint["tokenizer_sha256"],
        "data_sha256": run.windows.fingerprint["data_sha256"],
        "params_sha256": params_sha256(state["params"]),
        "batches_sha256": [],
        "corruption_sha256": [],
        "losses": [],
        "dtype": resolved.execution.dtype,
        "config": json.loads(json.dumps(decisive(resolved))),
    }
    num_rows = resolved.train.batch_size
    rows_R = np.arange(num_rows, dtype=np.int32)
    corruption = jax.jit(objective.corruption, static_argnums=3)
    step, _ = compile_step(resolved, objective, run.optimizer, run.mesh, run.abstract)
    data = train_batches(run.windows, num_rows, resolved.seed, jax.process_index(), jax.process_count())
    for number in range(min(STEPS, resolved.train.num_steps)):
        rows = next(data)
        batch = to_devices(run.mesh, rows)
        mask = corruption(batch, randomness.key(resolved.seed, "corruption", number), rows_R, num_rows, number)
        out["batches_sha256"].append(arrays_sha256(rows))
        out["corruption_sha256"].append(arrays_sha256({"mask": mask}))
        state, metrics = step(state, batch)
        out["losses"].append(float(metrics["loss"]))
    return out


def first_difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """What differs first, in the order in which one thing depends on another; None if the two agree.

    Hashes must be equal; losses may differ by LOSS_TOLERANCE of the coarser of the two compute types.
    """
    for name in ("config_sha256", "tokenizer_sha256", "data_sha256", "params_sha256"):
        if here[name] != there.get(name):
            mine, theirs = here.get("config", {}), there.get("config", {})
            fields_differ = [
                f"{field} is {mine.get(field)!r} here, {theirs.get(field)!r} there"
                for field in sorted(mine.keys() & theirs.keys())
                if mine[field] != theirs[field]
            ]
            why = f" ({'; '.join(fields_differ)})" if name == "config_sha256" and fields_differ else ""
            return f"{name} is {here[name]} here, {there.get(name)} there{why}"
    for name in ("batches_sha256", "corruption_sha256"):
        for number, (a, b) in enumerate(zip(here[name], there.get(name, []), strict=False)):
            if a != b:
                return f"{name}[{number}] is {a} here, {b} there"
    tolerance = max(LOSS_TOLERANCE[here["dtype"]], LOSS_TOLERANCE.get(there.get("dtype", "float32"), 0.0))
    for number, (a, b) in enumerate(zip(here["losses"], there.get("losses", []), strict=False)):
        if not abs(a - b) <= tolerance:
            return f"losses[{number}] is {a} here, {b} there, further apart than {tolerance}"
    for name in ("batches_sha256", "corruption_sha256", "losses"):
        if len(here[name]) != len(there.get(name, [])):
            return f"{name} has {len(here[name])} entries here, {len(there.get(name, []))} there"
    return None
