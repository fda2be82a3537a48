"""The script of the pocket families with a stand-in for Python, and the table of its results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.fields import build
from jaxlm.study.results import Run

from . import stand_in

ONE = ["train", "evaluate"]
ALL = ["-c from jaxlm.families.registry", "prepare_data", *ONE, *ONE, "convert", "evaluate", "launch/pocket_table.py"]


def call(checkout: Path, *words: str, **environment: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines printed, and what was run after the installation."""
    code, lines, ran = stand_in.call(checkout, "pocket_families.sh", *words, **environment)
    return code, lines, [word for word in ran if not word.startswith("-m pip")]


def test_every_family_is_trained_and_evaluated_and_dhara_is_converted(checkout: Path) -> None:
    code, lines, ran = call(checkout)
    assert code == 0 and ran == ALL
    assert lines[-1] == "runs/pocket/families.md" and (checkout / lines[-1]).exists()
    train = "$ .venv/bin/python -m jaxlm.train --config=configs/pocket/family.py:gpt2 --workdir=runs/pocket/gpt2"
    assert train in lines
    assert any("--init_from=runs/pocket/llama3_canon --workdir=runs/pocket/dhara" in line for line in lines)


def test_a_finished_one_is_only_set_side_by_side_again(checkout: Path) -> None:
    call(checkout)
    code, _, ran = call(checkout)
    assert code == 0 and ran == [ALL[0], ALL[-1]]


def test_after_a_failure_it_goes_on_where_it_stopped(checkout: Path) -> None:
    code, _, ran = call(checkout, FAIL="--workdir=runs/pocket/llama3_canon")
    assert code == 1 and ran == ALL[:5] and not (checkout / "runs/pocket/families.md").exists()
    code, _, ran = call(checkout)
    assert code == 0 and ran == [ALL[0], *ALL[4:]]


def test_dhara_alone_needs_what_it_is_made_from(checkout: Path) -> None:
    code, lines, ran = call(checkout, "dhara")
    assert code == 0 and ran == ["prepare_data", "train", "convert", "evaluate", "launch/pocket_table.py"]
    assert any(
        line.endswith(
            "-m jaxlm.train --config=configs/pocket/family.py:llama3_canon --workdir=runs/pocket/llama3_canon"
        )
        for line in lines
    )
    assert any(line.startswith("$ .venv/bin/python launch/pocket_table.py runs/pocket/dhara >") for line in lines)


def test_a_mistake_is_one_line_and_code_2(checkout: Path) -> None:
    code, lines, ran = call(checkout, "--gpu")
    assert (code, lines, ran) == (2, ["jaxlm: unknown flag '--gpu', allowed: --cpu, --help"], [])


@pytest.fixture
def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pocket_table", stand_in.ROOT / "launch" / "pocket_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(family: str, *, active: int, bound: bool, source: str | None) -> Run:
    steps = [{"tokens": 1000 * i, "tokens_per_sec": speed} for i, speed in enumerate((None, 90.0, 110.0, 100.0))]
    score = {"loss": 6.55, "stderr": 0.01}
    return Run(
        name=family,
        config=build(RunConfig, {"model": {"family": family}, "train": {"batch_tokens": 4096}}),
        kind="train",
        manifest={
            "parameters": {"total": 3_000_000, "active": active},
            "init_from": source and {"source": source, "step": 4},
            "devices": {"kind": "cpu"},
            "execution": {"dtype": "float32"},
            "versions": {"jax": "0.10.2"},
            "data": {"data_sha256": "32a7c37b977ed94b"},
        },
        steps=tuple(steps),
        validations=(),
        benchmarks=None,
        evaluation={
            "loss": 6.4567,
            "stderr": 0.0234,
            "bits_per_byte": 2.8976,
            "is_bound": bound,
            "below_token_frequency": {"nats_per_token": 0.0933, "stderr": 0.0211},
            "baselines": {"token_frequency": score},
            "num_windows": 679,
        },
        generations=(),
        verification=None,
        statistics=None,
    )


def test_the_table_has_the_numbers_of_the_runs(table: ModuleType) -> None:
    moe = run("moe", active=2_000_000, bound=False, source=None)
    assert table.row(moe) == [
        "`moe`", "3,000,000 (2,000,000 active)", "3,000", "6.457 ± 0.023", "0.093 ± 0.021", "2.898", "100",
    ]  # fmt: skip
    dhara = run("dhara", active=3_000_000, bound=True, source="runs/pocket/llama3_canon")
    assert table.row(dhara) == [
        "`dhara`", "3,000,000", "llama3_canon + 3,000", "≤ 6.457 ± 0.023", "0.093 ± 0.021", "≤ 2.898", "100",
    ]  # fmt: skip
    below = "\n".join(table.conditions([moe, dhara]))
    assert "6.550 ± 0.010 nats" in below and "seed 0, batch 4 x 1024" in below and "data 32a7c37b977e" in below


def test_the_table_wants_finished_runs(table: ModuleType) -> None:
    with pytest.raises(UserError, match="no workdir is named"):
        table.main([])
