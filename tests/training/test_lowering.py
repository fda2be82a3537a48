"""The study's own training step, lowered for accelerators that are not here."""

import dataclasses

import jax
import pytest

from jaxlm.command_line import load_config
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.objectives import build_objective
from jaxlm.training import deviceless
from jaxlm.training.optimizer import build_optimizer
from jaxlm.training.sharding import make_mesh
from jaxlm.training.state import abstract_state
from jaxlm.training.step import abstract_batch, jit_step


@pytest.mark.parametrize(
    ("file", "block_size"),
    [
        ("configs/llama3_canon.py", 1),
        ("configs/dhara.py", 0),
        ("configs/dhara.py", 32),
        ("configs/gpt2.py:32", 1),
        ("configs/gemma3.py", 1),
        ("configs/lfm2.py", 1),
        ("configs/moe.py:active67m", 1),
        ("configs/titans_mac.py", 1),
    ],
)
def test_the_study_step_lowers_for_cuda_and_tpu(file: str, block_size: int) -> None:
    """At full size, in bf16, with accumulation, as StableHLO for both platforms; nothing is compiled."""
    config = load_config(file, [], RunConfig)
    execution = dataclasses.replace(
        config.execution, attention="xla", layers="scan", experts="grouped", data_parallel=1
    )
    model = build_model(config.model, execution)
    objective = build_objective(
        dataclasses.replace(config.objective, block_size=block_size),
        model,
        mask_token_id=50257,
        loss_chunk=execution.loss_chunk,
    )
    optimizer, mesh = build_optimizer(config), make_mesh(execution)
    abstract = abstract_state(model, optimizer, mesh)
    step = jit_step(config, objective, optimizer, mesh, abstract)
    exported = jax.export.export(step, platforms=["cuda", "tpu"])(abstract, abstract_batch(config, mesh))
    assert exported.platforms == ("cuda", "tpu")
    text = exported.mlir_module()
    streams = 2 if block_size > 1 else 1
    assert f"tensor<24x{1024 * streams}x384xbf16>" in text, "one forward is 24 windows in bf16"
    assert "stablehlo.while" in text, "layers and micro-batches are loops"


def test_a_target_that_is_not_there_and_a_jaxlib_without_cuda_are_named() -> None:
    config = load_config("configs/llama3_canon.py", [], RunConfig)
    assert deviceless.target_names() == ["a40", "h200"]
    with pytest.raises(UserError, match=r"--target is 'a41'; did you mean 'a40'"):
        deviceless.compile_for(config, "a41", 50257)
    with pytest.raises(UserError, match=r"--target=a40 needs the CUDA build of jaxlib"):
        deviceless.compile_for(config, "a40", 50257)
