"""The novels: chapters out of an R database that is made here, in every wrapping; the real ones if they are at hand."""

from __future__ import annotations

import io
import os
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jaxlm.config import PrepareConfig
from jaxlm.data.document import Document
from jaxlm.data.sources.austen import DATABASE, TABLE, Austen
from jaxlm.data.tokenizer import Tokenizer

FIRST = "THE NOVEL\n\nby Nobody\n\nVOLUME I\n\n\nCHAPTER I\n\nIn the chapter before, nothing was said.\n\n\n"
SECOND = "CHAPTER II\n\nMuch was said, “at last”.\n\n\n"
THIRD = "VOLUME II\n\nCHAPTER I\n\nThe end.\n"
SHORT = "A short story\n\nChapter 1\n\nIt ends.\n"
EXPECTED = [*(Document(text, "novel") for text in (FIRST, SECOND, THIRD)), Document(SHORT, "story")]


def rds(path: Path, value: object, compression: str | None) -> bytes:
    import rdata

    rdata.write_rds(path, value, compression=compression)
    return path.read_bytes()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as `dpkg -x` makes it, with two texts."""
    root = tmp_path_factory.mktemp("library")
    database, variables = b"", {}
    for name, text in (("story", SHORT), ("novel", FIRST + SECOND + THIRD)):
        plain = rds(root / "x.rds", np.array(text.removesuffix("\n").split("\n")), None)
        stored = len(plain).to_bytes(4, "big") + zlib.compress(plain)
        variables[name] = np.array([len(database), len(stored)], np.int32)
        database += stored
    data = root / "usr" / "lib" / "R" / "site-library" / TABLE
    data.parent.mkdir(parents=True)
    data.write_bytes(rds(root / "x.rds", {"variables": variables, "references": {}, "compressed": True}, "gzip"))
    data.with_suffix(".rdb").write_bytes(database)
    return root


def ar(members: dict[str, bytes]) -> bytes:
    out = b"!<arch>\n"
    for name, content in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return out


def deb(path: Path, library: Path) -> Path:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        archive.add(library / "usr", arcname="./usr")
    path.write_bytes(ar({"debian-binary": b"2.0", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}))
    return path


def read(path: object) -> Austen:
    return Austen(str(path), PrepareConfig())


def test_a_chapter_is_a_document_in_every_wrapping(library: Path, tmp_path: Path) -> None:
    package = deb(tmp_path / "novels_1.0_all.deb", library)
    table = next(library.rglob(TABLE))
    sources = [read(path) for path in (package, tmp_path / "*.deb", library, table.parents[2], table.parents[1])]
    assert all(list(source.documents()) == EXPECTED for source in sources)
    assert len({source.identity() for source in sources}) == 1
    assert "".join(document.text for document in EXPECTED[:3]) == FIRST + SECOND + THIRD


def test_what_is_not_there_or_broken_is_refused(refused: Callable[..., str], library: Path, tmp_path: Path) -> None:
    said = refused(files=f"austen:{tmp_path}/none_*.deb")
    assert "apt-get download r-cran-janeaustenr" in said and "--config.files='austen:" in said
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path}/empty has no {TABLE}" in refused(files=f"austen:{tmp_path}/empty")
    package = deb(tmp_path / "a.deb", library)
    whole = package.read_bytes()
    cut = (whole[:100], whole[: len(whole) // 2])
    for content in (b"text", *cut, ar({"data.tar.xz": b"xz"}), ar({"control.tar.xz": b"x"})):
        package.write_bytes(content)
        assert f"file {package} cannot be read as a Debian package" in refused(files=f"austen:{package}")
    package.write_bytes(whole)
    (tmp_path / "b.deb").write_bytes(whole)
    assert "matches 2 files, allowed: one of" in refused(files=f"austen:{tmp_path}/*.deb")


def test_a_broken_database_is_refused(refused: Callable[..., str], library: Path, tmp_path: Path) -> None:
    table, database = (next(library.rglob(name)).read_bytes() for name in (TABLE, DATABASE))
    for name, broken_table, broken_database in (
        ("a", b"X\n", database), ("b", table, database[:60]), ("c", table, b"\0" * len(database))
    ):  # fmt: skip
        (tmp_path / name / TABLE).parent.mkdir(parents=True)
        (tmp_path / name / TABLE).write_bytes(broken_table)
        (tmp_path / name / DATABASE).write_bytes(broken_database)
        assert f"{tmp_path / name} is truncated or no database of R" in refused(files=f"austen:{tmp_path / name}")


@pytest.mark.skipif("JAXLM_AUSTEN" not in os.environ, reason="JAXLM_AUSTEN names no r-cran-janeaustenr package")
def test_the_real_novels() -> None:
    documents = list(read(os.environ["JAXLM_AUSTEN"]).documents())
    assert Counter(document.source for document in documents) == {
        "emma": 55, "mansfieldpark": 48, "northangerabbey": 31, "persuasion": 24, "prideprejudice": 61,
        "sensesensibility": 50,
    }  # fmt: skip
    tokens = Tokenizer.gpt2().encode_batch([document.text for document in documents])
    assert sum(map(len, tokens)) + len(tokens) == pytest.approx(0.99e6, rel=0.01)
