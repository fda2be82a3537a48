"""What is declared, what is pinned, and what the default corpus is made of agree."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jaxlm
from jaxlm import command_line
from jaxlm.config import PrepareConfig

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Their packages depend on the machine, or a service of one's own.
UNPINNED_EXTRAS = {"cuda", "tpu", "wandb"}


def pinned(name: str) -> dict[str, str]:
    """The versions of a constraints file by canonical name."""
    lines = [line for line in (ROOT / name).read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


CONSTRAINTS = pinned("constraints.txt")


def declared() -> list[Requirement]:
    texts = list(PROJECT["dependencies"])
    for extra, requirements in EXTRAS.items():
        texts += requirements if extra not in UNPINNED_EXTRAS else []
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_what_is_declared_is_pinned_within_its_range(requirement: Requirement) -> None:
    assert requirement.specifier.contains(CONSTRAINTS[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-transformers4.txt"])
def test_constraints_are_names_and_versions_and_nothing_else(file: str) -> None:
    lines = (ROOT / file).read_text("utf-8").splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9A-Za-z.]+", line) for line in packages)
    names = [line.partition("==")[0] for line in packages]
    assert names == sorted(set(names))


def test_the_extras_of_the_readme_are_there() -> None:
    assert {"cuda", "tpu", "hf", "eval", "data", "notebooks", "dev"} <= EXTRAS.keys()


def closure(requirements: list[str]) -> set[str]:
    """Everything that these requirements install on this machine, by the metadata of what is installed."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += [Requirement(text) for text in importlib.metadata.requires(name) or []]
    return found


def test_the_default_corpus_reads_core_dependencies_at_the_pinned_versions() -> None:
    config = command_line.load_config("configs/data/package_docs.py", [], PrepareConfig)
    packages = dict(package.split("==") for package in config.packages)
    core = closure(PROJECT["dependencies"])
    for name, version in packages.items():
        assert CONSTRAINTS[canonicalize_name(name)] == version
        assert canonicalize_name(name) in core, f"{name} comes with an extra only, so its texts may be missing"


def test_the_version_is_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", jaxlm.__version__)
    assert PROJECT["dynamic"] == ["version"]


def test_an_installed_jaxlm_has_every_file_it_reads() -> None:
    package_data = PYPROJECT["tool"]["setuptools"]["package-data"]
    covered = {
        path
        for package, patterns in package_data.items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    others = {p for p in (ROOT / "jaxlm").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    assert others == covered
    # A folder of code without __init__.py would be left out.
    assert all((path.parent / "__init__.py").exists() for path in (ROOT / "jaxlm").rglob("*.py"))
