"""From GPT-2 to LLaMA 3, one field at a time: every station is a model that runs, decodes and learns."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.families import Model, build_model
from jaxlm.layers.cross_entropy import nats
from jaxlm.layers.parameters import paths
from jaxlm.layers.structure import Structure
from jaxlm.training.flops import parameter_counts
from jaxlm.training.optimizer import decays
from tests.families.closed_form import closed_form
from tests.quick_jit import quick_jit
from tests.random_tree import random_tree

CAUSAL = Structure(1)
START = ModelConfig(
    family="gpt2",
    vocab_size=61,
    num_layers=2,
    hidden_size=24,
    intermediate_size=96,
    num_heads=4,
    num_kv_heads=4,
    head_dim=6,
    max_positions=16,
)
# What changes, and the parameters that come, go, or take another shape with it: a pattern of paths, "" for none.
STEPS: list[tuple[dict, str]] = [
    ({"norm": "rms"}, r".*norm/bias"),
    ({"positions": "rope"}, r"positions/table"),
    ({"feed_forward": "swiglu", "intermediate_size": 64}, r"layers/../feed_forward/(up|gate_up|down)/(kernel|bias)"),
    ({"use_bias": False}, r"layers/../(attention/(qkv|out)|feed_forward/(gate_up|down))/bias"),
    ({"num_kv_heads": 2}, r"layers/../attention/qkv/kernel"),
    ({"tie_embeddings": False}, r"head/table"),
    ({"tie_embeddings": True}, r"head/table"),
    ({"scale_residual_init": False}, ""),
    ({"norm_eps": 1e-6}, ""),
    ({"qk_norm": True}, r"layers/../attention/(query|key)_norm/scale"),
    ({"qk_norm": False}, r"layers/../attention/(query|key)_norm/scale"),
    ({"canon_set": "AC"}, r"layers/../canon_[ac]/kernel"),
    ({"canon_set": ""}, r"layers/../canon_[ac]/kernel"),
]
STATIONS = [START]
for changes, _ in STEPS:
    STATIONS.append(dataclasses.replace(STATIONS[-1], **changes))
NAMES = ["gpt2", *(", ".join(f"{name}={value}" for name, value in changes.items()) for changes, _ in STEPS)]


def build(config: ModelConfig) -> Model:
    return build_model(config, ExecutionConfig(dtype="float32"))


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    return {path: leaf.shape for path, leaf in paths(build(config).abstract_params())}


@pytest.mark.parametrize("number", range(len(STEPS)), ids=NAMES[1:])
def test_a_step_changes_the_parameters_that_it_is_about_and_no_others(number) -> None:
    before, after = shapes(STATIONS[number]), shapes(STATIONS[number + 1])
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    pattern = STEPS[number][1]
    assert {path for path in changed if not re.fullmatch(pattern, path)} == set()
    assert bool(changed) == bool(pattern)
    # Both layers alike, and everything that the pattern means.
    assert {path.replace("layers/00", "layers/01") for path in changed} == changed - {
        path for path in changed if path.startswith("layers/00")
    }


@pytest.mark.parametrize("config", STATIONS, ids=NAMES)
def test_every_station_counts_runs_decodes_and_learns(config) -> None:
    model = build(config)
    abstract = model.abstract_params()
    assert parameter_counts(model)["total"] == closed_form(config)
    assert {decays(path) for path, _ in paths(abstract)} == {True, False}  # and every path is known

    params, tokens_BT = random_tree(abstract), np.random.default_rng(0).integers(0, 61, (2, 8))

    def loss(params):
        x_BTD = model.hidden(params, tokens_BT[:, :7], CAUSAL)
        return jnp.mean(nats(x_BTD, model.head_VD(params), tokens_BT[:, 1:])), model.logits(params, x_BTD)

    learn = quick_jit(jax.value_and_grad(loss, has_aux=True))
    (before, logits_BTV), grads = learn(params)
    assert np.isfinite(logits_BTV).all()
    assert all(np.isfinite(leaf).all() and np.abs(leaf).max() > 0 for _, leaf in paths(grads))
    (after, _), _ = learn(jax.tree.map(lambda leaf, slope: leaf - 0.01 * np.asarray(slope), params, grads))
    assert 0 < after < before

    @quick_jit
    def extend(tokens_Bb, cache, num_new_B):
        x_BbD, proposal = model.extend(params, tokens_Bb, cache, CAUSAL, num_new_B)
        return model.logits(params, x_BbD), model.commit(proposal, num_new_B)

    cache = model.init_cache(2, 8)
    for start in (0, 4):
        y_BbV, cache = extend(tokens_BT[:, start : start + 4], cache, np.full(2, 4))
        size = min(4, 7 - start)  # the eighth token is only predicted
        np.testing.assert_allclose(y_BbV[:, :size], logits_BTV[:, start : start + size], atol=1e-4)


def test_the_last_station_is_llama3() -> None:
    walked, llama3 = build(STATIONS[-1]), build(dataclasses.replace(STATIONS[-1], family="llama3"))
    plain = build(ModelConfig(family="llama3", **{name: getattr(STATIONS[-1], name) for name in (
        "vocab_size", "num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim",
        "max_positions",
    )}))  # fmt: skip
    assert llama3.config == plain.config == dataclasses.replace(walked.config, family="llama3")
    ours, theirs = (dict(paths(model.init(jax.random.key(3)))) for model in (walked, plain))
    assert ours.keys() == theirs.keys()
    for path, leaf in ours.items():
        np.testing.assert_array_equal(leaf, theirs[path], err_msg=path)
    params, tokens_BT = walked.init(jax.random.key(3)), np.random.default_rng(0).integers(0, 61, (2, 8))
    a, b = (quick_jit(lambda p, m=m: m.logits(p, m.hidden(p, tokens_BT, CAUSAL)))(params) for m in (walked, plain))
    np.testing.assert_array_equal(a, b)
