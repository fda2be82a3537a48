"""One Llama through the harness's own `hf` model and through ours: every number of every task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

import jaxlm
from jaxlm import import_hf
from jaxlm.study.harness import from_workdir
from tests.evaluation.tiny_harness import TOKENIZER

POSITIONS = 48
LONG = "the cat sat on the mat and the dog sat on the log, and so on, "
DOCUMENTS = [
    {"text": "the cat sat on the", "choices": ["mat", "log and so on", "dog sat"], "gold": 0},
    {"text": "so on and so on, and ", "choices": ["on", "the mat", "x"], "gold": 1},
    {"text": LONG * 3, "choices": ["so on", "the dog", "on and on and on"], "gold": 2},
    {"text": "A or B?", "choices": ["A", "B", "C"], "gold": 1},
    {"text": LONG * 2 + "the", "choices": ["A", "log", "cat sat on the mat, and so on"], "gold": 0},
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[LM, LM, Path]:
    """The harness's model and ours, of the same random weights, and the workdir."""
    root = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=280,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        initializer_range=0.3,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(root / "hf")
    TOKENIZER.save(root / "hf")
    import_hf.main([f"--model={root / 'hf'}", f"--workdir={root / 'run'}"])
    theirs = HFLM(pretrained=str(root / "hf"), dtype="float32", device="cpu", batch_size=3)
    return theirs, from_workdir(root / "run", batch_tokens=256), root / "run"


def test_an_imported_model_reads_as_much_as_it_can(both: tuple[LM, LM, Path]) -> None:
    theirs, ours, _ = both
    assert ours.max_length == theirs.max_length == POSITIONS
    assert ours.prefix_token_id == theirs.prefix_token_id
    for text in ("the cat", "", " \n", TOKENIZER.end_of_text + "so", "naïve 🙂"):
        assert ours.tok_encode(text) == theirs.tok_encode(text)


def test_every_choice_and_the_accuracies_are_those_of_hf(both: tuple[LM, LM, Path], tmp_path: Path) -> None:
    theirs, ours, _ = both
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    task = {
        "task": "mats",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "items.jsonl")}, "cache_dir": str(tmp_path)},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "text",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    found: list[dict[str, Any]] = []
    for model in (theirs, ours):
        found.append(simple_evaluate(model, tasks=[task], task_manager=TaskManager(include_defaults=False)))
    expected, result = found
    assert result["results"]["mats"] == pytest.approx(expected["results"]["mats"], nan_ok=True)
    for one, other in zip(result["samples"]["mats"], expected["samples"]["mats"], strict=True):
        answers = np.array(one["filtered_resps"], float), np.array(other["filtered_resps"], float)
        np.testing.assert_allclose(*answers, atol=1e-4)
        assert one["acc"] == other["acc"] and one["acc_norm"] == other["acc_norm"]
    assert ours.truncated["mats"]["contexts"] == 4 and ours.truncated["mats"]["continuations"] == 0
    assert result["config"]["truncated"] == ours.truncated


def test_greedy_answers_rolling_windows_and_texts_are_those_of_hf(both: tuple[LM, LM, Path]) -> None:
    theirs, ours, run = both
    contexts = ["the cat sat", "so on", LONG * 2]
    begun = [LONG[:size] for size in range(4, 40)]
    likeliest = [out.text for out in jaxlm.load(run).generate(begun, max_new_tokens=1)]
    pairs = list(zip(begun, likeliest, strict=True))
    pairs += [(contexts[2], " x"), ("", "the cat"), ("", TOKENIZER.end_of_text + "so")]
    asked = [Instance("loglikelihood", {}, pair, 0, metadata=("last", number, 1)) for number, pair in enumerate(pairs)]
    answers, expected = ours.loglikelihood(asked), theirs.loglikelihood(asked)
    np.testing.assert_allclose([value for value, _ in answers], [value for value, _ in expected], atol=1e-4)
    flags = [greedy for _, greedy in answers]
    assert flags == [greedy for _, greedy in expected] and True in flags and False in flags

    texts = [Instance("r", {}, (LONG * times,), 0, metadata=("t", times, 1)) for times in (1, 5)]
    rolled = ours.loglikelihood_rolling(texts), theirs.loglikelihood_rolling(texts)
    np.testing.assert_allclose(*rolled, atol=1e-3)

    how = {"until": [" s"], "max_gen_toks": 12, "do_sample": False}
    asked = [Instance("g", {}, (text, how), 0, metadata=("g", n, 1)) for n, text in enumerate(contexts)]
    assert ours.generate_until(asked) == theirs.generate_until(asked)
