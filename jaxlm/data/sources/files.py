"""The user's own text: `.txt`, `.jsonl` and `.parquet` files, each also gzipped, read as a stream.

A `.txt` file is one document, or several if `<|endoftext|>` stands between them; a line of a `.jsonl` file and a row of
a `.parquet` file is one. Without the text column, a row's `prompt` and `completion` are one, the prompt not scored.
"""

from __future__ import annotations

import glob
import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from jaxlm.config import PrepareConfig
from jaxlm.data.document import Document
from jaxlm.data.tokenizer import END_OF_TEXT
from jaxlm.errors import UserError
from jaxlm.fields import nearest

READ_BYTES = 1 << 18
LONGEST_TEXT = 1 << 20  # characters; a longer text file is cut at a line's end, so that memory stays constant
ROWS = 256  # of a Parquet file, held at once
PROMPT_AND_COMPLETION = ("prompt", "completion")

Parts = tuple[str, ...]  # a text; or a prompt, and what answers it


class Files:
    """The files that patterns match, `given` separated by commas, in order of their paths.

    Raises UserError for a pattern without a match and for a file that is empty, unreadable, of another format, or
    broken; the message names the file, and the line where there are lines.
    """

    def __init__(self, given: str, config: PrepareConfig) -> None:
        self._paths = matches(given)
        self._column = config.text_column
        for path in self._paths:
            _format(path)
            if path.stat().st_size == 0:
                raise UserError(f"file {path} is empty, allowed: files with text")

    def documents(self) -> Iterator[Document]:
        for path in self._paths:
            read, found = READERS[_format(path)], False
            for parts in read(path, self._column):
                found = True
                text = "".join(parts)
                yield Document(text, "files", prompt_chars=len(text) - len(parts[-1]))
            if not found:
                raise UserError(f"file {path} holds no documents, allowed: files with text")

    def removed(self) -> Mapping[str, int]:
        return {}

    def identity(self) -> str:
        return " ".join(f"{path.name}:{path.stat().st_size}:{checksum(path):08x}" for path in self._paths)


def checksum(path: Path) -> int:
    """CRC-32 of the contents: a file that was changed keeps its name, and often its size."""
    crc = 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(READ_BYTES):
                crc = zlib.crc32(chunk, crc)
    except OSError as error:
        raise UserError(f"file {path} cannot be read: {error.strerror or error}") from None
    return crc


def matches(patterns: str) -> list[Path]:
    """The files that match any of the patterns (separated by commas), each once, sorted."""
    names = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    if not names:
        raise UserError("files is empty, allowed: patterns of .txt, .jsonl or .parquet files, separated by commas")
    found: set[Path] = set()
    for name in names:
        paths = {Path(p) for p in glob.glob(str(Path(name).expanduser()), recursive=True)}
        if not paths:
            raise UserError(f"files: no file matches {name!r}")
        for path in paths:
            if not path.is_file():
                raise UserError(f"files: {path} is not a file, allowed: patterns of files (for example {path}/*.txt)")
        found |= paths
    return sorted(found)


def _format(path: Path) -> str:
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix not in READERS:
        raise UserError(f"file {path} ends in {suffix!r}, allowed: {', '.join(READERS)}, each also with .gz")
    return suffix


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed if its name ends in .gz; what cannot be read becomes a UserError."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"file {path} is not a whole gzip file: {error}") from None
    except OSError as error:
        raise UserError(f"file {path} cannot be read: {error.strerror or error}") from None


def _read_text(path: Path, column: str) -> Iterator[Parts]:
    """Yields the texts between end-of-text marks; `column` has no meaning here."""
    with _opened(path) as file:
        pending, place = "", 0
        rest = b""
        while chunk := file.read(READ_BYTES):
            data = rest + chunk
            text, rest = _decode(data, path, place)
            place += len(data) - len(rest)
            *texts, pending = (pending + text).split(END_OF_TEXT)
            yield from ((text,) for text in texts)
            while len(pending) > LONGEST_TEXT:
                end = pending.rfind("\n", LONGEST_TEXT // 2, LONGEST_TEXT) + 1 or LONGEST_TEXT
                yield (pending[:end],)
                pending = pending[end:]
        if rest:
            raise UserError(f"file {path} is not UTF-8: byte {place} begins a character that the file does not end")
        if pending.strip():
            yield (pending,)


def _decode(data: bytes, path: Path, place: int) -> tuple[str, bytes]:
    """The text of `data`, and the bytes at its end that begin a character without ending it."""
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and len(data) - error.start < 4:
            return data[: error.start].decode(), data[error.start :]
        raise UserError(
            f"file {path} is not UTF-8: byte {place + error.start} is 0x{data[error.start]:02x} ({error.reason})"
        ) from None


def _read_lines(path: Path, column: str) -> Iterator[Parts]:
    """Yields what is under the key `column` of the JSON objects, one a line; blank lines are passed over."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"file {path}, line {number}"
            try:
                record = json.loads(line.decode())
            except UnicodeDecodeError:
                raise UserError(f"{where}: not UTF-8") from None
            except json.JSONDecodeError as error:
                raise UserError(f"{where}: not JSON ({error.msg} at column {error.colno})") from None
            if not isinstance(record, dict):
                raise UserError(f"{where}: a {type(record).__name__}, allowed: a JSON object with the key {column!r}")
            yield _parts(record, _columns(column, record, f"{where}: no key"), where)


def _read_parquet(path: Path, column: str) -> Iterator[Parts]:
    """Yields what is in the column `column`, a few rows at a time."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"file {path} needs the package pyarrow (pip install 'jaxlm[data]')") from None
    with _opened(path) as file, tempfile.TemporaryFile() as unpacked:
        if path.suffix == ".gz":  # Parquet is read from its end, gzip from its beginning
            shutil.copyfileobj(file, unpacked)
        try:
            # Buffered in advance, all of the file would stay in memory to its end.
            table = pyarrow.parquet.ParquetFile(unpacked if path.suffix == ".gz" else file, pre_buffer=False)
            columns = _columns(column, table.schema_arrow.names, f"file {path}: no column")
            row = 0
            for batch in table.iter_batches(batch_size=ROWS, columns=list(columns)):
                for record in batch.to_pylist():
                    row += 1
                    yield _parts(record, columns, f"file {path}, row {row}")
        except pyarrow.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"file {path} is truncated or not Parquet: {reason}") from None


def _columns(column: str, names: Collection[str], missing: str) -> tuple[str, ...]:
    """Where the text is: `column`, or prompt and completion. Raises UserError, which `missing` begins, without both."""
    if column in names:
        return (column,)
    if set(PROMPT_AND_COMPLETION) <= set(names):
        return PROMPT_AND_COMPLETION
    if there := [name for name in PROMPT_AND_COMPLETION if name in names]:
        (lacking,) = set(PROMPT_AND_COMPLETION) - set(there)
        raise UserError(f"{missing} {lacking!r} beside {there[0]!r}, allowed: both, or --config.text_column={there[0]}")
    raise UserError(f"{missing} {column!r} (--config.text_column); {nearest(column, names)}")


def _parts(record: Mapping[str, object], columns: tuple[str, ...], where: str) -> Parts:
    parts = tuple(_checked(record[column], column, where) for column in columns)
    if columns == PROMPT_AND_COMPLETION and not parts[-1].strip():
        raise UserError(f"{where}: {columns[-1]!r} is empty, allowed: text, which is what is scored")
    return parts


def _checked(value: object, column: str, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{where}: {column!r} is a {type(value).__name__}, allowed: a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: {column!r} has half of a surrogate pair, which UTF-8 cannot hold") from None
    return value


READERS: dict[str, Callable[[Path, str], Iterator[Parts]]] = {
    ".txt": _read_text,
    ".jsonl": _read_lines,
    ".parquet": _read_parquet,
}
