"""The report shows what the workdirs hold, says what they do not, and judges the targets by the numbers it prints."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxlm import report as command
from jaxlm.errors import UserError
from jaxlm.study import figures, report, results, tables

SPEED = {
    "passes": 4,
    "cache_passes": 1,
    "tokens_per_pass": 2.0,
    "tokens_per_sec": 80.0,
    "seconds_to_first_token": 0.025,
}


def generation(prompt: str, text: str) -> dict[str, Any]:
    return {"prompt": prompt, "text": text, "token_ids": [1], "num_new_tokens": 8, "seconds": 0.1, **SPEED}


@pytest.fixture
def copies(runs: SimpleNamespace, tmp_path: Path) -> list[Path]:
    """Workdirs that a test may add files to."""
    for path in (runs.ar, runs.diffusion):
        shutil.copytree(path, tmp_path / path.name, ignore=shutil.ignore_patterns("checkpoints"))
    return [tmp_path / "ar", tmp_path / "diffusion"]


def written(paths: list[Path], out: Path) -> str:
    command.main([*(f"--workdir={path}" for path in paths), f"--out={out}"])
    return out.read_text("utf-8")


def test_the_report_of_two_runs_has_their_numbers_samples_and_pictures(
    copies: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ar, diffusion = copies
    for path, text in ((ar, " one | two"), (diffusion, " three\n\n\n\nfour")):
        lines = [generation("Number", text), generation("Other", " <b>*")]
        (path / "generations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    checks = {"the tokenizer gives jaxlm's ids": True, "the head is tied": False}
    versions = {"transformers": "5.0", "torch": "2.6"}
    verification = {"step": 10, **versions, "max_logit_difference": 3.2e-5, "tolerance": 1e-4, "checks": checks}
    (ar / "verification.json").write_text(json.dumps(verification))

    text = written(copies, tmp_path / "out" / "report.md")
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "report.md")
    first, second = (json.loads((path / "evaluation.json").read_text()) for path in copies)
    assert f"| ar | exact | {first['loss']:.3f} ± {first['stderr']:.3f} |" in text
    assert f"| diffusion, block 8 | upper bound (ELBO) | {second['loss']:.3f} ± {second['stderr']:.3f} |" in text
    assert r"| Number | one \| two | three<br>*(4 line breaks)*<br>four |" in text
    assert r"| Other | \<b\>\* | \<b\>\* |" in text
    assert "| ar | 2 | 8 | 4 | 1 | 2.00 | 80.0 | 25.0 |" in text
    assert "largest logit difference 3.2e-05" in text and "- **failed**: the head is tied" in text
    assert "Not run for diffusion: `export --verify`" in text
    for name in ("loss", "bits_per_byte", "speed"):
        assert f"(report_files/{name}.png)" in text
        assert (tmp_path / "out" / "report_files" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.md", "report_files"]


def test_a_run_alone_without_evaluation_and_samples_is_reported_as_such(copies: list[Path], tmp_path: Path) -> None:
    baselines_only = dict.fromkeys(("loss", "bits_per_byte"), None)
    (copies[0] / "evaluation.json").write_text(json.dumps(baselines_only))
    text = written(copies[:1], tmp_path / "alone.md")
    for command_name in ("evaluate", "generate", "export --verify"):
        assert f"Not run for ar: `{command_name}`" in text
    assert not (tmp_path / "alone_files" / "bits_per_byte.png").exists()


def task(acc: float, stderr: float, lengths: float) -> dict[str, Any]:
    control = {"acc": lengths, "acc_norm": None, "acc_stderr": 0.01, "acc_norm_stderr": None}
    return {"n": 1267, "chance": 0.5, "acc": acc, "acc_stderr": stderr, "acc_norm": None, "acc_norm_stderr": None,
            "controls": {"length_only": control, "random_init": {**control, "acc": 0.49}}}  # fmt: skip


def test_scores_stand_beside_chance_and_controls_and_are_marked_where_they_say_nothing(
    copies: list[Path], tmp_path: Path
) -> None:
    nothing = {"acc": None, "acc_norm": None, "stderr": None}
    for path, scored, mean in (
        (copies[0], task(0.56, 0.01, 0.51), {"acc": 0.4, "acc_norm": 0.41, "stderr": 0.005}),
        (copies[1], task(0.52, 0.014, 0.51), nothing),
    ):
        values = json.loads((path / "evaluation.json").read_text())
        values |= {"loss": None, "tasks": {"winogrande": scored}, "mean_6": mean}  # as an imported model has it
        (path / "evaluation.json").write_text(json.dumps(values))
    text = written(copies, tmp_path / "report.md")
    assert "| winogrande | ar | 1,267 | 0.5000 | 0.5100 | 0.4900 | 0.5600 ± 0.0100 | – |" in text
    assert "| winogrande | diffusion | 1,267 | 0.5000 | 0.5100 | 0.4900 | 0.5200 ± 0.0140 ~ | – |" in text
    assert "| **mean_6** | ar |  |  |  |  | 0.4000 ± 0.0050 | 0.4100 |" in text
    assert "| **mean_6** | diffusion" not in text and "mean_7" not in text
    assert "*mean_6* is the mean of the study's six, without GSM8K." in text
    assert (tmp_path / "report_files" / "benchmarks.png").is_file()


def test_targets_are_met_or_not_by_the_numbers(copies: list[Path]) -> None:
    ar, diffusion = results.read_all(copies)
    assert ar.evaluation is not None and diffusion.evaluation is not None

    def verdicts(bits: float, gain: float) -> list[bool]:
        xz = {**ar.evaluation["baselines"], "xz": {"bits_per_byte": 2.0}}  # type: ignore[index]
        one = dataclasses.replace(ar, evaluation={**ar.evaluation, "bits_per_byte": bits, "baselines": xz})  # type: ignore[dict-item]
        below = {"nats_per_token": gain, "stderr": 0.01}
        two = dataclasses.replace(diffusion, evaluation={**diffusion.evaluation, "below_token_frequency": below})  # type: ignore[dict-item]
        return ["**met**" in line for line in report.targets([one, two])]

    assert verdicts(1.99, 0.7) == [True, True]
    assert verdicts(2.0, 0.69) == [False, False]


def test_the_opening_calls_small_models_pocket_models_and_large_ones_not(copies: list[Path]) -> None:
    runs = results.read_all(copies)
    assert "pocket models" in report.opening(runs)
    large = [dataclasses.replace(run, manifest={"parameters": {"total": 71_344_512}}) for run in runs]
    assert "pocket models" not in report.opening(large)


def test_phases_validations_and_levels_are_in_the_picture(
    copies: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda self, path: drawn.append(self))
    runs = results.read_all(copies)
    figures.loss(runs, tmp_path / "x.png")
    left, right = drawn[0].axes
    assert [text.get_text() for text in right.texts if text.get_text() != "block size of each phase"] == [
        *("4", "window (16)", "8")
    ]
    assert not left.texts
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    frequency = runs[1].baseline("token_frequency", "loss")
    assert set(labels) >= {"validation (ELBO)", f"token frequencies ({frequency:.2f})"}
    assert left.lines[0].get_xdata()[-1] == pytest.approx(10 * 8 * 16 / 1e6)


def test_a_resumed_run_counts_the_last_word_on_a_step(copies: list[Path]) -> None:
    with (copies[0] / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 10, "tokens": 1280, "loss": 123.0, "tokens_per_sec": 1.0}) + "\n")
        file.write('{"step": 11, "tok')  # cut off by a kill
    run = results.read(copies[0])
    assert (run.steps[-1]["step"], run.steps[-1]["loss"]) == (10, 123.0)


def test_runs_of_one_name_are_told_apart_by_their_paths(copies: list[Path], tmp_path: Path) -> None:
    twin = tmp_path / "elsewhere" / "ar"
    shutil.copytree(copies[0], twin)
    assert [run.name for run in results.read_all([copies[0], twin])] == [str(copies[0]), str(twin)]
    with pytest.raises(UserError, match="twice"):
        results.read_all([copies[0], copies[0]])


def test_mistakes_are_one_line(copies: list[Path], tmp_path: Path) -> None:
    (copies[1] / "evaluation.json").write_text("{")
    for flags, complaint in (
        ([f"--workdir={tmp_path}"], "no jaxlm workdir"),
        ([f"--workdir={copies[0]}", "--out=report.html"], "a file that ends in .md"),
        ([f"--workdir={copies[1]}", f"--out={tmp_path / 'r.md'}"], "evaluation.json"),
        ([f"--workdir={copies[0]}", f"--out={copies[0] / 'config.json' / 'r.md'}"], "cannot be written"),
        ([], "--workdir"),
    ):
        with pytest.raises(UserError, match=complaint) as error:
            command.main(flags)
        assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "r.md").exists()


def test_numbers_and_cells() -> None:
    assert tables.number(None) == "–"
    assert tables.number(1234.5678, 2, 0.005) == "1,234.57 ± 0.01"
    assert tables.text_cell("a_b\r\n\nc\\") == r"a\_b<br><br>c\\"
