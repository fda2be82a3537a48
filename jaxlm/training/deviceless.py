"""Compiling the training step for a GPU that is not here: does it fit, and what does it call?

Only XLA's compiler is asked; nothing runs. It needs the CUDA build of jaxlib (extra `cuda`), not a GPU.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.fields import nearest
from jaxlm.objectives import build_objective
from jaxlm.training.optimizer import build_optimizer
from jaxlm.training.sharding import AXES
from jaxlm.training.state import abstract_state
from jaxlm.training.step import compile_step

TARGETS = Path(__file__).parent / "targets"


def target_names() -> list[str]:
    """The GPUs that are described in `targets/`."""
    return sorted(path.stem for path in TARGETS.glob("*.txtpb"))


def compile_for(config: RunConfig, target: str, mask_token_id: int) -> dict[str, Any]:
    """Compiles one update of `config` for one GPU of the kind `target` and reads off its memory.

    What the config leaves to `auto` is chosen as on that GPU: fused attention, scanned layers, experts by groups.

    Returns:
      The JSON object of the command `compile`; sizes in bytes.

    Raises:
      UserError: no such target, or a jaxlib without CUDA.
    """
    if target not in target_names():
        raise UserError(f"--target is {target!r}; {nearest(target, target_names())}")
    description = (TARGETS / f"{target}.txtpb").read_text()
    try:
        topology = topologies.get_topology_desc(
            platform="cuda", topology_name=target, target_config=description, topology="1x1x1"
        )
    except (NotImplementedError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"--target={target} needs the CUDA build of jaxlib (pip install 'jaxlm[cuda]'): {reason}"
        ) from error
    defaults: dict[str, Any] = {"attention": "cudnn", "layers": "scan", "experts": "grouped"}
    chosen = {name: value for name, value in defaults.items() if getattr(config.execution, name) == "auto"}
    model = build_model(config.model, dataclasses.replace(config.execution, **chosen))
    objective = build_objective(
        config.objective,
        model,
        mask_token_id=mask_token_id,
        isolate_documents=config.data.isolate_documents,
        loss_chunk=config.execution.loss_chunk,
    )
    optimizer = build_optimizer(config)
    mesh = jax.make_mesh((1, 1), AXES, axis_types=(AxisType.Auto,) * 2, devices=topology.devices[:1])
    return {"target": target, **_measure(config, objective, optimizer, mesh, description)}


def _measure(config: RunConfig, objective: Any, optimizer: Any, mesh: Mesh, description: str) -> dict[str, Any]:
    abstract = abstract_state(objective.model, optimizer, mesh)
    compiled: Any
    compiled, seconds = compile_step(config, objective, optimizer, mesh, abstract)
    memory = compiled.memory_analysis()
    # The state is donated, so what is aliased is not there twice.
    peak = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )
    device_bytes = int(re.search(r"device_memory_size: (\d+)", description)[1])  # type: ignore[index]
    return {
        "fits": peak <= device_bytes,
        "bytes": {
            "arguments": memory.argument_size_in_bytes,
            "outputs": memory.output_size_in_bytes,
            "temporaries": memory.temp_size_in_bytes,
            "peak": peak,
        },
        "device_bytes": device_bytes,
        "custom_calls": sorted(set(re.findall(r'custom_call_target="([^"]+)"', compiled.as_text()))),
        "compile_seconds": round(seconds, 1),
    }
