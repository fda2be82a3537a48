"""A prepared data directory, read: windows by position, tokenizer, statistics, fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from jaxlm.data.cleaning import SPLITS
from jaxlm.data.mixture import Mixture
from jaxlm.data.packing import Window
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.errors import UserError

FINGERPRINT, STATISTICS, TOKENIZER = "fingerprint.json", "statistics.json", "tokenizer"


class WindowSplit:
    """The windows of one split by position, from any number of threads."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: SupportsIndex) -> Window:
        """`tokens` int32 [T+1], `segment_ids` int32 [T+1], `loss_mask` bool [T+1]."""
        return self._records[index]


class Windows:
    """What `prepare_data` wrote. Made by `open`."""

    def __init__(self, directory: Path, fingerprint: dict[str, Any], statistics: dict[str, Any]) -> None:
        import tensorflow_datasets as tfds

        self.directory = directory
        self.fingerprint = fingerprint
        self.statistics = statistics
        self.source_names: tuple[str, ...] = ("all",)
        self.seq_len: int = fingerprint["config"]["seq_len"]
        # Directories of one source, and those from before there were mixes, have no weights.
        self._mixture = Mixture.of(fingerprint["config"].get("weights") or {})
        self.source_names = self._mixture.names
        self.tokenizer = Tokenizer.load(directory / TOKENIZER)
        self._builder = tfds.builder_from_directory(str(directory))
        self._splits: dict[str, WindowSplit] = {}

    @classmethod
    def open(cls, directory: str | Path) -> Windows:
        """Opens a directory made by `prepare_data`, wherever it lies now.

        Raises UserError where it is not one, or not whole.
        """
        path = Path(directory)
        fingerprint = read_fingerprint(path)
        if fingerprint is None:
            raise UserError(f"{str(directory)!r} is no data directory, allowed: a directory made by prepare_data")
        _require_files(path, [path / name for name in (STATISTICS, "dataset_info.json", "features.json")])
        windows = cls(path, fingerprint, json.loads((path / STATISTICS).read_text()))
        for split in SPLITS:
            _require_files(path, map(Path, windows._builder.info.splits[split].filepaths))
        return windows

    def split(self, name: str) -> WindowSplit:
        """The windows of "train" or "validation", in the order in which the text was read."""
        if name not in self._splits:
            if name not in SPLITS:
                raise UserError(f"no split {name!r} in {self.directory}, allowed: {', '.join(SPLITS)}")
            self._splits[name] = WindowSplit(self._builder.as_data_source(split=name))
        return self._splits[name]

    def sources(self, split: str) -> npt.NDArray[np.int64]:
        """Which of `source_names` each window of a split is from: int64 [N]."""
        return self._mixture.sources(len(self.split(split)))

    def text(self, split: str) -> bytes:
        """The bytes of exactly the scored tokens of a split, in order: tokens 1..T of each window and its mask.

        End-of-text has no bytes, so documents follow one another directly.
        """
        windows, parts = self.split(split), []
        for index in range(len(windows)):
            window = windows[index]
            scored = window["tokens"][1:][window["loss_mask"][1:]]
            parts.append(self.tokenizer.decode_bytes(scored.tolist()))
        return b"".join(parts)


def _require_files(directory: Path, files: Iterable[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise UserError(f"the data directory {directory} lacks {file.name}; prepare it again")


def read_fingerprint(directory: Path) -> dict[str, Any] | None:
    """The fingerprint of a finished data directory, None where there is none."""
    file = directory / FINGERPRINT
    if not file.is_file():
        return None
    try:
        fingerprint: dict[str, Any] = json.loads(file.read_text())
        if {"data_sha256", "tokenizer_sha256", "config"} <= fingerprint.keys():
            return fingerprint
    except (json.JSONDecodeError, AttributeError):
        pass
    raise UserError(f"{file} is not a fingerprint of prepare_data; prepare the directory again")
