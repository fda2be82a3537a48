"""What a conversion saves: closed-form crossings, which runs are compared, spread, bounds, and the report's section."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxlm.config import RunConfig, replace
from jaxlm.families import resolve
from jaxlm.fields import build, to_dict
from jaxlm.study import figures, report, tables
from jaxlm.study.conversion_cost import CatchUp, compare, first_at_or_below, tokens_before
from jaxlm.study.results import Run, read_all

STEP = 128  # tokens of an update
MODEL = {
    "vocab_size": 384,
    "num_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 16,
    "max_positions": 16,
    "mask_token_id": 300,
}


def validation(step: int, loss: float, **more: int) -> dict[str, Any]:
    return {"step": step, "loss": loss, "stderr": 0.1, "num_windows": 16} | more


def run(
    name: str, losses: dict[int, float], *, seed: int = 0, kind: str = "train", elbo: float | None = None, **model: Any
) -> Run:
    """A finished diffusion run, validated after these updates, evaluated with an error of 0.03."""
    family = "dhara" if kind == "convert" else "dllm_canon"
    train = {"total_tokens": STEP * max(losses), "batch_tokens": STEP, "seq_len": 16}
    values = {"seed": seed, "model": {"family": family, **MODEL, **model}, "train": train}
    config = build(RunConfig, {**values, "objective": {"kind": "diffusion"}})
    return Run(
        name=name,
        config=dataclasses.replace(config, model=resolve(config.model)),
        kind=kind,
        manifest={"data": {"data_sha256": "d", "tokenizer_sha256": "t"}, "init_from": None},
        steps=tuple({"step": step, "tokens": step * STEP, "loss": loss} for step, loss in losses.items()),
        validations=tuple(validation(step, loss) for step, loss in losses.items()),
        evaluation=None if elbo is None else {"loss": elbo, "stderr": 0.03},
        benchmarks=None,
        generations=(),
        verification=None,
        statistics=None,
    )


def conversion(losses: dict[int, float], source: Path | str = "nowhere", **more: Any) -> Run:
    made = run("conversion", losses, kind="convert", **more)
    return dataclasses.replace(made, manifest={**made.manifest, "init_from": {"source": str(source), "step": 30}})


@pytest.fixture
def ar(tmp_path: Path) -> Path:
    """A workdir of an autoregressive run with twice the batch, as far as it is read."""
    config = replace(run("ar", {1: 4.0}).config, train={"batch_tokens": 2 * STEP, "total_tokens": 100 * STEP})
    (tmp_path / "ar").mkdir()
    (tmp_path / "ar" / "config.json").write_text(json.dumps({"kind": "train", **to_dict(config)}))
    (tmp_path / "ar" / "manifest.json").write_text(json.dumps({"init_from": None}))
    return tmp_path / "ar"


def test_a_crossing_lies_on_the_line_between_two_evaluations() -> None:
    curve = [(100, 8.0), (200, 6.0), (400, 5.0), (500, 5.5)]
    assert first_at_or_below(curve, 7.5) == CatchUp(125.0, True)
    assert first_at_or_below(curve, 5.25) == CatchUp(350.0, True)
    assert first_at_or_below(curve, 6.0) == CatchUp(200.0, True), "at the level counts"
    assert first_at_or_below(curve, 9.0) == CatchUp(100, True), "there at the first evaluation"
    assert first_at_or_below(curve, 4.9) == CatchUp(500, False), "never"


def test_the_same_loss_is_priced_with_and_without_the_autoregressive_tokens(ar: Path) -> None:
    converted = conversion({5: 6.2, 10: 5.5}, ar, elbo=5.4)
    tenth, longest = run("tenth", {10: 6.6}, elbo=6.5), run("longest", {20: 6.5, 40: 6.0, 80: 5.0}, elbo=4.9)
    (found,) = compare([converted, longest, tenth])
    assert (found.same_budget, found.longest) == (tenth, longest)
    assert found.lower_by is not None and found.lower_by.stderr is not None
    assert (found.lower_by.value, found.lower_by.stderr) == pytest.approx((1.1, 0.03 * 2**0.5))
    assert found.catch_up == CatchUp(60 * STEP, True)
    assert found.tokens_before == 30 * 2 * STEP
    assert found.times_conversion == CatchUp(6.0, True)
    assert found.times_all is not None and found.times_all.tokens == pytest.approx(60 / (60 + 10))


def test_losses_of_the_same_windows_are_compared_by_pairs(ar: Path) -> None:
    def evaluated(one: Run, nats: str, tokens: str = "4 4 4", data: str = "d") -> Run:
        windows = {"nats": nats, "tokens": tokens, "bytes": "9 9 9"}
        loss = sum(map(float, nats.split())) / 12
        found = {"loss": loss, "stderr": 0.5, "windows": windows, "conditions": {"data_sha256": data}}
        return dataclasses.replace(one, evaluation=found)

    converted = evaluated(conversion({10: 5.5}, ar), "8 20 32")
    tenth, longest = evaluated(run("tenth", {10: 6.6}), "12 24.4 35.6"), run("longest", {80: 5.0})
    (found,) = compare([converted, longest, tenth])
    assert found.is_paired and found.lower_by is not None and found.lower_by.stderr is not None
    # Differences of 4, 4.4 and 3.6 nats in windows of 4 tokens.
    assert (found.lower_by.value, found.lower_by.stderr) == pytest.approx((1.0, 0.1 / 3**0.5))
    assert "is over the differences of the same windows." in report.conversion_note([found])[0]
    for other in (evaluated(tenth, "12 24.4 35.6", data="e"), evaluated(tenth, "12 24.4 35.6", tokens="4 3 5")):
        (apart,) = compare([converted, longest, other])
        assert not apart.is_paired and apart.lower_by is not None
        assert apart.lower_by.stderr == pytest.approx(0.5 * 2**0.5)
    assert "takes the two as independent" in report.conversion_note([apart])[0]
    assert "where both records keep them; else it takes" in report.conversion_note([found, apart])[0]


def test_never_caught_up_is_a_bound(ar: Path) -> None:
    (found,) = compare([conversion({10: 4.0}, ar, elbo=4.0), run("longest", {20: 6.5, 80: 5.0})])
    assert found.times_conversion == CatchUp(8.0, False) and found.same_budget is None and found.lower_by is None
    row = tables.conversion_costs([found])[2]
    assert "| not within 10,240 | > 8.00 | > 1.14 | – |" in row


def test_a_source_that_is_gone_or_foreign_leaves_its_tokens_open(ar: Path) -> None:
    assert tokens_before(conversion({10: 4.0}, ar.parent / "gone")) is None
    assert tokens_before(conversion({10: 4.0}, f"{ar.parent / 'gone'}@30")) is None
    assert tokens_before(conversion({10: 4.0}, f"{ar}@30")) == 30 * 2 * STEP
    (ar / "manifest.json").write_text(json.dumps({"init_from": None, "source": {"model": "somebody/model"}}))
    (found,) = compare([conversion({10: 4.0}, ar), run("longest", {20: 6.5, 80: 3.0})])
    assert found.tokens_before is None and found.times_all is None and found.times_conversion is not None
    assert "What conversion started from is not here" in "\n".join(report.conversion_note([found]))


@pytest.mark.parametrize(
    "other",
    [
        run("seed", {80: 5.0}, seed=1),
        run("deeper", {80: 5.0}, num_layers=3),
        run("taps elsewhere", {80: 5.0}, canon_set="AB"),
        dataclasses.replace(run("data", {80: 5.0}), manifest={"data": {"data_sha256": "e", "tokenizer_sha256": "t"}}),
        dataclasses.replace(run("windows", {80: 5.0}), validations=(validation(80, 5.0, num_windows=8),)),
        dataclasses.replace(run("unfinished", {80: 5.0}), validations=(validation(79, 5.0),)),
        dataclasses.replace(run("blocks", {80: 5.0}), validations=(validation(80, 5.0, block_size=4),)),
    ],
    ids=lambda other: other.name,
)
def test_another_quantity_is_not_compared(other: Run) -> None:
    assert compare([conversion({10: 4.0}), run("same", {80: 5.0})])
    assert compare([conversion({10: 4.0}), other]) == []


def test_validations_of_growing_blocks_are_not_on_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = conversion({5: 3.0, 8: 6.0, 10: 5.5})
    lines = [{**line, "block_size": size} for line, size in zip(growing.validations, (1, 0, 0), strict=True)]
    (found,) = compare([dataclasses.replace(growing, validations=tuple(lines)), run("longest", {20: 6.5, 80: 5.0})])
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda self, path: drawn.append(self))
    figures.conversion([found], tmp_path / "x.png")
    thin = drawn[0].axes[0].lines[0]
    assert (thin.get_xdata().tolist(), thin.get_ydata().tolist()) == ([8 * STEP, 10 * STEP], [6.0, 5.5])


def test_over_seeds_there_is_a_mean_or_a_bound_but_never_a_mean_of_bounds(ar: Path) -> None:
    def seed(i: int, level: float, end: float) -> list[Run]:
        scratch = run("scratch", {20: 6.5, 40: 6.0, 80: end}, seed=i, elbo=end)
        return [conversion({10: level}, ar, seed=i, elbo=level), run("tenth", {10: 7.0}, seed=i, elbo=7.0), scratch]

    everyone = compare([*seed(1, 6.0, 5.0), *seed(0, 6.25, 5.0)])
    assert [c.conversion.config.seed for c in everyone] == [0, 1]
    last = tables.conversion_costs(everyone)[4]
    assert "| 6.125 ± 0.177 | 7.000 ± 0.000 | 0.875 ± 0.177 | 4,480 ± 905 | 3.50 ± 0.71 |" in last
    some = compare([*seed(0, 6.25, 5.0), *seed(1, 5.5, 5.8)])
    last = tables.conversion_costs(some)[4]
    assert "| at least 3,840 (1 of 2 caught up) | at least 3.00 (1 of 2 caught up) |" in last
    assert len(tables.conversion_costs(everyone[:1])) == 4, "one seed has no spread"


def test_the_report_of_twelve_runs_has_the_section_and_a_panel_each(
    ar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for i in range(3):
        four = [conversion({10: 5.5}, ar, seed=i), run("tenth", {10: 7.0}, seed=i), run("scratch", {80: 6.0}, seed=i)]
        causal = replace(four[1].config, objective={"kind": "causal", "block_size": 1, "shift": True})
        four.append(dataclasses.replace(four[1], name="ar", config=causal))
        runs += [dataclasses.replace(one, name=f"{one.name}_{i}") for one in four]
    report.write(runs, tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text("utf-8")
    assert text.startswith("# 12 runs beside one another\n")
    assert "## What a conversion saves" in text and "(report_files/conversion.png)" in text
    assert (tmp_path / "report_files" / "conversion.png").read_bytes().startswith(b"\x89PNG")
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda self, path: drawn.append(self))
    figures.loss(runs, tmp_path / "x.png")
    assert [ax.get_title(loc="left") for ax in drawn[0].axes if ax.get_visible()] == [run.name for run in runs]


def test_a_report_without_runs_from_scratch_has_no_such_section(runs: SimpleNamespace, tmp_path: Path) -> None:
    report.write(read_all([runs.ar, runs.diffusion]), tmp_path / "report.md")
    assert "conversion saves" not in (tmp_path / "report.md").read_text("utf-8")


def test_goals_of_the_quickstart_are_not_set_for_diffusion_from_scratch_or_larger_models() -> None:
    values = {
        "baselines": {"xz": {"bits_per_byte": 2.0}},
        "below_token_frequency": {"nats_per_token": 0.2, "stderr": 0.01},
    }
    manifest = {"parameters": {"total": 2_391_744}}
    converted, scratch = (
        dataclasses.replace(one, manifest=manifest, evaluation=values)
        for one in (run("conversion", {10: 5.5}, kind="convert"), run("scratch", {10: 5.5}))
    )
    assert [line.split(":")[0] for line in report.targets([converted, scratch])] == ["- conversion"]
    large = dataclasses.replace(converted, manifest={"parameters": {"total": 71_344_512}})
    assert report.targets([large]) == []
