"""Definitions of multiple choice for the harness, and folders of them for its `include_path`."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Item = dict[str, Any]


def definition(
    task: str,
    items: Path,
    *,
    tag: str,
    text: str = "query",
    target: str = "gold",
    metrics: Sequence[str] = ("acc", "acc_norm"),
) -> dict[str, Any]:
    """The harness's definition of a task whose items, with `choices`, are JSON lines in the file `items`.

    `text` is the field before an option, `target` that of the number of the right one.
    """
    return {
        "task": task,
        "tag": tag,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(items)}, "cache_dir": str(items.parent / "datasets")},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": text,
        "doc_to_choice": "choices",
        "doc_to_target": target,
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in metrics],
        "metadata": {"version": 1.0},
    }


def ordered(options: Iterable[str], text: str) -> list[str]:
    """Options in an order that only they and the text decide, and not which of them is right."""
    return sorted(options, key=lambda option: hashlib.sha256(f"{text}\0{option}".encode()).digest())


def lines(items: Iterable[Item]) -> str:
    """JSON lines."""
    return "".join(json.dumps(item) + "\n" for item in items)


def write(folder: Path, tasks: Mapping[str, tuple[Mapping[str, Any], Sequence[Item]]]) -> None:
    """Definition and items of each task, by name, in a folder of theirs: all of it, or nothing.

    A folder that holds just these stays, with what the harness keeps beside them; another one is replaced.
    """
    files = {f"{task}.jsonl": lines(items) for task, (_, items) in tasks.items()}
    files |= {f"{task}.yaml": json.dumps(values, indent=2) for task, (values, _) in tasks.items()}  # JSON is YAML
    if all((folder / name).is_file() and (folder / name).read_text("utf-8") == text for name, text in files.items()):
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        scratch = Path(name) / "tasks"
        scratch.mkdir()
        for file, text in files.items():
            (scratch / file).write_text(text, "utf-8")
        if folder.exists():
            os.replace(folder, Path(name) / "replaced")
        os.replace(scratch, folder)
