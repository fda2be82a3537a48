"""What `evaluate` writes and prints, put together from results; its keys are a contract with those who read it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlm.evaluation import averages
from jaxlm.evaluation.likelihood import Result
from jaxlm.evaluation.statistics import Score

WHOLE_WINDOW = 0
IDENTITY = ("parameter_hash", "dtype", "reading")  # whose answers a record holds
LABELS = {"token_frequency": "token frequencies", "xz": "xz -9", "gzip": "gzip -9"}
_NOTHING = {field.name: None for field in dataclasses.fields(Result) if field.name != "score"} | {"windows": None}


def losses(results: Mapping[int, Result], kind: str, frequency: Score | None) -> dict[str, Any]:
    """The part of the record that is about the model.

    `results` holds a result for each block size, the one that counts first, whose score goes under `windows` (see
    `windows`); without any, every number is None. After a conversion (`kind` "convert") all of them are under
    `loss_by_block_size`, by label. With the score of the token frequencies on the same windows, `below_token_frequency`
    says how far below it the loss is, with the error of the paired difference.
    """
    if not results:
        return dict(_NOTHING)
    first = next(iter(results.values()))
    out = first.to_json() | {"windows": windows(first.score)}
    if kind == "convert":
        labelled = {block_label(size): {"block_size": size, **result.to_json()} for size, result in results.items()}
        out["loss_by_block_size"] = labelled
    if frequency is not None:
        gain = frequency.minus(first.score)
        out["below_token_frequency"] = {"nats_per_token": gain.value, "stderr": gain.stderr}
    return out


def windows(score: Score) -> dict[str, str]:
    """`nats`, `tokens` and `bytes` of N windows in order, the N numbers of each in one string: `401.25 128 ...`.

    Nats have 12 digits, more than the fp32 sums that they are have themselves.
    """
    return {
        "nats": " ".join(f"{nats:.12g}" for nats in score.nats_N),
        "tokens": " ".join(f"{tokens:.0f}" for tokens in score.tokens_N),
        "bytes": " ".join(f"{size:.0f}" for size in score.bytes_N),
    }


def score(record: Mapping[str, Any]) -> Score | None:
    """What the windows of a record cost; None without a loss, and in records from before they were kept."""
    if (kept := record.get("windows")) is None:
        return None
    return Score(*(np.array(kept[name].split(), np.float64) for name in ("nats", "tokens", "bytes")))


def by_source(score: Score, sources_N: npt.NDArray[np.integer], names: Sequence[str]) -> dict[str, Any]:
    """The loss on the windows of each source, by name, out of the score of all of them.

    `sources_N` int [N] says which of `names` each window is from. A source without a window among the N has no loss.
    """
    out: dict[str, Any] = {}
    for index, name in enumerate(names):
        part = score.of(sources_N == index)
        loss, bits = part.nats_per_token if part.tokens_N.sum() else None, part.bits_per_byte
        out[name] = {
            "loss": loss.value if loss else None,
            "stderr": loss.stderr if loss else None,
            "bits_per_byte": bits.value if bits else None,
            "bits_per_byte_stderr": bits.stderr if bits else None,
            "num_tokens": int(part.tokens_N.sum()),
            "num_bytes": int(part.bytes_N.sum()),
            "num_windows": len(part.tokens_N),
        }
    return out


def read(path: Path) -> dict[str, Any] | None:
    """The record in a file; None where there is nothing of that kind."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and "parameter_hash" in found else None


def joined(earlier: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A record with what an earlier one of the same parameters, dtype and reading has beside it; names of that.

    A task that both have is this one's. The text is one thing: loss and baselines come from one record, this one's if
    it has either. Means are computed anew, over the tasks of both.
    """
    if earlier is None or any(earlier.get(key, "") != now.get(key, "") for key in IDENTITY):
        return dict(now), []
    has_text = now["loss"] is not None or now["baselines"] is not None
    kept_text = not has_text and earlier.get("loss") is not None
    kept_tasks = [name for name in earlier.get("tasks") or {} if name not in now["tasks"]]
    tasks = {**{name: earlier["tasks"][name] for name in kept_tasks}, **now["tasks"]}
    items = {**(earlier.get("items") or {}), **now.get("items", {})} if tasks else {}
    out = {**(earlier if kept_text else now), "tasks": tasks, **({"items": items} if items else {})}
    return out | averages.means(tasks), (["loss"] if kept_text else []) + kept_tasks


def block_label(block_size: int) -> str:
    """How a block size is called in the record: `block 32`, `whole window`."""
    return "whole window" if block_size == WHOLE_WINDOW else f"block {block_size}"


def table(record: Mapping[str, Any]) -> str:
    """Losses and baselines as a person reads them; empty without any."""
    rows = []
    name = "ELBO, the loss is at most" if record.get("is_bound") else "loss"
    for label, part in (record.get("loss_by_block_size") or {"": record}).items():
        if part["loss"] is not None:
            rows.append((f"{name} ({label})" if label else name, part))
    by_name = record.get("loss_by_source") or {}
    rows[1:1] = [(f"  on {source}", part) for source, part in by_name.items() if part["loss"] is not None]
    rows += [(LABELS[key], part) for key, part in (record.get("baselines") or {}).items()]
    if not rows:
        return ""
    width = max(len(label) for label, _ in rows)
    lines = [f"{'':<{width}}{'nats per token':>20}{'bits per byte':>20}"]
    for label, part in rows:
        nats = _number(part.get("loss"), part.get("stderr"))
        bits = _number(part["bits_per_byte"], part.get("bits_per_byte_stderr"))
        lines.append(f"{label:<{width}}{nats:>20}{bits:>20}")
    return "\n".join(lines)


def _number(value: float | None, error: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}")
