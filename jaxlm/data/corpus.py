"""All of the sources of a configuration, read together: cleaned, without repetitions across them, split."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from jaxlm.config import PrepareConfig
from jaxlm.data.cleaning import Cleaner, split_documents
from jaxlm.data.document import Document, Source
from jaxlm.data.encoding import Encoder
from jaxlm.data.mixing import SourceReader, SplitDocuments
from jaxlm.data.mixture import ONE, Mixture


class Corpus:
    """The documents of the sources by name, cleaned and split, as often as they are asked for."""

    def __init__(self, config: PrepareConfig, sources: Mapping[str, Source]) -> None:
        self._config, self._sources = config, sources
        self.mixture = Mixture.of(config.weights)
        self._cleaners: dict[str, Cleaner] = {}

    def _begin(self) -> dict[str, SplitDocuments]:
        """A pass over each source; what one has handed on, the others no longer do."""
        seen: set[bytes] = set()
        self._cleaners = {name: Cleaner(self._config.min_bytes, self._config.deduplicate) for name in self._sources}
        return {name: self._pass(name, seen) for name in self.mixture.names}

    def _pass(self, name: str, seen: set[bytes]) -> SplitDocuments:
        documents = self._sources[name].documents()
        if name != ONE:
            documents = (dataclasses.replace(document, source=name) for document in documents)
        return split_documents(self._cleaners[name](documents, seen), self._config.validation_share)

    def in_proportion(self) -> Iterator[tuple[str, Document]]:
        """The documents of all sources, the characters of each in proportion to its weight, until one has no more."""
        passes = [iter(documents) for documents in self._begin().values()]
        weights = list((self._config.weights or {ONE: 1.0}).values())
        read = [0.0] * len(passes)
        while (item := next(passes[(source := read.index(min(read)))], None)) is not None:
            read[source] += len(item[1].text) / weights[source]
            yield item

    def read(self, encoder: Encoder) -> dict[str, SourceReader]:
        """Another pass, each source with its tokens."""
        return {name: SourceReader(found, self._cleaners[name], encoder) for name, found in self._begin().items()}

    def removed(self, readers: Mapping[str, SourceReader]) -> dict[str, dict[str, int]]:
        """What was left out of what `readers` have handed on, by source and reason."""
        return {name: {**readers[name].removed, **self._sources[name].removed()} for name in readers}
