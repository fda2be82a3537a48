"""The report's tables as Markdown, each a list of lines; a number that was not measured is a dash."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any

from jaxlm.evaluation.statistics import Estimate
from jaxlm.study.conversion_cost import CatchUp, Comparison, elbo
from jaxlm.study.results import Run

COMPRESSORS = (("xz", "`xz -9`"), ("gzip", "`gzip -9`"))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 1) -> list[str]:
    """A Markdown table; columns from `numbers_from` on are aligned to the right."""
    rule = ["---" if i < numbers_from else "---:" for i in range(len(header))]
    return ["| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)] + [""]


def number(value: float | None, digits: int = 3, error: float | None = None) -> str:
    """`1.234`, `1.234 ± 0.005`, or a dash."""
    if value is None:
        return "–"
    return f"{value:z,.{digits}f}" + ("" if error is None else f" ± {error:,.{digits}f}")


def text_cell(text: str) -> str:
    """Any text inside a table cell: Markdown's own signs are escaped, lines break, and many empty lines are counted."""
    escaped = re.sub(r"([\\`*_{}\[\]<>#|~&$])", r"\\\1", text.replace("\r", ""))
    escaped = re.sub(r"\n{3,}", lambda run: f"\n*({len(run[0])} line breaks)*\n", escaped)
    return escaped.strip().replace("\n", "<br>")


def likelihoods(runs: Sequence[Run]) -> list[str]:
    """Loss and bits per byte of each run, of the compressors and of the token frequencies."""
    rows = []
    for run in runs:
        e = run.evaluation
        if e is None:
            rows.append([run.name, "not evaluated", *["–"] * 4])
            continue
        kind = "upper bound (ELBO)" if e["is_bound"] else "exact"
        for label, part in (e.get("loss_by_block_size") or {"": e}).items():
            bits = number(part["bits_per_byte"], 3, part["bits_per_byte_stderr"])
            name = f"{run.name}, {label}" if label else run.name
            loss = number(part["loss"], 3, part["stderr"])
            rows.append([name, kind, loss, bits, f"{e['num_tokens']:,}", str(part["draws"])])
    baselines = next((b for run in runs if run.evaluation and (b := run.evaluation.get("baselines"))), None)
    if baselines is not None:
        for key, label in COMPRESSORS:
            rows.append([label, "size of the output", "–", number(baselines[key]["bits_per_byte"]), "–", "–"])
        f = baselines["token_frequency"]
        loss, bits = number(f["loss"], 3, f["stderr"]), number(f["bits_per_byte"], 3, f["bits_per_byte_stderr"])
        rows.append(["token frequencies", "exact", loss, bits, "–", "–"])
    return table(("", "what the number is", "nats per token", "bits per byte", "tokens", "draws"), rows, 2)


def samples(runs: Sequence[Run]) -> list[str]:
    """The continuations of the same prompts side by side."""
    with_text = [run for run in runs if run.generations]
    prompts = list(dict.fromkeys(line["prompt"] for run in with_text for line in run.generations))
    texts = {run.name: {line["prompt"]: line["text"] for line in run.generations} for run in with_text}
    rows = [
        [text_cell(prompt), *(text_cell(texts[run.name].get(prompt, "–")) for run in with_text)] for prompt in prompts
    ]
    return table(("prompt", *(run.name for run in with_text)), rows, len(with_text) + 1)


def generation_speed(runs: Sequence[Run]) -> list[str]:
    """Medians over the prompts, compilation excluded."""
    keys = ("num_new_tokens", "passes", "cache_passes", "tokens_per_pass", "tokens_per_sec", "seconds_to_first_token")
    rows = []
    for run in runs:
        if run.generations:
            m = {key: float(median(line[key] for line in run.generations)) for key in keys}
            rows.append([
                run.name, str(len(run.generations)), number(m["num_new_tokens"], 0), number(m["passes"], 0),
                number(m["cache_passes"], 0), number(m["tokens_per_pass"], 2), number(m["tokens_per_sec"], 1),
                number(1e3 * m["seconds_to_first_token"], 1),
            ])  # fmt: skip
    header = ("", "prompts", "new tokens", "passes", "cache passes", "tokens per pass", "tokens/s", "first token (ms)")
    return table(header, rows)


def training(runs: Sequence[Run]) -> list[str]:
    """What was trained, on how much, how fast; time is that of the steps, compilation apart."""
    rows = []
    for run in runs:
        train, model = run.config.train, run.config.model
        counts = run.manifest.get("parameters", {})
        speeds = [line["tokens_per_sec"] for line in run.steps if line.get("tokens_per_sec")]
        tokens = run.steps[-1]["tokens"] if run.steps else None
        speed = median(speeds) if speeds else None
        rows.append(
            [
                run.name,
                run.kind,
                f"{model.family} {model.num_layers} x {model.hidden_size}",
                number(counts.get("total"), 0),
                number(counts.get("non_embedding"), 0),
                number(tokens, 0),
                f"{train.num_steps:,} of {train.batch_size} x {train.seq_len}",
                number(speed, 0),
                number(tokens / speed if tokens and speed else None, 0),
                number(sum(line.get("compile_seconds", 0.0) for line in run.steps), 0),
            ]
        )
    header = ("", "command", "model", "parameters", "outside the embedding", "tokens", "steps", "tokens/s", "steps (s)")
    return table((*header, "compilation (s)"), rows, 3)


def data(statistics: Mapping[str, Any]) -> list[str]:
    """Documents, bytes and tokens by source, and what cleaning removed."""
    sources, keys = {**statistics["by_source"], "**all**": statistics}, ("documents", "bytes", "tokens")
    rows = []
    for name, part in sources.items():
        share = part["tokens"] / statistics["tokens"] if statistics["tokens"] else 0.0
        bytes_a_token = part["bytes"] / part["tokens"] if part["tokens"] else None
        rows.append([name, *(f"{part[key]:,}" for key in keys), f"{100 * share:.1f}%", number(bytes_a_token, 2)])
    lines = table(("source", *keys, "share of tokens", "bytes per token"), rows)
    removed = ", ".join(f"{why.replace('_', ' ')} {count:,}" for why, count in statistics["removed"].items())
    return lines + ([f"Documents removed: {removed}.", ""] if removed else [])


def conditions(runs: Sequence[Run]) -> list[str]:
    """Device, versions, code, data and seed of each run: what it depends on beside its configuration."""
    columns = [condition(run) for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [[name, *(column.get(name, "–") for column in columns)] for name in names]
    return table(("", *(run.name for run in runs)), rows, len(runs) + 1)


def condition(run: Run) -> dict[str, str]:
    """Device, versions, code, data and seed of one run, by name."""
    manifest = run.manifest
    devices, revision = manifest.get("devices", {}), manifest.get("git_revision")
    execution, data, source = manifest.get("execution", {}), manifest.get("data", {}), manifest.get("init_from")
    versions = {name: version for name, version in manifest.get("versions", {}).items() if version}
    return {
        "device": f"{devices.get('count', '?')} x {devices.get('kind', '?')}",
        "platform": str(manifest.get("platform", "?")),
        "arithmetic": f"{execution.get('dtype', '?')}, attention {execution.get('attention', '?')}",
        "seed": str(run.config.seed),
        "started from": f"{source['source']}, step {source['step']}" if source else "random parameters",
        "code": f"{revision[:12]}{', changed' if manifest.get('git_changes') else ''}"
        if revision
        else "no git revision",
        "data": str(data.get("data_sha256", "?"))[:12],
        "tokenizer": str(data.get("tokenizer_sha256", "?"))[:12],
        "evaluated parameters": f"{run.evaluation['parameter_hash'][:12]}, step {run.evaluation['step']}"
        if run.evaluation
        else "–",
        "Python": str(manifest.get("python", "?")),
        **versions,
    }


def verifications(runs: Sequence[Run]) -> list[str]:
    """What `export --verify` found: the largest difference of logits, and every check with its outcome."""
    lines = []
    for run in runs:
        if (v := run.verification) is not None:
            lines += [
                f"**{run.name}**, step {v['step']}, in transformers {v['transformers']} with PyTorch {v['torch']}: "
                f"largest logit difference {v['max_logit_difference']:.1e}, allowed {v['tolerance']:.0e}.",
                "",
                *(f"- {'ok' if ok else '**failed**'}: {what}" for what, ok in v["checks"].items()),
                "",
            ]
    return lines


def conversion_costs(comparisons: Sequence[Comparison]) -> list[str]:
    """Each conversion beside diffusion from scratch, and what they have in common over the seeds."""
    rows = [
        [
            c.conversion.name,
            str(c.conversion.config.seed),
            _estimate(elbo(c.conversion)),
            _estimate(elbo(c.same_budget)),
            _estimate(c.lower_by),
            _catch_up(c.catch_up, 0, "not within {}"),
            _catch_up(c.times_conversion, 2, "> {}"),
            _catch_up(c.times_all, 2, "> {}"),
            _estimate(elbo(c.longest)),
        ]
        for c in comparisons
    ]
    if len(comparisons) > 1:
        rows.append(
            [
                "**mean ± s.d.**",
                f"{len(comparisons)} runs",
                _spread([elbo(c.conversion) for c in comparisons]),
                _spread([elbo(c.same_budget) for c in comparisons]),
                _spread([c.lower_by for c in comparisons]),
                _spread_of_catch_ups([c.catch_up for c in comparisons], 0),
                _spread_of_catch_ups([c.times_conversion for c in comparisons], 2),
                _spread_of_catch_ups([c.times_all for c in comparisons], 2),
                _spread([elbo(c.longest) for c in comparisons]),
            ]
        )
    header = (
        *(
            "conversion",
            "seed",
            "its ELBO",
            "from scratch, same tokens",
            "lower by",
            "scratch catches up after (tokens)",
        ),
        *("times its tokens", "times AR's and its tokens", "longest from scratch, at its end"),
    )
    return table(header, rows)


def _estimate(estimate: Estimate | None) -> str:
    return number(None) if estimate is None else number(estimate.value, 3, estimate.stderr)


def _catch_up(found: CatchUp | None, digits: int, bound: str) -> str:
    if found is None:
        return number(None)
    text = number(found.tokens, digits)
    return text if found.reached else bound.format(text)


def _spread(estimates: Sequence[Estimate | None]) -> str:
    """Mean and standard deviation, a dash where one is missing: a mean over fewer would look like one over all."""
    values = [e.value for e in estimates if e is not None]
    return number(mean(values), 3, stdev(values)) if len(values) == len(estimates) else number(None)


def _spread_of_catch_ups(found: Sequence[CatchUp | None], digits: int) -> str:
    """The same; with bounds among them no mean, but the least, which then is a bound for all."""
    known = [f for f in found if f is not None]
    if len(known) < len(found):
        return number(None)
    values = [f.tokens for f in known]
    if all(f.reached for f in known):
        return number(mean(values), digits, stdev(values))
    return f"at least {number(min(values), digits)} ({sum(f.reached for f in known)} of {len(known)} caught up)"
