"""The script of the pocket conversions with a stand-in for Python: its runs, what is skipped, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import stand_in

SEED = ["train", "convert", "train", "train", *["evaluate"] * 4]
PYTHON = "$ .venv/bin/python -m jaxlm"


def call(checkout: Path, *words: str, **environment: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines printed, and what was run after the installation."""
    code, lines, ran = stand_in.call(checkout, "pocket_conversion.sh", *words, **environment)
    return code, lines, [word for word in ran if not word.startswith("-m pip")]


def test_three_seeds_are_trained_converted_evaluated_and_reported(checkout: Path) -> None:
    code, lines, ran = call(checkout)
    assert code == 0 and ran == ["prepare_data", *SEED * 3, "report"]
    assert lines[-1] == "runs/conversion/report.md" and (checkout / lines[-1]).exists()
    report = next(line for line in lines if line.startswith(f"{PYTHON}.report"))
    names = [f"{name}_{seed}" for seed in range(3) for name in ("ar", "conversion", "scratch_tenth", "scratch")]
    assert report.split()[4:-1] == [f"--workdir=runs/conversion/{name}" for name in names]


def test_the_four_runs_of_a_seed_differ_in_what_they_compare(checkout: Path) -> None:
    code, lines, _ = call(checkout, "7")
    assert code == 0
    trained = [line for line in lines if line.startswith((f"{PYTHON}.train", f"{PYTHON}.convert"))]
    assert all("--config.seed=7" in line for line in trained)
    assert "--init_from=runs/conversion/ar_7" in trained[1] and "--config=configs/pocket/dhara.py" in trained[1]
    for line, tokens in zip(trained[2:], ("200K", "2M"), strict=True):
        assert "configs/pocket/family.py:dllm_canon" in line and f"--config.train.total_tokens={tokens}" in line


def test_what_is_finished_is_skipped_and_the_report_made_anew(checkout: Path) -> None:
    call(checkout, "0")
    code, _, ran = call(checkout, "0", "1")
    assert code == 0 and ran == [*SEED, "report"]


def test_after_a_failure_it_goes_on_where_it_stopped(checkout: Path) -> None:
    code, _, ran = call(checkout, "0", FAIL="--workdir=runs/conversion/scratch_0")
    assert code == 1 and ran == ["prepare_data", *SEED[:4]] and not (checkout / "runs/conversion/report.md").exists()
    code, _, ran = call(checkout, "0")
    assert code == 0 and ran == [*SEED[3:], "report"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--gpu", "jaxlm: unknown flag '--gpu', allowed: --cpu, --help"),
        ("one", "jaxlm: a seed is 'one', allowed: a whole number, 0 or above"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(checkout: Path, word: str, message: str) -> None:
    assert call(checkout, word) == (2, [message], [])
