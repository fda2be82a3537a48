"""The standard errors are those of the textbook, and those that repeated sampling shows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jaxlm.evaluation.statistics import Score, ratio


def test_with_equal_denominators_the_ratio_is_a_mean_and_its_error_sd_over_root_n() -> None:
    x_N = np.asarray([2.0, 3.0, 7.0, 4.0])
    estimate = ratio(x_N, np.full(4, 2.0))
    assert estimate.value == pytest.approx(x_N.mean() / 2)
    assert estimate.stderr == pytest.approx(np.std(x_N / 2, ddof=1) / math.sqrt(4))


def test_the_error_of_a_ratio_is_the_spread_of_repeated_ratios() -> None:
    rng = np.random.default_rng(0)

    def windows() -> tuple[np.ndarray, np.ndarray]:
        tokens_N = rng.integers(10, 60, 400).astype(float)
        return tokens_N * (3 + 0.1 * rng.normal(size=400)) + rng.normal(size=400), tokens_N

    repeated = [ratio(*windows()) for _ in range(400)]
    spread = np.std([e.value for e in repeated])
    assert np.mean([e.stderr for e in repeated]) == pytest.approx(spread, rel=0.1)


def test_one_window_has_no_known_error_and_none_has_no_mean() -> None:
    assert ratio(np.asarray([3.0]), np.asarray([2.0])).stderr is None
    with pytest.raises(ValueError, match="sum to 0"):
        ratio(np.zeros(2), np.zeros(2))


def test_end_of_text_adds_nats_and_no_bytes() -> None:
    # Two windows of two tokens: (3 bytes, end-of-text) and (1 byte, 2 bytes), one nat each.
    score = Score(np.asarray([2.0, 2.0]), np.asarray([2.0, 2.0]), np.asarray([3.0, 3.0]))
    assert score.nats_per_token.value == 1.0
    assert score.bits_per_byte is not None
    assert score.bits_per_byte.value == pytest.approx(4 / math.log(2) / 6)
    assert Score(np.ones(2), np.ones(2), np.zeros(2)).bits_per_byte is None


def test_paired_difference_drops_what_the_windows_have_in_common() -> None:
    rng = np.random.default_rng(1)
    hard_N, tokens_N = rng.normal(100, 20, 50), np.full(50, 32.0)
    a, b = Score(hard_N + rng.normal(size=50), tokens_N, tokens_N), Score(hard_N + 32, tokens_N, tokens_N)
    difference = a.minus(b)
    assert difference.value == pytest.approx(-1, abs=0.05)
    assert difference.stderr is not None and a.nats_per_token.stderr is not None
    assert difference.stderr < a.nats_per_token.stderr / 10
    with pytest.raises(ValueError, match="same windows"):
        a.minus(Score(hard_N, tokens_N + 1, tokens_N))
