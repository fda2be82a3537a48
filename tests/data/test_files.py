"""Text files of every kind, and every way in which they can be wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxlm.config import PrepareConfig
from jaxlm.data.sources import files
from jaxlm.data.sources.files import Files
from jaxlm.errors import UserError

Refused = Callable[..., str]


def read(pattern: object, **options: str) -> list[str]:
    return [document.text for document in Files(str(pattern), PrepareConfig(**options)).documents()]  # type: ignore[arg-type]


def write_parquet(path: Path, texts: list[object], column: str = "text") -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({column: texts, "other": [0] * len(texts)}), path)
    return path


def test_every_format_gives_the_same_text(tmp_path: Path) -> None:
    texts = ["One line.", "Zwölf Boxkämpfer 漢\n\nsecond paragraph"]
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(texts))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": t, "id": 3}) for t in texts) + "\n\n")
    write_parquet(tmp_path / "a.parquet", list(texts))
    for name in ("a.txt", "a.jsonl", "a.parquet"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        assert read(tmp_path / name) == texts
        assert read(tmp_path / f"{name}.gz") == texts


def test_patterns_are_separated_by_commas_and_a_file_is_read_once_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert read(f"{tmp_path}/b.txt, {tmp_path}/*.txt,{tmp_path}/**/c.txt") == ["a.txt", "b.txt", "deep/c.txt"]


def test_another_column(tmp_path: Path) -> None:
    assert read(write_parquet(tmp_path / "a.parquet", ["x", "y"], "content"), text_column="content") == ["x", "y"]


def test_characters_may_lie_across_the_pieces_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "aé漢\U0001f600" * 20
    (tmp_path / "a.txt").write_text(text)
    for size in range(1, 12):
        monkeypatch.setattr(files, "READ_BYTES", size)
        assert read(tmp_path / "a.txt") == [text]


def test_a_long_text_is_cut_at_the_end_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_TEXT", 100)
    monkeypatch.setattr(files, "READ_BYTES", 64)
    text = "".join(f"line number {i}\n" for i in range(50)) + "x" * 250
    (tmp_path / "a.txt").write_text(text)
    parts = read(tmp_path / "a.txt")
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 100
    assert all(part.endswith("\n") for part in parts[:5])


def test_a_pattern_without_a_match(refused: Refused, tmp_path: Path) -> None:
    assert refused(files=f"{tmp_path}/*.txt") == f"files: no file matches '{tmp_path}/*.txt'"
    assert refused(files=" , ").startswith("files is empty, allowed: patterns of")


def test_an_empty_file(refused: Refused, tmp_path: Path) -> None:
    for name, content in (("a.txt", b""), ("b.txt", b" \n\n"), ("c.jsonl", b"\n"), ("d.txt.gz", gzip.compress(b""))):
        (tmp_path / name).write_bytes(content)
        said = refused(files=tmp_path / name)
        assert said.startswith(f"file {tmp_path / name} ") and said.endswith("allowed: files with text")
    path = write_parquet(tmp_path / "e.parquet", [])
    assert "holds no documents" in refused(files=path)


def test_a_file_that_cannot_be_read(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").mkdir()
    assert "a.txt is not a file" in refused(files=tmp_path / "*.txt")
    (tmp_path / "b.txt").write_text("text")

    def locked(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", locked)
    assert refused(files=tmp_path / "b.txt") == f"file {tmp_path}/b.txt cannot be read: Permission denied"


def test_a_file_of_another_kind(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text("text")
    assert "ends in '.pdf', allowed: .txt, .jsonl, .parquet" in refused(files=tmp_path / "a.pdf")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("é".encode("latin-1") + b" and more", "byte 0 is 0xe9"),
        (b"ab" + "漢".encode()[:2], "byte 2 begins a character"),
    ],
)
def test_text_that_is_not_utf8(refused: Refused, tmp_path: Path, content: bytes, place: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert refused(files=tmp_path / "a.txt").startswith(f"file {tmp_path}/a.txt is not UTF-8: {place}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text" "x"}', "not JSON (Expecting ':' delimiter at column 9)"),
        (b'{"txt": "x"}', "no key 'text' (--config.text_column); did you mean 'txt'?"),
        (b'["x"]', "a list, allowed: a JSON object with the key 'text'"),
        (b'{"text": 3}', "'text' is a int, allowed: a string"),
        (b'{"text": "\xe9"}', "not UTF-8"),
        (b'{"text": "\\ud800"}', "'text' has half of a surrogate pair, which UTF-8 cannot hold"),
    ],
)
def test_a_broken_line(refused: Refused, tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n\n' + line + b"\n")
    assert refused(files=tmp_path / "a.jsonl") == f"file {tmp_path}/a.jsonl, line 3: {message}"


def test_a_truncated_gzip_file(refused: Refused, tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(map(str, range(1000))).encode())
    for content in (whole[:-20], b"not gzip at all"):
        (tmp_path / "a.txt.gz").write_bytes(content)
        assert "a.txt.gz is not a whole gzip file" in refused(files=tmp_path / "a.txt.gz")


def test_parquet_that_is_truncated_or_lacks_the_column(refused: Refused, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", ["some text"] * 100, "content")
    assert "no column 'text' (--config.text_column); did you mean 'content'?" in refused(files=path)
    assert "row 1: 'other' is a int" in refused(files=path, text_column="other")
    path.write_bytes(path.read_bytes()[:-30])
    assert f"file {path} is truncated or not Parquet" in refused(files=path, text_column="content")


def test_parquet_without_pyarrow_names_the_package(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert "needs the package pyarrow (pip install 'jaxlm[data]')" in refused(files=tmp_path / "a.parquet")


def test_reading_stops_where_the_reader_stops(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\nbroken\n')
    documents = Files(str(tmp_path / "a.jsonl"), PrepareConfig()).documents()
    assert next(documents).text == "good"
    with pytest.raises(UserError):
        next(documents)
