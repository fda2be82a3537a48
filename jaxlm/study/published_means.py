"""The arithmetic of the published averages: two tiers six points apart are what six tasks and seven look like.

GSM8K is 0 for all of these models, so a mean over seven tasks is about six sevenths of the mean over six of the same
run. Every number here follows from `jaxlm.study.published`, and `FINDINGS` says it in words.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from jaxlm.evaluation.tasks import STUDY, STUDY_6
from jaxlm.study import published
from jaxlm.study.published import FAMILIES, HIGH, LOW, SWEEP, Published

_BY_ROW = {row.row: row for row in (*FAMILIES, *SWEEP)}  # of gpt2-32 the sweep's
_DHARA = _BY_ROW["dhara"]


def over(row: Published, tasks: Iterable[str]) -> float:
    """The mean of a row's published scores over these tasks. Raises KeyError where one is not published."""
    return mean(row.scores[task] for task in tasks)


def six_from_seven(mean_7: float, gsm8k: float = 0.0) -> float:
    """The mean over six tasks of the run whose mean over seven is `mean_7`."""
    return (7 * mean_7 - gsm8k) / 6


def gsm8k_from_both(mean_6: float, mean_7: float) -> float:
    """What GSM8K must be for two means to be of one run."""
    return 7 * mean_7 - 6 * mean_6


def chance(tasks: Iterable[str]) -> tuple[float, float]:
    """Lowest and highest mean of models that know nothing."""
    bounds = [
        value if isinstance(value, tuple) else (value, value) for value in map(published.CHANCE.__getitem__, tasks)
    ]
    return mean(low for low, _ in bounds), mean(high for _, high in bounds)


def averages(tier: str) -> list[float]:
    """The printed averages of the sweep's rows in a tier."""
    return sorted(row.average for row in SWEEP if row.tier == tier and row.average is not None)


def is_wide(row: Published) -> bool:
    """Whether a shape has a width of 512 or more."""
    return row.hidden is not None and row.hidden >= 512


def three_way_rule(row: Published) -> bool:
    """Whether the article's rule puts a shape into the high tier: width of 512 or more, or 32 layers, or 64 or more."""
    return is_wide(row) or row.layers == 32 or (row.layers or 0) >= 64


SIX_OF_GPT2_12 = over(_BY_ROW["gpt2-12"], STUDY_6)  # 38.145
SEVEN_OF_DHARA = over(_DHARA, STUDY)  # 31.854
SIX_OF_DHARA = over(_DHARA, STUDY_6)  # 37.16
GSM8K_OF_GPT2_32 = gsm8k_from_both(38.50, 33.18)  # 1.26
# What the low tier would be over six tasks, if its averages are over seven and GSM8K is 0.
LOW_TIER_AS_SIX = {row.row: six_from_seven(row.average) for row in SWEEP if row.tier == LOW and row.average is not None}
TIERS_APART = mean(averages(HIGH)) - mean(averages(LOW))  # 6.08
NEAREST_APART = averages(HIGH)[0] - averages(LOW)[-1]  # 5.54
SPREADS = {tier: averages(tier)[-1] - averages(tier)[0] for tier in (HIGH, LOW)}  # 0.35 and 0.82
RULE_FAILS_ON = tuple(row.row for row in SWEEP if three_way_rule(row) != (row.tier == HIGH))

_six, _seven = chance(STUDY_6), chance(STUDY)
_highest = max(row.average for row in SWEEP if row.average is not None)
FINDINGS = (
    f"The 38.15 of GPT-2 with 12 layers is the mean of the six scores on its card ({SIX_OF_GPT2_12:.3f}), which has no "
    "GSM8K.",
    f"The 31.85 of Dhara is the mean of the seven scores on its card ({SEVEN_OF_DHARA:.3f}), GSM8K, 0.00, among them. "
    f"Over the same six its mean is {SIX_OF_DHARA:.2f}.",
    "GPT-2 with 32 layers is published as 38.50 in the sweep and as 33.18 among the families. Both are one run if its "
    f"GSM8K is {GSM8K_OF_GPT2_32:.2f}: the first a mean of six, the second of seven.",
    "If the low tier of the sweep is means of seven with a GSM8K of 0, its means of six are "
    + ", ".join(f"{value:.2f} ({row.removeprefix('gpt2-')} layers)" for row, value in LOW_TIER_AS_SIX.items())
    + f", beside {', '.join(f'{value:.2f}' for value in averages(HIGH))} of the high tier: the gap of six points "
    f"becomes at most {_highest - min(LOW_TIER_AS_SIX.values()):.1f}.",
    "This is not confirmed for 4, 16, 24 and 48 layers: their scores by task are not published.",
    f"A model that knows nothing has a mean of six of {_six[0]:.1f} to {_six[1]:.1f}, and a mean of seven of "
    f"{_seven[0]:.1f} to {_seven[1]:.1f}. As a mean of six, the low tier would be below chance.",
    f"The means of the two tiers are {TIERS_APART:.2f} points apart, their nearest members {NEAREST_APART:.2f}; within "
    f"them the averages spread over {SPREADS[HIGH]:.2f} (high) and {SPREADS[LOW]:.2f} (low), not 0.5 in both.",
    "The rule of three (width of at least 512, or 32 layers, or at least 64) is wrong about one of the seven shapes "
    "that it was made from: 4 layers of 768.",
)
