"""What a source of text hands on, and what the pipeline asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Document:
    """One text that stands for itself: it is followed by one end-of-text token and lies in one split.

    `source` is the name under which it is counted in `statistics.json`. The first `prompt_chars` characters are a
    prompt: they are read and not scored. They are encoded apart from what follows, as a prompt is that somebody types.
    """

    text: str
    source: str
    prompt_chars: int = 0

    @property
    def parts(self) -> tuple[str, ...]:
        """What is encoded on its own: the text, or the prompt and what answers it."""
        if not self.prompt_chars:
            return (self.text,)
        return self.text[: self.prompt_chars], self.text[self.prompt_chars :]


class Source(Protocol):
    """Text that can be read more than once: training a tokenizer is one pass, writing the windows another.

    Every pass yields the same documents in the same order, on every machine with the same input. Sources stream: what
    they hold in memory does not grow with the text, except where the text is small by its nature.
    """

    def documents(self) -> Iterator[Document]:
        """Yields the documents; raises UserError for input that cannot be used."""

    def removed(self) -> Mapping[str, int]:
        """What the last pass could not read, by reason."""

    def identity(self) -> str:
        """Names the input (files with sizes and checksums, versions) without a path of this machine.

        Equal identities mean that a finished directory need not be prepared again.
        """
