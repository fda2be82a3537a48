"""A tiny data directory and a tiny run on it: 2 layers, width 32, windows of 16 tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxlm.config import ModelConfig, PrepareConfig, RunConfig
from jaxlm.data.prepare import prepare
from jaxlm.fields import build, to_dict

TINY: dict[str, Any] = {
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
        "max_positions": 16,
    },
    "train": {
        "total_tokens": 20 * 8 * 16,
        "batch_tokens": 8 * 16,
        "seq_len": 16,
        "learning_rate": 1e-2,
        "save_every": 5,
        "log_every": 1,
        "eval_windows": 0,
        "tensorboard": False,
    },
    "convert": {"block_sizes": (1, 4)},
    "execution": {"dtype": "float32", "data_parallel": 1},
}

WORDS = "a model reads the text and writes what it has seen again while nobody looks at the old numbers".split()


def sentence(i: int) -> str:
    return " ".join(WORDS[(i * j + j * j) % len(WORDS)] for j in range(1, 30))


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("training_data")
    for i in range(200):
        (root / f"{i:03}.txt").write_text(f"Text number {i}: {sentence(i)}.\n")
    config = PrepareConfig(
        source="files",
        files=str(root / "*.txt"),
        tokenizer="train:300",
        seq_len=16,
        validation_share=0.2,
        deduplicate=False,
    )
    prepare(config, root / "data", report=lambda text: None)
    return root / "data"


@pytest.fixture
def tiny(data_dir: Path) -> Callable[..., RunConfig]:
    """`tiny(train={"save_every": 3})`: the tiny run with some fields changed."""

    def make(**sections: dict[str, Any]) -> RunConfig:
        values: dict[str, Any] = {name: dict(fields) for name, fields in TINY.items()}
        values["data"] = {"dir": str(data_dir)}
        for name, fields in sections.items():
            values[name] = {**values.get(name, {}), **fields}
        return build(RunConfig, values)

    return make


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[[RunConfig], str]:
    """Writes a configuration as a file of `configs/` for commands that are started as processes; returns its path."""

    def write(config: RunConfig) -> str:
        values = to_dict(config)
        lines = ["from jaxlm import config", "def get_config():", "    run = config.run()"]
        lines += [f"    run.{name} = {value!r}" for name, value in values.items() if not isinstance(value, dict)]
        lines += [f"    run.{name}.update({value!r})" for name, value in values.items() if isinstance(value, dict)]
        (tmp_path / "config.py").write_text("\n".join([*lines, "    return run"]))
        return str(tmp_path / "config.py")

    return write


@pytest.fixture
def tiny_model_config() -> ModelConfig:
    return dataclasses.replace(ModelConfig(), **TINY["model"])
