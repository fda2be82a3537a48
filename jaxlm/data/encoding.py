"""Texts to token ids on several processes; what is encoded is kept, so that a command that was stopped goes on.

Nothing here depends on the number of processes: a batch is the same wherever and whenever it is encoded.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import queue
import signal
import zipfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from jaxlm.data.tokenizer import Tokenizer

BATCH_BYTES = 1_000_000  # of text (in characters) encoded at a time; smaller batches are neither sent away nor kept
READ_AHEAD = 8  # batches of one source that are read before the first of them is used, whatever encodes them
SUFFIX = ".npz"


class Encoded(NamedTuple):
    """The ids of several texts in a row: `ids` uint16 or uint32 [N], `lengths` int64 [texts], which sum to N."""

    ids: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    """Encodes the texts in this process."""
    ids = tokenizer.encode_batch(texts)
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    joined = np.concatenate([np.zeros(0, dtype), *(np.asarray(part, dtype) for part in ids)])
    return Encoded(joined, np.array([len(part) for part in ids], np.int64))


class BatchStore:
    """Encoded batches in a directory, found again by the hash of their texts and their tokenizer."""

    def __init__(self, directory: Path, tokenizer_sha256: str) -> None:
        self._directory, self._seed = directory, tokenizer_sha256.encode()

    def file(self, texts: Sequence[str]) -> Path:
        """Where the encoding of these texts is, or would be."""
        digest = hashlib.sha256(self._seed)
        for text in texts:
            content = text.encode()
            digest.update(len(content).to_bytes(8, "little"))
            digest.update(content)
        return self._directory / (digest.hexdigest() + SUFFIX)

    def load(self, file: Path) -> Encoded | None:
        """What `save` wrote, None where it did not, or not to the end (the archive has checksums)."""
        try:
            with file.open("rb") as stream, np.load(stream) as arrays:
                return Encoded(arrays["ids"], arrays["lengths"])
        except (FileNotFoundError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            return None

    def save(self, file: Path, encoded: Encoded) -> None:
        """Writes a batch whole or not at all."""
        self._directory.mkdir(exist_ok=True)
        aside = file.with_suffix(".unfinished")
        try:
            with aside.open("wb") as stream:
                np.savez(stream, ids=encoded.ids, lengths=encoded.lengths)
            os.replace(aside, file)
        finally:
            aside.unlink(missing_ok=True)


class Encoder:
    """Encodes batches in the background, used as a context manager.

    With one process all is done in this one (in a thread: the libraries let go of Python's lock). Others are started
    when there is a whole batch for them, and end with this one, also if it is killed: they read from its end of a pipe.
    """

    def __init__(self, tokenizer: Tokenizer, store: BatchStore, processes: int) -> None:
        self._tokenizer, self._store, self._processes = tokenizer, store, processes
        self._threads = ThreadPoolExecutor(processes)
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._workers: list[multiprocessing.process.BaseProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.terminate()  # a thread that waits for its answer sees the end of the pipe
        self._threads.shutdown()
        for worker in self._workers:
            worker.join()

    def submit(self, texts: Sequence[str]) -> Future[Encoded]:
        """The encoding of the texts, to come."""
        return self._threads.submit(self._encode, texts)

    def _encode(self, texts: Sequence[str]) -> Encoded:
        if sum(map(len, texts)) < BATCH_BYTES:
            return encode(self._tokenizer, texts)
        file = self._store.file(texts)
        if (encoded := self._store.load(file)) is None:
            encoded = encode(self._tokenizer, texts) if self._processes == 1 else self._encode_elsewhere(texts)
            self._store.save(file, encoded)
        return encoded

    def _encode_elsewhere(self, texts: Sequence[str]) -> Encoded:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:  # no more than there are threads
            connection = self._start_worker()
        try:
            connection.send(texts)
            return connection.recv()
        except (EOFError, OSError) as error:
            raise _ended() from error
        finally:
            self._idle.put(connection)

    def _start_worker(self) -> Connection:
        # Spawned, because a fork would copy threads' locks and every open pipe.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        worker = context.Process(target=_work, args=(theirs,), daemon=True)
        worker.start()
        theirs.close()
        self._workers.append(worker)
        # Not an argument: `start` would wait for ever to write that much to a worker that ended before it could read.
        try:
            ours.send(self._tokenizer)
        except OSError as error:
            raise _ended() from error
        return ours


def _ended() -> RuntimeError:
    return RuntimeError(
        "a process that encodes text has ended: it had too little memory, or the program that called has no file, or "
        "no `if __name__ == '__main__'` (processes=1 starts none)"
    )


def _work(connection: Connection) -> None:
    """A worker: is sent a tokenizer, then answers lists of texts until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the first process ends the others
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a core each
    try:
        tokenizer: Tokenizer = connection.recv()
        while True:
            connection.send(encode(tokenizer, connection.recv()))
    except (EOFError, OSError):
        return
