"""Benchmark tasks of lm-evaluation-harness in a folder, and models for them that know nothing or everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM

COLOURS = ("blue", "cyan", "grey", "teal")
MC2 = """
import numpy as np

def score(doc, results):
    mass = np.exp([answer[0] for answer in results])
    return {"acc": mass[np.array(doc["labels"]) == 1].sum() / mass.sum()}
"""
METRIC = {"aggregation": "mean", "higher_is_better": True}


def write(folder: Path, num_items: int = 12) -> Path:
    """`colours_a` and `colours_b` (4 options of 4 letters; together the group `colours`), `truths`, and `sums`."""
    folder.mkdir(exist_ok=True)
    for name, size in (("colours_a", num_items), ("colours_b", num_items // 2)):
        docs = [
            {"q": f"The colour of {name} {i}:", "options": COLOURS, "gold": (i * 7 + i // 4) % 4} for i in range(size)
        ]
        _task(folder, name, docs, choices="options", target="gold", metrics=("acc", "acc_norm"))
    group = {"group": "colours", "task": ["colours_a", "colours_b"]}
    aggregate = [{"metric": name, "aggregation": "mean", "weight_by_size": True} for name in ("acc", "acc_norm")]
    (folder / "colours.yaml").write_text(json.dumps(group | {"aggregate_metric_list": aggregate}))
    truths = [
        {"q": f"Is {i} odd?", "options": ["yes", "no", "it is"], "labels": [1, 0, 1] if i % 2 else [0, 1, 0]}
        for i in range(num_items)
    ]
    _task(folder, "truths", truths, choices="options", target=0, process_results="!function truths.score")
    (folder / "truths.py").write_text(MC2)
    sums = [{"q": f"{i} + 1 =", "answer": str(i + 1)} for i in range(num_items)]
    filters = [
        {"name": name, "filter": [{"function": "regex", "regex_pattern": pattern}, {"function": "take_first"}]}
        for name, pattern in (("strict", r"= (\d+)\."), ("flexible", r"(\d+)"))
    ]
    _task(folder, "sums", sums, target="answer", metrics=("exact_match",), output_type="generate_until",
          generation_kwargs={"until": ["\n"], "do_sample": False, "max_gen_toks": 4}, filter_list=filters)  # fmt: skip
    return folder


def _task(
    folder: Path, name: str, docs: Sequence[dict[str, Any]], *, target: Any, choices: str = "",
    metrics: Sequence[str] = ("acc",), output_type: str = "multiple_choice", **more: Any,
) -> None:  # fmt: skip
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    values = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / f"{name}.jsonl")}, "cache_dir": str(folder / "cache")},
        "test_split": "test",
        "output_type": output_type,
        "doc_to_text": "q",
        "doc_to_target": target,
        "metric_list": [{"metric": metric, **METRIC} for metric in metrics],
        "metadata": {"version": 2.0},
        **({"doc_to_choice": choices} if choices else {}),
        **more,
    }
    # JSON is YAML, but for the tag that names a function.
    text = json.dumps(values).replace('"!function truths.score"', "!function truths.score")
    (folder / f"{name}.yaml").write_text(text)


class Knowing(LM):
    """A model that is told the answers: right ones are certain, all others equally unlikely."""

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        return [
            (0.0, True) if self._is_right(request.doc, request.args[1].strip()) else (-99.0, False)
            for request in requests
        ]

    def _is_right(self, doc: dict[str, Any], answer: str) -> bool:
        option = doc["options"].index(answer)
        return bool(doc["labels"][option]) if "labels" in doc else option == doc["gold"]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        return [0.0] * len(requests)

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        return [f" = {request.doc['answer']}." for request in requests]
