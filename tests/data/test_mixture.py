"""The order of sources in a mix: exact, and the same again after each period."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from jaxlm.data.mixture import Mixture


def shares(weights: list[float]) -> list[Fraction]:
    exact = [Fraction(str(weight)) for weight in weights]
    return [weight / sum(exact) for weight in exact]


def random_weights(rng: random.Random) -> list[float]:
    parts = [rng.randrange(1, 50) for _ in range(rng.randrange(1, 12))]
    return [part / sum(parts) for part in parts]


@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2], [0.333333, 0.333333, 0.333334], [0.98] + [0.001] * 20, [1.0]])
def test_every_source_is_within_one_window_of_its_share_at_every_moment(weights: list[float]) -> None:
    rng = random.Random(0)
    for case in (weights, *(random_weights(rng) for _ in range(20))):
        mixture, counts = Mixture({f"{i:02}": w for i, w in enumerate(case)}), [0] * len(case)
        exact = shares(case)
        for number, source in enumerate(itertools.islice(mixture.order(), 500), 1):
            counts[source] += 1
            assert all(abs(count - share * number) < 1 for count, share in zip(counts, exact, strict=True))


def test_the_order_of_the_study_begins_anew_every_ten_windows() -> None:
    mixture = Mixture({"dclm": 0.3, "finepdfs": 0.5, "fineweb_edu": 0.2})
    first = mixture.sources(10).tolist()
    assert sorted(first) == [0] * 3 + [1] * 5 + [2] * 2
    assert mixture.sources(35).tolist() == (first * 4)[:35] == list(itertools.islice(mixture.order(), 35))


def test_it_is_balanced_to_a_thousandth_and_always_from_a_thousand_windows_on() -> None:
    mixture = Mixture({"a": 0.5, "b": 0.3, "c": 0.2})
    assert mixture.is_balanced([5, 3, 2]) and not mixture.is_balanced([5, 3, 3])
    assert mixture.is_balanced([5009, 3000, 1991]) and not mixture.is_balanced([5011, 3000, 1989])
    assert [mixture.largest_balanced(n) for n in (9, 10, 19, 999, 1000, 1234)] == [0, 10, 10, 999, 1000, 1234]
    uneven, counts = Mixture({"a": 0.123457, "b": 0.876543}), [0, 0]
    for number, source in enumerate(uneven.sources(2000).tolist(), 1):
        counts[source] += 1
        assert number < 1000 or uneven.is_balanced(counts)
