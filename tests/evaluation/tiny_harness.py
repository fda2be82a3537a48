"""Tiny models as the harness asks them, and what it asks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from lm_eval.api.instance import Instance

from jaxlm.config import ExecutionConfig, ModelConfig, ObjectiveConfig, RunConfig, TrainConfig
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.evaluation.harness_model import HarnessModel
from jaxlm.families import build_model
from jaxlm.layers.structure import Structure
from jaxlm.objectives import build_objective
from jaxlm.trained import Trained
from tests.quick_jit import quick_jit
from tests.random_tree import random_tree

VOCAB, MASK, POSITIONS = 330, 320, 64
TOKENIZER = Tokenizer.train(["the cat sat on the mat and the dog sat on the log, and so on"] * 3, 275)
CONFIG = ModelConfig(
    family="llama3",
    vocab_size=VOCAB,
    num_layers=2,
    hidden_size=24,
    intermediate_size=32,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    max_positions=POSITIONS,
    mask_token_id=MASK,
)
MODEL = build_model(CONFIG, ExecutionConfig(dtype="float32"))
PARAMS = random_tree(MODEL.abstract_params())
UNIFORM = {**PARAMS, "embedding": {"table": jnp.zeros((VOCAB, 24))}}


@functools.cache
def trained(kind: str, block_size: int | None = None) -> Trained:
    train = TrainConfig(seq_len=POSITIONS, batch_tokens=POSITIONS, total_tokens=POSITIONS)
    config = RunConfig(model=CONFIG, train=train, objective=ObjectiveConfig(kind=kind, block_size=block_size))
    return Trained(MODEL, PARAMS, TOKENIZER, config, "train", 1)


def model(kind: str = "causal", block_size: int | None = None, params: Any = PARAMS, **settings: Any) -> HarnessModel:
    of = trained(kind, block_size)
    objective = build_objective(of.config.objective, MODEL, mask_token_id=MASK if kind == "diffusion" else None)
    settings = {"max_length": POSITIONS, "parameter_hash": "f" * 64, "positions_per_forward": 256, **settings}
    return HarnessModel(objective, params, TOKENIZER, of.generate, **settings)


def question(context: str, answers: Sequence[str], document: int = 0, task: str = "mats") -> list[Instance]:
    """What the harness asks of one document of a task of multiple choice."""
    return [
        Instance("loglikelihood", {}, (context, answer), idx, metadata=(task, document, 1))
        for idx, answer in enumerate(answers)
    ]


def writing(context: str, document: int = 0, **how: Any) -> Instance:
    return Instance("generate_until", {}, (context, how), 0, metadata=("tales", document, 1))


def tokens(text: str) -> int:
    return len(TOKENIZER.encode(text))


@quick_jit
def log_probs(ids_BT: jax.Array) -> jax.Array:
    """fp32 [B, T, V] of rows that are read from all sides."""
    return jax.nn.log_softmax(MODEL.logits(PARAMS, MODEL.hidden(PARAMS, ids_BT, Structure(0))))
