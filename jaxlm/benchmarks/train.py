"""A training step, jaxlm's beside that of the same architecture in transformers, in turns on the same CPU.

In turns, because a machine is not equally fast at all times: what disturbs a round of one disturbs the next round of
the other as well. The medians over the rounds are compared. The first step of every round is not timed: while the other
side worked, the system took back the memory of this one, and to get it again costs seconds that a run does not spend.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jaxlm import config as configs
from jaxlm import fields
from jaxlm.benchmarks import conditions
from jaxlm.benchmarks.worker import Worker
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.families import resolve
from jaxlm.progress import Progress
from jaxlm.release import tables
from jaxlm.release.formats import Format

OURS, THEIRS = "jaxlm", "transformers"


@dataclass(frozen=True)
class Settings:
    """Rows and positions of a batch, rounds of each side that count, steps of a round, compute type."""

    batch: int = 2
    seq_len: int = 512
    rounds: int = 5
    steps: int = 3
    dtype: str = "float32"


def measure(config: RunConfig, settings: Settings) -> dict[str, Any]:
    """Trains both for a while and says how fast.

    A step is forward, loss, backward, clipping (if the configuration clips) and AdamW over batch x seq_len random
    tokens. Not measured: building, compiling (told apart), the very first step (told apart), the first of each round.
    A model that no class of transformers is exactly is measured alone, and `reference_missing` says why. Losses that a
    model has beside its own (those of a router) are only on our side.

    Returns:
      The JSON object of the command: both sides under their names (see `summary`), `ratio` of their medians, and
      `conditions`.

    Raises:
      UserError: a configuration that does not fit, or a package that is missing.
      RuntimeError: the two models have not the same number of parameters, or a loss is not finite.
    """
    config = at_size(config, settings)
    reference, missing = reference_class(config)
    jobs: dict[str, tuple[str, Any]] = {OURS: ("jaxlm.benchmarks.ours", {"config": fields.to_dict(config)})}
    if reference is not None:
        jobs[THEIRS] = ("jaxlm.benchmarks.theirs", their_job(config, reference))
    before = conditions.machine()
    facts, answers = in_turns(jobs, settings)
    tokens = config.train.batch_tokens * settings.steps
    sides = {name: summary(tokens, facts[name], answers[name]) for name in jobs}
    ours, theirs = sides[OURS], sides.get(THEIRS)
    return {
        "what": "train",
        "family": config.model.family,
        "reference": None if reference is None else reference.name,
        "reference_missing": missing,
        "ratio": None if theirs is None else ours["tokens_per_sec"] / theirs["tokens_per_sec"],
        OURS: ours,
        THEIRS: theirs,
        "conditions": {
            **before,
            **asdict(settings),
            "clip_norm": config.optimizer.clip_norm,
            "threads": {name: found["threads"] for name, found in facts.items()},
            **facts[OURS]["environment"],
            "versions": {name: version for found in facts.values() for name, version in found["versions"].items()},
        },
    }


def in_turns(
    jobs: Mapping[str, tuple[str, Any]], settings: Settings
) -> tuple[dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Starts a worker for each job, (module, what it builds from), and lets one after the other work.

    Returns the facts of each, and its answers: to the very first step, and to the rounds.
    """
    total = settings.rounds * len(jobs)
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(total, "benchmark", unit="round"))
        workers = {}
        for name, (module, job) in jobs.items():
            progress.message(f"{name}: building the model" + (", compiling its step" if name == OURS else ""))
            workers[name] = stack.enter_context(Worker(module, job))
        facts = {name: worker.facts for name, worker in workers.items()}
        check_parameters(facts)
        answers = {name: [checked(name, worker.ask({"steps": 1}))] for name, worker in workers.items()}
        for done in range(total):
            name = list(workers)[done % len(workers)]
            workers[name].ask({"steps": 1})
            answers[name].append(checked(name, workers[name].ask({"steps": settings.steps})))
            progress.update(done + 1, **{name: f"{answers[name][-1]['seconds'] / settings.steps:.2f} s a step"})
    return facts, answers


def at_size(config: RunConfig, settings: Settings) -> RunConfig:
    """The configuration on one device, with the benchmark's batch as one forward."""
    tokens = settings.batch * settings.seq_len
    return configs.replace(
        config,
        train={
            "batch_tokens": tokens,
            "seq_len": settings.seq_len,
            "micro_batch": 0,
            "total_tokens": max(config.train.total_tokens, tokens),
        },
        execution={"dtype": settings.dtype, "data_parallel": 1, "fsdp": 1},
    )


def reference_class(config: RunConfig) -> tuple[Format | None, str | None]:
    """The class of transformers that is the model exactly; if there is none, what the nearest ones lack.

    Raises UserError where there is one and PyTorch or transformers are not installed.
    """
    model, against = resolve(config.model), {}
    for name in tables.NATIVE:
        found = tables.get(name)
        assert found.reasons is not None
        against[found] = found.reasons(model)
        if config.objective.kind != "causal":
            against[found].append(f"objective.kind is {config.objective.kind!r} (it has 'causal')")
    fewest = min(map(len, against.values()))
    nearest = {found: reasons for found, reasons in against.items() if len(reasons) == fewest}
    if fewest:
        return None, "; ".join(f"{found.name}: {', '.join(reasons)}" for found, reasons in nearest.items())
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--what=train needs the package {package}; install the extra: pip install 'jaxlm[hf]'")
    return next(iter(nearest)), None


def their_job(config: RunConfig, reference: Format) -> dict[str, Any]:
    """What the other worker builds from."""
    assert reference.to_config is not None
    return {
        "class_name": reference.name,
        "model": reference.to_config(resolve(config.model)),
        "train": fields.to_dict(config.train),
        "optimizer": fields.to_dict(config.optimizer),
        "dtype": config.execution.dtype,
        "seed": config.seed,
    }


def check_parameters(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Two models of different sizes are not to be compared."""
    counts = {name: found["parameters"] for name, found in facts.items()}
    if len(set(counts.values())) > 1:
        raise RuntimeError(f"the models have not the same number of parameters: {counts}")


def checked(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, whose losses are finite: a step that gives something else is no work to be timed."""
    if not all(map(math.isfinite, answer["losses"])):
        raise RuntimeError(f"the loss of {name} is not finite: {answer['losses']}")
    return answer


def summary(tokens: int, facts: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One side, whose rounds have so many tokens: the median speed and each round's, and what else it costs."""
    first, *rounds = answers
    speeds = [tokens / answer["seconds"] for answer in rounds]
    return {
        "tokens_per_sec": statistics.median(speeds),
        "rounds": speeds,
        "compile_seconds": facts.get("compile_seconds"),
        "first_step_seconds": first["seconds"],
        "peak_bytes": rounds[-1]["peak_bytes"],
        "parameters": facts["parameters"],
        "attention": facts["attention"],
        "loss": {"first": first["losses"][0], "last": rounds[-1]["losses"][-1]},
    }


def table(result: Mapping[str, Any]) -> str:
    """The result for people."""
    there = [name for name in (OURS, THEIRS) if result[name]]
    sides, at, versions = [result[name] for name in there], result["conditions"], result["conditions"]["versions"]

    def row(label: str, texts: list[str]) -> str:
        return f"{label:<28}" + "".join(f"{text:>20}" for text in texts)

    lines = [
        f"training step of {result['family']}, {at['dtype']}, batch {at['batch']} x {at['seq_len']}, "
        f"{at['rounds']} rounds of 1 + {at['steps']} steps",
        row("", there),
        row("tokens per second, median", [f"{side['tokens_per_sec']:.1f}" for side in sides]),
        row("  slowest, fastest round", [f"{min(side['rounds']):.1f}, {max(side['rounds']):.1f}" for side in sides]),
        row("compilation, s", ["-" if (s := side["compile_seconds"]) is None else f"{s:.1f}" for side in sides]),
        row("first step, s", [f"{side['first_step_seconds']:.2f}" for side in sides]),
        row("peak memory, GB", [f"{side['peak_bytes'] / 1e9:.2f}" for side in sides]),
        row("parameters", [f"{side['parameters']:,}" for side in sides]),
        row("attention", [side["attention"] for side in sides]),
        "",
        f"no class of transformers is this model: {result['reference_missing']}"
        if result["reference"] is None
        else f"{result['ratio']:.3f} times as fast as {result['reference']}, eager",
        "",
        f"{at['cpu']}, {at['cores']} cores, load before {at['load_average']:.1f}, "
        + ", ".join(f"{name}={value}" for name, value in at["allocator"].items()),
        ", ".join(f"{name} {versions[name]}" for name in ("jax", "torch", "transformers") if name in versions)
        + f"; {at['date']}, revision {at['git_revision']}{' with changes' if at['git_changes'] else ''}",
    ]
    return "\n".join(lines)
