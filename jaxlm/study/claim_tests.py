"""How a claim is tested on a study: which differences it takes, and what follows from them.

A claim of a size holds where the difference is found in its direction and is of that size; it does not hold where the
interval ends below the size, or the difference is found the other way. A difference that is found and smaller, with
the size still in its interval, is said to be that. Between these a study is too small to say. A claim that there is no
difference holds where every interval lies within what counts as none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, ClassVar, Protocol

from jaxlm.study.cells import Study
from jaxlm.study.comparisons import Difference, corrected, words
from jaxlm.study.conversion_cost import CatchUp
from jaxlm.study.conversion_cost import compare as conversions
from jaxlm.study.published import HIGH, SWEEP, Published
from jaxlm.study.variance import LEVEL, Error

HOLDS, FAILS, OPEN, UNTESTED = "holds", "does not hold", "no difference at this size", "not tested"
SMALLER = "a smaller one is found"  # and the claimed size is not excluded
MEAN, TRUTH = "mean", "truth"  # the study's own, see `EvaluateConfig`
Pair = tuple[str, str, str]  # rows, the reference first, and the measure
Judgement = tuple[str, str]  # the verdict, and why


class Test(Protocol):
    """What a claim is tested by.

    With `is_corrected` its differences are corrected with those of all such claims, else for one another.
    """

    is_corrected: ClassVar[bool]

    def pairs(self) -> list[Pair]:
        """The differences it takes."""

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        """What follows from them, in the order of `pairs`."""


def measure_of(study: Study, measure: str) -> str:
    """The study's own mean or task for `MEAN` and `TRUTH`."""
    return {MEAN: study.config.evaluate.mean, TRUTH: study.config.evaluate.truth}.get(measure, measure)


def _all(differences: Sequence[Difference]) -> str:
    return "; ".join(f"{d.second} against {d.first}: {words(d)}" for d in differences)


@dataclass(frozen=True)
class Better:
    """The second row is better than the first, by `size` (of the unit of the measure)."""

    first: str
    second: str
    measure: str
    size: float = 0.0
    is_corrected: ClassVar[bool] = True

    def pairs(self) -> list[Pair]:
        return [(self.first, self.second, self.measure)]

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        (d,) = differences
        claimed = f", claimed {self.size:g}" if self.size else ""
        return _of_size(d, self.size), f"{_all(differences)}{claimed}"


def _of_size(d: Difference, size: float) -> str:
    if (d.is_found and d.gain < 0) or (size and d.gain + d.half_width < size):
        return FAILS
    if not d.is_found:
        return OPEN
    return HOLDS if d.gain >= size else SMALLER


@dataclass(frozen=True)
class Best:
    """One of the champions is better than every rival."""

    champions: tuple[str, ...]
    rivals: tuple[str, ...]
    measure: str
    is_corrected: ClassVar[bool] = True

    def pairs(self) -> list[Pair]:
        return [(rival, champion, self.measure) for champion in self.champions for rival in self.rivals]

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        of = [[d for d in differences if d.second == champion] for champion in self.champions]
        lost = [[d for d in mine if d.is_found and d.gain < 0] for mine in of]
        won = [[d for d in mine if d.is_found and d.gain > 0] for mine in of]
        text = "; ".join(
            f"{champion} is found better than {len(w)} and worse than {len(n)} of {len(self.rivals)}"
            for champion, w, n in zip(self.champions, won, lost, strict=True)
        )
        closest = min((d for mine in of for d in mine), key=lambda d: d.gain)
        text += f"; furthest behind: {closest.second} against {closest.first}, {words(closest)}"
        if any(len(w) == len(self.rivals) for w in won):
            return HOLDS, text
        return (FAILS if all(lost) else OPEN), text


@dataclass(frozen=True)
class Wins:
    """The second row is better than the first on `at_least` of these tasks."""

    first: str
    second: str
    tasks: tuple[str, ...]
    at_least: int
    is_corrected: ClassVar[bool] = True

    def pairs(self) -> list[Pair]:
        return [(self.first, self.second, task) for task in self.tasks]

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        ahead = sum(d.gain > 0 for d in differences)
        won = [d for d in differences if d.is_found and d.gain > 0]
        lost = [d for d in differences if d.gain + d.half_width < 0]
        text = (
            f"{self.second} is ahead of {self.first} on {ahead} of {len(differences)} tasks, found better on {len(won)}"
            f"{_named(won)}; on {len(lost)}{_named(lost)} its interval lies below 0"
        )
        if len(won) >= self.at_least:
            return HOLDS, text
        return (FAILS if len(differences) - len(lost) < self.at_least else OPEN), text


def _named(differences: Sequence[Difference]) -> str:
    return f" ({', '.join(d.measure for d in differences)})" if differences else ""


@dataclass(frozen=True)
class Same:
    """No two of the compared rows differ by more than `within` points."""

    compared: tuple[tuple[str, str], ...]
    measure: str
    within: float
    is_corrected: ClassVar[bool] = False

    def pairs(self) -> list[Pair]:
        return [(first, second, self.measure) for first, second in self.compared]

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        widest = max(differences, key=lambda d: abs(d.value) + d.half_width)
        reach = abs(widest.value) + widest.half_width
        text = f"of {len(differences)} intervals the widest reaches {reach:.1f} points ({_all([widest])})"
        if reach <= self.within:
            return HOLDS, text
        # The clearest of many: its interval has to be as wide as their number asks.
        found = [d for d in differences if abs(d.value) - _corrected_half_width(d, len(differences)) > self.within]
        return (FAILS, f"{text}; beyond {self.within:g} points: {_all(found)}") if found else (OPEN, text)


def _corrected_half_width(d: Difference, comparisons: int) -> float:
    return Error(d.stderr, d.degrees).half_width(LEVEL / comparisons)


def all_pairs(rows: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Every two of the rows."""
    return tuple(combinations(rows, 2))


@dataclass(frozen=True)
class Tiers:
    """The sweep falls into two tiers: `gap` points between their means, `spread` within each.

    With a `rule`, whether it says which shapes are in the upper one. It sees the published shapes of the rows.
    """

    gap: float
    spread: float
    rule: Callable[[Published], bool] | None = None
    is_corrected: ClassVar[bool] = False

    def pairs(self) -> list[Pair]:
        return [(first, second, MEAN) for first, second in combinations([row.row for row in SWEEP], 2)]

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        first = SWEEP[0].row
        value = {first: 0.0} | {d.second: d.value for d in differences if d.first == first}
        order = sorted(value, key=value.__getitem__)
        between = {frozenset((d.first, d.second)): d for d in differences}
        steps = corrected([between[frozenset(pair)] for pair in pairwise(order)])
        cut = max(range(len(steps)), key=lambda i: abs(steps[i].value))
        low, high, step = order[: cut + 1], order[cut + 1 :], steps[cut]
        apart = sum(value[row] for row in high) / len(high) - sum(value[row] for row in low) / len(low)
        spreads = [value[rows[-1]] - value[rows[0]] for rows in (low, high)]
        text = (
            f"the largest of six gaps, {abs(step.value):.1f} ± {step.half_width:.1f} points, has {', '.join(high)} "
            f"above it; the rows above and below are {apart:.1f} apart in their means, and spread over "
            f"{spreads[1]:.1f} and {spreads[0]:.1f}"
        )
        if self.rule is not None:
            return self._by_rule(self.rule, set(high), step.is_found, text)
        # The means of tiers are off by less than single rows are.
        if apart + step.half_width < self.gap:
            return FAILS, text
        if not step.is_found:
            return OPEN, text
        if max(spreads) > self.spread + step.half_width:
            return FAILS, text
        return (HOLDS if apart >= self.gap and max(spreads) <= self.spread else SMALLER), text

    @staticmethod
    def _by_rule(rule: Callable[[Published], bool], high: set[str], is_found: bool, text: str) -> Judgement:
        printed = [row.row for row in SWEEP if rule(row) != (row.tier == HIGH)]
        there = f"of the published labels it misses {len(printed)} of 7{_list(printed)}"
        if not is_found:
            return OPEN, f"there are no two tiers to sort into: {text}; {there}"
        wrong = [row.row for row in SWEEP if rule(row) != (row.row in high)]
        return (FAILS if wrong else HOLDS), f"it misses {len(wrong)} of 7{_list(wrong)}: {text}; {there}"


def _way(decode: Mapping[str, Any]) -> str:
    """What speeds and memory depend on beside the model, of a `decode.json`."""
    device = decode.get("conditions", {}).get("device_kind")
    return f"{decode.get('new_tokens')} tokens behind {decode.get('prompt_tokens')} on {device}"


def _list(rows: Sequence[str]) -> str:
    return f" ({', '.join(rows)})" if rows else ""


@dataclass(frozen=True)
class Ratio:
    """A number of `decode.json` is at least `times` as high in one row as in another, under every seed.

    `rounds` is the key of its single rounds, for their spread; "" for a number that is not taken in rounds.
    """

    above: str
    below: str
    key: str
    rounds: str
    times: float
    is_corrected: ClassVar[bool] = True

    def pairs(self) -> list[Pair]:
        return []

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        above, below = (
            [r.decode for r in study.of(row) if r.decode and self.key in r.decode] for row in (self.above, self.below)
        )
        missing = [row for row, found in ((self.above, above), (self.below, below)) if not found]
        if missing:
            return UNTESTED, f"{' and '.join(missing)}: no {self.key} measured"
        ways = {_way(one) for one in (*above, *below)}
        if len(ways) > 1:
            return UNTESTED, f"{self.above} and {self.below} wrote in {len(ways)} ways: {'; '.join(sorted(ways))}"
        ratios = [a[self.key] / b[self.key] for a in above for b in below]
        low, high = min(ratios), max(ratios)
        text = f"{self.key} of {self.above} over that of {self.below}: {low:.2f} to {high:.2f} over seeds"
        if self.rounds:
            single = [a / b for one in above for other in below for a in one[self.rounds] for b in other[self.rounds]]
            text += f" ({min(single):.2f} to {max(single):.2f} over single rounds)"
        return (HOLDS if low >= self.times else FAILS if high < self.times else OPEN), f"{text}, claimed {self.times:g}"


@dataclass(frozen=True)
class Cheaper:
    """From scratch takes at least `times` the tokens of the conversion to come as far."""

    rows: tuple[str, ...]
    times: float
    is_corrected: ClassVar[bool] = True

    def pairs(self) -> list[Pair]:
        return []

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        runs = [result.run for row in self.rows for result in study.of(row) if result.run is not None]
        found = [c for c in conversions(runs) if c.longest is not None]
        if not found:
            return UNTESTED, f"no conversion with a longer run from scratch beside it among {', '.join(self.rows)}"
        times = [c.times_conversion for c in found if c.times_conversion is not None]
        text = "; ".join(
            f"seed {c.conversion.config.seed}: {_times(of_conversion)} the tokens of the conversion"
            + (f", {_times(c.times_all)} those of it and the autoregressive run before it" if c.times_all else "")
            for c, of_conversion in zip(found, times, strict=True)
        )
        if all(one.tokens >= self.times for one in times):
            return HOLDS, text
        return (FAILS if all(one.reached and one.tokens < self.times for one in times) else OPEN), text


def _times(found: CatchUp) -> str:
    return f"{'' if found.reached else 'more than '}{found.tokens:.1f} times"


@dataclass(frozen=True)
class Untestable:
    """Nothing that a study measures can answer it."""

    why: str
    is_corrected: ClassVar[bool] = True

    def pairs(self) -> list[Pair]:
        return []

    def judge(self, study: Study, differences: Sequence[Difference]) -> Judgement:
        return UNTESTED, self.why
