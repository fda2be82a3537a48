"""The block-size schedule of a conversion from autoregression to diffusion.

LLaDA2.0 (arXiv 2512.15745, section 2): warmup through growing blocks, a stable phase in which the whole window is one
block, and an optional decay to small blocks again. How many steps each took is not published; here they are fields.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from jaxlm.config import ConvertConfig, RunConfig, TrainConfig
from jaxlm.evaluation.record import block_label
from jaxlm.fields import require

WHOLE_WINDOW = 0


@dataclass(frozen=True)
class Phase:
    """Updates start+1..stop of a run use `block_size`: 1, b, or 0 for the whole window."""

    start: int
    stop: int
    block_size: int


def phases_of(config: RunConfig, kind: str) -> list[Phase]:
    """The phases of a run: those of a conversion, else a single one with the objective's own block size."""
    if kind == "convert":
        return phases(config.convert, config.train)
    return [Phase(0, config.train.num_steps, config.objective.block_size or WHOLE_WINDOW)]


def phases(config: ConvertConfig, train: TrainConfig) -> list[Phase]:
    """The phases of a conversion, in order and without gaps, over exactly `train.num_steps` updates.

    Warmup and decay get the whole steps that fit into their share or their tokens, so that they never exceed them.
    A block size for which a share leaves no step is left out, so that one recipe serves short runs too; tokens are
    meant as they are written, and ConfigError is raised where they do not give every block size of theirs a step, or
    are more than there are.
    """
    num_steps = train.num_steps
    lengths = {}
    for group, block_sizes in (("warmup", config.block_sizes), ("decay", config.decay_block_sizes)):
        tokens: int | None = getattr(config, f"{group}_tokens")
        share: float = getattr(config, f"{group}_share") if block_sizes else 0
        lengths[group] = math.floor(share * num_steps) if tokens is None else tokens // train.batch_tokens
    warmup, decay = lengths.values()
    require(
        warmup + decay <= num_steps,
        f"warmup and decay of convert are {warmup:,} and {decay:,} steps of {train.batch_tokens:,} tokens, allowed: "
        f"together at most the {num_steps:,} of train.total_tokens = {train.total_tokens:,} (the fields are "
        "convert.warmup_tokens, convert.decay_tokens, and the shares)",
    )
    groups = {
        "warmup": _parts(config.block_sizes, config.warmup_parts, 0, warmup),
        "decay": _parts(config.decay_block_sizes, config.decay_parts, num_steps - decay, num_steps),
    }
    for group, found in groups.items():
        tokens = getattr(config, f"{group}_tokens")
        empty = [phase.block_size for phase in found if phase.start == phase.stop]
        require(
            tokens is None or not empty,
            f"convert.{group}_tokens is {tokens}, which leaves no step for blocks of {', '.join(map(str, empty))}, "
            f"allowed: at least train.batch_tokens = {train.batch_tokens} for each of {len(found)} phases",
        )
    stable = Phase(warmup, num_steps - decay, WHOLE_WINDOW)
    return [phase for phase in (*groups["warmup"], stable, *groups["decay"]) if phase.start < phase.stop]


def phase_at(all_phases: Sequence[Phase], step: int) -> Phase:
    """The phase of the update that follows `step` updates."""
    return next(phase for phase in all_phases if phase.start <= step < phase.stop)


def describe(all_phases: Sequence[Phase], batch_tokens: int) -> str:
    """One line: block size, steps and tokens of each phase."""
    texts = []
    for phase in all_phases:
        steps = phase.stop - phase.start
        texts.append(
            f"{block_label(phase.block_size)}, {steps:,} step{'s' * (steps > 1)} ({steps * batch_tokens:,} tokens)"
        )
    return f"phases: {'; '.join(texts)}"


def _parts(block_sizes: Sequence[int], parts: Sequence[float], start: int, stop: int) -> list[Phase]:
    # In fractions of what was written: 0.1 + 0.2 is no longer 0.3 in binary, and a floor would lose a step to that.
    lengths = [Fraction(str(part)) for part in parts] or [Fraction(1)] * len(block_sizes)
    ends = list(itertools.accumulate(lengths, initial=Fraction(0)))
    edges = [start + math.floor((stop - start) * end / ends[-1]) for end in ends] if block_sizes else []
    return [Phase(a, b, size) for a, b, size in zip(edges, edges[1:], block_sizes, strict=False)]
