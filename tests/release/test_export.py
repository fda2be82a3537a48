"""The command: from a workdir to a directory, whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from jaxlm import config as configs
from jaxlm import export as command
from jaxlm.config import PrepareConfig, RunConfig, TrainConfig
from jaxlm.data.prepare import prepare
from jaxlm.errors import UserError
from jaxlm.release.directory import remote_files
from jaxlm.training.loop import train
from tests.release.models import NATIVE, TINY, export

FILES = {
    "README.md",
    "cache_jaxlm.py",
    "config.json",
    "configuration_jaxlm.py",
    "generation_config.json",
    "generation_jaxlm.py",
    "model.safetensors",
    "modeling_jaxlm.py",
    "schedule_jaxlm.py",
    "selection_jaxlm.py",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two steps of autoregression, and two of conversion from there."""
    root = tmp_path_factory.mktemp("release")
    for i in range(60):
        (root / f"{i:02}.txt").write_text(
            f"Text {i}: Returns the sum of {i} and {i * i}. If True, the {i}th number is kept.\n"
        )
    data = PrepareConfig(
        source="files", files=str(root / "*.txt"), tokenizer="train:300", seq_len=32, validation_share=0.2
    )
    prepare(data, root / "data", report=lambda text: None)
    run = configs.replace(
        RunConfig(train=TrainConfig(total_tokens=512, batch_tokens=256, seq_len=32, eval_windows=8, tensorboard=False)),
        model=TINY,
        data={"dir": str(root / "data")},
        execution={"dtype": "float32"},
        convert={"block_sizes": (4,), "warmup_share": 0.5},
    )
    train(run, root / "ar", kind="train")
    diffusion = configs.replace(run, objective={"kind": "diffusion", "block_size": None, "shift": None})
    train(diffusion, root / "diffusion", kind="convert", init_from=str(root / "ar"))
    return {"ar": root / "ar", "diffusion": root / "diffusion"}


@pytest.mark.parametrize(("name", "kind"), [("ar", "JaxlmForCausalLM"), ("diffusion", "JaxlmForMaskedDiffusion")])
def test_an_export_is_verified_and_complete(
    runs: dict[str, Path], name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "hf"
    command.main([f"--workdir={runs[name]}", f"--out={out}", "--verify"])
    printed = capsys.readouterr().out
    assert "max |logit difference|" in printed
    assert "FAILED" not in printed
    assert {file.name for file in out.iterdir()} == FILES
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == [kind]
    assert config["tie_word_embeddings"]
    assert "lm_head.weight" not in load_file(out / "model.safetensors")
    record = json.loads((runs[name] / "verification.json").read_text())
    assert record["passed"]
    assert record["max_logit_difference"] < 1e-4
    assert record["step"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_the_card_says_what_the_workdir_says(runs: dict[str, Path], tmp_path: Path) -> None:
    cards = {}
    for name in runs:
        command.main([f"--workdir={runs[name]}", f"--out={tmp_path / name}"])
        cards[name] = (tmp_path / name / "README.md").read_text()
    manifest = json.loads((runs["ar"] / "manifest.json").read_text())
    lines = [json.loads(line) for line in (runs["ar"] / "metrics.jsonl").read_text().splitlines()]
    evaluation = next(line for line in lines if "eval" in line)
    ar, diffusion = cards["ar"], cards["diffusion"]
    assert ar.startswith("---\nlicense: apache-2.0\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    assert f"{manifest['parameters']['total']:,}" in ar
    assert manifest["data"]["data_sha256"] in ar
    assert f"loss {evaluation['loss']:.4f} ± " in ar
    assert "2 of 2 steps of 256 tokens (512 tokens)" in ar
    assert "`*.txt`" in ar
    assert "upper bound" in diffusion
    assert "at its step 2" in diffusion
    assert "blocks of 4 tokens" in diffusion
    assert "low-confidence remasking" in diffusion
    assert all(option in diffusion for option in ("remasking='margin'", "revise_rate", "threshold", "entropy_bound"))
    for card in cards.values():
        assert str(tmp_path.parent) not in card
        assert str(runs["ar"].parent) not in card
        assert "None" not in card


def test_an_export_needs_no_pytorch(runs: dict[str, Path], tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers'): sys.modules[name] = None\n"
        "from jaxlm import export\n"
        f"export.main(['--workdir={runs['diffusion']}', '--out={tmp_path / 'hf'}', '--dtype=bfloat16'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--out={out}"], "--workdir"),
        (["--workdir={ar}"], "--out"),
        (["--workdir={out}", "--out={out}"], "does not exist"),
        (["--workdir={ar}", "--out={ar}"], "is not empty, allowed: a new or empty directory"),
        (["--workdir={ar}", "--out={ar}/config.json"], "is not empty, allowed: a new or empty directory"),
        (["--workdir={ar}", "--out={ar}/config.json/hf"], "cannot be made"),
        (["--workdir={ar}", "--out={out}", "--step=7"], "no checkpoint 7, allowed: 2"),
        (["--workdir={ar}", "--out={out}", "--dtype=int8"], "int8"),
        (
            ["--workdir={ar}", "--out={out}", "--format=native"],
            "--format=native .* LlamaForCausalLM: model.canon_set is",
        ),
        (["--workdir={ar}", "--out={out}", "--format=gguf"], "gguf"),
        (["--workdir={ar}", "--out={out}", "--python=x"], "--python=x belongs to --verify"),
        (["--workdir={ar}", "--out={out}", "--verify", "--python={out}/python"], "cannot be run"),
    ],
)
def test_mistakes_leave_nothing_behind(runs: dict[str, Path], flags: list[str], message: str, tmp_path: Path) -> None:
    before = sorted(runs["ar"].iterdir())
    with pytest.raises(UserError, match=message):
        command.main([flag.format(out=tmp_path / "hf", ar=runs["ar"]) for flag in flags])
    assert not list(tmp_path.iterdir())
    assert sorted(runs["ar"].iterdir()) == before


def test_what_does_not_agree_is_not_written(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxlm.release import verify

    def disagree(*args: Any) -> verify.Verification:
        return verify.Verification({"transformers": "5"}, 1.0, {"logits": False})

    monkeypatch.setattr(verify, "verify", disagree)
    with pytest.raises(RuntimeError, match="was not written"):
        command.main([f"--workdir={runs['ar']}", f"--out={tmp_path / 'hf'}", "--verify"])
    assert "FAILED logits" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_an_empty_directory_may_be_filled(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    command.main([f"--workdir={runs['ar']}", f"--out={tmp_path / 'hf'}"])
    assert (tmp_path / "hf" / "config.json").is_file()


def test_a_class_of_transformers_needs_no_code(make: Callable, tmp_path: Path) -> None:
    trained = make(NATIVE["GPT2LMHeadModel"])
    out = export(trained, tmp_path / "hf", kind="auto")
    assert {file.name for file in out.iterdir()} == {name for name in FILES if not name.endswith(".py")}
    config = json.loads((out / "config.json").read_text())
    assert (config["architectures"], config["model_type"]) == (["GPT2LMHeadModel"], "gpt2")
    assert "auto_map" not in config
    # Neither the mask nor an id outside the tokenizer is text.
    outside = range(trained.tokenizer.vocab_size, trained.config.model.vocab_size)
    generation = json.loads((out / "generation_config.json").read_text())
    assert generation["suppress_tokens"] == [3, *outside]
    card = (out / "README.md").read_text()
    assert "trust_remote_code" not in card
    assert "a plain `GPT2LMHeadModel`" in card
    assert "| norms | LayerNorm |" in card
    assert "4 key and value heads of 8, learned positions" in card
    assert "feed-forward 48 (GELU)" in card


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("Gemma3ForCausalLM", ["RMSNorm with 1 + w, of query and key heads too", "9 positions in the L layers of LGL"]),
        ("Lfm2ForCausalLM", ["3 taps, in place of attention in the C of CGC", "need transformers 5"]),
        ("MixtralForCausalLM", ["feed-forward 4 experts of 20 (SwiGLU), 2 for a token", "at work for a token"]),
    ],
)
def test_the_card_tells_what_the_layers_are_made_of(make: Callable, tmp_path: Path, name: str, lines: list) -> None:
    card = (export(make(NATIVE[name]), tmp_path / "hf", kind="native") / "README.md").read_text()
    for line in lines:
        assert line in card


def test_the_remote_code_knows_nothing_of_jaxlm() -> None:
    files = remote_files()
    assert {file.name for file in files} == {name for name in FILES if name.endswith(".py")}
    for file in files:
        imports = [line for line in file.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert all(
            line.split()[1].split(".")[0] in ("", "copy", "dataclasses", "torch", "transformers") for line in imports
        )


def test_a_release_is_refused_before_anything_is_written(make: Callable) -> None:
    import dataclasses

    from tests.release.models import release_of

    release = release_of(make(None, {"kind": "diffusion"}))
    with pytest.raises(UserError, match="model.mask_token_id is None"):
        dataclasses.replace(release, config=dataclasses.replace(release.config, mask_token_id=None))
