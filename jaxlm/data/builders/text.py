"""Any source of text of jaxlm as a TFDS builder: one split `train`, one feature `text`, in the order of reading."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from jaxlm.config import PrepareConfig
from jaxlm.data.mixture import ONE
from jaxlm.data.sources import open_sources
from jaxlm.errors import UserError
from jaxlm.progress import Progress

SPLIT = "train"
DOCUMENTS_PER_SHARD = 1 << 16
BUFFER = 1024  # documents handed to TFDS at a time; it rewrites its metadata each time


class TextBuilder(tfds.core.dataset_builder.FileReaderBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Streams documents into ArrayRecord files below `data_dir`, in name/version: all of them or none.

    As with any builder, what is there already is left as it is: another `files` wants another `data_dir`. It is no
    `GeneratorBasedBuilder`, which sorts its examples by key: in memory, and above 1 GB by means of TensorFlow.
    """

    VERSION = tfds.core.Version("1.0.0")
    FILES: ClassVar[str]
    HOMEPAGE: ClassVar[str]

    def __init__(self, *, files: str = "", text_column: str = "text", **options: Any) -> None:
        """Nothing is read before `download_and_prepare`, which raises UserError for what cannot be.

        Args:
          files: as in `prepare_data`: patterns by commas, `hub:OWNER/NAME`, ...; without it where the source's home is.
          text_column: the column of the text.
          **options: TFDS's own, among them `data_dir`.
        """
        self._config = PrepareConfig(files=files or self.FILES, text_column=text_column)
        super().__init__(file_format="array_record", **options)

    def _info(self) -> tfds.core.DatasetInfo:
        return self._described(self)

    def _described(self, builder: Any) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=builder,
            description=self.__doc__,
            features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
            homepage=self.HOMEPAGE,
        )

    def _download_and_prepare(self, dl_manager: Any, download_config: Any = None) -> None:
        """Called by `download_and_prepare`, which sets `data_dir` to a place aside and renames it when it is whole."""
        source = open_sources(self._config)[ONE]
        aside = tfds.core.dataset_info.DatasetIdentity(
            name=self.name, version=self.version, data_dir=self.data_dir, module_name=self.__module__
        )
        info = self._described(aside)
        writer = tfds.core.SequentialWriter(info, DOCUMENTS_PER_SHARD, file_format="array_record")
        writer.initialize_splits([SPLIT])
        documents, done = iter(source.documents()), 0
        with Progress(None, f"writing {self.name}", unit="document") as progress:
            while batch := list(itertools.islice(documents, BUFFER)):
                if any(document.prompt_chars for document in batch):
                    raise UserError(f"{self.name} has rows of prompt and completion, allowed: rows with a text")
                writer.add_examples({SPLIT: [{"text": document.text} for document in batch]})
                progress.update(done := done + len(batch))
        writer.close_all()
        self.info.set_splits(info.splits)
