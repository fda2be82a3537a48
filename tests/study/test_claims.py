"""Made-up studies of which it is known what they say to a claim."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from jaxlm.evaluation.statistics import Score
from jaxlm.evaluation.tasks import STUDY
from jaxlm.study.claim_tests import FAILS, HOLDS, OPEN, SMALLER, UNTESTED, Better
from jaxlm.study.claims import CLAIMS, FAMILIES, LADDER, OTHERS, SEVEN, Answer, answers
from jaxlm.study.comparisons import Comparisons, Difference
from tests.study.synthetic import Made, study

ITEMS, SEEDS = 4_000, 2


def row(quality: float, rng: np.random.Generator, **more: object) -> Made:
    """Right on this share of the items of the mean and of the task of truth, which is exact: no draw of a row."""
    return Made(items={"one": scores(quality, rng), "truth": scores(quality, rng)}, **more)  # type: ignore[arg-type]


def scores(quality: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """[S, N] 0 or 1; the hardest items are missed by every row, but for a few."""
    exact = np.tile((np.arange(ITEMS) < quality * ITEMS).astype(float), (SEEDS, 1))
    return np.where(rng.random(exact.shape) < 0.002, 1 - exact, exact)


def answer(claim: str, rows: Mapping[str, Made | None]) -> Answer:
    found = answers(Comparisons(study(rows, seeds=range(SEEDS), mean="one", truth="truth")))
    return next(one for one in found if one.claim.id == claim)


def sweep(**qualities: float) -> dict[str, Made | None]:
    rng = np.random.default_rng(0)
    return {name: row(qualities.get(name.replace("-", "_"), 0.30), rng) for name in SEVEN}


def rows_of(qualities: Mapping[str, float]) -> dict[str, Made | None]:
    rng = np.random.default_rng(0)
    return {name: row(quality, rng) for name, quality in qualities.items()}


def test_without_a_row_every_claim_is_not_tested_and_says_what_is_missing() -> None:
    found = answers(Comparisons(study({"gpt2-32": None})))
    assert [one.claim for one in found] == list(CLAIMS)
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert {one.verdict for one in found} == {UNTESTED}
    words = {one.claim.id: one.words for one in found}
    assert "gpt2-4, gpt2-12, gpt2-16, gpt2-24, gpt2-48, gpt2-64: each is no row of this study" in words["tiers"]
    assert "gpt2-32 has not been evaluated (missing)" in words["best_32"]
    assert "tokens_per_sec" in words["speed"] and "dllm_canon_tenth" in words["conversion_cost"]
    assert "nothing is written" in words["truth_revision"]


HIGH = {"gpt2_12": 0.38, "gpt2_32": 0.38, "gpt2_64": 0.38}


@pytest.mark.parametrize(
    ("claim", "qualities", "verdict"),
    [
        ("tiers", HIGH, HOLDS),
        ("tiers", {"gpt2_12": 0.32, "gpt2_32": 0.32, "gpt2_64": 0.32}, FAILS),
        ("tiers", {"gpt2_12": 0.40, "gpt2_32": 0.46}, FAILS),  # the upper tier spreads over six points
        ("three_way", HIGH | {"gpt2_4": 0.38}, HOLDS),
        ("three_way", HIGH, FAILS),
        ("three_way", {}, OPEN),
        ("hidden_512", {"gpt2_4": 0.38, "gpt2_12": 0.38}, HOLDS),
        ("hidden_512", HIGH, FAILS),
        ("best_32", {"gpt2_32": 0.36}, HOLDS),
        ("best_32", {"gpt2_12": 0.36}, FAILS),
        ("best_32", {}, OPEN),
    ],
)
def test_the_claims_about_the_sweep(claim: str, qualities: dict[str, float], verdict: str) -> None:
    assert answer(claim, sweep(**qualities)).verdict == verdict


def test_the_rule_of_three_is_told_to_miss_its_own_shape() -> None:
    found = answer("three_way", sweep(**HIGH))
    assert (
        "misses 1 of 7 (gpt2-4)" in found.words and "of the published labels it misses 1 of 7 (gpt2-4)" in found.words
    )


@pytest.mark.parametrize(
    ("claim", "qualities", "verdict"),
    [
        ("families", dict.fromkeys(FAMILIES, 0.5), HOLDS),
        ("families", {**dict.fromkeys(FAMILIES, 0.5), "moe": 0.6}, FAILS),
        ("modern_parts", dict.fromkeys(LADDER, 0.5), HOLDS),
        ("modern_parts", {**dict.fromkeys(LADDER, 0.5), "gpt2_rope": 0.6}, FAILS),
        ("truth_best", {**dict.fromkeys(FAMILIES, 0.4), "dhara": 0.5}, HOLDS),
        ("truth_best", {**dict.fromkeys(FAMILIES, 0.4), OTHERS[0]: 0.5}, FAILS),
        ("truth_best", dict.fromkeys(FAMILIES, 0.4), OPEN),
        ("canon_ar", {"llama3": 0.40, "llama3_canon": 0.42}, HOLDS),
        ("canon_ar", {"llama3": 0.40, "llama3_canon": 0.40}, FAILS),
        ("canon_diffusion", {"dllm": 0.40, "dllm_canon": 0.43}, HOLDS),
        ("canon_diffusion", {"dllm": 0.40, "dllm_canon": 0.41}, FAILS),
        ("deeper", {"mobilellm-12": 0.40, "mobilellm-30": 0.45}, HOLDS),
        ("deeper", {"mobilellm-12": 0.45, "mobilellm-30": 0.40}, FAILS),
    ],
)
def test_the_claims_about_families_and_parts(claim: str, qualities: dict[str, float], verdict: str) -> None:
    assert answer(claim, rows_of(qualities)).verdict == verdict


def test_too_few_items_neither_show_nor_refute_that_families_are_the_same() -> None:
    rng = np.random.default_rng(0)
    few = {name: Made({"one": (rng.random((SEEDS, 40)) < 0.5).astype(float)}) for name in FAMILIES}
    assert answer("families", few).verdict == OPEN


@pytest.mark.parametrize("reading", ["causal", "in_order"])
@pytest.mark.parametrize(("quality", "verdict"), [(0.3, HOLDS), (0.5, FAILS), (0.4, OPEN)])
def test_a_reading_switched_off_on_the_same_weights(reading: str, quality: float, verdict: str) -> None:
    rng = np.random.default_rng(1)
    rows = {"dhara": row(0.4, rng), f"dhara-{reading}": row(quality, rng, kind="read", source="dhara")}
    claim = {"causal": "truth_bidirectional", "in_order": "truth_order"}[reading]
    assert answer(claim, rows).verdict == verdict


@pytest.mark.parametrize(("won", "verdict"), [(6, HOLDS), (2, FAILS)])
def test_wins_are_counted_task_by_task(won: int, verdict: str) -> None:
    rng = np.random.default_rng(0)
    first = {task: scores(0.4, rng) for task in STUDY}
    second = {task: scores(0.5 if index < won else 0.3, rng) for index, task in enumerate(STUDY)}
    found = answer("wins_5_of_7", {"gpt2-12": Made(first), "gpt2-32": Made(second)})
    assert found.verdict == verdict and f"ahead of gpt2-12 on {won} of 7" in found.words


@pytest.mark.parametrize(("quality", "verdict"), [(0.5, HOLDS), (0.3, FAILS), (0.4, OPEN)])
def test_better_on_some_tasks_takes_one(quality: float, verdict: str) -> None:
    rng = np.random.default_rng(3)
    first = {task: scores(0.4, rng) for task in STUDY}
    second = {task: scores(quality, rng) for task in STUDY}
    found = answer("conversion_tasks", {"dllm_canon": Made(first), "dhara": Made(second)})
    assert found.verdict == verdict


@pytest.mark.parametrize(("fast", "verdict"), [((190, 200), HOLDS), ((40, 45), FAILS), ((150, 200), OPEN)])
def test_a_ratio_has_to_reach_what_is_claimed_under_every_seed(fast: tuple[int, int], verdict: str) -> None:
    rows = {
        "dhara": Made(decode=[{"tokens_per_sec": value, "rounds": [value - 1, value, 500]} for value in fast]),
        "gpt2-32": Made(decode=[{"tokens_per_sec": 50.0, "rounds": [50.0]}] * 2),
    }
    found = answer("speed", rows)
    assert found.verdict == verdict and " to 10.00 over single rounds" in found.words


@pytest.mark.parametrize(
    ("size", "p_adjusted", "verdict"), [(1, 0.01, HOLDS), (2, 0.01, SMALLER), (3, 0.01, FAILS), (2, 0.2, OPEN)]
)
def test_a_difference_that_is_found_and_smaller_than_claimed_is_said_to_be_that(
    size: float, p_adjusted: float, verdict: str
) -> None:
    made = study({name: Made({"one": np.eye(2, 50)}) for name in "ab"}, mean="one")
    base = Comparisons(made).compare("a", "b", "one")
    assert isinstance(base, Difference)
    found = dataclasses.replace(base, value=1.5, half_width=1.0, p_adjusted=p_adjusted)
    assert Better("a", "b", "one", size).judge(made, [found])[0] == verdict


def test_speeds_of_other_settings_or_devices_make_no_ratio() -> None:
    speed = {"tokens_per_sec": 50.0, "rounds": [50.0], "prompt_tokens": 32, "conditions": {"device_kind": "cpu"}}
    for other in ({"new_tokens": 16}, {"new_tokens": 100, "conditions": {"device_kind": "NVIDIA A40"}}):
        rows = {"dhara": Made(decode=[{**speed, "new_tokens": 100}] * 2), "gpt2-32": Made(decode=[speed | other] * 2)}
        found = answer("speed", rows)
        assert found.verdict == UNTESTED and "wrote in 2 ways: 100 tokens behind 32 on" in found.words


@pytest.mark.parametrize(
    ("scratch", "verdict"),
    [({20: 6.0, 200: 5.5}, HOLDS), ({20: 6.0, 40: 4.0}, FAILS), ({20: 6.0, 40: 5.8}, OPEN)],
)
def test_conversion_is_set_against_a_longer_run_from_scratch(scratch: dict[int, float], verdict: str) -> None:
    rows = {
        "dhara": Made(kind="convert", is_diffusion=True, losses=[{10: 5.5}] * 2),
        "dllm_canon": Made(is_diffusion=True, losses=[scratch] * 2),
    }
    assert answer("conversion_cost", rows).verdict == verdict


@pytest.mark.parametrize(("best", "verdict"), [(0.9, HOLDS), (1.1, FAILS)])
def test_the_mix_is_judged_by_bits_where_fewer_are_better(best: float, verdict: str) -> None:
    rng = np.random.default_rng(0)
    ones = np.ones(300)

    def on_text(level: float) -> Made:
        return Made(windows=[Score(100 * level + rng.normal(0, 1, 300), ones, 200 * ones)] * SEEDS)

    others = ("mix-finepdfs", "mix-dclm", "mix-fineweb_edu", "mix-40-30-30")
    rows = {"llama3": on_text(best), **{name: on_text(1.0) for name in others}}
    assert answer("mix", rows).verdict == verdict


def test_a_stand_in_is_named_and_pocket_rows_are_marked() -> None:
    rng = np.random.default_rng(0)
    rows = {
        name: row(0.4, rng, parameters=500_000) for name in ("llama3", "llama3_canon", "mobilellm-12", "mobilellm-30")
    }
    canon, deeper = answer("canon_ar", rows), answer("deeper", rows)
    assert canon.words.endswith("; the task is truth, a stand-in for TruthfulQA") and canon.is_pocket
    assert "the mean is over one, a stand-in for the study's tasks" in deeper.words
    assert not answer("canon_ar", rows_of({"llama3": 0.4, "llama3_canon": 0.4})).is_pocket


def test_claims_that_rest_on_differences_are_corrected_for_one_another() -> None:
    rng = np.random.default_rng(0)
    rows = {name: row(0.4, rng) for name in ("llama3", "llama3_canon", "dllm", "dllm_canon")}
    assert answer("canon_ar", rows).differences[0].comparisons == 2
