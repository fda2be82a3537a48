"""The quickstart's script with a stand-in for Python: which commands run, in which order, and which are left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from . import stand_in

MODELS = ("ar", "diffusion")
STEPS = [
    "prepare_data",
    "train",
    "convert",
    *["evaluate"] * 2,
    *["generate"] * 2,
    *["export"] * 2,
    "launch/study_quickstart.py",
    "report",
]


def call(checkout: Path, *flags: str, **environment: str) -> tuple[int, list[str], list[str]]:
    return stand_in.call(checkout, "quickstart.sh", *flags, **environment)


def test_first_it_installs_then_every_step_runs_in_order(checkout: Path) -> None:
    code, lines, ran = call(checkout)
    assert code == 0
    assert lines[0].startswith("device: CPU") and lines[-1] == "runs/quickstart/report.md"
    installed = [words for words in ran if words.startswith("-m pip")]
    assert ran[len(installed) :] == STEPS
    assert "$ .venv/bin/python -m pip install -qq -c constraints.txt torch==2.13.0" in lines
    assert (
        "$ .venv/bin/python -m jaxlm.train --config=configs/pocket/llama3_canon.py --workdir=runs/quickstart/ar"
        in lines
    )


def test_a_finished_one_starts_no_python(checkout: Path) -> None:
    call(checkout)
    code, lines, ran = call(checkout)
    assert (code, ran) == (0, [])
    assert lines[-1] == "runs/quickstart/report.md"


def test_after_a_failure_it_goes_on_where_it_stopped(checkout: Path) -> None:
    code, _, ran = call(checkout, FAIL="jaxlm.convert")
    assert code == 1 and ran[-1] == "convert" and not (checkout / "runs/quickstart/report.md").exists()
    code, _, ran = call(checkout)
    assert code == 0 and ran == STEPS[2:]


def test_without_torch_nothing_is_loaded_by_transformers(checkout: Path) -> None:
    code, lines, ran = call(checkout, "--no-torch")
    assert code == 0 and not any("torch" in line or "--verify" in line for line in lines)
    assert ran[-3:] == ["export", "export", "report"]


def test_torch_may_come_later(checkout: Path) -> None:
    call(checkout, "--no-torch")
    stale = checkout / "runs/quickstart/hf_ar/model.safetensors"
    stale.touch()
    code, _, ran = call(checkout)
    assert code == 0 and [word for word in ran if not word.startswith("-m")] == STEPS[-4:]
    assert not stale.exists(), "export refuses a directory that is not empty"


def test_results_go_where_they_are_told_seen_from_where_one_stands(checkout: Path) -> None:
    code, lines, _ = call(checkout, JAXLM_RUNS="elsewhere")
    assert code == 0 and lines[-1] == str(checkout.parent / "elsewhere/quickstart/report.md")
    assert Path(lines[-1]).exists() and not (checkout / "runs").exists()


def test_a_half_written_answer_is_not_taken_for_one(checkout: Path) -> None:
    assert call(checkout, FAIL="jaxlm.generate")[0] == 1
    assert not list((checkout / "runs/quickstart").rglob("generations.jsonl"))


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (["--cup"], {}, "jaxlm: unknown flag '--cup', allowed: --cpu, --no-torch, --help"),
        ([], {"PYTHON": "/bin/false"}, "jaxlm: /bin/false is"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(
    checkout: Path, flags: list[str], environment: dict[str, str], message: str
) -> None:
    shutil.rmtree(checkout / ".venv")
    code, lines, _ = call(checkout, *flags, **environment)
    assert code == 2 and lines[-1].startswith(message)


def test_it_explains_itself(checkout: Path) -> None:
    code, lines, ran = call(checkout, "--help")
    assert code == 0 and ran == [] and any("--no-torch" in line for line in lines)
