"""The pipeline of `prepare_data`: source, cleaning, split, tokenizer, windows, statistics, fingerprint; streamed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxlm import fields
from jaxlm.config import PrepareConfig
from jaxlm.data.cleaning import TRAIN, VALIDATION, Cleaner, split_documents
from jaxlm.data.document import Document
from jaxlm.data.packing import Packer
from jaxlm.data.sources import open_source
from jaxlm.data.statistics import Counts, table
from jaxlm.data.storage import WINDOWS_PER_SHARD, WindowWriter
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.data.windows import FINGERPRINT, STATISTICS, TOKENIZER, read_fingerprint
from jaxlm.errors import UserError
from jaxlm.progress import Progress

TOKENIZER_BYTES = 100_000_000  # of training text that a tokenizer is learnt from
TOKENIZERS = "train:SIZE with a whole number, gpt2, or a tokenizer directory"
BATCH_BYTES = 1_000_000  # of text encoded at a time

SplitDocuments = Iterable[tuple[str, Document]]


def prepare(
    config: PrepareConfig, out: Path, report: Callable[[str], None], windows_per_shard: int = WINDOWS_PER_SHARD
) -> bool:
    """Writes the data directory `out`; returns False where it is there already, made from the same config and input.

    Everything is written beside `out` and renamed when it is whole: after an error or an interruption nothing is left.
    What is held in memory does not grow with the text, but for 16 bytes a document. Raises UserError for input that
    cannot be used and for an `out` that holds something else.
    """
    source = open_source(config)
    tokenizer = _given_tokenizer(config.tokenizer)
    identity = source.identity()
    made_from = {"config": portable(config), "input": identity}
    if _is_finished(out, made_from, tokenizer):
        return False
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        partial = Path(temporary) / out.name
        partial.mkdir()
        cleaner = Cleaner(config.min_bytes, config.deduplicate)

        def documents() -> SplitDocuments:
            return split_documents(cleaner(source.documents()), config.validation_share)

        report(f"source: {config.source} ({identity[:200]})")
        if tokenizer is None:
            tokenizer = _learn_tokenizer(documents(), int(config.tokenizer.removeprefix("train:")))
        report(f"tokenizer: {config.tokenizer}, {tokenizer.vocab_size:,} ids")
        tokenizer.save(partial / TOKENIZER)
        writer = WindowWriter(partial, config.seq_len, windows_per_shard)
        counts, windows = _write(config, documents(), tokenizer, writer)
        statistics = counts.result(windows, {**cleaner.removed, **source.removed()})
        _write_json(partial / STATISTICS, statistics)
        hashes = {"data_sha256": writer.close(), "tokenizer_sha256": tokenizer.sha256()}
        _write_json(partial / FINGERPRINT, hashes | made_from)
        os.rename(partial, out)
    report(table(statistics))
    return True


def portable(config: PrepareConfig) -> dict[str, Any]:
    """The configuration as plain values, paths cut to their last part: a data directory names no place on a machine."""
    files = ",".join(Path(pattern.strip()).name for pattern in config.files.split(","))
    scheme, colon, name = config.source.partition(":")
    tokenizer = config.tokenizer if config.tokenizer.startswith("train:") else Path(config.tokenizer).name
    cut = dataclasses.replace(config, files=files, source=scheme + colon + Path(name).name, tokenizer=tokenizer)
    return json.loads(json.dumps(fields.to_dict(cut)))


def _is_finished(out: Path, made_from: dict[str, Any], tokenizer: Tokenizer | None) -> bool:
    there = read_fingerprint(out)
    if there is None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"--out={out} holds something else, allowed: a directory that is new or empty")
        return False
    pairs = {name: (there["config"].get(name), value) for name, value in made_from["config"].items()}
    differing = [f"{name} ({old!r} there, {new!r} here)" for name, (old, new) in pairs.items() if old != new]
    if there.get("input") != made_from["input"]:
        differing.append("the input (other files, contents or versions)")
    if tokenizer is not None and there["tokenizer_sha256"] != tokenizer.sha256():
        differing.append("the tokenizer's contents")
    if differing:
        raise UserError(f"--out={out} was prepared otherwise: {'; '.join(differing)}; allowed: another --out")
    return True


def _given_tokenizer(name: str) -> Tokenizer | None:
    """The tokenizer that `config.tokenizer` names, None where it is to be learnt."""
    if name.startswith("train:"):
        size = name.removeprefix("train:")
        if not size.isdigit():
            raise UserError(f"tokenizer is {name!r}, allowed: {TOKENIZERS}")
        Tokenizer.check_size(int(size))
        return None
    if name == "gpt2":
        return Tokenizer.gpt2()
    if not Path(name).is_dir():
        raise UserError(f"tokenizer is {name!r}, which is no directory, allowed: {TOKENIZERS}")
    return Tokenizer.load(name)


def _learn_tokenizer(documents: SplitDocuments, size: int) -> Tokenizer:
    """A tokenizer of `size` ids, learnt from the first 100 MB of training text."""
    stream = iter(documents)
    first = list(itertools.islice(stream, 1))  # before the clock starts: a source may work long on its first document

    def texts() -> Iterator[str]:
        read = 0
        with Progress(None, "reading for the tokenizer", unit="document") as progress:
            for number, (split, document) in enumerate(itertools.chain(first, stream), 1):
                progress.update(number)
                if split == TRAIN:
                    yield document.text
                    read += len(document.text)
                if read >= TOKENIZER_BYTES:
                    return

    return Tokenizer.train(texts(), size)


def _write(
    config: PrepareConfig, documents: SplitDocuments, tokenizer: Tokenizer, writer: WindowWriter
) -> tuple[Counts, dict[str, int]]:
    """Encodes and writes until the text or `config.total_tokens` ends; returns what was read, and windows by split."""
    T, end = config.seq_len, tokenizer.end_of_text_id
    limit = None if config.total_tokens is None else config.total_tokens // T
    packers = {TRAIN: Packer(T, end, max_windows=limit), VALIDATION: Packer(T, end)}
    counts = Counts()
    with Progress(config.total_tokens, "writing windows", unit="token") as progress:
        for batch in _batches(documents):
            encoded = tokenizer.encode_batch([document.text for _, document in batch])
            for (split, document), ids in zip(batch, encoded, strict=True):
                # Few documents have their validation text at the end (`split_documents`), so it may be yet to come.
                if packers[TRAIN].full and (split == TRAIN or counts.tokens(VALIDATION)):
                    continue
                writer.add(split, packers[split].add(ids))
                counts.add(split, document, len(ids) + 1)
            progress.update(counts.tokens(TRAIN))
            if packers[TRAIN].full and counts.tokens(VALIDATION):
                break
    # The rest of the training text is less than a window; validation is scored to its end.
    writer.add(VALIDATION, packers[VALIDATION].finish())
    windows = {split: packer.num_windows for split, packer in packers.items()}
    if not windows[TRAIN]:
        raise UserError(
            f"the training text has {counts.tokens(TRAIN)} tokens, allowed: at least one window, seq_len + 1 = {T + 1} "
            "(more text, or a smaller --config.seq_len)"
        )
    if not windows[VALIDATION]:
        raise UserError("no text is left for validation, allowed: more documents or a larger --config.validation_share")
    return counts, windows


def _batches(documents: SplitDocuments) -> Iterator[list[tuple[str, Document]]]:
    batch: list[tuple[str, Document]] = []
    size = 0
    for item in documents:
        batch.append(item)
        size += len(item[1].text)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n")
