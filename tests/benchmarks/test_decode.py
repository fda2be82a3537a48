"""Decoding side by side: what is run, that the numbers fit together, and how text is judged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from jaxlm import benchmark
from jaxlm.benchmarks import decode
from jaxlm.benchmarks.decode_quality import unigram_entropy
from jaxlm.benchmarks.decode_ways import AR, BLOCK, FULL, ways
from jaxlm.config import PrepareConfig, RunConfig
from jaxlm.data.prepare import prepare
from jaxlm.errors import UserError
from jaxlm.fields import build
from jaxlm.training import loop

SHAPE = {"vocab_size": 320, "num_layers": 1, "hidden_size": 16, "intermediate_size": 24}
SHAPE |= {"num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "max_positions": 32}
FLAGS = ["--what=decode", "--prompt_tokens=5", "--new_tokens=12", "--rounds=1", "--json"]


@pytest.fixture(scope="module")
def random_weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("decode")
    values = f"dict(family='llama3', **{SHAPE})"
    (root / "tiny.py").write_text(
        f"from jaxlm import config\n\ndef get_config():\n    run = config.run()\n    run.model.update({values})\n"
        "    run.train.update(dict(seq_len=16, batch_tokens=16))\n    return run\n"
    )
    flags = [*FLAGS, f"--config={root / 'tiny.py'}", "--batch=1,2", "--block_size=4"]
    benchmark.main([*flags, f"--out={root / 'out.json'}", f"--plot={root / 'out.png'}"])
    assert (root / "out.png").stat().st_size > 10_000
    return dict(json.loads((root / "out.json").read_text()))


def test_every_way_is_run_and_its_numbers_fit_together(random_weights: dict[str, Any]) -> None:
    rows = {(row["way"], row["batch"]): row for row in random_weights["rows"]}
    expected = {
        (way.name, batch)
        for way in ways(4)
        for batch in (1, 2)
        if not way.trained_only and batch in (way.batches or (1, 2))
    }
    assert rows.keys() == expected | {(decode.THEIRS, 1), (decode.THEIRS, 2)}
    for (name, batch), row in rows.items():
        assert row["tokens_per_sec"] > 0 and row["quality"] is None
        ar = rows["AR, cache", batch]
        assert row["times_ar"] == pytest.approx(row["tokens_per_sec"] / ar["tokens_per_sec"])
        if name == decode.THEIRS:
            assert row["same_tokens"] == 1.0, "the same weights"
            continue
        assert row["tokens_per_pass"] == pytest.approx(12 / (row["passes"] + row["cache_passes"]))
        # At break-even the passes of this row would be as fast as autoregression.
        seconds = batch * 12 / row["tokens_per_sec"] / (row["passes"] + row["cache_passes"])
        ar_seconds = batch * 12 / ar["tokens_per_sec"] / 12
        assert row["break_even_tokens_per_pass"] == pytest.approx(seconds / ar_seconds)
        assert 0 < row["seconds_to_first_pass"] <= row["seconds_to_first_token"]
    # Prompt 5, 12 new: blocks end at 8, 12, 16 and 17.
    cached = rows["block-causal 4, 8 a pass, cache", 1]
    assert (cached["passes"], cached["cache_passes"], cached["same_tokens"]) == (4, 4, 1.0)
    assert rows["full canvas, 8 a pass", 2]["passes"] == 2
    assert rows["full canvas, the study's protocol", 1]["passes"] == 3
    assert rows["full canvas, 1 a pass", 1]["passes"] == 12
    assert rows["full canvas, 1 a pass", 1]["logits_bytes"] == 4 * 12 * 320


def test_the_table_names_its_conditions(random_weights: dict[str, Any]) -> None:
    text = decode.table(random_weights)
    for part in ("random weights", "5 tokens of prompt, 12 new ones", "float32", "torch", "medians of 1 rounds"):
        assert part in text
    assert text.count("\n| ") == len(random_weights["rows"]) + 1


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    (root / "text.txt").write_text("\n\n".join(f"Document {i} says that {i} is {2 * i} half." for i in range(600)))
    text = PrepareConfig(files=str(root / "text.txt"), tokenizer="train:300", seq_len=24)
    prepare(text, root / "data", report=lambda text: None)
    train = {"total_tokens": 96, "batch_tokens": 48, "seq_len": 24, "eval_windows": 0, "tensorboard": False}
    values: dict[str, Any] = {"model": {"family": "llama3_canon", **SHAPE}, "train": train}
    values |= {"data": {"dir": str(root / "data")}, "execution": {"data_parallel": 1, "dtype": "float32"}}
    loop.train(build(RunConfig, values), root / AR, kind="train")
    values["objective"] = {"kind": "diffusion"}
    for name, phases in {
        FULL: {"block_sizes": ()},
        BLOCK: {"block_sizes": (), "decay_block_sizes": (4,), "decay_share": 1.0, "warmup_share": 0.0},
    }.items():
        loop.train(
            build(RunConfig, values | {"convert": phases}), root / name, kind="convert", init_from=str(root / AR)
        )
    return {name: root / name for name in (AR, FULL, BLOCK)}


def test_trained_models_are_judged_beside_the_real_text(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_on_cpu_with_torch", lambda: False)  # the other test runs it
    workdirs = [f"--workdir={runs[name]}" for name in (FULL, BLOCK)]
    picture = f"--plot={tmp_path / 'out.png'}"
    benchmark.main([*FLAGS, *workdirs, f"--twin={runs[AR]}", "--batch=1", "--texts=3", picture])
    result = json.loads(capsys.readouterr().out)
    assert (tmp_path / "out.png").stat().st_size > 10_000
    assert result["trained"] and {row["way"] for row in result["rows"]} == {way.name for way in ways(4)}
    for row in result["rows"]:
        found = row["quality"]
        assert found["generative_perplexity"] == pytest.approx(math.exp(found["twin"]["nats"]))
        assert 0 <= found["unigram_entropy"] <= math.log(12)
        assert (found["own_elbo"] is None) == (row["reading"] == AR)
    # Two steps of training: every token is about as likely as any other of 320.
    assert result["reference"]["twin"]["nats"] == pytest.approx(math.log(320), abs=0.2)
    assert result["reference"]["own_elbo"].keys() == {FULL, BLOCK}
    for part in ("The text that really follows", "own ELBO", "transformers was not run"):
        assert part in decode.table(result)


def test_entropy_tells_repetition_from_variety() -> None:
    assert unigram_entropy([[7, 7, 7, 7]]) == 0
    assert unigram_entropy([[1, 2, 3, 4]]) == pytest.approx(math.log(4))
    assert unigram_entropy([[7, 7, 7, 7], [1, 1, 2, 2]]) == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--config is missing, allowed: a file of configs/, or of --what=decode --workdir and --twin"),
        (["--seq_len=3"], "--seq_len is not read by --what=decode"),
        (["--batch=1,x"], "--batch is '1,x', allowed: a number of rows, of decode also several by commas"),
        (["--batch=0"], "--batch is '0'"),
        (["--new_tokens=0"], "--new_tokens is 0, allowed: at least 1"),
        (["--config=configs/dllm.py", "--new_tokens=2000"], "--prompt_tokens + --new_tokens is 2005, allowed: at most"),
        (["--config=configs/dllm.py", "--workdir=x"], "--config and --workdir are both given"),
        (["--workdir=x"], "--workdir without --twin"),
        (["--config=configs/dllm.py", "--plot=no/where.png"], "--plot is 'no/where.png', allowed: a file in a dir"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(flags: list[str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        benchmark.main([*FLAGS, *flags])
    assert message in str(refused.value)


def test_models_that_do_not_go_together_are_refused(runs: dict[str, Path]) -> None:
    for workdirs, twin, message in (
        ([runs[FULL]], runs[BLOCK], "was trained for diffusion, allowed: an autoregressive run"),
        ([runs[AR]], runs[AR], "is no diffusion run with the tokenizer of"),
        ([runs[FULL], runs[FULL]], runs[AR], "reads like another one"),
    ):
        with pytest.raises(UserError, match=message):
            benchmark.main([*FLAGS, *(f"--workdir={path}" for path in workdirs), f"--twin={twin}"])
