"""A mix of sources: exact shares of the tokens, and bytes that depend on nothing but the configuration and the text."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import grain
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from jaxlm import command_line, lock, prepare_data
from jaxlm.data import encoding, prepare, workspace
from jaxlm.data.storage import combine_digests, update_digest
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError

from . import miniature
from .corpus import settings, silent, texts, write_lines

STUDY_MIX = "--config=configs/data/study_mix.py"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return miniature.write(tmp_path_factory.mktemp("sources"))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "BATCH_BYTES", miniature.BATCH)


@pytest.fixture(scope="module")
def mixed(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mix") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BATCH_BYTES", miniature.BATCH)
        prepare_data.main([STUDY_MIX, f"--out={out}", "--processes=1", *miniature.overrides(files)])
    return out


def fingerprint_and_statistics(out: Path) -> tuple[bytes, bytes]:
    return (out / "fingerprint.json").read_bytes(), (out / "statistics.json").read_bytes()


def test_every_source_has_its_share_of_the_tokens_to_a_thousandth(mixed: Path) -> None:
    windows = Windows.open(mixed)
    assert windows.source_names == tuple(miniature.WEIGHTS)
    sources = windows.sources("train")
    assert len(sources) == len(windows.split("train")) == miniature.TOTAL_TOKENS // miniature.SEQ_LEN > 1000
    for index, (name, weight) in enumerate(miniature.WEIGHTS.items()):
        assert abs((sources == index).mean() - weight) <= 0.001
        found = windows.statistics["by_source"][name]
        assert found["token_share"] == (sources == index).mean()
        assert found["windows"]["train"] == (sources == index).sum()
        assert found["windows"]["validation"] == (windows.sources("validation") == index).sum() > 0
        assert {"documents", "bytes", "tokens", "removed"} <= found.keys()
    removed = [counts["removed"]["too_short"] for counts in windows.statistics["by_source"].values()]
    assert windows.statistics["ended_by"] is None
    assert sum(removed) == windows.statistics["removed"]["too_short"] > 0


def test_a_window_is_of_the_source_that_its_number_says(mixed: Path) -> None:
    windows = Windows.open(mixed)
    for split in ("train", "validation"):
        for number, source in enumerate(windows.sources(split)):
            text = windows.tokenizer.decode(windows.split(split)[number]["tokens"])
            found = [name for name, words in miniature.WORDS.items() if any(word in text for word in words)]
            assert found == [windows.source_names[source]]


def test_everybody_reads_the_same_windows_also_from_another_place(mixed: Path, tmp_path: Path) -> None:
    import tensorflow_datasets as tfds

    copy = Windows.open(shutil.copytree(mixed, tmp_path / "elsewhere" / "renamed"))
    builder = tfds.builder_from_directory(str(copy.directory))
    digests = {}
    for split in ("train", "validation"):
        digest = hashlib.sha256()
        read_by_grain = grain.MapDataset.source(copy.split(split))
        for number, window in enumerate(builder.as_data_source(split=split)):
            update_digest(digest, window)
            assert np.array_equal(window["tokens"], read_by_grain[number]["tokens"])
        digests[split] = digest.digest()
    assert combine_digests(digests) == copy.fingerprint["data_sha256"]
    assert str(tmp_path) not in (copy.directory / "fingerprint.json").read_text()


def test_equal_windows_are_equal_bytes(mixed: Path) -> None:
    # A protobuf map is written in an order that differs by process, unless one is asked for.
    (file,) = mixed.glob("*validation.array_record*")
    reader = ArrayRecordReader(str(file))
    for content in reader.read_all():
        assert sorted(names := [b"loss_mask", b"segment_ids", b"tokens"], key=content.index) == names
    reader.close()


def test_two_processes_killed_and_begun_again_write_the_same_bytes(
    files: dict[str, str], mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import time; from jaxlm import command_line, prepare_data; from jaxlm.data import encoding\n"
        f"encoding.BATCH_BYTES = {miniature.BATCH}; load = encoding.BatchStore.load\n"
        "encoding.BatchStore.load = lambda *a: time.sleep(0.1) or load(*a)\n"  # there is time to kill it
        "command_line.run(prepare_data.main)"
    )
    out = tmp_path / "data"
    argv = [STUDY_MIX, f"--out={out}", "--processes=2", *miniature.overrides(files)]
    killed = subprocess.Popen([sys.executable, "-c", program, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    kept, batches = tmp_path / "data.partial" / "encoded", random.randrange(1, 12)
    while len(list(kept.glob("*.npz"))) < batches:
        assert killed.poll() is None, killed.stderr and killed.stderr.read()
        time.sleep(0.01)
    workers = [w for f in Path(f"/proc/{killed.pid}/task").glob("*/children") for w in f.read_text().split()]
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len(workers) >= 2 and not out.exists()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    (half,) = list(kept.glob("*.npz"))[:1]
    half.write_bytes(half.read_bytes()[:-30])
    whole, encoded = len(list(kept.glob("*.npz"))) - 1, []
    original = encoding.Encoder._encode_elsewhere
    monkeypatch.setattr(encoding.Encoder, "_encode_elsewhere", lambda *a: encoded.append(1) or original(*a))
    prepare_data.main(argv)
    assert fingerprint_and_statistics(out) == fingerprint_and_statistics(mixed)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    total = sum(f["bytes"] for f in Windows.open(out).statistics["by_source"].values()) // (miniature.BATCH * 2)
    assert whole >= 0 and total < len(encoded) + whole


def test_workers_that_cannot_start_end_the_command(files: dict[str, str], tmp_path: Path) -> None:
    argv = [STUDY_MIX, f"--out={tmp_path / 'data'}", "--processes=2", *miniature.overrides(files)]
    program = (
        f"from jaxlm import prepare_data; from jaxlm.data import encoding; encoding.BATCH_BYTES = {miniature.BATCH}\n"
        f"prepare_data.main({argv!r})"
    )
    # A worker imports the file of the main program: there is none where it comes from standard input.
    ran = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "a process that encodes text has ended" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_what_is_learnt_from_a_mix_has_the_proportions_of_the_mix(files: dict[str, str], tmp_path: Path) -> None:
    seen: dict[str, int] = dict.fromkeys(miniature.WEIGHTS, 0)

    def train(texts: list[str], size: int) -> object:
        for text in texts:
            found = [name for name, words in miniature.WORDS.items() if any(word in text for word in words)]
            seen[found[0]] += len(text)
        raise UserError("enough")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError, match="enough"):
        patch.setattr(prepare.Tokenizer, "train", train)
        prepare.prepare(miniature.mix(files, tokenizer="train:300"), tmp_path / "data", silent)
    for name, weight in miniature.WEIGHTS.items():
        assert seen[name] / sum(seen.values()) == pytest.approx(weight, abs=0.15)  # the longest document is 100 kB


def test_a_repetition_across_sources_is_dropped_where_it_is_read_second(tmp_path: Path) -> None:
    both = texts(150)
    first = write_lines(tmp_path / "first.jsonl", both[:100])
    second = write_lines(tmp_path / "second.jsonl", both[90:])
    config = miniature.mix(
        {"a": str(first), "b": str(second)}, weights={"a": 0.5, "b": 0.5}, total_tokens=None, tokenizer="train:300"
    )
    said: list[str] = []
    assert prepare.prepare(config, tmp_path / "data", said.append)
    found = Windows.open(tmp_path / "data").statistics
    assert [found["by_source"][name]["removed"]["duplicates"] for name in ("a", "b")] == [0, 10]
    assert found["removed"]["duplicates"] == 10
    # b has 50 documents of its own: it ends the mix, and is named.
    assert found["ended_by"] == "b"
    train = found["by_split"]["train"]["windows"] * miniature.SEQ_LEN
    assert any(f"source b ends the mix: it has no more text; there are {train:,} training tokens" in s for s in said)


def test_a_source_in_the_mix_may_be_of_any_kind_and_alone(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "corpus.jsonl", texts(120))
    alone = settings(file)
    mixed = miniature.mix(
        {"mine": str(file)}, weights={"mine": 1}, tokenizer="train:300", seq_len=16, validation_share=0.1, min_bytes=8,
        total_tokens=None,
    )  # fmt: skip
    digests = []
    for number, config in enumerate((alone, mixed)):
        prepare.prepare(config, tmp_path / str(number), silent)
        windows = Windows.open(tmp_path / str(number))
        digests.append(windows.fingerprint["data_sha256"])
        assert (windows.sources("train") == 0).all()
    assert digests[0] == digests[1] and windows.source_names == ("mine",)
    assert list(windows.statistics["by_source"]) == ["mine"]


def test_a_mistake_after_the_first_batches_says_what_stays(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "dclm-1.parquet"
    damaged.write_bytes(Path(files["dclm"].replace("*", "1")).read_bytes()[:-100])
    broken = files | {"dclm": f"{files['dclm'].replace('*', '0')},{damaged}"}
    out = tmp_path / "made" / "data"
    with pytest.raises(SystemExit) as stop:
        argv = [STUDY_MIX, f"--out={out}", "--processes=1", *miniature.overrides(broken)]
        command_line.run(prepare_data.main, argv)
    line = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == command_line.EXIT_USER
    assert f"file {damaged} is truncated or not Parquet" in line
    count = len(list((out.parent / "data.partial" / "encoded").iterdir()))
    assert f"; {count} encoded batches stay in {out}.partial, from which the same command goes on" in line and count
    assert sorted(path.name for path in (out.parent / "data.partial").iterdir()) == ["encoded", "lock"]


@pytest.mark.parametrize("where", ["batches", "windows"])
def test_a_full_disk_is_one_line(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*args: object) -> None:
        if where == "batches":
            raise OSError(28, "No space left on device")
        # What ArrayRecord says, on a disk of 3 MB.
        raise RuntimeError("write() failed: No space left on device; writing windows-train.array_record-00000")

    owner, name = (encoding.BatchStore, "save") if where == "batches" else (prepare.WindowWriter, "close")
    monkeypatch.setattr(owner, name, full)
    with pytest.raises(UserError, match=r"^the disk is full: about 0\.5 MB needed for .*, .* free; ") as error:
        prepare.prepare(miniature.mix(files), tmp_path / "data", silent)
    assert ("nothing of it stays" in str(error.value)) == (where == "batches")
    assert [path.name for path in tmp_path.iterdir()] == ([] if where == "batches" else ["data.partial"])


def test_too_small_a_disk_is_refused_before_anything_is_read(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "free", lambda directory: 5_000_000)
    with pytest.raises(UserError, match=r"^about 5\.\d GB of disk are needed for .*, 5\.0 MB are free, allowed: "):
        prepare.prepare(miniature.mix(files, total_tokens=10**9), tmp_path / "data", silent)
    assert not list(tmp_path.iterdir())


def test_two_at_the_same_time_do_not_write_to_one_place(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data.partial").mkdir()
    with lock.held(tmp_path / "data.partial" / "lock", "it"):
        with pytest.raises(UserError, match=rf"^--out={tmp_path}/data is in use by process {os.getpid()} on "):
            prepare.prepare(miniature.mix(files), tmp_path / "data", silent)
    (tmp_path / "data.partial" / "mine").touch()
    with pytest.raises(UserError, match="data.partial holds mine, allowed: "):
        prepare.prepare(miniature.mix(files), tmp_path / "data", silent)


def test_a_directory_from_before_there_were_mixes_is_still_known(tmp_path: Path) -> None:
    config = settings(write_lines(tmp_path / "corpus.jsonl", texts(120)))
    prepare.prepare(config, tmp_path / "data", silent)
    file = tmp_path / "data" / "fingerprint.json"
    fingerprint = json.loads(file.read_text())
    del fingerprint["config"]["weights"]
    file.write_text(json.dumps(fingerprint))
    assert not prepare.prepare(config, tmp_path / "data", silent)
    assert Windows.open(tmp_path / "data").source_names == ("all",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--config.weights.dclm=0.4"], "which sums to 1.1, allowed: shares above 0 that sum to 1"),
        (["--config.weights=dclm=0,finepdfs=0.8,fineweb_edu=0.2"], "allowed: shares above 0 that sum to 1"),
        (["--config.weights=dclm=0.3,finepdf=0.7"], "weights has 'finepdf', which files has not; did you mean"),
        (["--config.weights=dclm=0.3,finepdfs=0.7"], "weights has no fineweb_edu, allowed: a share for each of"),
        (["--config.files.finepdf=x"], "--config.files.finepdf: no such field; did you mean 'files.finepdfs'"),
        (["--config.files.dclm=hup:a/b"], "files is 'hup:a/b', and 'hup' is none of the sources; did you mean 'hub'"),
        (["--config.files.dclm=hub:a"], "files is 'hub:a', allowed: hub:OWNER/NAME"),
        (["--config.files=x.txt"], "weights has 'dclm', which files has not; allowed: none"),
        (["--config.source=package_docs"], "source is 'package_docs', allowed: 'files' where those are named"),
        (["--config.text_column=txet"], "no column 'txet' (--config.text_column); did you mean 'text'?"),
        (["--config.total_tokens=96"], "total_tokens is 96, allowed: enough windows for weights {"),
        (["--processes=0"], "--processes is 0, allowed: at least 1"),
    ],
)
def test_bad_mixes_are_refused(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        argv = [STUDY_MIX, f"--out={tmp_path / 'made' / 'out'}", *miniature.overrides(files), *changes]
        command_line.run(prepare_data.main, argv)
    said = capsys.readouterr().err.splitlines()
    assert stop.value.code == command_line.EXIT_USER and message in said[-1] and said[-1].startswith("jaxlm: ")
    assert not (tmp_path / "made").exists() or not list((tmp_path / "made").iterdir())


def test_an_empty_shard_is_named(files: dict[str, str], tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    empty = tmp_path / "dclm-0.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), empty)
    with pytest.raises(UserError, match="dclm-0.parquet holds no documents, allowed: files with text"):
        prepare.prepare(miniature.mix(files | {"dclm": str(empty)}), tmp_path / "data", silent)
