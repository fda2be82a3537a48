"""The report: one Markdown file, its pictures in a folder beside it, made from nothing but what the workdirs hold."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlm.study import benchmark_report, figures, tables
from jaxlm.study.conversion_cost import Comparison, compare
from jaxlm.study.results import EVALUATION, GENERATIONS, VERIFICATION, Run

# What a run of the quickstart has to reach, so that a broken training does not pass for a working one.
DIFFUSION_MARGIN = 0.7  # nats per token below the token frequencies
POCKET_PARAMETERS = 10_000_000
NAMES_IN_TITLE = 3


def write(runs: Sequence[Run], out: Path) -> None:
    """Writes the report to `out` and its pictures to `<stem>_files/` beside it, each file whole or not at all."""
    pictures = out.with_name(f"{out.stem}_files")
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.stem}-", dir=out.parent) as name:
        scratch = Path(name)
        report = scratch / out.name
        report.write_text("\n".join(_lines(runs, scratch, pictures.name)).rstrip() + "\n", "utf-8")
        for picture in scratch.glob("*.png"):
            os.replace(picture, pictures / picture.name)
        os.replace(report, out)


def _lines(runs: Sequence[Run], folder: Path, shown_as: str) -> list[str]:
    def picture(name: str, alt: str, shown: Sequence[Any] = runs) -> list[str]:
        getattr(figures, name)(shown, folder / f"{name}.png")
        return [f"![{alt}]({shown_as}/{name}.png)", ""]

    few = len(runs) <= NAMES_IN_TITLE
    title = " beside ".join(run.name for run in runs) if few else f"{len(runs)} runs beside one another"
    lines = [f"# {title}", "", opening(runs), "", "## Held-out text", ""]
    if any(run.evaluation for run in runs):
        lines += [_measured_on(runs), "", *tables.likelihoods(runs), *targets(runs), ""]
        lines += picture("bits_per_byte", "bits per byte of the models, the compressors and the token frequencies")
    lines += _not_run(runs, lambda run: run.evaluation, "evaluate", EVALUATION)
    if any(run.benchmarks for run in runs):
        lines += ["## Benchmarks", "", *benchmark_report.lines(runs)]
        lines += picture("benchmarks", "scores with their standard errors beside chance and the controls")
        lines += _not_run(runs, lambda run: run.benchmarks, "evaluate --tasks", EVALUATION)
    if comparisons := compare(runs):
        lines += [
            "## What a conversion saves",
            "",
            *conversion_note(comparisons),
            *tables.conversion_costs(comparisons),
        ]
        lines += picture("conversion", "validation ELBO over tokens, conversion and from scratch", comparisons)
    lines += ["## Training", "", *tables.training(runs)]
    if any(run.steps for run in runs):
        lines += picture("loss", "loss over training tokens, with validation and the block-size phases of a conversion")
    lines += ["## What they write", ""]
    if any(run.generations for run in runs):
        lines += [*tables.samples(runs), "### How fast", "", _speed_note(), "", *tables.generation_speed(runs)]
        lines += picture("speed", "tokens per second, tokens per pass and time to the first token")
    lines += _not_run(runs, lambda run: run.generations, "generate", GENERATIONS)
    lines += ["## As Hugging Face directories", ""]
    if any(run.verification for run in runs):
        lines += tables.verifications(runs)
    lines += _not_run(runs, lambda run: run.verification, "export --verify", VERIFICATION)
    lines += _data(runs)
    return [*lines, "## Conditions", "", *tables.conditions(runs)]


def opening(runs: Sequence[Run]) -> str:
    """The first paragraph: what is compared, and what it can and cannot show."""
    parts = []
    for run in runs:
        tokens = f"{run.steps[-1]['tokens'] / 1e6:.2f}M tokens" if run.steps else "no logged step"
        what = "a diffusion model" if run.is_diffusion else "an autoregressive model"
        origin = ", made from an autoregressive one" if run.kind == "convert" else ""
        parts.append(f"**{run.name}** ({what}{origin}; {tokens})")
    names = " and ".join([", ".join(parts[:-1]), parts[-1]]) if parts[1:] else parts[0]
    text = f"This report compares {names}: loss on the same held-out text, samples, speed, release."
    if any(_is_pocket(run) for run in runs):
        text += (
            " Models this small are pocket models: they test the machinery, from text to released model, and say"
            " nothing about which architecture is better."
        )
    return text


def targets(runs: Sequence[Run]) -> list[str]:
    """What the quickstart promises of a pocket model and its conversion, with the values and whether it was reached."""
    lines = []
    for run in runs:
        if run.evaluation is None or not run.evaluation.get("baselines") or not _is_pocket(run):
            continue
        if not run.is_diffusion:
            ours, xz = run.evaluation["bits_per_byte"], run.baseline("xz", "bits_per_byte")
            if ours is not None and xz is not None:
                lines.append(
                    f"- {run.name}: bits per byte below `xz -9`: {_verdict(ours < xz)} ({ours:.3f} against {xz:.3f})."
                )
            continue
        if run.kind != "convert":
            continue  # diffusion from scratch learns too slowly for the same promise
        gain = run.evaluation["below_token_frequency"]
        value = tables.number(gain["nats_per_token"], 3, gain["stderr"])
        lines.append(
            f"- {run.name}: ELBO at least {DIFFUSION_MARGIN} nats per token below the token frequencies: "
            f"{_verdict(gain['nats_per_token'] >= DIFFUSION_MARGIN)} ({value} below)."
        )
    return lines


def conversion_note(comparisons: Sequence[Comparison]) -> list[str]:
    """What the table of conversions says, and what it does not."""
    windows = comparisons[0].conversion.validations[-1]["num_windows"]
    lines = [
        "Each conversion stands beside diffusion that was trained from scratch: same architecture, text, seed and "
        "windows; budget and learning rate are each run's own. ELBOs are those of `evaluate` in nats a token, ± one "
        f"standard error over windows. That of the difference {_error_of_difference(comparisons)}.",
        "",
        "*Catches up* is where the validation of the longest run from scratch is first at or below the conversion's "
        f"last one ({windows} windows, the same masks in both), on straight lines between evaluations; *not within N* "
        "is a run of N tokens that never is. A point along that run is not a finished run: its learning rate is still "
        "high there, and a schedule that ends there may end lower. Its own end is in the last column. The study's "
        "tenfold counts the conversion's tokens alone; what was trained is the autoregressive run, too, and with it a "
        "multiple below 1 says that from scratch took fewer. Over seeds: mean ± standard deviation, or, where a seed "
        "did not catch up, a bound and no mean.",
        "",
    ]
    if unknown := [c.conversion.name for c in comparisons if c.tokens_before is None]:
        lines += [f"What {', '.join(unknown)} started from is not here any more: its tokens are not known.", ""]
    return lines


def _error_of_difference(comparisons: Sequence[Comparison]) -> str:
    known = [comparison for comparison in comparisons if comparison.lower_by is not None]
    independent = "takes the two as independent, and on the same windows is too large rather than too small"
    if not any(comparison.is_paired for comparison in known):
        return independent
    if all(comparison.is_paired for comparison in known):
        return "is over the differences of the same windows"
    return f"is over the differences of the same windows where both records keep them; else it {independent}"


def _is_pocket(run: Run) -> bool:
    size = run.manifest.get("parameters", {}).get("total")
    return size is not None and size < POCKET_PARAMETERS


def _verdict(reached: bool) -> str:
    return "**met**" if reached else "**not met**"


def _measured_on(runs: Sequence[Run]) -> str:
    first = next(run.evaluation for run in runs if run.evaluation)
    return (
        f"{first['num_windows']:,} windows of the {first['split']} split, {first['num_bytes']:,} bytes of text. "
        "End-of-text tokens are scored and count as no bytes. Errors are standard errors over windows. A diffusion "
        "model has no exact likelihood here: its ELBO bounds its loss from above. Its noise levels are drawn at "
        "random, and its error includes the noise of the draws."
    )


def _speed_note() -> str:
    return (
        "Medians over the prompts above, compilation excluded. A pass is a forward that decides tokens; cache passes "
        "only fill the cache."
    )


def _not_run(runs: Sequence[Run], part: Any, command: str, name: str) -> list[str]:
    missing = [run.name for run in runs if not part(run)]
    if not missing:
        return []
    return [f"Not run for {', '.join(missing)}: `{command}` (its answer is looked for in `{name}` of the workdir).", ""]


def _data(runs: Sequence[Run]) -> list[str]:
    lines = ["## Data", ""]
    seen: list[dict[str, Any]] = []
    for run in runs:
        if run.statistics is not None and run.statistics not in seen:
            seen.append(run.statistics)
            lines += tables.data(run.statistics)
    return lines if seen else [*lines, "The data directories of these runs are not here any more.", ""]
