"""What every test runs under: the CPU, no network, compilations kept between runs. Set before anything imports JAX."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # it warns when a process that used it forks
# Subprocesses inherit these, and compile what another test has compiled only once.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are typed in the checkout: `configs/...` is relative to it. Undoes a test's own chdir, too."""
    monkeypatch.chdir(ROOT)
