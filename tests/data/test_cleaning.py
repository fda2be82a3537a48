"""Which documents stay and where they go."""

from __future__ import annotations

import pytest

from jaxlm.data.cleaning import TRAIN, VALIDATION, Cleaner, split_documents
from jaxlm.data.document import Document


def documents(*texts: str) -> list[Document]:
    return [Document(text, "test") for text in texts]


def test_short_and_repeated_documents_go_and_are_counted() -> None:
    clean = Cleaner(min_bytes=5, deduplicate=True)
    kept = list(clean(documents("one  two", "tiny", "one\ntwo", "  one two\r\nthree  ", "\ufeffone two\rfour", " ")))
    assert [d.text for d in kept] == ["one  two", "one two\nthree", "one two\nfour"]
    assert clean.removed == {"too_short": 2, "duplicates": 1}


def test_repetitions_stay_if_asked() -> None:
    assert len(list(Cleaner(min_bytes=0, deduplicate=False)(documents("same", "same", "")))) == 2


@pytest.mark.parametrize(("count", "share", "expected"), [(20, 0.05, 1), (21, 0.05, 2), (1000, 0.05, 50), (10, 0.3, 3)])
def test_validation_has_its_share_of_the_documents(count: int, share: float, expected: int) -> None:
    given = documents(*(f"text {i}" for i in range(count)))
    parts = list(split_documents(given, share))
    assert [d for _, d in parts] == given
    assert [split for split, _ in parts].count(VALIDATION) == expected
    assert parts[0][0] == VALIDATION and parts[1][0] == TRAIN


def test_few_documents_give_the_last_share_of_their_text_cut_between_paragraphs() -> None:
    paragraphs = "\n\n".join(f"Paragraph {i} of the only book." for i in range(40))
    (first, head), (second, tail) = split_documents(documents(paragraphs), 0.1)
    assert (first, second) == (TRAIN, VALIDATION)
    assert head.text + "\n\n" + tail.text == paragraphs
    assert len(tail.text) / len(paragraphs) == pytest.approx(0.1, abs=0.03)


def test_of_a_few_documents_only_the_one_at_the_border_is_cut() -> None:
    parts = list(split_documents(documents("a" * 100, "b" * 100, "c" * 100, "d" * 100), 0.2))
    assert [(split, d.text[0], len(d.text)) for split, d in parts] == [
        (TRAIN, "a", 100),
        (TRAIN, "b", 100),
        (TRAIN, "c", 100),
        (TRAIN, "d", 20),
        (VALIDATION, "d", 80),
    ]
