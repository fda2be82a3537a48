"""The compressors are those of the command line, and the token frequencies are the closed form."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

from jaxlm.evaluation import baselines

TEXT = " ".join(f"the {n}th sentence says that {n} times {n} is {n * n}." for n in range(500)).encode()


TRAIN = [np.asarray([0, 0, 1]), np.asarray([1, 0])]
HELD_OUT = [np.asarray([0, 2, 3]), np.asarray([1, 3])]


@pytest.mark.parametrize(("command", "size"), [("gzip", baselines.gzip_size), ("xz", baselines.xz_size)])
def test_compressors_give_the_size_of_the_command_line_tool(command: str, size: Callable[[bytes], int]) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed here")
    out = subprocess.run([command, "-9", "-c"], input=TEXT, stdout=subprocess.PIPE, check=True).stdout
    # The headers may differ by a file name or a kind of checksum, not by more than 32 bytes.
    assert size(TEXT) == pytest.approx(len(out), abs=32)


def test_every_token_counts_once_more_than_it_was_seen() -> None:
    counts_V = baselines.count_tokens(TRAIN, 4)
    assert counts_V.tolist() == [3, 2, 0, 0]
    nats_V = baselines.token_frequency_nats(counts_V)
    assert np.exp(-nats_V) == pytest.approx([4 / 9, 3 / 9, 1 / 9, 1 / 9])


def test_token_frequency_loss_on_held_out_windows_is_the_closed_form() -> None:
    score = baselines.token_frequency(baselines.count_tokens(TRAIN, 4), HELD_OUT, np.asarray([2, 5, 1, 0]))
    nats = [-math.log(p) for p in (4 / 9, 1 / 9, 1 / 9, 3 / 9, 1 / 9)]
    assert score.nats_per_token.value == pytest.approx(sum(nats) / 5)
    assert score.tokens_N.tolist() == [3, 2]
    assert score.bytes_N.tolist() == [3, 5]
    assert score.bits_per_byte is not None
    assert score.bits_per_byte.value == pytest.approx(sum(nats) / math.log(2) / 8)


def test_frequencies_of_the_held_out_windows_themselves_give_their_entropy() -> None:
    # Many tokens, so that the added ones weigh nothing: the loss is the entropy of the counts.
    windows = [np.repeat([0, 1, 2], [50_000, 30_000, 20_000])]
    p = np.asarray([0.5, 0.3, 0.2])
    score = baselines.token_frequency(baselines.count_tokens(windows, 3), windows, np.ones(3, int))
    assert score.nats_per_token.value == pytest.approx(-(p * np.log(p)).sum(), abs=1e-4)


def test_summary_has_no_bits_a_byte_where_there_is_no_byte() -> None:
    nothing = baselines.summary(baselines.token_frequency(np.zeros(4, int), HELD_OUT, np.zeros(4, int)), b"")
    assert nothing["token_frequency"]["loss"] == pytest.approx(math.log(4))
    assert [nothing[name]["bits_per_byte"] for name in ("token_frequency", "xz", "gzip")] == [None] * 3
