"""Tiny models with nothing at its default: random norms too, and more query heads than key heads."""

import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.families import Model, build_model
from jaxlm.layers.parameters import Tree
from tests.random_tree import random_tree

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


def random_params(model: Model, seed: int = 0) -> Tree:
    """Norm scales about where they start, so that Gemma's are about 0."""
    norm = 0.0 if model.config.norm == "rms_unit_offset" else 1.0
    return random_tree(model.abstract_params(), seed=seed, norm=norm)


@pytest.fixture(scope="session", name="tiny")
def tiny_fixture():
    return tiny


@pytest.fixture(scope="session", name="random_params")
def random_params_fixture():
    return random_params
