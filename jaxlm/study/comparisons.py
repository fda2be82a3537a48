"""Differences between rows of a study, with an interval, a corrected p value, and a verdict in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jaxlm.study.cells import Study
from jaxlm.study.measures import BITS, Sample, measures_of, sample, unit_of
from jaxlm.study.rows import EMPTY, READ
from jaxlm.study.variance import LEVEL, Error, SeedVariance, error, holm, seed_variance

RATES = "other learning rates"  # as no group of a configuration can be called
_LACKS = "lacks "
NO_SEEDS = "one seed: how far another seed would be off is not in it"


@dataclass(frozen=True)
class Difference:
    """The second row minus the first.

    Attributes:
      first: the reference.
      second: what is compared with it.
      measure: see `jaxlm.study.measures`.
      unit: of value, stderr, half_width and smallest: points, or bits per byte (of which fewer are better).
      value: mean over seeds of the second minus that of the first.
      stderr: over items and seeds.
      degrees: of freedom, of Student's t with this error.
      half_width: of the 95 % interval around `value`, without correction.
      p: two-sided, of no difference.
      p_adjusted: by Holm, for all comparisons that it was made among.
      seeds: of the row that has fewer.
      items: of one seed, or stretches of validation windows.
      smallest: the true difference that would be found with 80 % power, as the clearest of `comparisons`.
      comparisons: how many it is corrected for.
      notes: what has to be known beside the number.
      verdict: in words.
    """

    first: str
    second: str
    measure: str
    unit: str
    value: float
    stderr: float
    degrees: float
    half_width: float
    p: float
    p_adjusted: float
    seeds: int
    items: int
    smallest: float
    comparisons: int
    notes: tuple[str, ...]
    verdict: str

    @property
    def gain(self) -> float:
        """How much better the second is: `value`, or the bits that it saves."""
        return -self.value if self.measure == BITS else self.value

    @property
    def is_found(self) -> bool:
        """Whether one row is better than the other, after correction."""
        return self.p_adjusted < LEVEL


class Comparisons:
    """The comparisons within one study. What is read and pooled for one of them is kept for the others."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._samples: dict[tuple[str, str], Sample | str] = {}
        self._seeds: dict[tuple[str, bool], SeedVariance] = {}

    def sample(self, row: str, measure: str) -> Sample | str:
        """See `measures.sample`."""
        key = (row, measure)
        if key not in self._samples:
            self._samples[key] = sample(self.study, row, measure)
        return self._samples[key]

    def compare(self, first: str, second: str, measure: str) -> Difference | str:
        """The difference on its own, not yet corrected; or, in words, which row lacks what.

        Seeds are those of all rows of the study, taken as equally far apart in each. Rows that read the same weights
        are compared under the same seed, and their seeds are those of such pairs.
        """
        one, other = self.sample(first, measure), self.sample(second, measure)
        if isinstance(one, str) or isinstance(other, str):
            return "; ".join(lack for lack in (one, other) if isinstance(lack, str))
        paired = [mine.is_paired_with(its) for mine, its in zip(one.parts, other.parts, strict=True)]
        if measure != BITS and not all(paired):
            return f"{first} and {second} were asked other items"
        is_same = self._weights(first) == self._weights(second) and all(paired)
        if is_same and (common := one.seeds_with(other)):
            one, other = one.of(common), other.of(common)
        is_same = is_same and one.seeds == other.seeds
        seeds = self._seed_variance(measure, is_same)
        # By name: which of two rows is the reference must not change the draw of items.
        (low, a), (high, b) = sorted([(first, one), (second, other)], key=lambda row: row[0])
        found = error(a, b, seeds, is_same, f"{low} {high} {measure}")
        value = float(other.values_S.mean() - one.values_S.mean())
        notes = [] if all(paired) else ["not in pairs, for their windows differ"]
        if one.is_bound != other.is_bound:
            bound, exact = (first, second) if one.is_bound else (second, first)
            notes.append(
                f"the bits of {bound} are an upper bound, those of {exact} exact: {bound} may be better than it looks"
            )
        elif one.is_bound and first != second:
            notes.append("both are upper bounds, how tight is not known")
        if not seeds.degrees:
            notes.append(NO_SEEDS)
        difference = Difference(
            first, second, measure, unit_of(measure), value, found.stderr, found.degrees, found.half_width(),
            found.p(value), found.p(value), min(len(one.seeds), len(other.seeds)), min(one.items, other.items),
            found.smallest(1), 1, tuple(notes), "",
        )  # fmt: skip
        return dataclasses.replace(difference, verdict=words(difference))

    def _weights(self, row: str) -> str:
        found = self.study.rows.get(row)  # none of a row at another rate
        return found.source if found is not None and found.kind == READ else row

    def _seed_variance(self, measure: str, is_same_weights: bool) -> SeedVariance:
        key = (measure, is_same_weights)
        if key not in self._seeds:
            self._seeds[key] = seed_variance(self._readings(measure) if is_same_weights else self._trained(measure))
        return self._seeds[key]

    def _trained(self, measure: str) -> Iterable[Sample]:
        trained = [name for name, row in self.study.rows.items() if row.kind not in (READ, EMPTY)]
        for name in (*trained, *self.study.rated):
            if isinstance(found := self.sample(name, measure), Sample):
                yield found

    def _readings(self, measure: str) -> Iterable[Sample]:
        for name, row in self.study.rows.items():
            if row.kind != READ:
                continue
            one, other = self.sample(row.source, measure), self.sample(name, measure)
            if isinstance(one, Sample) and isinstance(other, Sample) and (common := one.seeds_with(other)):
                one, other = one.of(common), other.of(common)
                pairs = list(zip(one.parts, other.parts, strict=True))
                if all(a.is_paired_with(b) for a, b in pairs):
                    yield Sample(tuple(b.minus(a) for a, b in pairs), common)


def corrected(differences: Sequence[Difference]) -> list[Difference]:
    """The same, each corrected for all of them by Holm's procedure, with new verdicts."""
    number = len(differences)
    out = []
    for difference, p in zip(differences, holm([difference.p for difference in differences]), strict=True):
        smallest = Error(difference.stderr, difference.degrees).smallest(number)
        one = dataclasses.replace(difference, p_adjusted=p, smallest=smallest, comparisons=number)
        out.append(dataclasses.replace(one, verdict=words(one)))
    return out


def words(difference: Difference) -> str:
    """The verdict: which row is better, by how much, or that this study does not tell them apart."""
    d = difference
    digits = 3 if d.measure == BITS else 1
    after = f" after correction for {d.comparisons} comparisons" if d.comparisons > 1 else ""
    width = f"± {d.half_width:.{digits}f} {d.unit}"
    if d.is_found:
        better = d.second if d.gain > 0 else d.first
        text = f"{better} is better by {abs(d.value):.{digits}f} {width} ({_p(d.p_adjusted)}{after})"
    else:
        text = f"no difference at this size: {d.value:+z.{digits}f} {width}"
        if d.p < LEVEL:
            text += f" ({_p(d.p)} alone, {d.p_adjusted:.2g}{after})"
    return "; ".join((text, *d.notes))


def _p(p: float) -> str:
    return "p below 0.001" if p < 0.001 else f"p {p:.2g}"


def compare(study: Study, first: str, second: str, measure: str) -> Difference | None:
    """`second` minus `first` on its own, without correction; None where one of them lacks what the measure needs."""
    found = Comparisons(study).compare(first, second, measure)
    return found if isinstance(found, Difference) else None


def groups(comparisons: Comparisons) -> dict[str, list[Difference]]:
    """By group of the study, every member against the first, on every measure that both have.

    A row that was trained at other learning rates is compared with itself at its own in the group `RATES`: whether a
    rate that suits it badly is why it is behind. Corrected within a group and measure.
    """
    study, measures = comparisons.study, measures_of(comparisons.study)
    out: dict[str, list[Difference]] = {}
    for name, (reference, *others) in study.groups.items():
        pairs = [(reference, other) for other in others]
        out[name] = _compared(comparisons, pairs, measures)
    if rated := study.rated:
        out[RATES] = _compared(comparisons, [(row, name) for name, (row, _) in rated.items()], measures)
    return out


def _compared(comparisons: Comparisons, pairs: Sequence[tuple[str, str]], measures: Iterable[str]) -> list[Difference]:
    out = []
    for measure in measures:
        found = [comparisons.compare(first, second, measure) for first, second in pairs]
        out += corrected([one for one in found if isinstance(one, Difference)])
    return out


def lacking(comparisons: Comparisons) -> dict[str, str]:
    """By group, which rows lack what, so that they are in no difference that needs it; "" where all have all."""
    measures = measures_of(comparisons.study)
    return {
        name: in_brief(found for row in rows for m in measures if isinstance(found := comparisons.sample(row, m), str))
        for name, rows in comparisons.study.groups.items()
    }


def in_brief(lacks: Iterable[str]) -> str:
    """Sentences `ROW lacks TASK` (or what else is wrong with a row), each row once, and rows alike together."""
    of_row: dict[str, list[str]] = {}
    for lack in dict.fromkeys(lacks):
        row, _, what = lack.partition(" ")
        of_row.setdefault(row, []).append(what)
    alike: dict[str, list[str]] = {}
    for row, whats in of_row.items():
        tasks = [what.removeprefix(_LACKS) for what in whats if what.startswith(_LACKS)]
        others = [what for what in whats if not what.startswith(_LACKS)]
        alike.setdefault("; ".join(([_LACKS + ", ".join(tasks)] if tasks else []) + others), []).append(row)
    return "; ".join(f"{', '.join(rows)}{': each' if rows[1:] else ''} {text}" for text, rows in alike.items())
