"""A tiny autoregressive run and its conversion, trained for a few steps on tiny data and evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxlm import evaluate
from jaxlm.config import PrepareConfig, RunConfig
from jaxlm.data.prepare import prepare
from jaxlm.fields import build
from jaxlm.training import loop

T, BATCH, STEPS = 16, 8, 10
VALUES: dict[str, Any] = {
    "model": {
        "family": "llama3_canon",
        "canon_set": "AC",
        "vocab_size": 384,
        "num_layers": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "num_kv_heads": 1,
        "head_dim": 16,
        "max_positions": T,
    },
    "train": {
        "total_tokens": STEPS * BATCH * T,
        "batch_tokens": BATCH * T,
        "seq_len": T,
        "learning_rate": 1e-2,
        "log_every": 1,
        "eval_windows": 16,
        "tensorboard": False,
    },
    "execution": {"dtype": "float32"},
    "convert": {"block_sizes": (1, 4)},
}
DECAY = {"block_sizes": (4,), "decay_block_sizes": (8,), "decay_share": 0.2}


def prepared(root: Path, tokenizer: str) -> Path:
    """A data directory of 120 short texts."""
    for i in range(120):
        (root / f"{i:03}.txt").write_text(
            f"Number {i}: {' '.join(str(i * j) + ' is even or odd' for j in range(8))}.\n"
        )
    config = PrepareConfig(
        files=str(root / "*.txt"), tokenizer=tokenizer, seq_len=T, validation_share=0.2, deduplicate=False
    )
    prepare(config, root / "data", report=lambda text: None)
    return root / "data"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Paths: `data`, the workdirs `ar` and `diffusion`, and `other`, the same text with another tokenizer."""
    root = tmp_path_factory.mktemp("study")
    data = prepared(root, "train:300")
    values = {**VALUES, "data": {"dir": str(data)}}
    loop.train(build(RunConfig, values), root / "ar", kind="train")
    values |= {"objective": {"kind": "diffusion"}, "convert": DECAY}
    loop.train(build(RunConfig, values), root / "diffusion", kind="convert", init_from=str(root / "ar"))
    for name in ("ar", "diffusion"):
        evaluate.main([f"--workdir={root / name}", f"--out={root / name / 'evaluation.json'}"])
    other = prepared(tmp_path_factory.mktemp("other"), "train:280")
    return SimpleNamespace(data=data, ar=root / "ar", diffusion=root / "diffusion", other=other)


@pytest.fixture
def evaluations(runs: SimpleNamespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records of both."""
    ar, diffusion = (json.loads((path / "evaluation.json").read_text()) for path in (runs.ar, runs.diffusion))
    return ar, diffusion
