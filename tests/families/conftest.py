"""Tiny models with nothing at its default: random norms too, and more query heads than key heads."""

import jax
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.families import Model, build_model
from jaxlm.layers.parameters import from_paths, paths

SHAPE = dict(
    num_layers=3,
    hidden_size=24,
    intermediate_size=40,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=61,
    max_positions=64,
    init_std=0.2,
)


def tiny(execution: dict | None = None, **changes) -> Model:
    return build_model(ModelConfig(**SHAPE | changes), ExecutionConfig(**{"dtype": "float32"} | (execution or {})))


def random_params(model: Model, seed: int = 0):
    """Initial parameters with noise on all of them, norm scales included."""
    items = dict(paths(model.init(jax.random.key(seed))))
    keys = jax.random.split(jax.random.key(seed + 1), len(items))
    return from_paths(
        {
            path: leaf + 0.1 * jax.random.normal(key, leaf.shape)
            for key, (path, leaf) in zip(keys, items.items(), strict=True)
        }
    )


@pytest.fixture(scope="session", name="tiny")
def tiny_fixture():
    return tiny


@pytest.fixture(scope="session", name="random_params")
def random_params_fixture():
    return random_params
