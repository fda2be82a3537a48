"""The six novels of Jane Austen, `austen:PATH`, out of the Debian package r-cran-janeaustenr: prose, in public domain.

A document is one chapter, its heading included (a novel's title page goes with its first one), so that the validation
text is chapters from all over and not one book. R keeps data as a lazy-load database: `Rdata.rdx`, a table of where in
`Rdata.rdb` each variable lies, and there a length and zlib-compressed RDS; a novel is a vector of lines.
"""

from __future__ import annotations

import glob
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxlm.config import PrepareConfig
from jaxlm.data.document import Document
from jaxlm.errors import UserError

SCHEME = "austen:"
TABLE, DATABASE = "janeaustenr/data/Rdata.rdx", "janeaustenr/data/Rdata.rdb"
HEADING = re.compile(r"^(?:VOLUME [IVX]+\s+)?CHAPTER (?:[IVXLC]+|\d+)[. ]*$", re.MULTILINE | re.IGNORECASE)
GET_IT = (
    "`apt-get download r-cran-janeaustenr` gets it, `--config.files='austen:r-cran-janeaustenr_*.deb'` names it there"
)


class Austen:
    """Reads a .deb file, or the directory that `dpkg -x` or R made of it; each novel is a source of its own.

    Raises UserError for a file that is not there, is none of these, or is broken.
    """

    def __init__(self, given: str, config: PrepareConfig) -> None:
        self._path = _found(given)
        self._table, self._database = _read_deb(self._path) if self._path.is_file() else _read_directory(self._path)

    def documents(self) -> Iterator[Document]:
        for novel, text in self._novels():
            starts = [heading.start() for heading in HEADING.finditer(text)]
            for start, end in zip([0, *starts[1:]], [*starts[1:], len(text)], strict=True):
                yield Document(text[start:end], novel)

    def removed(self) -> Mapping[str, int]:
        return {}

    def identity(self) -> str:
        return f"janeaustenr:{len(self._database)}:{zlib.crc32(self._database):08x}"

    def _novels(self) -> Iterator[tuple[str, str]]:
        """Yields (name, text), in order of the names."""
        try:
            places = {str(name): place for name, place in _from_rds(self._table)["variables"].items()}
            for name, (start, length) in sorted(places.items()):
                # The first four bytes hold the length that the rest has without compression.
                lines = _from_rds(zlib.decompress(self._database[start + 4 : start + length]))
                yield name, "\n".join(map(str, lines)) + "\n"
        except (zlib.error, LookupError, ValueError, TypeError, EOFError, NotImplementedError) as error:
            raise UserError(f"{self._path} is truncated or no database of R: {error}") from None


def _from_rds(data: bytes) -> Any:
    try:
        import rdata
    except ImportError:
        raise UserError("the novels need the package rdata (pip install 'jaxlm[data]')") from None
    return rdata.conversion.convert(rdata.parser.parse_data(data, extension=".rds"))


def _found(pattern: str) -> Path:
    paths = sorted(glob.glob(str(Path(pattern).expanduser()))) if pattern else []
    if not paths:
        raise UserError(f"files: nothing matches {SCHEME + pattern!r}; {GET_IT}")
    if len(paths) > 1:
        raise UserError(f"files: {SCHEME + pattern!r} matches {len(paths)} files, allowed: one of {', '.join(paths)}")
    return Path(paths[0])


def _read_directory(path: Path) -> tuple[bytes, bytes]:
    tables = [*path.glob("data/Rdata.rdx"), *sorted(path.rglob(TABLE))]
    if not tables:
        raise UserError(f"files: {path} has no {TABLE}; {GET_IT}")
    try:
        return tables[0].read_bytes(), tables[0].with_suffix(".rdb").read_bytes()
    except OSError as error:
        raise UserError(f"file {error.filename} cannot be read: {error.strerror or error}") from None


def _read_deb(path: Path) -> tuple[bytes, bytes]:
    """The two files out of a Debian package: an `ar` archive with a tar archive in it."""
    try:
        with tarfile.open(fileobj=io.BytesIO(_data_archive(path.read_bytes()))) as archive:
            members = {member.name: member for member in archive if member.isfile()}
            found = [next(m for name, m in members.items() if name.endswith(end)) for end in (TABLE, DATABASE)]
            table, database = (archive.extractfile(member) for member in found)
            assert table is not None and database is not None  # both are files
            return table.read(), database.read()
    except (ValueError, EOFError, StopIteration, tarfile.TarError, OSError) as error:
        raise UserError(
            f"file {path} cannot be read as a Debian package of the novels ({error or 'they are not in it'}); {GET_IT} "
            "(where its compression is not known to Python: `dpkg -x FILE DIR`, and austen:DIR)"
        ) from None


def _data_archive(deb: bytes) -> bytes:
    """The member `data.tar.*` of an `ar` archive: headers of 60 bytes, each followed by its file, padded to be even."""
    place = len(b"!<arch>\n")
    while header := deb[place : place + 60]:
        name, size = header[:16], int(header[48:58])
        if name.startswith(b"data.tar"):
            return deb[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    raise ValueError("no data.tar")
