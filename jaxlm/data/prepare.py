"""The pipeline of `prepare_data`: sources, tokenizer, mixed windows, statistics, fingerprint; streamed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxlm import fields
from jaxlm.config import PrepareConfig
from jaxlm.data import statistics
from jaxlm.data.cleaning import TRAIN, VALIDATION
from jaxlm.data.corpus import Corpus
from jaxlm.data.encoding import READ_AHEAD, BatchStore, Encoder
from jaxlm.data.mixing import Mixer, SplitDocuments
from jaxlm.data.mixture import ONE, Mixture
from jaxlm.data.sources import given_sources, open_sources
from jaxlm.data.storage import WINDOWS_PER_SHARD, WindowWriter
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.data.windows import FINGERPRINT, STATISTICS, TOKENIZER, read_fingerprint
from jaxlm.data.workspace import DATA, ENCODED, disk_needed, in_units, require_room, workspace
from jaxlm.errors import UserError
from jaxlm.progress import Progress, duration

TOKENIZER_BYTES = 100_000_000  # of training text that a tokenizer is learnt from
TOKENS_PER_SECOND = 500_000  # on 2 busy cores, six times as many on idle ones (README); for what is said first
TOKENIZERS = "train:SIZE with a whole number, gpt2, or a tokenizer directory"


def prepare(
    config: PrepareConfig,
    out: Path,
    report: Callable[[str], None],
    windows_per_shard: int = WINDOWS_PER_SHARD,
    processes: int = 1,
) -> bool:
    """Writes the data directory `out`; returns False where it is there already, made from the same config and input.

    Everything is written beside `out` and renamed when it is whole. After an error or an interruption nothing is left
    but whole batches of encoded text, in `<out>.partial`, from which the same call goes on. What is held in memory does
    not grow with the text, but for 16 bytes a document. What is written does not depend on `processes`, which encode.
    Raises UserError for input that cannot be used, for an `out` that holds something else, and for a full disk.
    """
    _window_limit(config)  # before anything is asked of a network
    sources = open_sources(config)
    tokenizer = _given_tokenizer(config.tokenizer)
    identities = {name: source.identity() for name, source in sources.items()}  # reads all of the files
    of_input = "; ".join(("" if name == ONE else f"{name}: ") + identity for name, identity in identities.items())
    made_from = {"config": portable(config), "input": of_input}
    if _is_finished(out, made_from, tokenizer):
        return False
    for name, given in given_sources(config).items():
        report(f"source{'' if name == ONE else ' ' + name}: {given} ({identities[name][:200]})")
    needed = None
    if config.total_tokens is not None:
        vocab_size = int(config.tokenizer.removeprefix("train:")) if tokenizer is None else tokenizer.vocab_size
        needed = disk_needed(config.total_tokens, config.validation_share, vocab_size)
        room = require_room(out, needed)
        seconds = config.total_tokens / TOKENS_PER_SECOND
        report(
            f"about {in_units(needed)} of disk ({in_units(room)} free) and {duration(seconds)}, downloads not counted"
        )
    with workspace(out, needed, report) as directory:
        if _is_finished(out, made_from, tokenizer):  # by another process, in this moment
            return False
        partial = directory / DATA
        corpus = Corpus(config, sources)
        if tokenizer is None:
            tokenizer = _learn_tokenizer(corpus.in_proportion(), int(config.tokenizer.removeprefix("train:")))
        report(f"tokenizer: {config.tokenizer}, {tokenizer.vocab_size:,} ids, encoded by {tokenizer.encoded_by}")
        tokenizer.save(partial / TOKENIZER)
        writer = WindowWriter(partial, config.seq_len, windows_per_shard)
        store = BatchStore(directory / ENCODED, tokenizer.sha256())
        with Encoder(tokenizer, store, min(processes, READ_AHEAD)) as encoder:
            found = _write(config, corpus, tokenizer, writer, encoder, report)
        _write_json(partial / STATISTICS, found)
        hashes = {"data_sha256": writer.close(), "tokenizer_sha256": tokenizer.sha256()}
        _write_json(partial / FINGERPRINT, hashes | made_from)
        os.rename(partial, out)
    report(statistics.table(found))
    return True


def portable(config: PrepareConfig) -> dict[str, Any]:
    """The configuration as plain values, paths cut to their last part: a data directory names no place on a machine."""
    if isinstance(config.files, str):
        files: str | fields.Table = _without_path(config.files)
    else:
        files = fields.Table({name: _without_path(given) for name, given in config.files.items()})
    scheme, colon, name = config.source.partition(":")
    tokenizer = config.tokenizer if config.tokenizer.startswith("train:") else Path(config.tokenizer).name
    cut = dataclasses.replace(config, files=files, source=scheme + colon + Path(name).name, tokenizer=tokenizer)
    return json.loads(json.dumps(fields.to_dict(cut)))


def _without_path(given: str) -> str:
    if given.startswith("hub:"):
        return given
    return ",".join(Path(pattern.strip()).name for pattern in given.split(","))


def _is_finished(out: Path, made_from: dict[str, Any], tokenizer: Tokenizer | None) -> bool:
    there = read_fingerprint(out)
    if there is None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"--out={out} holds something else, allowed: a directory that is new or empty")
        return False
    usual = fields.defaults(PrepareConfig)  # of fields that came after the directory
    pairs = {name: (there["config"].get(name, usual[name]), value) for name, value in made_from["config"].items()}
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


def _window_limit(config: PrepareConfig) -> int | None:
    """How many training windows there may be, None: as many as the text gives. UserError where they make no mix."""
    if config.total_tokens is None:
        return None
    limit = Mixture.of(config.weights).largest_balanced(config.total_tokens // config.seq_len)
    if not limit:
        raise UserError(f"total_tokens is {config.total_tokens}, allowed: enough windows for weights {config.weights}")
    return limit


def _write(
    config: PrepareConfig,
    corpus: Corpus,
    tokenizer: Tokenizer,
    writer: WindowWriter,
    encoder: Encoder,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Encodes and writes until the text or `config.total_tokens` ends; returns the contents of `statistics.json`."""
    T, mixture, limit = config.seq_len, corpus.mixture, _window_limit(config)
    mixer = Mixer(mixture, writer, T, tokenizer.end_of_text_id, limit)
    readers = corpus.read(encoder)
    with Progress(limit and limit * T, "writing windows", unit="token") as progress:
        mixer.run(list(readers.values()), lambda windows: progress.update(windows * T))
    train, validation = (sum(mixer.written[split]) for split in (TRAIN, VALIDATION))
    ended = "" if mixture.names == (ONE,) else f"source {mixer.ended_by} ends the mix: "
    if not train:
        raise UserError(
            f"{ended}the training text has {mixer.counts.tokens(TRAIN)} tokens, allowed: at least one window, "
            f"seq_len + 1 = {T + 1}{', in the proportions of the weights' if ended else ''} (more text, or a smaller "
            "--config.seq_len)"
        )
    if not validation:
        raise UserError(
            f"{ended}the validation text, {config.validation_share:.3%} of the documents, has "
            f"{mixer.counts.tokens(VALIDATION)} tokens after {train * T:,} for training, allowed: at least one window, "
            f"seq_len + 1 = {T + 1}{', in the proportions of the weights' if ended else ''} (more documents, or a "
            "larger --config.validation_share)"
        )
    if ended and mixer.ended_by is not None:
        asked = f", {config.total_tokens:,} were asked for" if config.total_tokens else ""
        report(f"{ended}it has no more text; there are {train * T:,} training tokens{asked}")
    removed = corpus.removed(readers)
    windows = {split: sum(counts) for split, counts in mixer.written.items()}
    all_removed = Counter[str]()
    for reasons in removed.values():
        all_removed.update(reasons)
    if mixer.num_dropped:
        all_removed["windows_of_nothing_but_prompt"] = mixer.num_dropped
    found = mixer.counts.result(windows, all_removed)
    if mixture.names == (ONE,):
        return found
    return statistics.of_mix(found, config.weights, mixer.written, removed, mixer.ended_by)


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n")
