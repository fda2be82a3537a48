"""Decoding side by side: from left to right, in transformers, and a canvas filled in several ways, in turns.

In turns, because a machine is not equally fast at all times: each round runs every way once, and the medians over the
rounds are compared. Compilation, loading and one run before the rounds do not count.
"""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from jaxlm.benchmarks import conditions, decode_ways
from jaxlm.benchmarks.decode_quality import Judge, quality
from jaxlm.benchmarks.decode_subjects import Subjects, exported
from jaxlm.benchmarks.decode_table import plot, table
from jaxlm.benchmarks.decode_ways import AR, Way
from jaxlm.benchmarks.worker import Worker
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.generation import Decoded
from jaxlm.generation.result import num_bytes
from jaxlm.progress import Progress
from jaxlm.training import workdir

__all__ = ["Settings", "measure", "plot", "table"]

THEIRS = "AR, cache, transformers"


@dataclass(frozen=True)
class Settings:
    """What is decoded and how often.

    Attributes:
      workdirs, twin: diffusion runs and the autoregressive run of the same architecture and tokenizer; without them
        the model of the configuration with random weights.
      batches: rows decoded together, each a part of the table.
      prompt_tokens, new_tokens: of every row.
      block_size: of the block-causal reading of random weights.
      rounds: of each way that count.
      texts: continuations that the quality of trained models is judged by.
      dtype: compute type.
    """

    workdirs: tuple[str, ...] = ()
    twin: str = ""
    batches: tuple[int, ...] = (1, 32)
    prompt_tokens: int = 32
    new_tokens: int = 100
    block_size: int = 32
    rounds: int = 3
    texts: int = 32
    dtype: str = "float32"


def measure(config: RunConfig | None, settings: Settings) -> dict[str, Any]:
    """Decodes in all ways and says how fast, at what cost, and, of trained models, how well.

    Returns the JSON object of the command: `rows` (see `_row`), `reference` (the text that really follows), and
    `conditions`.

    Raises UserError for models that do not go together, or that have no room for prompt and continuation.
    """
    before = conditions.machine()
    subjects = Subjects.of(config, settings.workdirs, settings.twin, settings.block_size, settings.dtype)
    total = settings.prompt_tokens + settings.new_tokens
    if total > subjects.ar.model.config.max_positions:
        raise UserError(
            f"--prompt_tokens + --new_tokens is {total}, allowed: at most model.max_positions = "
            f"{subjects.ar.model.config.max_positions}"
        )
    there = subjects.by_reading
    known = [w for w in decode_ways.ways(subjects.block_size) if w.reading in there]
    chosen = [way for way in known if subjects.trained or not way.trained_only]
    rows, versions = [], {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jaxlm-decode-")))
        missing = exported(subjects.ar, directory) if _on_cpu_with_torch() else "PyTorch on this device is not measured"
        runs = sum(len(_eligible(chosen, batch)) + (missing is None) for batch in settings.batches)
        progress = stack.enter_context(Progress(runs * (settings.rounds + 1), "decode", unit="run"))
        for batch in settings.batches:
            prompts = subjects.prompts(batch, settings.prompt_tokens, settings.new_tokens)[0]
            with contextlib.ExitStack() as workers:
                worker = None
                if missing is None:
                    job = {"prompts": prompts, "new_tokens": settings.new_tokens, "dtype": settings.dtype}
                    job |= {"directory": str(directory), **subjects.theirs()}
                    worker = workers.enter_context(Worker("jaxlm.benchmarks.theirs_decode", job))
                    versions = worker.facts["versions"]
                rows += _batch(subjects, _eligible(chosen, batch), worker, prompts, settings, progress)
    reference = _judge(subjects, chosen, rows, settings) if subjects.trained else None
    environment = workdir.environment()
    return {
        "what": "decode",
        "family": subjects.ar.model.config.family,
        "parameters": subjects.num_parameters,
        "trained": subjects.trained,
        "rows": rows,
        "reference": reference,
        "transformers_missing": missing,
        "conditions": {
            **before,
            **asdict(settings),
            "device": jax.devices()[0].device_kind,
            **{name: environment[name] for name in ("git_revision", "git_changes")},
            "versions": environment["versions"] | versions,
        },
    }


def _on_cpu_with_torch() -> bool:
    if jax.default_backend() != "cpu":
        return False
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--what=decode needs the package {package}; install the extra: pip install 'jaxlm[hf]'")
    return True


def _eligible(ways: Sequence[Way], batch: int) -> list[Way]:
    return [way for way in ways if not way.batches or batch in way.batches]


def _batch(
    subjects: Subjects,
    ways: Sequence[Way],
    worker: Worker | None,
    prompts: Sequence[Sequence[int]],
    settings: Settings,
    progress: Progress,
) -> list[dict[str, Any]]:
    """The rows of one batch size: every way once uncounted, then the rounds."""
    decoded: dict[str, list[Decoded]] = {}
    seconds: dict[str, list[float]] = {}

    def ours(way: Way) -> float:
        decoded[way.name] = way.decode(subjects.by_reading[way.reading], prompts, settings.new_tokens, seed=0)
        return decoded[way.name][0].seconds

    def theirs() -> float:
        assert worker is not None
        return float(worker.ask({"steps": 1})["seconds"])

    calls: dict[str, Callable[[], float]] = {way.name: (lambda way=way: ours(way)) for way in ways}  # type: ignore[misc]
    if worker is not None:
        calls = {THEIRS: theirs, **calls}
    for number in range(settings.rounds + 1):
        for name, call in calls.items():
            progress.message(f"batch {len(prompts)}, {name}") if number == 0 else None
            took = call()
            if number:
                seconds.setdefault(name, []).append(took)
            progress.update(progress.done + 1)
    tokens = {name: [out.token_ids for out in outs] for name, outs in decoded.items()}
    rows = [_row(way, decoded[way.name], seconds[way.name], settings.new_tokens) for way in ways]
    for way, row in zip(ways, rows, strict=True):
        row["weights_bytes"] = num_bytes(subjects.by_reading[way.reading].params)
        if way.uncached in tokens:
            row["same_tokens"] = decode_ways.agreement(tokens[way.name], tokens[way.uncached])
    if worker is not None:
        rows.insert(0, _blank_row(THEIRS, len(prompts), seconds[THEIRS], settings.new_tokens))
        rows[0]["same_tokens"] = decode_ways.agreement(worker.facts["tokens"], tokens[ways[0].name])
    ar = next(row for row in rows if row["way"] == ways[0].name)["tokens_per_sec"]
    for row in rows:
        row["times_ar"] = row["tokens_per_sec"] / ar
        if row["passes"] is not None:
            # A pass of this kind takes as long as so many tokens from left to right. The slowest row sets the time.
            forwards = max(out.passes + out.cache_passes for out in decoded[row["way"]])
            row["break_even_tokens_per_pass"] = settings.new_tokens / forwards / row["times_ar"]
    return rows


def _blank_row(name: str, batch: int, seconds: Sequence[float], new_tokens: int) -> dict[str, Any]:
    """What the time of a way tells; `rounds` are tokens a second of the whole batch."""
    speeds = [batch * new_tokens / took for took in seconds]
    return {
        "way": name,
        "reading": AR,
        "batch": batch,
        "tokens_per_sec": statistics.median(speeds),
        "rounds": speeds,
        **dict.fromkeys(("seconds_to_first_token", "seconds_to_first_pass", "passes", "cache_passes")),
        **dict.fromkeys(("tokens_per_pass", "break_even_tokens_per_pass", "changed_share", "same_tokens", "quality")),
        **dict.fromkeys(("weights_bytes", "cache_bytes", "logits_bytes")),
    }


def _row(way: Way, decoded: Sequence[Decoded], seconds: Sequence[float], new_tokens: int) -> dict[str, Any]:
    """One way: its times, passes and memory. Of the last round, and means over its rows where rows differ."""
    first = decoded[0]
    mean = {
        name: statistics.fmean(getattr(out, name) for out in decoded)
        for name in ("passes", "cache_passes", "changed_share", "seconds_to_first_token", "seconds_to_first_pass")
    }
    return _blank_row(way.name, len(decoded), seconds, new_tokens) | {
        "reading": way.reading,
        **mean,
        "tokens_per_pass": new_tokens / (mean["passes"] + mean["cache_passes"]),
        "cache_bytes": first.cache_bytes,
        "logits_bytes": first.logits_bytes,
    }


def _judge(
    subjects: Subjects, ways: Sequence[Way], rows: Sequence[dict[str, Any]], settings: Settings
) -> dict[str, Any]:
    """Puts the quality of each way into its rows; the quality of the text that really follows."""
    prompts, real = subjects.prompts(settings.texts, settings.prompt_tokens, settings.new_tokens)
    assert real is not None  # of trained models
    twin = Judge.of(subjects.ar)
    judges = {reading: Judge.of(subject) for reading, subject in subjects.by_reading.items() if reading != AR}
    with Progress(len(ways), "quality", unit="way") as progress:
        for number, way in enumerate(ways):
            decoded = way.decode(subjects.by_reading[way.reading], prompts, settings.new_tokens, seed=0)
            found = quality(judges.get(way.reading), twin, prompts, [out.token_ids for out in decoded])
            for row in rows:
                if row["way"] == way.name:
                    row["quality"] = found
            progress.update(number + 1)
    return quality(None, twin, prompts, real) | {
        "own_elbo": {reading: judge.nats(prompts, real) for reading, judge in judges.items()}
    }
