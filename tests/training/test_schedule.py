"""The block-size phases of a conversion."""

from __future__ import annotations

import pytest

from jaxlm.config import ConvertConfig
from jaxlm.training.schedule import WHOLE_WINDOW, Phase, phase_at, phases


def test_equal_warmup_parts_then_the_whole_window() -> None:
    config = ConvertConfig(block_sizes=(1, 4, 32, 64), warmup_share=0.4)
    assert phases(config, 100) == [
        Phase(0, 10, 1),
        Phase(10, 20, 4),
        Phase(20, 30, 32),
        Phase(30, 40, 64),
        Phase(40, 100, WHOLE_WINDOW),
    ]


def test_decay_comes_last() -> None:
    config = ConvertConfig(block_sizes=(1,), warmup_share=0.1, decay_block_sizes=(8, 4), decay_share=0.2)
    assert phases(config, 10) == [Phase(0, 1, 1), Phase(1, 8, WHOLE_WINDOW), Phase(8, 9, 8), Phase(9, 10, 4)]


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 58, 813])
def test_every_step_is_in_one_phase_and_the_shares_are_kept(num_steps: int) -> None:
    config = ConvertConfig(block_sizes=(1, 4, 8), warmup_share=0.4, decay_block_sizes=(8,), decay_share=0.1)
    found = phases(config, num_steps)
    assert [step for phase in found for step in range(phase.start, phase.stop)] == list(range(num_steps))
    small = sum(phase.stop - phase.start for phase in found if phase.block_size != WHOLE_WINDOW)
    assert small <= 0.5 * num_steps
    for step in range(num_steps):
        phase = phase_at(found, step)
        assert phase.start <= step < phase.stop


def test_no_warmup_at_all() -> None:
    assert phases(ConvertConfig(block_sizes=(), warmup_share=0.0), 5) == [Phase(0, 5, WHOLE_WINDOW)]
    assert phases(ConvertConfig(block_sizes=(), warmup_share=0.4), 5) == [Phase(0, 5, WHOLE_WINDOW)]
