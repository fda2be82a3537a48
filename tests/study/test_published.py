from __future__ import annotations

from statistics import mean

import pytest

from jaxlm.evaluation.tasks import STUDY, STUDY_6
from jaxlm.study import published
from jaxlm.study import published_means as means


def test_the_two_printed_averages_with_scores_are_of_six_and_of_seven_tasks() -> None:
    rows = {row.row: row for row in (*published.FAMILIES, *published.SWEEP)}
    assert means.SIX_OF_GPT2_12 == pytest.approx(38.145, abs=1e-9) and "gsm8k" not in rows["gpt2-12"].scores
    assert pytest.approx(222.98 / 7) == means.SEVEN_OF_DHARA
    assert round(means.SIX_OF_DHARA, 2) == 37.16 == rows["dhara"].mean_6
    assert rows["dhara"].average == round(means.SEVEN_OF_DHARA, 2)


def test_both_averages_of_32_layers_are_one_run_if_gsm8k_is_1_26() -> None:
    assert pytest.approx(1.26) == means.GSM8K_OF_GPT2_32
    assert means.six_from_seven(33.18, 1.26) == pytest.approx(38.50)


def test_the_low_tier_as_means_of_six_and_what_remains_of_the_gap() -> None:
    rounded = {row: round(value, 2) for row, value in means.LOW_TIER_AS_SIX.items()}
    assert rounded == {"gpt2-4": 37.31, "gpt2-16": 38.04, "gpt2-24": 37.09, "gpt2-48": 37.86}
    text = " ".join(means.FINDINGS)
    assert "becomes at most 1.4" in text
    assert "not confirmed for 4, 16, 24 and 48 layers" in text


def test_chance_is_five_points_lower_over_seven_tasks() -> None:
    assert means.chance(STUDY_6) == pytest.approx((220 / 6, 223 / 6))
    assert means.chance(STUDY) == pytest.approx((220 / 7, 223 / 7))


def test_the_tiers_as_printed_and_the_rule_that_misses_its_own_shape() -> None:
    assert pytest.approx(mean([38.15, 38.5, 38.21]) - mean([31.98, 32.61, 31.79, 32.45])) == means.TIERS_APART
    assert pytest.approx(38.15 - 32.61) == means.NEAREST_APART
    assert {tier: round(spread, 2) for tier, spread in means.SPREADS.items()} == {"high": 0.35, "low": 0.82}
    assert means.RULE_FAILS_ON == ("gpt2-4",)


def test_every_row_says_how_it_is_known_and_the_twelfth_family_stays_empty() -> None:
    assert len(published.SWEEP) == 7 and len(published.FAMILIES) == 12
    assert all(row.evidence for table in (published.SWEEP, published.FAMILIES, published.MIXES) for row in table)
    twelfth = published.FAMILIES[-1]
    assert twelfth == published.Published("unnamed", twelfth.label, *[None] * 7, {}, twelfth.evidence)
