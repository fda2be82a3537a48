"""A text data set of TFDS as a source, without TensorFlow and without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxlm.data.prepare import prepare
from jaxlm.data.windows import Windows

from .corpus import settings, silent, texts


def write_dataset(
    directory: Path, examples: list[dict[str, Any]], features: dict[str, Any], split: str = "train"
) -> Path:
    import tensorflow_datasets as tfds

    directory.mkdir()
    identity = tfds.core.dataset_info.DatasetIdentity(
        name="madeup", version=tfds.core.Version("1.0.0"), data_dir=str(directory), module_name="madeup"
    )
    info = tfds.core.DatasetInfo(builder=identity, features=tfds.features.FeaturesDict(features), description="")
    writer = tfds.core.SequentialWriter(info, 1000, file_format="array_record")
    writer.initialize_splits([split])
    writer.add_examples({split: examples})
    writer.close_all()
    return directory


def text_dataset(directory: Path, split: str = "train") -> Path:
    import tensorflow_datasets as tfds

    return write_dataset(
        directory,
        [{"text": text, "label": 1} for text in texts(60)],
        {"text": tfds.features.Text(), "label": tfds.features.Scalar(np.int64)},
        split,
    )


@pytest.mark.parametrize("field", ["files", "source"])
def test_a_tfds_directory_is_read_like_files(corpus: Path, tmp_path: Path, field: str) -> None:
    directory = text_dataset(tmp_path / "madeup")
    prepare(settings(corpus, **{field: f"tfds:{directory}"}), tmp_path / "data", silent)
    windows = Windows.open(tmp_path / "data")
    assert windows.statistics["bytes"] == sum(map(len, texts(60)))
    assert list(windows.statistics["by_source"]) == ["madeup"]
    assert str(tmp_path) not in (tmp_path / "data" / "fingerprint.json").read_text()


def test_what_is_not_there_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    directory = text_dataset(tmp_path / "madeup")
    other = text_dataset(tmp_path / "without_train", "test")
    assert "has no feature 'body' (--config.text_column); it has label, text" in refused(
        files=f"tfds:{directory}", text_column="body"
    )
    assert "'label' is a int, allowed: text" in refused(files=f"tfds:{directory}", text_column="label")
    assert "has no split 'train'; it has test" in refused(files=f"tfds:{other}")
    assert "allowed: tfds:NAME" in refused(source="tfds")
    assert "tfds:no_such_data_set is not found" in refused(files="tfds:no_such_data_set")
