"""The speed of preparing data: what is made up for it, and what is said of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from jaxlm import benchmark
from jaxlm.benchmarks import prepare
from jaxlm.errors import UserError


def test_it_prepares_a_made_up_mix_and_says_how_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "PACKAGES", ("optax",))
    out = tmp_path / "out.json"
    benchmark.main(["--what=prepare", "--sizes=1M", "--processes=1", f"--out={out}"])
    result = json.loads(out.read_text())
    (run,) = result["runs"]
    assert run["tokens"] == 1_000_000 // 1024 * 1024
    assert run["tokens_per_sec"] == run["tokens"] / run["seconds"]
    assert result["hours_for_1B"] == pytest.approx(1e9 / run["tokens_per_sec"] / 3600)
    assert run["peak_bytes"] > 50e6 and 1 < run["disk_bytes"] / run["tokens"] < 50
    lines = prepare.table(result).splitlines()
    assert f"{run['tokens']:,}" in lines[1] and "1B tokens at the speed of the last line" in lines[2]


def test_made_up_documents_differ_and_have_their_lengths() -> None:
    texts = prepare.documents(random.Random(0), ["x" * 300, "y" * 50], 100, 10_000)
    found = [next(texts) for _ in range(200)]
    assert len(set(found)) == 200
    assert min(map(len, found)) < 250 and 5_000 < max(map(len, found)) < 12_000


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sizes=many"], "--sizes is 'many' .*, allowed: numbers as 10M, by commas"),
        (["--processes=0"], "--processes is 0, allowed: at least 1"),
        (["--batch=2"], "--batch is not read by --what=prepare, allowed: sizes, processes"),
        (["--config=configs/pocket/dhara.py"], "--config is not read by --what=prepare"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(flags: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        benchmark.main(["--what=prepare", *flags])
