"""The sources of text by name. A new one is a file beside this one and a line in `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable

from jaxlm.config import PrepareConfig
from jaxlm.data.document import Source
from jaxlm.data.mixture import ONE
from jaxlm.data.sources.austen import Austen
from jaxlm.data.sources.files import Files
from jaxlm.data.sources.hub import Hub
from jaxlm.data.sources.package_docs import PackageDocs
from jaxlm.data.sources.tfds import Tfds
from jaxlm.errors import UserError
from jaxlm.fields import nearest

FILES = "files"
# What is made of the text after the colon, and of the rest of the configuration.
SOURCES: dict[str, Callable[[str, PrepareConfig], Source]] = {
    "austen": Austen,
    FILES: Files,
    "hub": Hub,
    "package_docs": PackageDocs,
    "tfds": Tfds,
}


def given_sources(config: PrepareConfig) -> dict[str, str]:
    """What the user has written for each source, by name; the only source of no mix has the name ONE."""
    if not isinstance(config.files, str):
        return dict(config.files)
    return {ONE: config.files if config.source == FILES else config.source}


def open_sources(config: PrepareConfig) -> dict[str, Source]:
    """The sources of a mix by name, or the only one.

    Raises UserError for a name that is not registered, and for input that is not there.
    """
    name = config.source.partition(":")[0]
    if name not in SOURCES:
        raise UserError(f"source is {config.source!r}, which is none of the sources; {nearest(name, SOURCES)}")
    opened: dict[str, Source] = {}
    wrong = []
    for name, given in given_sources(config).items():
        try:
            opened[name] = _open(given, config)
        except UserError as error:  # what is wrong with several is said at once: fetching files takes long
            wrong.append(str(error) if name == ONE else f"source {name}: {error}")
    if wrong:
        raise UserError("; ".join(wrong))
    return opened


def _open(given: str, config: PrepareConfig) -> Source:
    kind, colon, rest = given.partition(":")
    if kind in SOURCES and kind != FILES:
        return SOURCES[kind](rest, config)
    if colon and kind.isidentifier():
        raise UserError(f"files is {given!r}, and {kind!r} is none of the sources; {nearest(kind, SOURCES)}")
    return Files(given, config)
