"""Loads an exported directory the way a stranger does and answers questions about it. Knows nothing of jaxlm.

Run as a script, by an interpreter with PyTorch and transformers (4.57 or 5.x): `python -P reload.py DIRECTORY QUESTIONS
ANSWERS`, two JSON files; the logits go to ANSWERS.npy. See `jaxlm.release.verify` for who asks.
"""

from __future__ import annotations

import json
import sys
from typing import Any

QUICK_START = {
    "max_new_tokens": 50,
    "temperature": 0.1,
    "top_p": 0.5,
    "top_k": 5,
    "repetition_penalty": 1.8,
    "do_sample": True,
    "pad_token_id": 0,
}
MISSING = 3  # the exit code where a package is not installed


def main(directory: str, questions_path: str, answers_path: str) -> None:
    """Answers: versions, loading problems, tied head, token ids, continuations one by one and as a batch, samples."""
    import numpy as np
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with open(questions_path, encoding="utf-8") as file:
        questions = json.load(file)
    transformers.utils.logging.disable_progress_bar()
    trust = {"trust_remote_code": True} if questions["remote_code"] else {}
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True, **trust
    )
    model, info = loaded
    tokenizer = AutoTokenizer.from_pretrained(directory, **trust)
    with torch.no_grad():
        logits_BTV = model(torch.tensor(questions["tokens"])).logits
    np.save(f"{answers_path}.npy", logits_BTV.numpy(), allow_pickle=False)
    answers = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "class": type(model).__name__,
        "loading": {name: sorted(map(str, problems)) for name, problems in info.items() if problems},
        "tied": model.get_input_embeddings().weight.data_ptr() == model.lm_head.weight.data_ptr(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "prompt_ids": [tokenizer(prompt)["input_ids"] for prompt in questions["prompts"]],
        "continuations": [continuations(model, tokenizer, questions["prompts"], s) for s in questions["settings"]],
        "quick_start": quick_start(model, tokenizer, questions["prompts"]),
    }
    with open(answers_path, "w", encoding="utf-8") as file:
        json.dump(answers, file)


def continuations(
    model: Any, tokenizer: Any, prompts: list[str], settings: dict[str, Any]
) -> dict[str, list[list[int]]]:
    """New tokens of each prompt without sampling, alone and in one padded batch."""
    settings = {"do_sample": False, **settings}
    single = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        single.append(model.generate(ids, **settings)[0, ids.shape[1] :].tolist())
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    out = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **settings)
    return {"single": single, "batch": out[:, batch["input_ids"].shape[1] :].tolist()}


def quick_start(model: Any, tokenizer: Any, prompts: list[str]) -> list[list[int]]:
    """New tokens of the study's quick start: its first prompt alone, then all of them in a padded batch."""
    import torch

    torch.manual_seed(0)
    ids = tokenizer(prompts[0], return_tensors="pt")["input_ids"]
    single = model.generate(ids, **QUICK_START)[:, ids.shape[1] :]
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    out = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **QUICK_START)
    return single.tolist() + out[:, batch["input_ids"].shape[1] :].tolist()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ModuleNotFoundError as error:
        print(f"{error.name}", file=sys.stderr)
        sys.exit(MISSING)
