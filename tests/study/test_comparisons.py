"""Seeds S, items N. Rates are checked against binomial bounds: 200 studies of which 5 % are called different."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from jaxlm.evaluation.statistics import Score, ratio
from jaxlm.study import variance
from jaxlm.study.cells import Cell, Study
from jaxlm.study.comparisons import RATES, Comparisons, Difference, compare, corrected, groups, in_brief, lacking
from jaxlm.study.measures import BITS, Part, Sample
from tests.study.synthetic import Made, study

TASKS = ("one", "two")


def made_study(
    rng: np.random.Generator, qualities: dict[str, float], items: int, seeds: int, seed_effect: float, tasks: int = 2
) -> Study:
    """Rows of these qualities, asked the same items; a seed moves a row on all tasks alike."""
    difficulty = [rng.uniform(0, 0.5, items) for _ in range(tasks)]
    rows = {}
    for name, quality in qualities.items():
        of_seed = quality + seed_effect * rng.standard_normal((seeds, 1))
        scores = {str(k): (rng.random((seeds, items)) < of_seed - d).astype(float) for k, d in enumerate(difficulty)}
        rows[name] = Made(items=scores)
    return study(rows, seeds=range(seeds), mean=",".join(str(k) for k in range(tasks)))


def difference(study_: Study, first: str, second: str, measure: str) -> Difference:
    found = compare(study_, first, second, measure)
    assert found is not None
    return found


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variance, "RESAMPLES", 200)


@pytest.mark.parametrize(("seeds", "others"), [(2, 6), (3, 6), (3, 0)])
def test_two_copies_of_one_model_are_called_different_at_most_at_the_stated_rate(
    few_resamples: None, seeds: int, others: int
) -> None:
    rng, found = np.random.default_rng(1), 0
    names = ["a", "b", *(f"other{i}" for i in range(others))]
    for _ in range(200):
        made = made_study(rng, dict.fromkeys(names, 0.75), items=200, seeds=seeds, seed_effect=0.02)
        found += difference(made, "a", "b", made.config.evaluate.mean).p < 0.05
    # 99.9 % of binomial counts with n = 200, p = 0.05 are at most 21; fewer than 2 would be far from the stated rate.
    assert 2 <= found <= 21


def test_a_planted_difference_is_found_as_often_as_promised(few_resamples: None) -> None:
    rng, found, promised = np.random.default_rng(2), 0, []
    for _ in range(40):
        qualities = {"a": 0.72, "b": 0.75, "c": 0.72, "d": 0.72}
        made = made_study(rng, qualities, items=1_000, seeds=3, seed_effect=0.005, tasks=6)
        d = difference(made, "a", "b", made.config.evaluate.mean)
        found += d.p < 0.05 and d.value > 0
        promised.append(d.smallest)
    assert np.median(promised) < 3.0
    assert found >= 36, "3 points are above what is found 4 times in 5"


def test_what_is_smallest_is_found_four_times_in_five(few_resamples: None) -> None:
    """The promise at its own size: 1.5 points, two tasks of 2,000 items, 8 rows of 3 seeds."""
    rng, found, promised = np.random.default_rng(3), 0, []
    for _ in range(60):
        qualities = {"a": 0.72, "b": 0.735} | {f"other{i}": 0.72 for i in range(6)}
        made = made_study(rng, qualities, items=2_000, seeds=3, seed_effect=0.003)
        d = difference(made, "a", "b", made.config.evaluate.mean)
        found += d.p < 0.05
        promised.append(d.smallest)
    power = found / 60
    expected = 1.5 / float(np.median(promised))
    assert 0.6 < expected < 1.6 and abs(power - 0.8) < 0.2 + abs(expected - 1)


def test_without_seeds_the_error_is_that_of_paired_items() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.random((1, 5_000)) < 0.5).astype(float), (rng.random((1, 5_000)) < 0.5).astype(float)
    d = difference(study({"a": Made({"one": a}), "b": Made({"one": b})}, seeds=(0,), mean="one"), "a", "b", "one")
    closed = 100 * float(np.std(b - a)) / math.sqrt(5_000)
    assert d.value == pytest.approx(100 * (b.mean() - a.mean()))
    assert d.stderr == pytest.approx(closed, rel=0.08)  # 1,000 resamples: 2.2 % of it
    assert d.half_width == pytest.approx(1.959964 * d.stderr, rel=1e-5) and d.degrees == variance.MANY
    assert "one seed" in d.verdict


def test_seeds_widen_the_error_and_the_part_of_single_answers_counts_once() -> None:
    rng = np.random.default_rng(0)

    def row(moved_by: float) -> Sample:
        seeds_S1 = moved_by * np.arange(3)[:, None]
        return Sample((Part((rng.random((3, 4_000)) < 0.5) + seeds_S1, np.ones(4_000), 100.0),), (0, 1, 2))

    only_items = [row(0.0) for _ in range(40)]
    noise = variance.seed_variance(only_items)
    assert noise.degrees == 80 and noise.from_items == pytest.approx(100**2 * 0.25 / 4_000, rel=0.05)
    assert noise.observed == pytest.approx(noise.from_items, rel=0.5)
    assert variance.seed_variance([row(0.1)]).value == pytest.approx(10**2, rel=0.2)


def test_a_row_equals_itself_and_the_order_of_two_rows_only_turns_the_sign() -> None:
    made = made_study(np.random.default_rng(0), {"a": 0.7, "b": 0.8}, items=300, seeds=2, seed_effect=0.01)
    assert (difference(made, "a", "a", "0").value, difference(made, "a", "a", "0").p) == (0.0, 1.0)
    there, back = difference(made, "a", "b", "0"), difference(made, "b", "a", "0")
    assert (there.value, there.stderr, there.p) == (-back.value, back.stderr, back.p)
    assert there == difference(made, "a", "b", "0"), "no draw depends on what was drawn before"


def test_holm_by_hand() -> None:
    assert variance.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert variance.holm([0.6, 0.9]) == [1.0, 1.0] and variance.holm([]) == []


def test_verdicts_say_what_was_found_or_what_the_study_is_too_small_for() -> None:
    rng = np.random.default_rng(0)
    made = made_study(rng, {"a": 0.70, "b": 0.80, "c": 0.70}, items=3_000, seeds=2, seed_effect=0.0)
    mean = made.config.evaluate.mean
    better, same = corrected([difference(made, "a", other, mean) for other in ("b", "c")])
    assert better.verdict.startswith("b is better by ") and "after correction for 2 comparisons)" in better.verdict
    assert same.verdict.startswith("no difference at this size: ") and same.verdict.endswith("points")
    assert better.smallest > difference(made, "a", "b", mean).smallest
    (worse,) = corrected([difference(made, "b", "a", mean)])
    assert worse.verdict.startswith("b is better by ") and worse.value < 0


def windows(rng: np.random.Generator, level: float, num: int = 400) -> Score:
    hard = np.random.default_rng(9).normal(100, 30, num)  # the same text is as hard for everyone
    return Score(level * (hard + rng.normal(0, 1, num)), np.full(num, 50.0), np.full(num, 200.0))


def test_bits_are_paired_by_windows_and_a_bound_is_called_one() -> None:
    rng = np.random.default_rng(0)
    a, b = (Made(windows=[windows(rng, level)] * 2) for level in (1.0, 0.99))
    bound = Made(windows=[windows(rng, 1.1)] * 2, is_diffusion=True)
    elsewhere = windows(rng, 1.0)
    other = Made(windows=[Score(elsewhere.nats_N, elsewhere.tokens_N, elsewhere.bytes_N + 10)] * 2)
    made = study({"a": a, "b": b, "bound": bound, "other": other})
    d = difference(made, "a", "b", "bits_per_byte")
    assert d.value < 0 < d.gain and d.verdict.startswith("b is better by ") and "bits per byte" in d.verdict
    stretches = [slice(400 * k // 64, 400 * (k + 1) // 64) for k in range(64)]
    nats, sizes = (np.array([x[at].sum() for at in stretches]) for x in (a.windows[0].nats_N, a.windows[0].bytes_N))
    alone = ratio(nats / math.log(2), sizes).stderr
    assert alone is not None and d.stderr < alone / 5
    assert "the bits of bound are an upper bound" in difference(made, "a", "bound", "bits_per_byte").verdict
    unpaired = difference(made, "a", "other", "bits_per_byte")
    assert "not in pairs" in unpaired.verdict and unpaired.stderr == pytest.approx(alone * 2**0.5, rel=0.1)


def test_readings_of_the_same_weights_are_compared_under_the_same_seed() -> None:
    rng = np.random.default_rng(0)
    made = made_study(rng, {"a": 0.75, "b": 0.75, "c": 0.75}, items=500, seeds=3, seed_effect=0.1)
    scores = {t: np.array([r.items(t) for r in made.of("a")]) for t in ("0", "1")}
    flipped = {task: np.where(rng.random(x.shape) < 0.02, 1 - x, x) for task, x in scores.items()}
    rows = {n: Made({t: np.array([r.items(t) for r in made.of(n)]) for t in ("0", "1")}) for n in ("a", "b", "c")}
    both = study({**rows, "a-causal": Made(flipped, kind="read", source="a")}, seeds=(0, 1, 2), mean="0,1")
    assert difference(both, "a", "a-causal", "0,1").stderr < difference(both, "a", "b", "0,1").stderr / 4


def test_a_missing_task_is_named_and_no_mean_is_over_fewer() -> None:
    rng = np.random.default_rng(0)
    scores = {task: (rng.random((2, 50)) < 0.5).astype(float) for task in TASKS}
    shorter = {**scores, "two": scores["two"][:, :9]}
    rows = {"a": Made(scores), "b": Made({"one": scores["one"]}), "c": None, "d": Made(shorter)}
    made = study(rows, groups=("all: a b c d",))
    assert compare(made, "a", "b", "one,two") is None and compare(made, "a", "nobody", "one") is None
    assert {(d.second, d.measure) for d in groups(Comparisons(made))["all"]} == {("b", "one"), ("d", "one")}
    assert Comparisons(made).compare("a", "d", "two") == "a and d were asked other items"
    found = lacking(Comparisons(made))["all"]
    assert found == (
        "a, d: each lacks the loss of each validation window; b lacks two, the loss of each validation window; "
        "c has not been evaluated (missing)"
    )


def test_as_many_items_of_another_text_are_other_items() -> None:
    scores = {"one": np.random.default_rng(0).random((2, 50)) < 0.5}
    rows = {"a": Made(scores, asked="x"), "b": Made(scores, asked="y"), "c": Made(scores)}
    made = Comparisons(study(rows, mean="one"))
    assert made.compare("a", "b", "one") == "a and b were asked other items"
    assert isinstance(made.compare("a", "c", "one"), Difference)  # of a record from before they had a digest


def test_a_row_at_another_rate_is_compared_with_itself() -> None:
    rng = np.random.default_rng(0)
    made = study({name: Made({"one": rng.random((2, 400)) < share}) for name, share in (("a", 0.3), ("b", 0.7))})
    again = [dataclasses.replace(r, cell=Cell(made.rows["a"], r.cell.seed, 1e-3)) for r in made.of("b")]
    rated = dataclasses.replace(made, rows={"a": made.rows["a"]}, results=(*made.of("a"), *again))
    (found,) = groups(Comparisons(rated))[RATES]
    assert (found.first, found.second, found.measure) == ("a", "a, rate 0.001", "one")
    assert found.is_found and found.value > 30 and RATES not in groups(Comparisons(made))


def test_a_reading_is_compared_under_the_seeds_that_it_has() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((2, 400)) < np.array([[0.2], [0.8]])
    read = {"kind": "read", "source": "a"}
    both = study({"a": Made({"one": scores}), "c": Made({"one": scores[:, ::-1]}), "r": Made({"one": scores}, **read)})
    less = dataclasses.replace(both, results=tuple(r for r in both.results if r.cell.name != "r, seed 1"))
    found = difference(less, "a", "r", "one")
    assert found.value == 0 and found.seeds == 1


def test_bits_are_drawn_in_stretches_of_neighbouring_windows() -> None:
    rng = np.random.default_rng(0)

    def stderr(alike: int) -> float:
        of_documents = np.repeat(rng.normal(0, 20, (2, 640 // alike)), alike, axis=1)
        rows = {
            name: Made(windows=[Score(300 + part, np.full(640, 128), np.full(640, 400))] * 2)
            for name, part in zip("ab", of_documents, strict=True)
        }
        return difference(study(rows, mean="none"), "a", "b", BITS).stderr

    # Of ten windows that are alike, one is worth knowing.
    assert 2 < stderr(10) / stderr(1) < 4.5


def test_what_is_lacking_is_said_once_for_rows_that_are_alike() -> None:
    lacks = ["a lacks one", "b lacks one", "a lacks two", "b lacks two", "a lacks one", "c is no row of this study"]
    assert in_brief(lacks) == "a, b: each lacks one, two; c is no row of this study"


def test_a_group_is_corrected_within_each_measure_and_has_acc_norm() -> None:
    rng = np.random.default_rng(0)
    both = lambda: {"acc": rng.random((2, 60)) < 0.5, "acc_norm": rng.random((2, 60)) < 0.5}  # noqa: E731
    rows = {name: Made({"one": both(), "two": rng.random((2, 60)) < 0.5}) for name in "abc"}
    found = groups(Comparisons(study(rows, groups=("all: a b c",))))["all"]
    assert [d.measure for d in found] == [m for m in ("one,two", "one", "one:acc_norm", "two") for _ in "bc"]
    assert all(d.comparisons == 2 and d.p_adjusted >= d.p for d in found)
