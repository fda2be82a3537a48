"""The sources of text by name. A new one is a file beside this one and a line in `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable

from jaxlm.config import PrepareConfig
from jaxlm.data.document import Source
from jaxlm.data.sources.files import Files
from jaxlm.data.sources.package_docs import PackageDocs
from jaxlm.data.sources.tfds import Tfds
from jaxlm.errors import UserError
from jaxlm.fields import nearest

SOURCES: dict[str, Callable[[PrepareConfig], Source]] = {
    "files": Files,
    "package_docs": PackageDocs,
    "tfds": Tfds,
}


def open_source(config: PrepareConfig) -> Source:
    """The source that `config.source` names; `tfds:NAME` may stand there or in `config.files`.

    Raises UserError for a name that is not registered, and for input that is not there.
    """
    name = config.source.partition(":")[0]
    if name == "files" and config.files.startswith("tfds:"):
        name = "tfds"
    if name not in SOURCES:
        raise UserError(f"source is {config.source!r}, which is none of the sources; {nearest(name, SOURCES)}")
    return SOURCES[name](config)
