"""Every file in `configs/` builds, survives JSON, lets every leaf be overridden, and opens with its recipe."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from jaxlm import command_line, fields
from jaxlm.config import PrepareConfig, RunConfig

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("*.py"))


def class_of(file: str) -> type:
    return PrepareConfig if file.startswith("configs/data/") else RunConfig


def value_at(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config


def test_the_study_and_the_pocket_are_there() -> None:
    shipped = {
        "configs/llama3_canon.py",
        "configs/dhara.py",
        "configs/pocket/llama3_canon.py",
        "configs/pocket/dhara.py",
    }
    assert shipped | {"configs/data/package_docs.py", "configs/data/files.py"} <= set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_it_builds_and_survives_json(file: str) -> None:
    config = command_line.load_config(file, [], class_of(file))
    assert fields.build(class_of(file), json.loads(json.dumps(fields.to_dict(config)))) == config


@pytest.mark.parametrize("file", FILES)
def test_every_leaf_can_be_overridden(file: str) -> None:
    config = command_line.load_config(file, [], class_of(file))
    names = [name for name, _, _ in fields.leaves(class_of(file))]
    for name in names:
        value = value_at(config, name)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        again = command_line.load_config(file, [(name, text, False)], class_of(file))
        assert again == config, f"--config.{name}={text} changes more than it says"


@pytest.mark.parametrize("file", FILES)
def test_the_docstring_is_the_recipe(file: str) -> None:
    doc = ast.get_docstring(ast.parse((ROOT / file).read_text("utf-8"))) or ""
    assert f"--config={file}" in doc, "the docstring gives the command"
    assert len(doc.partition("\n")[0]) <= 100, "its first line stands alone in `jaxlm list`"
