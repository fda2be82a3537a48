"""The sources as TFDS data sets: the same documents and windows, wherever the directory lies."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from jaxlm.data.builders import Dclm, FinePdfs, FinewebEdu
from jaxlm.data.builders import text as text_builder
from jaxlm.data.prepare import prepare
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError

from .corpus import settings, silent, texts, write_lines


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A miniature of the layout on the hub: Parquet shards with a text column."""
    root = tmp_path_factory.mktemp("shards")
    for i in range(3):
        column = texts(90)[30 * i : 30 * (i + 1)]
        pyarrow.parquet.write_table(pyarrow.table({"text": column}), root / f"train-{i:05}-of-00003.parquet")
    return f"{root}/*.parquet"


def test_the_windows_are_those_of_the_parquet_files_also_after_a_move(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow_datasets as tfds

    monkeypatch.setattr(text_builder, "BUFFER", 32)
    monkeypatch.setattr(text_builder, "DOCUMENTS_PER_SHARD", 40)
    builder = FinePdfs(files=shards, data_dir=tmp_path / "tfds")
    builder.download_and_prepare()
    written = Path(builder.data_dir)
    assert len(list(written.glob("*array_record*"))) == 3
    assert [row["text"].decode() for row in builder.as_data_source("train")] == texts(90)
    assert written == tmp_path / "tfds" / "finepdfs" / "1.0.0" and "tensorflow" not in sys.modules
    moved = written.rename(tmp_path / "elsewhere")
    opened = tfds.builder_from_directory(str(moved))
    assert (opened.name, len(opened.as_data_source("train"))) == ("finepdfs", 90)
    assert not [file for file in moved.glob("*.json") if str(tmp_path) in file.read_text()]
    for name, files in (("one", shards), ("other", f"tfds:{moved}")):
        prepare(settings(tmp_path, files=files), tmp_path / name, silent)
    one, other = Windows.open(tmp_path / "one"), Windows.open(tmp_path / "other")
    assert one.fingerprint["data_sha256"] == other.fingerprint["data_sha256"]
    assert one.fingerprint["tokenizer_sha256"] == other.fingerprint["tokenizer_sha256"]


def test_the_same_name_and_version_with_other_text_is_another_input(tmp_path: Path) -> None:
    for name, count in (("a", 90), ("b", 91)):
        file = write_lines(tmp_path / f"{name}.jsonl", texts(count))
        Dclm(files=str(file), data_dir=tmp_path / name).download_and_prepare()
    files = [f"tfds:{tmp_path}/{name}/dclm/1.0.0" for name in "ab"]
    prepare(settings(tmp_path, files=files[0]), tmp_path / "data", silent)
    assert not prepare(settings(tmp_path, files=files[0]), tmp_path / "data", silent)
    with pytest.raises(UserError, match="the input .other files, contents or versions"):
        prepare(settings(tmp_path, files=files[1]), tmp_path / "data", silent)


def test_what_cannot_be_read_leaves_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\nbroken\n')
    (tmp_path / "b.jsonl").write_text('{"prompt": "Q", "completion": "A"}\n')
    complaints = {"a": "line 2: not JSON", "b": "rows of prompt and completion", "c": "no file matches"}
    for name, complaint in complaints.items():
        builder = FinewebEdu(files=f"{tmp_path}/{name}.jsonl", data_dir=tmp_path / "tfds")
        with pytest.raises(UserError, match=complaint):
            builder.download_and_prepare()
        assert not list((tmp_path / "tfds").rglob("*.array_record*"))
