"""The documentation strings of installed packages: real English on every machine that runs jaxlm, without a download.

Files are found through the packages' metadata and read with `ast`; nothing is imported. Every documentation string of
a module, class or function is one document. (Joining those of a module would make longer documents, but a module says
the same things again and again: what is learnt from it would measure the copying of its neighbours.)
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.metadata
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from jaxlm.config import PrepareConfig
from jaxlm.data.document import Document
from jaxlm.errors import UserError
from jaxlm.fields import nearest

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class PackageDocs:
    """Reads `config.packages`, a tuple of `name==version`, in an order that depends on the texts and the seed only.

    `given` names some of them, as in jax+numpy; empty: all.

    Raises UserError where a package is missing or has another version: another version has other texts.
    """

    def __init__(self, given: str, config: PrepareConfig) -> None:
        if not config.packages:
            raise UserError("packages is empty, allowed: name==version, ... (configs/data/package_docs.py has a list)")
        listed = {requirement.partition("==")[0]: requirement for requirement in config.packages}
        chosen = given.split("+") if given else list(listed)
        for name in chosen:
            if name not in listed:
                raise UserError(f"package_docs:{given}: packages has no {name!r}; {nearest(name, listed)}")
        self._packages = dict(_installed(listed[name]) for name in chosen)
        self._seed = config.seed
        self._documents: tuple[Document, ...] | None = None  # some 10 MB, and parsing takes longer than all the rest
        self._removed: Counter[str] = Counter()

    def documents(self) -> Iterator[Document]:
        """Yields the documentation strings, shuffled: neighbours in a window are then unrelated, as in a web corpus."""
        if self._documents is None:
            with _collector_off():
                found = [Document(text, name) for name in self._packages for text in self._read(name)]
            self._documents = tuple(sorted(found, key=self._position))
        yield from self._documents

    def removed(self) -> Mapping[str, int]:
        return self._removed

    def identity(self) -> str:
        return " ".join(f"{name}=={found.version}" for name, found in self._packages.items())

    def _position(self, document: Document) -> tuple[bytes, str]:
        return hashlib.sha256(f"{self._seed} {document.text}".encode()).digest(), document.source

    def _read(self, name: str) -> Iterator[str]:
        distribution = self._packages[name]
        for file in sorted(distribution.files or [], key=str):
            if file.suffix != ".py" or _is_test(file):
                continue
            try:
                source = Path(str(distribution.locate_file(file))).read_bytes()
            except FileNotFoundError:
                raise UserError(f"package {name} lacks {file}, which its metadata lists; install it again") from None
            try:
                yield from docstrings(source)
            except (SyntaxError, ValueError):  # templates and Python 2; ValueError is for null bytes and bad encodings
                self._removed["modules_not_python"] += 1


def docstrings(source: bytes) -> Iterator[str]:
    """Yields the documentation strings of a module's source, indentation and trailing blanks removed.

    Strings that UTF-8 cannot hold (half a surrogate pair, in a test of text handling) are passed over. Raises
    SyntaxError or ValueError for what is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # escapes such as \d in somebody else's strings
        warnings.simplefilter("ignore", DeprecationWarning)
        stack: list[ast.AST] = [ast.parse(source)]
    while stack:
        node = stack.pop()
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node, clean=False)):
            if not any("\ud800" <= c <= "\udfff" for c in text):
                yield dedent(text)
        stack += _nested_statements(node)


def _nested_statements(node: ast.AST) -> list[ast.stmt]:
    """The statements right below a statement, last first; definitions are never found inside expressions."""
    below: list[ast.stmt] = []
    for field in ("body", "orelse", "finalbody"):
        below += [s for s in getattr(node, field, ()) if isinstance(s, ast.stmt)]
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        below += part.body
    return below[::-1]


def dedent(text: str) -> str:
    """PEP 257's trimming. Written out because `inspect.cleandoc` does not do the same in every version of Python."""
    first, *rest = text.expandtabs().replace("\r\n", "\n").split("\n")
    margin = min((len(line) - len(line.lstrip(" ")) for line in rest if line.strip()), default=0)
    return "\n".join([first.strip(), *(line[margin:].rstrip() for line in rest)]).strip()


def _is_test(file: PurePosixPath) -> bool:
    """Tests are a third of the source to parse and hold a thirtieth of the text, little of it English."""
    return "tests" in file.parts or file.name.startswith("test_") or file.name.endswith("_test.py")


def _installed(requirement: str) -> tuple[str, importlib.metadata.Distribution]:
    name, separator, version = requirement.partition("==")
    if not separator or not name or not version:
        raise UserError(f"packages has {requirement!r}, allowed: name==version")
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"package {name} is not installed, allowed: pip install {requirement}") from None
    if distribution.version != version:
        raise UserError(
            f"package {name} is installed as {distribution.version}, allowed: {requirement} "
            f"(pip install {requirement}; or --config.packages for another corpus, with another fingerprint)"
        )
    if distribution.files is None:
        raise UserError(f"package {name} has no list of its files, allowed: {requirement} installed from a wheel")
    return name, distribution


@contextmanager
def _collector_off() -> Iterator[None]:
    """Syntax trees are millions of objects without cycles: the collector would double the time and free nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
