"""A text data set of TensorFlow Datasets, `tfds:NAME`, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxlm.config import PrepareConfig
from jaxlm.data.document import Document
from jaxlm.data.sources.files import checksum
from jaxlm.errors import UserError
from jaxlm.fields import nearest

SPLIT = "train"


class Tfds:
    """The text feature `config.text_column` of the training split of a catalog name or of a prepared directory.

    A catalog name is downloaded and prepared as ArrayRecord first, where TFDS keeps its data. Old builders (`c4`,
    `wikipedia`) are not in the catalog that TFDS has without TensorFlow.

    Raises UserError for a name, a split or a feature that is not there.
    """

    def __init__(self, given: str, config: PrepareConfig) -> None:
        self._name = given
        if not self._name:
            raise UserError("files is 'tfds:', allowed: tfds:NAME with a data set's name or directory")
        self._column = config.text_column
        self._builder = _builder(self._name)
        features = self._builder.info.features or {}
        if self._column not in features:
            hint = nearest(self._column, features)
            raise UserError(f"tfds:{self._name} has no feature {self._column!r} (--config.text_column); {hint}")

    def documents(self) -> Iterator[Document]:
        if not self._builder.is_prepared():
            try:
                self._builder.download_and_prepare(file_format="array_record")
            except OSError as error:
                raise UserError(f"tfds:{self._name} cannot be downloaded: {str(error).splitlines()[0]}") from None
        if SPLIT not in self._builder.info.splits:
            raise UserError(f"tfds:{self._name} has no split {SPLIT!r}; it has {', '.join(self._builder.info.splits)}")
        try:
            examples = self._builder.as_data_source(split=SPLIT)
        except NotImplementedError as error:  # it was prepared as TFRecord, which only TensorFlow reads
            raise UserError(f"tfds:{self._name} cannot be read: {str(error).splitlines()[0]}") from None
        for example in examples:
            yield Document(self._text(example[self._column]), self._builder.name)

    def _text(self, value: object) -> str:
        if not isinstance(value, bytes | str):
            kind = type(value).__name__
            raise UserError(f"tfds:{self._name}: {self._column!r} is a {kind}, allowed: text (--config.text_column)")
        try:
            return value if isinstance(value, str) else value.decode()
        except UnicodeDecodeError:
            raise UserError(f"tfds:{self._name}: {self._column!r} has a text that is not UTF-8") from None

    def removed(self) -> Mapping[str, int]:
        return {}

    def identity(self) -> str:
        name = str(self._builder.info.full_name)
        if not Path(self._name).expanduser().is_dir():
            return name  # a version in the catalog is the same everywhere; in a directory may be anybody's text
        splits = self._builder.info.splits.values()
        return " ".join([name, *(f"{checksum(Path(path)):08x}" for split in splits for path in split.filepaths)])


def _builder(name: str) -> Any:
    import tensorflow_datasets as tfds

    directory = Path(name).expanduser()
    try:
        if directory.is_dir():
            return tfds.builder_from_directory(str(directory))
        return tfds.builder(name)
    except (ValueError, tfds.core.dataset_info.DatasetInfoFileError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise UserError(f"tfds:{name} is not found: {reason}") from None
