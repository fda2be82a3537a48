"""Where parameters start: by statistics of many numbers, and the same in whatever model they are."""

import jax
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.families import build_model
from jaxlm.layers.parameters import paths

LAYERS, STD = 4, 0.02
SHAPE = dict(
    num_layers=LAYERS,
    hidden_size=128,
    intermediate_size=256,
    num_heads=4,
    num_kv_heads=4,
    head_dim=32,
    vocab_size=256,
    max_positions=128,
    init_std=STD,
)
INTO_THE_STREAM = ("out/kernel", "down/kernel", "experts/down")


def start(**changes) -> dict[str, np.ndarray]:
    model = build_model(ModelConfig(**SHAPE | changes), ExecutionConfig(dtype="float32"))
    return {path: np.asarray(leaf) for path, leaf in paths(model.init(jax.random.key(0)))}


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(
    "member",
    [
        {"family": "gpt2"},
        {"family": "lfm2", "layer_pattern": "CG"},
        {"family": "moe", "num_shared_experts": 1, "intermediate_size": 64},
    ],
    ids=str,
)
def test_what_writes_to_the_stream_starts_smaller_where_it_is_asked_for(member, scaled) -> None:
    """GPT-2 divides by the root of twice the number of layers: two branches a layer add to the stream."""
    for path, leaf in start(scale_residual_init=scaled, **member).items():
        if path.endswith(("bias", "scale")):
            np.testing.assert_array_equal(leaf, 0 if path.endswith("bias") else 1, err_msg=path)
        elif path.endswith("taps/kernel"):
            assert np.abs(leaf).max() <= 3**-0.5, path
        else:
            std = STD / (2 * LAYERS) ** 0.5 if scaled and path.endswith(INTO_THE_STREAM) else STD
            # Four standard errors of an estimate from so many numbers.
            assert np.std(leaf) == pytest.approx(std, rel=4 / (2 * leaf.size) ** 0.5), path
            assert abs(np.mean(leaf)) < 4 * std / leaf.size**0.5, path


def test_only_gpt2_scales_and_gemma_s_norms_start_at_zero() -> None:
    assert np.std(start(family="gpt2")["layers/00/attention/out/kernel"]) < 0.5 * STD
    assert np.std(start(family="llama3")["layers/00/attention/out/kernel"]) > 0.9 * STD
    assert not start(family="gemma3")["layers/00/attention_post_norm/scale"].any()


def test_experts_start_apart() -> None:
    experts = start(family="moe", intermediate_size=64)["layers/00/feed_forward/experts/gate_up"]
    assert np.abs(experts[0] - experts[1]).max() > STD
