"""A data set of the hub without the hub: what is downloaded when, what is read offline, what is said without both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from jaxlm.config import PrepareConfig
from jaxlm.data.sources import open_sources
from jaxlm.data.sources.hub import Hub
from jaxlm.errors import UserError
from jaxlm.fields import Table

REPO, COMMIT = "owner/texts", "c" * 40
Refused = Callable[..., str]


def parquet(path: Path, texts: list[str]) -> Path:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    return path


@pytest.fixture
def downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub with two Parquet files; the names that were downloaded."""
    done: list[str] = []
    for number in (0, 1):
        parquet(tmp_path / "hub" / f"data/train-{number}.parquet", [f"text {number}{letter}" for letter in "ab"])

    def info(api: object, repo: str, **options: Any) -> SimpleNamespace:
        assert (repo, options["files_metadata"]) == (REPO, True)
        names = ("README.md", "data/train-1.parquet", "data/train-0.parquet")
        return SimpleNamespace(sha=COMMIT, siblings=[SimpleNamespace(rfilename=name, size=1000) for name in names])

    def download(repo: str, name: str, *, repo_type: str, revision: str) -> str:
        assert (repo, repo_type, revision) == (REPO, "dataset", COMMIT)
        done.append(name)
        return str(tmp_path / "hub" / name)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return done


def test_a_file_is_downloaded_when_it_is_reached(downloaded: list[str]) -> None:
    source = Hub(REPO, PrepareConfig())
    assert source.identity() == (
        f"{REPO}@{COMMIT}, 2 files, 0.00 GB: data/train-0.parquet:1000 data/train-1.parquet:1000"
    )
    documents = source.documents()
    assert (next(documents).text, next(documents).text, downloaded) == ("text 0a", "text 0b", ["data/train-0.parquet"])
    assert [(d.text, d.source) for d in documents] == [("text 1a", "texts"), ("text 1b", "texts")]
    assert downloaded == ["data/train-0.parquet", "data/train-1.parquet"]


def test_without_a_network_what_the_library_keeps_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    snapshot = cache / "datasets--owner--texts" / "snapshots" / COMMIT
    parquet(snapshot / "data/train-0.parquet", ["kept"])
    scan, download = huggingface_hub.scan_cache_dir, huggingface_hub.hf_hub_download
    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", lambda: scan(cache))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *a, **k: download(*a, **k, cache_dir=cache))
    source = Hub(REPO, PrepareConfig())
    assert [document.text for document in source.documents()] == ["kept"]
    assert "reading what is on this machine already" in capsys.readouterr().err


def test_without_both_it_says_what_is_needed_and_how_to_give_it(refused: Refused) -> None:
    said = refused(files=f"hub:{REPO}", tokenizer="gpt2")
    assert said.startswith(f"hub:{REPO} cannot be read (Cannot reach ")
    assert "data/*.parquet with the column 'text'" in said and "'/path/*.parquet', instead of hub:" in said


def test_a_download_that_fails_on_the_way_is_told_alike(downloaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: str, **options: str) -> str:
        raise ConnectionError("Connection reset by peer")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", broken)
    with pytest.raises(UserError, match=f"^hub:{REPO} cannot be read .Connection reset by peer.; needed are its files"):
        next(Hub(REPO, PrepareConfig()).documents())


def test_of_a_mix_every_source_that_cannot_be_had_is_named() -> None:
    mix = PrepareConfig(files=Table({"a": f"hub:{REPO}", "b": "/nowhere/*.txt"}), weights=Table({"a": 0.5, "b": 0.5}))
    with pytest.raises(UserError, match=f"^source a: hub:{REPO} cannot be read .*; source b: files: no file matches"):
        open_sources(mix)
