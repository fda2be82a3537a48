"""Where arrays live: a mesh with the axes `data` and `fsdp`, and one table from logical axes to mesh axes.

Axes are of type Auto: the compiler places what lies between the arrays that are placed here. A mesh axis that splits
inside layers (`tensor`, `expert`) is one more name in AXES and one more right-hand side in RULES.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxlm.config import ExecutionConfig, RunConfig
from jaxlm.errors import UserError

AXES = ("data", "fsdp")
BATCH = PartitionSpec(AXES)  # rows are split over all devices
REPLICATED = PartitionSpec()

# Logical axis of a parameter -> mesh axis that splits it, None: whole on every device.
RULES: Mapping[str | None, str | None] = {
    "embed": "fsdp",
    "vocab": None,
    "heads": None,
    "mlp": None,
    "expert": None,
    None: None,
}


def make_mesh(execution: ExecutionConfig) -> Mesh:
    """The mesh of a run; with explicit sizes it takes the first data_parallel x fsdp devices.

    Raises UserError where there are not enough devices, or not a multiple of `fsdp` to share out.
    """
    devices, fsdp, data = jax.devices(), execution.fsdp, execution.data_parallel
    if data == -1:
        if len(devices) % fsdp:
            raise UserError(f"execution.fsdp is {fsdp}, allowed: a divisor of the {len(devices)} devices")
        data = len(devices) // fsdp
    if data < 1:
        raise UserError(f"execution.data_parallel is {data}, allowed: at least 1, or -1 for the devices that are left")
    if data * fsdp > len(devices):
        raise UserError(
            f"execution.data_parallel x execution.fsdp is {data} x {fsdp}, allowed: at most the {len(devices)} devices"
        )
    return jax.make_mesh((data, fsdp), AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices[: data * fsdp])


def check_batch(config: RunConfig, mesh: Mesh) -> None:
    """Refuses a batch whose rows do not divide over the devices."""
    rows = config.train.micro_batch or config.train.batch_size
    if rows % mesh.size:
        name = "train.micro_batch" if config.train.micro_batch else "train.batch_tokens / train.seq_len"
        raise UserError(f"{name} is {rows} rows, allowed: a multiple of the {mesh.size} devices of the mesh")


def partition(shape: tuple[int, ...], logical: tuple[str | None, ...], mesh: Mesh) -> PartitionSpec:
    """How one parameter is split: by RULES where the sizes divide; else `fsdp` takes the largest axis it divides."""
    axes: list[str | None] = [
        RULES[name] if RULES[name] and size % mesh.shape[RULES[name]] == 0 else None
        for size, name in zip(shape, logical, strict=True)
    ]
    if "fsdp" not in axes:
        free = [i for i, size in enumerate(shape) if axes[i] is None and size % mesh.shape["fsdp"] == 0]
        if free:
            axes[max(free, key=lambda i: shape[i])] = "fsdp"
    return PartitionSpec(*axes)


def param_shardings(mesh: Mesh, abstract_params: Any, logical_axes: Any) -> Any:
    """A NamedSharding for every parameter."""
    return jax.tree.map(
        lambda leaf, logical: NamedSharding(mesh, partition(leaf.shape, logical, mesh)), abstract_params, logical_axes
    )


def to_devices(mesh: Mesh, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """This process's rows of a batch, [rows, ...] each, as global arrays split over all devices."""
    sharding = NamedSharding(mesh, BATCH)
    return {name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()}
