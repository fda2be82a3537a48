"""Documentation strings of packages: found without importing, in an order of their own, by exact versions."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from jaxlm.command_line import load_config
from jaxlm.config import PrepareConfig
from jaxlm.data.sources.package_docs import PackageDocs, dedent, docstrings
from jaxlm.errors import UserError

SOURCE = '''"""The module."""
import nowhere
def outer(x):
    r"""Outer \\d.

        An indented line.\x20\x20
    """
    def inner(): "Inner."
if nowhere:
    class Hidden:
        """Hidden."""
        async def method(self):
            """Method."""
    "not a documentation string"
else:
    try: pass
    except Exception:
        def caught(): "Caught."
match nowhere:
    case 1:
        def case(): "Case."
def surrogate(): "\\ud800"
def nothing(): x = "Nothing."
'''


def test_modules_classes_and_functions_are_found_wherever_they_are() -> None:
    assert list(docstrings(SOURCE.encode())) == [
        "The module.",
        "Outer \\d.\n\nAn indented line.",
        "Inner.",
        "Hidden.",
        "Method.",
        "Caught.",
        "Case.",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  one ", "one"),
        ("one\n    two\n      three  \n    ", "one\ntwo\n  three"),
        ("\n\tone\r\n\ttwo", "one\ntwo"),
        ("one\n\n\n  two", "one\n\n\ntwo"),
    ],
)
def test_indentation_goes(text: str, expected: str) -> None:
    assert dedent(text) == expected


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Installs a package of one's own: its files by name, listed in its metadata."""

    def install(name: str, version: str, **modules: str) -> Path:
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        names = [file.replace("__", "/") + ".py" for file in modules]
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in names))
        for file, content in zip(names, modules.values(), strict=True):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(content)
        monkeypatch.syspath_prepend(str(tmp_path))
        return tmp_path

    return install


def read(*packages: str, seed: int = 0) -> list[tuple[str, str]]:
    source = PackageDocs("", PrepareConfig(packages=packages, seed=seed))
    first = [(document.source, document.text) for document in source.documents()]
    assert [(document.source, document.text) for document in source.documents()] == first
    return first


def test_the_order_depends_on_texts_and_seed_only(package: Callable[..., Path]) -> None:
    package("madeup_a", "1.0", a__one='"""First text."""', a__two='"""Second text."""\ndef f(): "Third text."')
    package("madeup_b", "2.0", b='"""Fourth text."""', tests__c='"""A test."""', test_d='"""A test."""')
    forwards, backwards = read("madeup_a==1.0", "madeup_b==2.0"), read("madeup_b==2.0", "madeup_a==1.0")
    assert forwards == backwards
    assert sorted(forwards) == [
        ("madeup_a", "First text."),
        ("madeup_a", "Second text."),
        ("madeup_a", "Third text."),
        ("madeup_b", "Fourth text."),
    ]
    assert {tuple(read("madeup_a==1.0", "madeup_b==2.0", seed=seed)) for seed in range(5)} != {tuple(forwards)}


def test_a_source_may_be_some_of_the_packages(package: Callable[..., Path]) -> None:
    for name in ("madeup_a", "madeup_b", "madeup_c"):
        package(name, "1.0", **{name: f'"""Text of {name}."""'})
    config = PrepareConfig(packages=("madeup_a==1.0", "madeup_b==1.0", "madeup_c==1.0"))
    source = PackageDocs("madeup_a+madeup_c", config)
    assert sorted(document.text for document in source.documents()) == ["Text of madeup_a.", "Text of madeup_c."]
    assert source.identity() == "madeup_a==1.0 madeup_c==1.0"
    with pytest.raises(UserError, match="package_docs:madeup_d: packages has no 'madeup_d'; did you mean"):
        PackageDocs("madeup_d", config)


def test_a_module_that_is_not_python_is_counted(package: Callable[..., Path]) -> None:
    package("madeup", "1.0", template="def {name}(): pass", good='"Good."')
    source = PackageDocs("", PrepareConfig(packages=("madeup==1.0",)))
    assert [document.text for document in source.documents()] == ["Good."]
    assert source.removed() == {"modules_not_python": 1}


def test_packages_that_are_not_those_are_refused(package: Callable[..., Path], refused: Callable[..., str]) -> None:
    place = package("madeup", "1.0", gone='"Gone."')
    of = {"source": "package_docs"}
    assert refused(**of).startswith("packages is empty, allowed: name==version")
    assert refused(**of, packages="madeup") == "packages has 'madeup', allowed: name==version"
    assert (
        refused(**of, packages="nowhere==1.0") == "package nowhere is not installed, allowed: pip install nowhere==1.0"
    )
    assert refused(**of, packages="madeup==1.1").startswith(
        "package madeup is installed as 1.0, allowed: madeup==1.1 ("
    )
    (place / "gone.py").unlink()
    assert refused(**of, packages="madeup==1.0").startswith("package madeup lacks gone.py")
    (place / "madeup-1.0.dist-info" / "RECORD").unlink()
    assert refused(**of, packages="madeup==1.0").startswith("package madeup has no list of its files")


def test_the_shipped_corpus_is_of_core_dependencies_at_the_constraints_versions() -> None:
    packages = load_config("configs/data/package_docs.py", [], PrepareConfig).packages
    assert set(packages) <= set(Path("constraints.txt").read_text().splitlines())
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    waiting, core = list(map(Requirement, project["dependencies"])), set()
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower().replace("_", "-")
        if name not in core and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            core.add(name)
            waiting += map(Requirement, importlib.metadata.requires(name) or [])
    assert {package.partition("==")[0] for package in packages} <= core


def test_nothing_is_imported() -> None:
    program = (
        "import sys; from jaxlm.config import PrepareConfig; from jaxlm.data.sources.package_docs import PackageDocs\n"
        "from importlib.metadata import version\n"
        "config = PrepareConfig(source='package_docs', packages=('optax==' + version('optax'),))\n"
        "print(len(list(PackageDocs('', config).documents())), 'optax' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    count, imported = ran.stdout.split()
    assert int(count) > 100 and imported == "False"


def test_the_error_is_one_line_about_what_to_install() -> None:
    with pytest.raises(UserError) as error:
        PackageDocs("", PrepareConfig(packages=("scipy==0.0.1",)))
    assert "pip install scipy==0.0.1" in str(error.value) and "\n" not in str(error.value)
