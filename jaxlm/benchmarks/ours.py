"""The worker that trains with jaxlm: the step that `train` runs, on random tokens."""

from __future__ import annotations

from typing import Any

from jaxlm import command_line, fields
from jaxlm.benchmarks.conditions import cores
from jaxlm.benchmarks.worker import Built, serve
from jaxlm.config import RunConfig


def build(job: dict[str, Any]) -> Built:
    """Compiles the step of the configuration in `job["config"]` and makes its first state."""
    import jax
    import numpy as np

    # A compilation that was found in a cache has not been measured.
    jax.config.update("jax_enable_compilation_cache", False)
    from jaxlm.families import build_model
    from jaxlm.objectives import build_objective
    from jaxlm.training import sharding, workdir
    from jaxlm.training.flops import parameter_counts
    from jaxlm.training.optimizer import build_optimizer
    from jaxlm.training.state import abstract_state, initial_state
    from jaxlm.training.step import compile_step

    config: RunConfig = fields.build(RunConfig, job["config"])
    mesh, optimizer = sharding.make_mesh(config.execution), build_optimizer(config)
    model, vocab_size = build_model(config.model, config.execution), config.model.vocab_size
    mask = vocab_size - 1 if config.model.mask_token_id is None else config.model.mask_token_id
    objective = build_objective(
        config.objective,
        model,
        mask_token_id=mask,
        isolate_documents=config.data.isolate_documents,
        loss_chunk=config.execution.loss_chunk,
    )
    abstract = abstract_state(model, optimizer, mesh)
    train_step, compile_seconds = compile_step(config, objective, optimizer, mesh, abstract)
    state = initial_state(model, optimizer, abstract, config.seed)
    shape = (config.train.batch_size, config.train.seq_len + 1)
    tokens = np.random.default_rng(config.seed).integers(0, vocab_size, shape, np.int32)
    rows = {"tokens": tokens, "segment_ids": np.zeros(shape, np.int32), "loss_mask": np.ones(shape, bool)}
    batch = sharding.to_devices(mesh, rows)

    def step() -> float:
        nonlocal state
        state, metrics = train_step(state, batch)
        jax.block_until_ready(state)
        return float(metrics["loss"])

    environment = workdir.environment()
    facts = {
        "parameters": parameter_counts(model)["total"],
        "compile_seconds": compile_seconds,
        "attention": model.execution.attention,
        "threads": cores(),  # XLA takes what there is
        "versions": environment.pop("versions"),
        "environment": environment,
    }
    return Built(facts, step)


if __name__ == "__main__":
    command_line.run(lambda argv: serve(build))
