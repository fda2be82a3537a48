"""The decode benchmark for people: a table in Markdown, and a picture of speed against quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxlm.benchmarks.decode_ways import AR, BLOCK, FULL

HEADER = (
    *("", "batch", "tokens/s", "x AR", "passes (+ cache)", "tokens a pass", "break-even", "first token, ms"),
    *("first pass, ms", "cache, MB", "logits, MB", "same tokens"),
)
QUALITY = ("own ELBO, nats", "perplexity under the twin", "unigram entropy, nats", "changed")
READINGS = (AR, FULL, BLOCK)
AXES = {
    "generative_perplexity": "perplexity under the autoregressive twin",
    "unigram_entropy": "unigram entropy of a text, nats",
    "tokens_per_pass": "tokens a pass",
}
LABELS = {AR: "left to right", FULL: "sees everything", BLOCK: "block-causal"}


def table(result: Mapping[str, Any]) -> str:
    """Everything that was measured, as Markdown, and under what conditions."""
    rows, at = result["rows"], result["conditions"]
    judged = result["trained"]
    header = HEADER + (QUALITY if judged else ())
    lines = [_line(header), _line(["---"] + ["---:"] * (len(header) - 1))]
    lines += [_line(_cells(row) + (_quality(row) if judged else [])) for row in rows]
    if judged:
        reference = result["reference"]
        elbo = ", ".join(f"{LABELS[reading]} {_pm(value)}" for reading, value in reference["own_elbo"].items())
        lines += [
            "",
            f"The text that really follows: ELBO {elbo}; perplexity under the twin "
            f"{reference['generative_perplexity']:.1f}; unigram entropy {reference['unigram_entropy']:.2f}.",
        ]
    versions = at["versions"]
    weights = next(row["weights_bytes"] for row in rows if row["weights_bytes"])
    missing = result["transformers_missing"]
    lines += [
        "",
        f"{result['family']}, {result['parameters']:,} parameters ({weights / 1e6:.0f} MB), "
        f"{'trained' if judged else 'random weights'}, {at['dtype']}; {at['prompt_tokens']} tokens of prompt, "
        f"{at['new_tokens']} new ones, greedy; medians of {at['rounds']} rounds in turns."
        + (f" transformers was not run: {missing}." if missing else ""),
        f"{at['device']}: {at['cpu']}, {at['cores']} cores, load before {at['load_average']:.1f}; "
        + ", ".join(f"{name} {versions[name]}" for name in ("jax", "torch", "transformers") if name in versions)
        + f"; {at['date']}, revision {at['git_revision']}{' with changes' if at['git_changes'] else ''}",
    ]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(row: Mapping[str, Any]) -> list[str]:
    def number(name: str, digits: int, scale: float = 1.0) -> str:
        value = row[name]
        return "" if value is None else f"{value * scale:.{digits}f}"

    passes = "" if row["passes"] is None else f"{row['passes']:.4g} (+ {row['cache_passes']:.3g})"
    return [
        row["way"],
        str(row["batch"]),
        number("tokens_per_sec", 1),
        f"{row['times_ar']:.2f}",
        passes,
        number("tokens_per_pass", 2),
        number("break_even_tokens_per_pass", 2),
        number("seconds_to_first_token", 0, 1e3),
        number("seconds_to_first_pass", 0, 1e3),
        number("cache_bytes", 1, 1e-6),
        number("logits_bytes", 1, 1e-6),
        "" if row["same_tokens"] is None else f"{row['same_tokens']:.1%}",
    ]


def _quality(row: Mapping[str, Any]) -> list[str]:
    found = row["quality"]
    if found is None:
        return [""] * len(QUALITY)
    own = "" if found["own_elbo"] is None else _pm(found["own_elbo"])
    perplexity, entropy = f"{found['generative_perplexity']:.1f}", f"{found['unigram_entropy']:.2f}"
    return [own, perplexity, entropy, f"{row['changed_share']:.1%}" if row["changed_share"] else ""]


def _pm(value: Mapping[str, float | None]) -> str:
    return f"{value['nats']:.2f}" + ("" if value["stderr"] is None else f" ± {value['stderr']:.2f}")


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Speed against quality, if the models are trained, else against tokens a pass: a PNG.

    Quality has two panels, for each can be bought with the other: perplexity by repetition, entropy by noise.
    """
    from matplotlib import rc_context
    from matplotlib.ticker import LogLocator

    from jaxlm.study.figures import BASELINE, COLOURS, STYLE, new_figure

    ours = [row for row in result["rows"] if row["passes"] is not None]
    batches = sorted({row["batch"] for row in ours})
    numbers = {name: number for number, name in enumerate(dict.fromkeys(row["way"] for row in ours), start=1)}
    if result["trained"]:
        panels = [(batches[0], name) for name in ("generative_perplexity", "unigram_entropy")]
    else:
        panels = [(batch, "tokens_per_pass") for batch in batches]
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure, axes = new_figure(6.2 * len(panels), 5.4, len(panels))
        for axis, (batch, what) in zip(axes, panels, strict=True):
            for row in ours:
                if row["batch"] == batch:
                    at = row["tokens_per_sec"], (row["quality"] if result["trained"] else row)[what]
                    axis.scatter(*at, color=COLOURS[READINGS.index(row["reading"])], s=46, zorder=3)
                    axis.annotate(str(numbers[row["way"]]), at, (4, 4), textcoords="offset points", fontsize=9)
            axis.set_xscale("log")
            if what != "unigram_entropy":
                axis.set_yscale("log")
            if result["trained"]:
                axis.axhline(result["reference"][what], color=BASELINE, linestyle="--", label="the real text")
            for scale in (axis.xaxis, axis.yaxis):
                scale.set_major_formatter("{x:g}")
                if scale.get_scale() == "log":
                    scale.set_minor_locator(LogLocator(subs=(2, 3, 5)))  # more labels run into one another
                    scale.set_minor_formatter("{x:g}")
                scale.set_tick_params(which="both", labelsize=8)
            axis.set_xlabel(f"tokens/s, batch {batch}")
            axis.set_ylabel(AXES[what])
        for reading, colour in zip(READINGS, COLOURS, strict=False):
            axes[-1].scatter([], [], color=colour, label=LABELS[reading])
        axes[-1].legend(loc="best", fontsize=8)
        names = [f"{number} {name}" for name, number in numbers.items()]
        figure.supxlabel(_wrapped(names, 78 * len(panels)), fontsize=8, x=0.01, ha="left")
        figure.savefig(path)


def _wrapped(texts: Sequence[str], width: int) -> str:
    lines = [""]
    for text in texts:
        if len(lines[-1]) + len(text) > width:
            lines.append("")
        lines[-1] += text + "    "
    return "\n".join(lines)
