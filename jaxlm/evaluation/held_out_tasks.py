"""Benchmarks without a network: tasks of the harness made from the validation windows of a data directory.

    held_out_passage  which of four passages follows a text: its own, or that of three other texts
    held_out_order    which comes next: the words that follow, or the same words in another order
    held_out_word     which of four words ends a text

Where an answer is one of four, the others are the right answers of three other items, drawn from a group of at most
sixteen that are alike: passages close in length, words as long as one another that occur about as often. Each item has
options of its own, so that items count as independent; and since any three of a group are as likely to be beside one of
it as any other three, what is said without reading the text (by length, by how common options are) is right once in
four over the draws. Two orders of the same words are of one length. Texts are the longest document of each window,
white space made a space each.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.evaluation import task_files
from jaxlm.evaluation.task_files import Item

PASSAGE, ORDER, WORD = "held_out_passage", "held_out_order", "held_out_word"
TASKS = (PASSAGE, ORDER, WORD)
TAG = "held_out"
_OPTIONS = 4
_GROUP = 16
_CONTEXT, _ALL = 2, 3  # of a text in passages: what is given, and with what follows
_LEAST = 4  # words of a passage
_LETTERS = 3  # of a word that is asked for, at least

Words = Sequence[str]


def write(
    data_dir: str | Path, folder: str | Path, items: int, report: Callable[[str], None] = print
) -> dict[str, int]:
    """Makes the tasks, at most `items` each, for `evaluate --include_path=FOLDER`; how many items each has.

    The same windows make the same files, whatever their order; a folder that has them stays as it is, another one is
    replaced. What has fewer items than were asked for is reported.

    Raises UserError for what is no data directory, and where its text is too short for a task.
    """
    windows, folder = Windows.open(data_dir), Path(folder).absolute()
    texts = _texts(windows)
    found = {PASSAGE: list(_passages(texts)), ORDER: list(_orders(texts)), WORD: list(_endings(texts))}
    for task, of_task in found.items():
        if not of_task:
            raise UserError(
                f"{task} has no item in the {len(windows.split('validation'))} validation windows of {data_dir}, "
                f"allowed: four of at least {_ALL * _LEAST} words"
            )
        found[task] = of_task[:items]
        if len(found[task]) < items:
            report(f"{task}: {len(found[task])} items of the {items} that were asked for")
    task_files.write(folder, {task: (_definition(task, folder), of_task) for task, of_task in found.items()})
    return {task: len(of_task) for task, of_task in found.items()}


def _definition(task: str, folder: Path) -> dict[str, Any]:
    return task_files.definition(task, folder / f"{task}.jsonl", tag=TAG)


def _texts(windows: Windows) -> list[Words]:
    """The words of each window that are whole, of its longest document, each text once, in an order of their own."""
    split, found = windows.split("validation"), {}
    for index in range(len(split)):
        window = split[index]
        segments, sizes = np.unique(window["segment_ids"], return_counts=True)
        tokens = window["tokens"][window["segment_ids"] == segments[sizes.argmax()]]
        text = windows.tokenizer.decode_bytes(tokens.tolist()).decode("utf-8", errors="ignore")
        words = text.split()[1:-1]  # the first and the last may be cut
        found[" ".join(words)] = words
    return [found[text] for text in sorted(found, key=_digest)]


def _parts(texts: Sequence[Words]) -> Iterator[tuple[str, Words]]:
    """Of each text that is long enough: what is given, and the words that follow; all passages have as many."""
    size = max(_LEAST, int(statistics.median(map(len, texts))) // (_ALL + 1))
    for words in texts:
        if len(words) >= _ALL * size:
            yield " ".join(words[: _CONTEXT * size]), words[_CONTEXT * size : _ALL * size]


def _passages(texts: Sequence[Words]) -> Iterator[Item]:
    pairs = {" ".join(follows): given for given, follows in _parts(texts)}  # each passage once
    return _among_four([(given, passage) for passage, given in pairs.items()], lambda passage: (len(passage),))


def _orders(texts: Sequence[Words]) -> Iterator[Item]:
    for given, follows in _parts(texts):
        right = " ".join(follows)
        places = sorted(range(len(follows)), key=lambda place: _digest(f"{right}\0{place}"))
        other = " ".join(follows[place] for place in places)
        if other != right:
            yield _item(given, [right, other], right)


def _endings(texts: Sequence[Words]) -> Iterator[Item]:
    """The last plain word of each text behind half of a text of usual length, each word asked for once."""
    counts = Counter(itertools.chain.from_iterable(texts))
    least = max(_LEAST, int(statistics.median(map(len, texts))) // 2) if texts else _LEAST
    asked: dict[str, str] = {}
    for words in texts:
        for at in range(len(words) - 1, least - 1, -1):
            word = words[at]
            if word.isalpha() and len(word) >= _LETTERS and word not in asked:
                asked[word] = " ".join(words[:at])
                break
    pairs = [(given, word) for word, given in asked.items()]
    return _among_four(pairs, lambda word: (len(word), counts[word]))


def _among_four(pairs: Sequence[tuple[str, str]], alike: Callable[[str], tuple[int, ...]]) -> Iterator[Item]:
    """Items of (given, right answer), beside each three of its neighbours by `alike`; in an order of their own."""
    ordered = sorted(pairs, key=lambda pair: (alike(pair[1]), _digest(pair[1])))
    groups = -(-len(ordered) // _GROUP)
    items = {}
    for k in range(groups if len(ordered) >= _OPTIONS else 0):
        group = ordered[k * len(ordered) // groups : (k + 1) * len(ordered) // groups]
        for given, right in group:
            others = [answer for _, answer in group if answer != right]
            drawn = random.Random(_digest(right)).sample(others, _OPTIONS - 1)
            items[right] = _item(given, [right, *drawn], right)
    for right in sorted(items, key=_digest):
        yield items[right]


def _item(given: str, options: Sequence[str], right: str) -> Item:
    choices = task_files.ordered(options, given)
    return {"query": given, "choices": choices, "gold": choices.index(right)}


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
