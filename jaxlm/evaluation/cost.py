"""What it costs to score continuations, told before it begins, and how exact the masks that are drawn are."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxlm.evaluation.continuation import Continuations, LogLikelihood, Request
from jaxlm.evaluation.continuation_masks import ExactCounts, paired_stderr
from jaxlm.generation.result import bucket
from jaxlm.progress import duration, quantity

PILOT = 4  # questions that are answered first, to know how long the others take
_WORTH = 4 * PILOT  # questions, below which no pilot is sent ahead


@dataclass(frozen=True)
class Cost:
    """Work on a list of requests.

    Attributes:
      rows: answers times passes; answers of one token to one context share a row.
      forwards: of many rows each.
      positions: of all forwards, both streams and padding counted.
      shapes: compilations.
    """

    rows: int
    forwards: int
    positions: int
    shapes: int


def cost_of(continuations: Continuations, requests: Sequence[Request], masks: ExactCounts) -> Cost:
    """What scoring these requests under these masks takes. Nothing is run, and nothing drawn."""
    rows, forwards, positions = 0, 0, 0
    plan = continuations.plan(requests)
    for shape, groups in plan.items():
        passes = sum(masks.num_passes(continuations.read_blocks(requests[group[0]])) for group in groups)
        rows_each = min(continuations.rows_per_forward(shape), bucket(passes, 1))
        count = math.ceil(passes / rows_each)
        rows, forwards = rows + passes, forwards + count
        positions += count * rows_each * continuations.row_size(shape)
    return Cost(rows, forwards, positions, len(plan))


def announcement(continuations: Continuations, requests: Sequence[Request], masks: ExactCounts) -> str:
    """One line: how much there is to do, and how much less with fewer masks."""
    cost, cheaper = cost_of(continuations, requests, masks), cheaper_than(masks)
    fewer = cost_of(continuations, requests, cheaper).rows
    questions = len({request.question for request in requests})
    return (
        f"{len(requests):,} answers to {questions:,} questions, up to {masks.draws} masks each (one where an answer is "
        f"one token): {cost.rows:,} rows, {quantity(cost.positions)} tokens, {cost.forwards:,} forwards of "
        f"{cost.shapes} shapes; with mc_samples={cheaper.draws} {fewer:,} rows and "
        f"{math.sqrt(masks.draws / cheaper.draws):.2g} times the Monte-Carlo error"
    )


def cheaper_than(masks: ExactCounts) -> ExactCounts:
    """A quarter of the masks (an even number: they come in pairs), for twice the error."""
    return ExactCounts(max(2, masks.draws // 8 * 2), masks.seed)


def pilot_of(requests: Sequence[Request]) -> list[int]:
    """Numbers of the requests to score first: those of a few questions from everywhere; none where all are few."""
    questions = list(dict.fromkeys(request.question for request in requests))
    if len(questions) < _WORTH:
        return []
    chosen = set(questions[len(questions) // (2 * PILOT) :: len(questions) // PILOT][:PILOT])
    return [number for number, request in enumerate(requests) if request.question in chosen]


def forecast(
    continuations: Continuations,
    left: Sequence[Request],
    masks: ExactCounts,
    pilot: Mapping[int, Sequence[LogLikelihood]],
) -> list[str]:
    """What the pilot, which has just been scored, says about those that are left: hours and errors, also with less.

    Args:
      left: what is not scored yet.
      pilot: the results of each question.
    """
    cheaper = cheaper_than(masks)
    lines = []
    if continuations.positions:
        speed = continuations.positions / continuations.seconds
        times = [duration(cost_of(continuations, left, of).positions / speed) for of in (masks, cheaper)]
        lines.append(
            f"at {quantity(speed)} tok/s (measured here) the rest takes {times[0]} and the compilations; "
            f"with mc_samples={cheaper.draws} {times[1]}"
        )
    if (error := mean_difference_stderr(pilot)) is not None:
        lines.append(
            f"the difference of two answers to a question has a Monte-Carlo standard error of {error:.2g} nats (mean "
            f"of {len(pilot)} questions); with mc_samples={cheaper.draws} about "
            f"{error * math.sqrt(masks.draws / cheaper.draws):.2g}"
        )
    return lines


def mean_difference_stderr(answers: Mapping[int, Sequence[LogLikelihood]]) -> float | None:
    """The mean over all pairs of answers to one question, whose masks are common; None where nothing was drawn."""
    errors = defaultdict(list)
    for question, results in answers.items():
        for one, other in itertools.combinations(results, 2):
            errors[question].append(difference_stderr(one, other))
    if not any(map(any, errors.values())):
        return None
    return float(np.mean([np.mean(of_question) for of_question in errors.values()]))


def difference_stderr(one: LogLikelihood, other: LogLikelihood) -> float:
    """The Monte-Carlo standard error of the difference of two log-likelihoods under common masks, in nats."""
    if one.stderr and other.stderr:
        return paired_stderr(one.nats_P - other.nats_P)
    return max(one.stderr, other.stderr)  # the other one is exact
