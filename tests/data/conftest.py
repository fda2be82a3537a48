"""The small corpus, the data directory made from it, and commands that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jaxlm import command_line, prepare_data
from jaxlm.data.prepare import prepare
from jaxlm.data.windows import Windows

from .corpus import settings, silent, texts, write_lines


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", texts(120))


@pytest.fixture(scope="session")
def data_dir(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "data"
    assert prepare(settings(corpus), out, silent)
    return out


@pytest.fixture(scope="session")
def windows(data_dir: Path) -> Windows:
    return Windows.open(data_dir)


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs `prepare_data` with overrides that must be refused, nothing left behind; returns the one line it says."""

    def run(**overrides: object) -> str:
        out = tmp_path / "made" / "out"
        argv = ["--config=configs/data/files.py", f"--out={out}", *(f"--config.{k}={v}" for k, v in overrides.items())]
        with pytest.raises(SystemExit) as stop:
            command_line.run(prepare_data.main, argv)
        said = capsys.readouterr().err.splitlines()
        assert stop.value.code == command_line.EXIT_USER
        assert [line for line in said if line.startswith("jaxlm: ")] == said[-1:]
        assert not out.parent.exists() or not list(out.parent.iterdir())
        return said[-1].removeprefix("jaxlm: ")

    return run
