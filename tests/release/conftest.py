"""Tiny models with random numbers everywhere, norm scales and taps included, and the interpreters that load them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxlm import config as configs
from jaxlm.config import RunConfig
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.families import build_model
from jaxlm.layers.parameters import from_paths, paths
from jaxlm.release import verify
from jaxlm.trained import Trained
from tests.release.models import TINY
from tests.release.warm_reload import Warm

ROOT = Path(__file__).resolve().parents[2]
TEXT = "Returns the sum of the numbers. If True, the array is changed. Computes the gradient of a function. "


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT] * 3, 300)


@pytest.fixture(scope="session")
def make(tokenizer: Tokenizer) -> Callable[..., Trained]:
    """`make(model fields, objective fields)`: a model with random parameters, as if it had been trained."""

    def build(model: dict[str, Any] | None = None, objective: dict[str, Any] | None = None) -> Trained:
        mask = {"mask_token_id": tokenizer.vocab_size} if (objective or {}).get("kind") == "diffusion" else {}
        config = configs.replace(
            RunConfig(train=configs.TrainConfig(total_tokens=1024, batch_tokens=256, seq_len=64)),
            model=TINY | mask | (model or {}),
            objective={"block_size": None, "shift": None} | (objective or {}),
            execution={"dtype": "float32"},
        )
        built = build_model(config.model, config.execution)
        random = np.random.default_rng(7)
        params = {
            # Large enough that the next token is clear: a greedy text must not hang on the last bit of a logit.
            path: (random.normal(1, 0.3, leaf.shape) if path.endswith("scale") else random.normal(0, 0.2, leaf.shape))
            for path, leaf in paths(built.abstract_params())
        }
        tree = from_paths({path: jax.numpy.asarray(value, jax.numpy.float32) for path, value in params.items()})
        return Trained(built, tree, tokenizer, dataclasses.replace(config, model=built.config), "train", 4)

    return build


@pytest.fixture(scope="session")
def warm() -> Iterator[Callable[[str], Warm]]:
    """Interpreters that have PyTorch and transformers imported: that takes longer than what is asked of them here."""
    started: dict[str, Warm] = {}

    def of(python: str) -> Warm:
        return started[python] if python in started else started.setdefault(python, Warm(python))

    yield of
    for server in started.values():
        server.close()


@pytest.fixture(params=["transformers 5", "transformers 4.57"])
def interpreter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, warm: Callable[[str], Warm]) -> str:
    """An interpreter with PyTorch and that transformers, which `verify` finds at work already."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests run side by side, and these models are tiny
    python = sys.executable
    if request.param != "transformers 5":
        at = ROOT / ".venv-transformers4" / "bin" / "python"
        if not at.exists():
            pytest.fail(f"no {at.relative_to(ROOT)}: launch/test.sh makes it")
        python = str(at)
    monkeypatch.setattr(verify.subprocess, "run", warm(python))
    return python
