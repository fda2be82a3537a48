"""Windows on disk: a TFDS directory of ArrayRecord files, written and read without TensorFlow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxlm.data.cleaning import SPLITS
from jaxlm.data.packing import Window

NAME, VERSION = "windows", "1.0.0"
WINDOWS_PER_SHARD = 1 << 16
BUFFER = 512  # windows handed to TFDS at a time; it rewrites its metadata each time


class WindowWriter:
    """Writes windows into `directory`, in the order in which they come, a split at a time or interleaved.

    `data_sha256` covers the values of the windows in order, and not how they are spread over files.
    """

    def __init__(self, directory: Path, seq_len: int, windows_per_shard: int = WINDOWS_PER_SHARD) -> None:
        import tensorflow_datasets as tfds

        # Raw bytes: read as fast as TFDS's lists of integers at T=256 and faster from there on.
        encoding = tfds.features.Encoding.BYTES
        features = tfds.features.FeaturesDict(
            {
                name: tfds.features.Tensor(shape=(seq_len + 1,), dtype=dtype, encoding=encoding)
                for name, dtype in (("tokens", np.int32), ("segment_ids", np.int32), ("loss_mask", np.bool_))
            }
        )
        identity = tfds.core.dataset_info.DatasetIdentity(
            name=NAME, version=tfds.core.Version(VERSION), data_dir=str(directory), module_name="jaxlm.data.storage"
        )
        info = tfds.core.DatasetInfo(
            builder=identity, features=features, description="Token windows of jaxlm: T+1 tokens that start T apart."
        )
        self._writer = tfds.core.SequentialWriter(info, windows_per_shard, overwrite=True, file_format="array_record")
        self._writer._serializer = _serializer(features)
        self._writer.initialize_splits(list(SPLITS))
        self._pending: dict[str, list[Any]] = {split: [] for split in SPLITS}
        self._digests = {split: hashlib.sha256() for split in SPLITS}

    def add(self, split: str, windows: Iterator[Window]) -> None:
        """Takes windows of one split."""
        pending = self._pending[split]
        for window in windows:
            update_digest(self._digests[split], window)
            pending.append(dict(window))
            if len(pending) == BUFFER:
                self._flush(split)

    def close(self) -> str:
        """Ends the files and returns `data_sha256`."""
        for split in SPLITS:
            self._flush(split)
        self._writer.close_all()
        return combine_digests({split: digest.digest() for split, digest in self._digests.items()})

    def _flush(self, split: str) -> None:
        self._writer.add_examples({split: self._pending[split]})
        self._pending[split].clear()


def _serializer(features: Any) -> Any:
    """TFDS's own, which says the same in the same bytes: without being asked, a protobuf map comes in any order."""
    from tensorflow_datasets.core.example_serializer import ExampleSerializer

    class Deterministic(ExampleSerializer):
        def serialize_example(self, example: Any) -> bytes:
            return self.get_tf_example(example).SerializeToString(deterministic=True)

    return Deterministic(features.get_serialized_info())


def update_digest(digest: hashlib._Hash, window: Window) -> None:
    """Adds a window to the digest of its split: its three arrays as little-endian bytes."""
    digest.update(window["tokens"].astype("<i4").tobytes())
    digest.update(window["segment_ids"].astype("<i4").tobytes())
    digest.update(window["loss_mask"].astype("u1").tobytes())


def combine_digests(digests: dict[str, bytes]) -> str:
    """`data_sha256` from the digests of the splits."""
    return hashlib.sha256(b"".join(split.encode() + b"\0" + digests[split] for split in SPLITS)).hexdigest()
