"""The estimate of training memory against XLA's own analysis of the step that training runs; caches; checkpoints."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import grain
import jax
import jax.numpy as jnp
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig, ObjectiveConfig, RunConfig, TrainConfig
from jaxlm.families import build_model
from jaxlm.objectives import build_objective
from jaxlm.sizing import memory
from jaxlm.training import checkpoint, sharding
from jaxlm.training.optimizer import build_optimizer
from jaxlm.training.state import abstract_state
from jaxlm.training.step import abstract_batch, jit_step
from tests.random_tree import random_tree

# Buffers are allotted before machine code is made, which takes most of the time and is not run here.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
FAMILIES = {
    "gpt2": {"num_kv_heads": 4, "intermediate_size": 768},
    "llama3": {},
    "lfm2": {"layer_pattern": "CG"},
}


def config(
    family: str = "llama3", *, accumulation: int = 1, rows: int = 8, vocab_size: int = 2048, **execution: object
) -> RunConfig:
    # As on a GPU, but for what a CPU has not: layers in a scan (unrolled, XLA's CPU compiler undoes recomputation),
    # products in fp32 (those of bf16 it computes in copies of fp32), attention without the fused kernel.
    settings: dict = {"layers": "scan", "dtype": "float32", "attention": "xla", "experts": "dense", **execution}
    sizes = {"hidden_size": 192, "intermediate_size": 512, "num_heads": 4, "num_kv_heads": 2, "head_dim": 48}
    tokens = rows * accumulation * 256
    return RunConfig(
        model=ModelConfig(family=family, num_layers=6, vocab_size=vocab_size, **(sizes | FAMILIES.get(family, {}))),
        train=TrainConfig(seq_len=256, micro_batch=rows, batch_tokens=tokens, total_tokens=tokens),
        execution=ExecutionConfig(**settings),
    )


def analysed(config: RunConfig) -> int:
    """The peak of the compiled step, as `jaxlm.training.deviceless` has it."""
    model = build_model(config.model, config.execution)
    objective = build_objective(config.objective, model, loss_chunk=config.execution.loss_chunk)
    optimizer, mesh = build_optimizer(config), sharding.make_mesh(config.execution)
    abstract = abstract_state(model, optimizer, mesh)
    lowered = jit_step(config, objective, optimizer, mesh, abstract).lower(abstract, abstract_batch(config, mesh))
    found = lowered.compile(compiler_options=QUICKLY).memory_analysis()
    sizes = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return sizes - found.alias_size_in_bytes


@pytest.mark.parametrize("remat", ["none", "dots", "full"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_is_within_15_percent_of_what_xla_allots(family: str, remat: str) -> None:
    asked = config(family, remat=remat, loss_chunk=64)
    assert memory.training_memory(asked)[remat]["total"] == pytest.approx(analysed(asked), rel=0.15)


def test_all_logits_at_once_and_summed_gradients_are_in_the_estimate() -> None:
    asked = config(accumulation=2, remat="full", loss_chunk=0, vocab_size=8192)
    found = memory.training_memory(asked)["full"]
    assert found["at"] == "loss" and found["logits_chunk"] == 2 * 4 * 8 * 256 * 8192
    assert found["gradients"] == found["parameters"] + 4 * 8192 * 192
    assert found["total"] == pytest.approx(analysed(asked), rel=0.15)


def test_the_parts_add_up_and_the_state_is_exact() -> None:
    for found in memory.training_memory(config()).values():
        parts = {name: size for name, size in found.items() if name not in ("total", "at")}
        assert sum(parts.values()) == found["total"]
        assert found["optimizer"] == pytest.approx(2 * found["parameters"], abs=64)  # and the counts of updates


def test_what_is_recomputed_is_not_kept() -> None:
    found = memory.training_memory(config())
    assert found["full"]["activations"] < found["none"]["activations"] / 3
    assert found["full"]["activations"] < found["dots"]["activations"] < found["none"]["activations"]


def test_activations_grow_with_the_rows_and_nothing_else_does() -> None:
    small, large = (memory.training_memory(config(rows=rows))["none"] for rows in (8, 16))
    assert large["activations"] == pytest.approx(2 * small["activations"], rel=0.01)
    assert [large[name] for name in ("parameters", "optimizer", "copies")] == [
        small[name] for name in ("parameters", "optimizer", "copies")
    ]


def test_the_fused_kernel_keeps_no_weights() -> None:
    plain, fused = (
        memory.training_memory(config(dtype="bfloat16", attention=attention, loss_chunk=16))["none"]["activations"]
        for attention in ("xla", "cudnn")
    )
    weights, output = 6 * 8 * 4 * 256 * 256 * 2, 6 * 8 * 4 * 256 * 48 * 2
    # The log-sum-exps come instead; at the peak the period's weights are there once more, and their gradient.
    per_layer = (weights + output - 6 * 8 * 4 * 256 * 4) // 6
    assert plain - fused == pytest.approx((6 + 2) * per_layer, rel=0.01)


def test_two_streams_are_twice_the_positions() -> None:
    one, two = (
        dataclasses.replace(config(), objective=ObjectiveConfig(kind="diffusion", block_size=block))
        for block in (0, 32)
    )
    activations = [memory.training_memory(asked)["full"]["activations"] for asked in (one, two)]
    assert activations[1] > 1.8 * activations[0]


def test_a_cache_is_what_the_model_makes() -> None:
    llama = config(dtype="bfloat16")
    per_position = 6 * 2 * 2 * 48 * 2  # layers, keys and values, heads, head size, bytes
    assert memory.cache_bytes(llama) == (per_position, 0)
    # Three C layers keep two inputs each, three G layers keys and values.
    assert memory.cache_bytes(config("lfm2", dtype="bfloat16")) == (per_position // 2, 3 * 2 * 192 * 2)


def test_a_checkpoint_has_the_size_that_was_said(tmp_path: Path) -> None:
    asked = config()
    model = build_model(asked.model, asked.execution)
    params = random_tree(model.abstract_params())
    opt_state = jax.tree.map(jnp.zeros_like, build_optimizer(asked).init(params))
    # In the middle of a run moments are as random as parameters; the zeros of its start would pack to nothing.
    squares = jax.tree.map(jnp.square, random_tree(params, seed=2))
    moments = opt_state[1]._replace(mu=random_tree(params, seed=1), nu=squares)
    state = {"step": jnp.int32(7), "params": params, "opt_state": (opt_state[0], moments, *opt_state[2:])}
    with checkpoint.Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(state, 7, iter(grain.MapDataset.range(8).to_iter_dataset()))
    written = sum(file.stat().st_size for file in checkpoint.directory(tmp_path).rglob("*") if file.is_file())
    assert written == pytest.approx(memory.checkpoint_bytes(asked), rel=0.02)
