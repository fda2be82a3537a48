"""The block-size phases of a conversion."""

from __future__ import annotations

from typing import Any

import pytest

from jaxlm.config import ConvertConfig, TrainConfig
from jaxlm.fields import ConfigError
from jaxlm.training.schedule import WHOLE_WINDOW, Phase, describe, phase_at, phases

BATCH = 1024


def of(num_steps: int, **convert: Any) -> list[Phase]:
    """The phases of so many steps; the tokens are a few more, as a budget is seldom a whole number of batches."""
    train = TrainConfig(total_tokens=num_steps * BATCH + 5, batch_tokens=BATCH, seq_len=64)
    return phases(ConvertConfig(**convert), train)


def lengths(found: list[Phase]) -> list[tuple[int, int]]:
    return [(phase.block_size, phase.stop - phase.start) for phase in found]


def test_equal_warmup_parts_then_the_whole_window() -> None:
    assert of(100, block_sizes=(1, 4, 32, 64), warmup_share=0.4) == [
        Phase(0, 10, 1),
        Phase(10, 20, 4),
        Phase(20, 30, 32),
        Phase(30, 40, 64),
        Phase(40, 100, WHOLE_WINDOW),
    ]


def test_decay_comes_last() -> None:
    found = of(10, block_sizes=(1,), warmup_share=0.1, decay_block_sizes=(8, 4), decay_share=0.2)
    assert found == [Phase(0, 1, 1), Phase(1, 8, WHOLE_WINDOW), Phase(8, 9, 8), Phase(9, 10, 4)]


EVERY_WAY: dict[str, dict[str, Any]] = {
    "shares": {"warmup_share": 0.4, "decay_share": 0.1},
    "parts": {"warmup_share": 0.7, "warmup_parts": (0.1, 0.2, 3.0), "decay_share": 0.3},
    "tokens": {"warmup_tokens": 9 * BATCH - 1, "decay_tokens": 2 * BATCH + 1, "warmup_parts": (1, 1, 2)},
    "both": {"warmup_tokens": 3 * BATCH, "decay_share": 0.5},
}


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 12, 58, 813])
@pytest.mark.parametrize("way", EVERY_WAY)
def test_every_step_is_in_one_phase_and_the_bounds_are_kept(way: str, num_steps: int) -> None:
    convert = EVERY_WAY[way]
    least = {"tokens": 10, "both": 6}.get(way, 1)
    if num_steps < least:
        with pytest.raises(ConfigError, match="together at most the"):
            of(num_steps, block_sizes=(1, 4, 8), decay_block_sizes=(8,), **convert)
        return
    found = of(num_steps, block_sizes=(1, 4, 8), decay_block_sizes=(8,), **convert)
    assert [step for phase in found for step in range(phase.start, phase.stop)] == list(range(num_steps))
    stable = next((i for i, phase in enumerate(found) if phase.block_size == WHOLE_WINDOW), len(found) - 1)
    warmup = found[:stable][-1].stop if stable else 0
    assert warmup <= convert.get("warmup_share", 1) * num_steps
    assert warmup * BATCH <= convert.get("warmup_tokens", num_steps * BATCH)
    for step in range(num_steps):
        phase = phase_at(found, step)
        assert phase.start <= step < phase.stop


def test_tokens_are_cut_to_whole_steps() -> None:
    convert = {"block_sizes": (1, 4), "warmup_tokens": 5 * BATCH - 1, "decay_block_sizes": (8,)}
    assert lengths(of(10, **convert, decay_tokens=3 * BATCH + 1)) == [(1, 2), (4, 2), (WHOLE_WINDOW, 3), (8, 3)]
    assert lengths(of(7, **convert, decay_tokens=3 * BATCH)) == [(1, 2), (4, 2), (8, 3)]
    # The share that tokens take the place of no longer counts.
    assert lengths(of(10, block_sizes=(1,), warmup_tokens=BATCH, decay_block_sizes=(8,), decay_share=0.9)) == [
        (1, 1),
        (8, 9),
    ]


def test_parts_share_a_group_in_proportion() -> None:
    found = of(20, block_sizes=(1, 4, 8), warmup_share=0.5, warmup_parts=(0.1, 0.2, 0.7))
    assert lengths(found) == [(1, 1), (4, 2), (8, 7), (WHOLE_WINDOW, 10)]
    decay = of(20, block_sizes=(), decay_block_sizes=(8, 4), decay_share=0.2, decay_parts=(3, 1))
    assert lengths(decay) == [(WHOLE_WINDOW, 16), (8, 3), (4, 1)]


def test_a_share_may_leave_no_step_for_a_block_size_and_tokens_may_not() -> None:
    assert lengths(of(5, block_sizes=(1, 4, 8), warmup_share=0.4)) == [(4, 1), (8, 1), (WHOLE_WINDOW, 3)]
    message = (
        "convert.warmup_tokens is 2048, which leaves no step for blocks of 1, "
        "allowed: at least train.batch_tokens = 1024 for each of 3 phases"
    )
    with pytest.raises(ConfigError, match=message):
        of(5, block_sizes=(1, 4, 8), warmup_tokens=2 * BATCH)
    with pytest.raises(ConfigError, match="convert.decay_tokens is 1000, which leaves no step for blocks of 8"):
        of(5, block_sizes=(), decay_block_sizes=(8,), decay_tokens=1000)


def test_more_tokens_than_there_are_is_refused() -> None:
    message = (
        "warmup and decay of convert are 4 and 2 steps of 1,024 tokens, "
        "allowed: together at most the 5 of train.total_tokens = 5,125"
    )
    with pytest.raises(ConfigError, match=message):
        of(5, block_sizes=(1,), warmup_tokens=4 * BATCH, decay_block_sizes=(8,), decay_share=0.4)


def test_no_warmup_at_all() -> None:
    assert of(5, block_sizes=(), warmup_share=0.0) == [Phase(0, 5, WHOLE_WINDOW)]
    assert of(5, block_sizes=(), warmup_share=0.4) == [Phase(0, 5, WHOLE_WINDOW)]


def test_the_phases_are_said_in_one_line() -> None:
    found = of(2000, block_sizes=(4,), warmup_share=0.25)
    assert describe(found, BATCH) == (
        "phases: block 4, 500 steps (512,000 tokens); whole window, 1,500 steps (1,536,000 tokens)"
    )
