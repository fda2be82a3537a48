"""A data set of the Hugging Face hub, `hub:OWNER/NAME`: its Parquet files, each downloaded when it is reached."""

from __future__ import annotations

import dataclasses
import glob
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import huggingface_hub
from huggingface_hub.errors import CacheNotFound, HTTPError

from jaxlm.config import PrepareConfig
from jaxlm.data.document import Document
from jaxlm.data.sources.files import Files
from jaxlm.errors import UserError

SUFFIX = ".parquet"
SECONDS = 30  # that the hub may take to answer


@dataclass(frozen=True)
class Listing:
    """The Parquet files of one revision: sizes in bytes by name, in order of the names."""

    commit: str
    sizes: dict[str, int]


class Hub:
    """The column `config.text_column` of the Parquet files of a data set, in order of their names.

    The library keeps what it has downloaded, goes on with a file that was cut off, and tries again where a connection
    breaks. Without a network the files that it keeps are read, and no others are known.

    Raises UserError, with what is needed and where to put it, where the hub does not answer and nothing is kept.
    """

    def __init__(self, given: str, config: PrepareConfig) -> None:
        self._repo, self._config = given, config
        if given.count("/") != 1 or not all(given.split("/")):
            raise UserError(f"files is 'hub:{given}', allowed: hub:OWNER/NAME, a data set of the Hugging Face hub")
        try:
            self._listing = _ask(given)
        except (OSError, HTTPError) as error:
            kept = _kept(given)
            if kept is None:
                self._fail(error)
            print(f"hub:{given}: {_reason(error)}; reading what is on this machine already", file=sys.stderr)
            self._listing = kept
        if not self._listing.sizes:
            raise UserError(f"hub:{given} has no {SUFFIX} files, allowed: a data set with some")

    def documents(self) -> Iterator[Document]:
        for name in self._listing.sizes:
            path = glob.escape(self._download(name))
            for document in Files(path, self._config).documents():
                yield dataclasses.replace(document, source=self._repo.rpartition("/")[2])

    def removed(self) -> Mapping[str, int]:
        return {}

    def identity(self) -> str:
        sizes = self._listing.sizes
        total = f"{self._repo}@{self._listing.commit}, {len(sizes)} files, {sum(sizes.values()) / 1e9:.2f} GB:"
        return " ".join([total, *(f"{name}:{size}" for name, size in sizes.items())])

    def _download(self, name: str) -> str:
        try:
            return huggingface_hub.hf_hub_download(self._repo, name, repo_type="dataset", revision=self._listing.commit)
        except (OSError, HTTPError) as error:
            if getattr(error, "errno", None) is not None and not isinstance(error, ConnectionError):
                raise  # of this machine: a full disk, no permission
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        raise UserError(
            f"hub:{self._repo} cannot be read ({_reason(error)}); needed are its files data/*{SUFFIX} with the column "
            f"{self._config.text_column!r}: fetch them elsewhere (hf download --repo-type=dataset {self._repo}) and "
            f"give their place, '/path/*{SUFFIX}', instead of hub:{self._repo}"
        ) from None


def _ask(repo: str) -> Listing:
    """What the hub has now."""
    info = huggingface_hub.HfApi().dataset_info(repo, files_metadata=True, timeout=SECONDS)
    found = {file.rfilename: file.size or 0 for file in info.siblings or [] if file.rfilename.endswith(SUFFIX)}
    return Listing(info.sha or "", dict(sorted(found.items())))


def _kept(repo: str) -> Listing | None:
    """What the library has downloaded before, of the newest revision of which there is something."""
    try:
        cached = huggingface_hub.scan_cache_dir().repos
    except CacheNotFound:
        return None
    revisions = [r for c in cached if (c.repo_type, c.repo_id) == ("dataset", repo) for r in c.revisions]
    for revision in sorted(revisions, key=lambda r: r.last_modified, reverse=True):
        names = {str(f.file_path.relative_to(revision.snapshot_path)): f.size_on_disk for f in revision.files}
        if sizes := {name: size for name, size in sorted(names.items()) if name.endswith(SUFFIX)}:
            return Listing(revision.commit_hash, sizes)
    return None


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
