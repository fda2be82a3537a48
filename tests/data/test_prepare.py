"""A data directory from one end to the other: what is in it, when it is made again, what it does not depend on."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jaxlm import prepare_data
from jaxlm.command_line import load_config
from jaxlm.config import RunConfig
from jaxlm.data.prepare import prepare
from jaxlm.data.storage import combine_digests, update_digest
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError

from .corpus import settings, silent, texts, write_lines


def stream(windows: Windows, split: str) -> list[int]:
    """The tokens of a split, the overlap of the windows undone."""
    source = windows.split(split)
    rows = [source[i] for i in range(len(source))]
    scored = [row["tokens"][1:][row["loss_mask"][1:]] for row in rows]
    return np.concatenate([rows[0]["tokens"][:1], *scored]).tolist()


def test_the_first_window_is_the_beginning_of_the_second_document(windows: Windows) -> None:
    first = windows.split("train")[0]  # the first document is for validation
    assert windows.tokenizer.decode(first["tokens"]) == "norms 1 arrays 1 small 1 over 1 device 1 gradients 1"
    assert first["tokens"].dtype == first["segment_ids"].dtype == np.int32 and first["loss_mask"].dtype == np.bool_
    assert first["tokens"].shape == first["segment_ids"].shape == first["loss_mask"].shape == (17,)


def test_between_two_documents_stands_one_end_of_text(windows: Windows) -> None:
    text = windows.tokenizer.decode(stream(windows, "train"))
    documents = [t for i, t in enumerate(texts(120)) if i % 10]
    assert text == "<|endoftext|>".join(documents)[: len(text)]
    assert len(text) > sum(map(len, documents)) - 16 * 8
    kept = windows.tokenizer.decode(stream(windows, "validation"))
    assert kept == "".join(f"{document}<|endoftext|>" for document in texts(120)[::10])


def test_segments_change_right_after_end_of_text(windows: Windows) -> None:
    for split in ("train", "validation"):
        rows = windows.split(split)
        for i in range(len(rows)):
            row, inside = rows[i], rows[i]["loss_mask"]
            ends = row["tokens"] == windows.tokenizer.end_of_text_id
            expected = 1 + np.concatenate([[0], np.cumsum(ends)[:-1]])
            assert row["segment_ids"][inside].tolist() == expected[inside].tolist()


def test_validation_is_scored_to_its_end_and_its_bytes_are_at_hand(windows: Windows) -> None:
    text = "".join(texts(120)[::10]).encode()
    assert windows.text("validation") == text[len("norms") :]  # the first token is context only
    assert windows.statistics["by_split"]["validation"]["bytes"] == len(text)


def test_statistics_count_what_was_kept(windows: Windows) -> None:
    found, kept = windows.statistics, texts(120)
    assert found["documents"] == 120
    assert found["bytes"] == sum(len(t) for t in kept)
    assert found["tokens"] == sum(len(windows.tokenizer.encode(t)) + 1 for t in kept)
    assert found["bytes_per_token"] == found["bytes"] / found["tokens"]
    counts = {name: found[name] for name in ("documents", "bytes", "tokens")}
    assert found["by_source"] == {"files": counts | {"token_share": 1.0}}
    assert found["removed"] == {"too_short": 0, "duplicates": 0}
    assert {s: found["by_split"][s]["windows"] for s in ("train", "validation")} == {
        s: len(windows.split(s)) for s in ("train", "validation")
    }


def test_the_tokenizer_has_seen_training_text_only(corpus: Path, tmp_path: Path) -> None:
    # Every tenth document is for validation; here those alone have the letters of "zzqx".
    documents = [("zzqx " * 30 + str(i)) if i % 10 == 0 else text for i, text in enumerate(texts(120))]
    prepare(settings(write_lines(tmp_path / "corpus.jsonl", documents)), tmp_path / "data", silent)
    windows = Windows.open(tmp_path / "data")
    assert len(windows.tokenizer.encode("zzqx")) == 4


def test_tfds_reads_the_directory_and_the_fingerprint_is_of_what_it_reads(data_dir: Path, windows: Windows) -> None:
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(data_dir))
    digests = {}
    for split in ("train", "validation"):
        digest = hashlib.sha256()
        for window in builder.as_data_source(split=split):
            update_digest(digest, window)
        digests[split] = digest.digest()
    assert combine_digests(digests) == windows.fingerprint["data_sha256"]
    assert windows.tokenizer.sha256() == windows.fingerprint["tokenizer_sha256"]
    assert "tensorflow" not in sys.modules


def test_the_fingerprint_is_the_same_again_and_for_more_files(corpus: Path, data_dir: Path, tmp_path: Path) -> None:
    assert prepare(settings(corpus), tmp_path / "sharded", silent, windows_per_shard=100)
    assert len(list((tmp_path / "sharded").glob("windows-train*"))) > 3
    for name in ("fingerprint.json", "statistics.json"):
        assert (tmp_path / "sharded" / name).read_bytes() == (data_dir / name).read_bytes()
    one, other = Windows.open(data_dir).split("train"), Windows.open(tmp_path / "sharded").split("train")
    assert all((one[i]["tokens"] == other[i]["tokens"]).all() for i in range(len(one)))


def test_a_copied_directory_reads_the_same_and_names_no_path(data_dir: Path, corpus: Path, tmp_path: Path) -> None:
    there = shutil.copytree(data_dir, tmp_path / "elsewhere" / "renamed")
    shutil.copytree(data_dir, tmp_path / "original")
    moved = Windows.open(there)
    assert stream(moved, "train") == stream(Windows.open(data_dir), "train")
    for file in there.rglob("*.json"):
        for part in (corpus.parent, data_dir.parent):
            assert str(part) not in file.read_text()


def test_the_same_command_again_does_nothing(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "data"
    argv = ["--config=configs/data/files.py", f"--out={out}", f"--config.files={corpus}", "--config.seq_len=16"]
    prepare_data.main(argv)
    assert (
        f"--config=configs/pocket/llama3_canon.py --config.data.dir={out}" in capsys.readouterr().out.splitlines()[-1]
    )
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    prepare_data.main(argv)
    assert "nothing to do" in capsys.readouterr().out
    assert before == {file: file.stat().st_mtime_ns for file in out.rglob("*")}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seq_len": 32, "min_bytes": 9}, ["seq_len (16 there, 32 here)", "min_bytes (8 there, 9 here)"]),
        ({"tokenizer": "train:301"}, ["tokenizer ('train:300' there, 'train:301' here)"]),
    ],
)
def test_another_config_is_refused_and_the_fields_are_named(
    corpus: Path, data_dir: Path, changes: dict[str, object], named: list[str]
) -> None:
    with pytest.raises(UserError) as error:
        prepare(settings(corpus, **changes), data_dir, silent)
    assert all(name in str(error.value) for name in named)
    assert str(error.value).count(" there, ") == len(named)


def test_other_files_under_the_same_pattern_are_refused(data_dir: Path, tmp_path: Path) -> None:
    other = write_lines(tmp_path / "corpus.jsonl", texts(121))
    with pytest.raises(UserError, match="prepared otherwise: the input "):
        prepare(settings(other), data_dir, silent)


def test_a_directory_with_something_else_is_left_alone(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UserError, match="holds something else"):
        prepare(settings(corpus), tmp_path, silent)
    with pytest.raises(UserError, match="holds something else"):
        prepare(settings(corpus), tmp_path / "mine", silent)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_a_budget_of_tokens_is_kept_to_the_window(corpus: Path, tmp_path: Path) -> None:
    prepare(settings(corpus, total_tokens=1000), tmp_path / "data", silent)
    windows = Windows.open(tmp_path / "data")
    assert len(windows.split("train")) == 1000 // 16
    assert windows.statistics["documents"] < 120


def test_a_budget_leaves_few_documents_their_validation(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n\n".join(texts(60)))
    prepare(settings(tmp_path / "book.txt", total_tokens=200), tmp_path / "data", silent)
    windows = Windows.open(tmp_path / "data")
    assert len(windows.split("train")) == 200 // 16
    assert windows.text("validation").endswith(texts(60)[-1].encode())


def test_a_single_text_gives_both_splits(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n\n".join(texts(60)))
    prepare(settings(tmp_path / "book.txt"), tmp_path / "data", silent)
    windows = Windows.open(tmp_path / "data")
    whole, kept = "\n\n".join(texts(60)), windows.tokenizer.decode(stream(windows, "validation"))
    assert (whole + "<|endoftext|>").endswith("\n\n" + kept)
    assert len(kept) == pytest.approx(len(whole) / 10, rel=0.3)


def test_a_tokenizer_directory_is_used_as_it_is(corpus: Path, data_dir: Path, tmp_path: Path) -> None:
    given = settings(corpus, tokenizer=str(data_dir / "tokenizer"), seq_len=32)
    prepare(given, tmp_path / "data", silent)
    windows = Windows.open(tmp_path / "data")
    assert windows.tokenizer.sha256() == Windows.open(data_dir).tokenizer.sha256()
    assert windows.fingerprint["config"]["tokenizer"] == "tokenizer"
    assert not prepare(given, tmp_path / "data", silent)


def test_a_damaged_directory_is_refused(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no data directory"):
        Windows.open(tmp_path)
    for name in ("statistics.json", "windows-train.array_record-00000", "dataset_info.json", "features.json"):
        broken = shutil.copytree(data_dir, tmp_path / name)
        (broken / name).unlink()
        with pytest.raises(UserError, match="prepare it again"):
            Windows.open(broken)
    (tmp_path / "fingerprint.json").write_text("[]")
    with pytest.raises(UserError, match="is not a fingerprint"):
        Windows.open(tmp_path)


def test_no_split_of_another_name(windows: Windows) -> None:
    with pytest.raises(UserError, match="no split 'test'"):
        windows.split("test")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing_behind(corpus: Path, tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import os, sys; from jaxlm import command_line, prepare_data; from jaxlm.data import prepare\n"
        f"prepare.WindowWriter = lambda *a: os.kill(os.getpid(), {int(number)})\n"
        "command_line.run(prepare_data.main)"
    )
    out = tmp_path / "made" / "out"
    argv = ["--config=configs/data/files.py", f"--config.files={corpus}", f"--out={out}"]
    ran = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True)
    assert ran.returncode == 128 + number, ran.stderr
    assert not list(out.parent.iterdir())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"tokenizer": "train:many"}, "tokenizer is 'train:many', allowed: train:SIZE"),
        ({"tokenizer": "train:256"}, "tokenizer is train:256, allowed: at least 257"),
        ({"tokenizer": "gpt5"}, "tokenizer is 'gpt5', which is no directory"),
        ({"source": "file"}, "source is 'file', which is none of the sources; did you mean 'files'?"),
        ({"seq_len": 100_000}, "the training text has "),
        ({"total_tokens": 100}, "total_tokens is 100, allowed: at least one window, seq_len = 256"),
    ],
)
def test_bad_settings_are_refused(
    refused: Callable[..., str], corpus: Path, overrides: dict[str, object], message: str
) -> None:
    assert refused(files=corpus, **overrides).startswith(message)


def test_out_must_be_given(corpus: Path) -> None:
    with pytest.raises(UserError, match="--out is missing"):
        prepare_data.main(["--config=configs/data/files.py", f"--config.files={corpus}"])


def test_a_run_config_is_not_for_this_command(tmp_path: Path) -> None:
    run_config = tmp_path / "run.py"
    run_config.write_text("from jaxlm import config\ndef get_config():\n    return config.run()\n")
    with pytest.raises(UserError, match="not of this command"):
        prepare_data.main([f"--config={run_config}", f"--out={tmp_path / 'out'}"])


def test_fingerprints_are_json_that_others_read(data_dir: Path) -> None:
    fingerprint = json.loads((data_dir / "fingerprint.json").read_text())
    assert {"data_sha256", "tokenizer_sha256", "config"} <= fingerprint.keys()
    assert fingerprint["config"]["files"] == "corpus.jsonl"


def test_text_of_the_same_name_and_size_is_other_text(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "corpus.jsonl", texts(120))
    prepare(settings(file), tmp_path / "data", silent)
    assert not prepare(settings(file), tmp_path / "data", silent)
    file.write_text(file.read_text().replace("norms", "forms"))
    with pytest.raises(UserError, match="the input .other files, contents or versions"):
        prepare(settings(file), tmp_path / "data", silent)


def test_the_next_command_fits_the_windows(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "corpus.jsonl", texts(120))
    for name, size, length in (("small", "train:300", 256), ("long", "train:300", 2048), ("gpt2", "gpt2", 16)):
        prepare(settings(file, tokenizer=size, seq_len=16), tmp_path / name, silent)
        words = prepare_data.next_command(tmp_path / name, length).split()
        config, overrides = words[3].partition("=")[2], words[4:-1]
        pairs = [tuple(word.removeprefix("--config.").split("=")) for word in overrides]
        run = load_config(config, [(field, value, False) for field, value in pairs], RunConfig)
        assert (run.train.seq_len, run.data.dir) == (length, str(tmp_path / name))
        assert run.model.vocab_size > Windows.open(tmp_path / name).tokenizer.vocab_size
        assert run.train.batch_size >= 1
