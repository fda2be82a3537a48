"""What a conversion saves: how far it comes with its tokens, and how many diffusion from scratch needs for the same.

The study puts it at tenfold, 100M tokens against 1B, and leaves out the autoregressive run that the conversion starts
from (its section on WSD conversion). Here both are counted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxlm.errors import UserError
from jaxlm.evaluation import record
from jaxlm.evaluation.statistics import Estimate, Score
from jaxlm.families.registry import family
from jaxlm.study.results import Run, read


@dataclass(frozen=True)
class CatchUp:
    """Tokens after which a run was as good; where it never was (`reached` False) all of its tokens, a lower bound."""

    tokens: float
    reached: bool

    def over(self, tokens: int) -> CatchUp:
        """The same as a multiple of `tokens`."""
        return CatchUp(self.tokens / tokens, self.reached)


@dataclass(frozen=True)
class Comparison:
    """A conversion and diffusion from scratch under the same seed.

    Attributes:
      conversion: a finished conversion.
      same_budget: from scratch, on as many tokens; of several the one that ended best. None: there is no such run.
      longest: from scratch, the run with most tokens, more than the conversion's. None: there is no such run.
      tokens_before: what the conversion's source was trained on; None where that is not known (any more).
    """

    conversion: Run
    same_budget: Run | None
    longest: Run | None
    tokens_before: int | None

    @property
    def lower_by(self) -> Estimate | None:
        """Nats a token by which the conversion's evaluated ELBO is below that of `same_budget`; None where not known.

        The error is that of the paired differences of the windows (`is_paired`), else that of independent losses, which
        on the same windows is too large.
        """
        if (pair := self._pair) is not None:
            return pair[1].minus(pair[0])
        ours, theirs = elbo(self.conversion), elbo(self.same_budget)
        if ours is None or theirs is None:
            return None
        error = None if ours.stderr is None or theirs.stderr is None else math.hypot(ours.stderr, theirs.stderr)
        return Estimate(theirs.value - ours.value, error)

    @property
    def is_paired(self) -> bool:
        """Whether both records keep the losses of the same windows."""
        return self._pair is not None

    @property
    def _pair(self) -> tuple[Score, Score] | None:
        """What the same windows cost the conversion and `same_budget`."""
        first = self.conversion.evaluation
        second = None if self.same_budget is None else self.same_budget.evaluation
        if first is None or second is None or _text(first) != _text(second):
            return None
        ours, theirs = record.score(first), record.score(second)
        if ours is None or theirs is None or not np.array_equal(ours.tokens_N, theirs.tokens_N):
            return None
        return ours, theirs

    @property
    def catch_up(self) -> CatchUp | None:
        """Tokens that `longest` took to be where the conversion ended, both by the validation of training."""
        if self.longest is None:
            return None
        return first_at_or_below(validation_curve(self.longest), self.conversion.validations[-1]["loss"])

    @property
    def times_conversion(self) -> CatchUp | None:
        """`catch_up` over the conversion's tokens: what the study counts."""
        return self.catch_up and self.catch_up.over(_budget(self.conversion))

    @property
    def times_all(self) -> CatchUp | None:
        """`catch_up` over the tokens of the source and the conversion: what was trained."""
        if self.tokens_before is None or self.catch_up is None:
            return None
        return self.catch_up.over(self.tokens_before + _budget(self.conversion))


def compare(runs: Sequence[Run]) -> list[Comparison]:
    """Each finished conversion that has runs from scratch beside it, in the order of seeds.

    From scratch is a finished diffusion run that started from random parameters, with the seed, the architecture (names
    of one architecture are the same), the objective, the data and the validation windows of the conversion.
    """
    finished = [run for run in runs if run.is_diffusion and _is_finished(run)]
    found = []
    for conversion in finished:
        if conversion.kind != "convert":
            continue
        scratch = [
            run
            for run in finished
            if run.kind == "train" and run.manifest.get("init_from") is None and _setting(run) == _setting(conversion)
        ]
        if scratch:
            budget, longest = _budget(conversion), max(scratch, key=_budget)
            same = [run for run in scratch if _budget(run) == budget]
            found.append(
                Comparison(
                    conversion,
                    min(same, key=lambda run: run.validations[-1]["loss"]) if same else None,
                    longest if _budget(longest) > budget else None,
                    tokens_before(conversion),
                )
            )
    return sorted(found, key=lambda comparison: comparison.conversion.config.seed)


def elbo(run: Run | None) -> Estimate | None:
    """The evaluated ELBO of a run in nats a token; None where there is none."""
    if run is None or run.evaluation is None:
        return None
    return Estimate(run.evaluation["loss"], run.evaluation["stderr"])


def validation_curve(run: Run) -> list[tuple[int, float]]:
    """(tokens, loss) of each validation with the block size of the last: another block size is another quantity."""
    last = _block_size(run, run.validations[-1])
    return [(run.tokens_at(line["step"]), line["loss"]) for line in run.validations if _block_size(run, line) == last]


def first_at_or_below(curve: Sequence[tuple[int, float]], level: float) -> CatchUp:
    """Where `curve`, (tokens, loss) in order, first comes to `level`, on straight lines between its points.

    A curve whose first point is there already may have come earlier; the tokens are those of this point.
    """
    before: tuple[int, float] | None = None
    for tokens, loss in curve:
        if loss <= level:
            if before is None:
                return CatchUp(tokens, True)
            share = (before[1] - level) / (before[1] - loss)
            return CatchUp(before[0] + share * (tokens - before[0]), True)
        before = (tokens, loss)
    return CatchUp(curve[-1][0], False)


def tokens_before(run: Run) -> int | None:
    """Tokens behind the parameters that a run started from, 0 for random ones.

    None where they are not known: weights from outside, or a source whose workdir is not there any more.
    """
    if run.manifest.get("source") is not None:
        return None
    source = run.manifest.get("init_from")
    if source is None:
        return 0
    spec = source["source"]
    if not Path(spec).exists() and "@" in spec:  # WORKDIR@STEP
        spec = spec.rpartition("@")[0]
    try:
        started_from = read(spec)
    except UserError:
        return None
    earlier = tokens_before(started_from)
    return None if earlier is None else earlier + started_from.tokens_at(source["step"])


def _budget(run: Run) -> int:
    return run.tokens_at(run.config.train.num_steps)


def _block_size(run: Run, validation: Mapping[str, Any]) -> int:
    # Only a conversion writes it down: elsewhere it never changes.
    return int(validation.get("block_size", run.config.objective.block_size))


def _text(evaluation: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two records share whose windows are the same, but for how many of them were taken."""
    conditions = evaluation.get("conditions", {})
    return evaluation.get("split"), conditions.get("data_sha256"), conditions.get("tokenizer_sha256")


def _is_finished(run: Run) -> bool:
    return bool(run.validations) and run.validations[-1]["step"] == run.config.train.num_steps


def _setting(run: Run) -> tuple[Any, ...]:
    """What two runs share whose validation losses are the same quantity, under the same masks."""
    model, data, last = run.config.model, run.manifest.get("data", {}), run.validations[-1]
    return (
        run.config.seed,
        family(model.family).block,
        dataclasses.replace(model, family=""),
        dataclasses.replace(run.config.objective, block_size=_block_size(run, last)),
        run.config.data.isolate_documents,
        data.get("data_sha256"),
        data.get("tokenizer_sha256"),
        last["num_windows"],
    )
