"""Directories become workdirs: ours bitwise, others' as the hub has them, and what cannot be is refused."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tokenizers.processors import TemplateProcessing

import jaxlm
from jaxlm import evaluate, generate, import_hf
from jaxlm import export as export_command
from jaxlm.config import ExecutionConfig, PrepareConfig
from jaxlm.data.gpt2 import gpt2_vocabulary
from jaxlm.data.prepare import prepare
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.layers.parameters import paths
from jaxlm.layers.structure import Structure
from jaxlm.release import tables
from jaxlm.release.hub import directory_of
from jaxlm.release.importing import Imported, read_model
from jaxlm.release.weights import INDEX, WEIGHTS
from jaxlm.trained import Trained
from tests.release.models import MODELS, NATIVE, export, release_of


def assert_same(imported: Imported, trained: Trained) -> None:
    for (path, ours), (_, theirs) in zip(paths(trained.params), paths(imported.params), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs, err_msg=path)
    assert imported.tokenizer.sha256() == trained.tokenizer.sha256()
    assert imported.warnings == ()


@pytest.mark.parametrize("name", MODELS)
def test_our_own_directories_come_back_whole(make: Callable, tmp_path: Path, name: str) -> None:
    model, objective = MODELS[name]
    trained = make(model, objective | ({"eps": 0.02} if objective else {}))
    imported = read_model(export(trained, tmp_path / "hf"))
    assert_same(imported, trained)
    assert imported.config == trained.config.model
    assert imported.objective == release_of(trained).objective
    assert imported.class_name == release_of(trained).class_name


@pytest.mark.parametrize("name", NATIVE)
def test_transformers_own_classes_come_back_bitwise(make: Callable, tmp_path: Path, name: str) -> None:
    trained = make(NATIVE[name])
    directory = export(trained, tmp_path / "hf", kind="native")
    imported = read_model(directory)
    assert_same(imported, trained)
    assert imported.config.layer_kinds == trained.config.model.layer_kinds
    assert imported.class_name == name
    assert imported.source_sha256 == hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest()


def test_half_precision_becomes_the_numbers_that_it_is(make: Callable, tmp_path: Path) -> None:
    trained = make()
    imported = read_model(export(trained, tmp_path / "hf", "bfloat16"))
    for (path, ours), (_, theirs) in zip(paths(trained.params), paths(imported.params), strict=True):
        assert theirs.dtype == np.float32
        rounded = np.asarray(ours).astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(rounded, theirs, err_msg=path)


@pytest.fixture
def directory(make: Callable, tmp_path: Path) -> Path:
    """A LlamaForCausalLM with a tied head."""
    return export(make({"family": "llama3", "canon_set": ""}), tmp_path / "hf", kind="native")


def in_two_files(directory: Path) -> None:
    tensors = load_file(directory / WEIGHTS)
    (directory / WEIGHTS).unlink()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[:5], "model-2.safetensors": names[5:]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, directory / file, {"format": "pt"})
    weight_map = {name: file for file, members in shards.items() for name in members}
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_weights_in_several_files_are_read(directory: Path) -> None:
    whole = read_model(directory)
    in_two_files(directory)
    parts = read_model(directory)
    for (path, one), (_, other) in zip(paths(whole.params), paths(parts.params), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=path)
    lines = "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(directory.glob("model-*"))
    )
    assert parts.source_sha256 == hashlib.sha256(lines.encode()).hexdigest()


def respell(directory: Path, **changes: Any) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def reweigh(directory: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    tensors = load_file(directory / WEIGHTS)
    change(tensors)
    save_file(tensors, directory / WEIGHTS, {"format": "pt"})


def test_a_tied_head_may_be_stored_if_it_is_the_embedding(directory: Path) -> None:
    reweigh(directory, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]}))
    assert read_model(directory).config.tie_embeddings
    reweigh(directory, lambda t: t.update({"lm_head.weight": t["lm_head.weight"] + 1}))
    with pytest.raises(
        UserError, match=r"lm_head.weight \[384, 32\] is not model.embed_tokens.weight, allowed: the same"
    ):
        read_model(directory)


def pickled(directory: Path) -> None:
    (directory / WEIGHTS).rename(directory / "pytorch_model.bin")


def without_a_shard(directory: Path) -> None:
    in_two_files(directory)
    (directory / "model-2.safetensors").unlink()


def with_a_wrong_index(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    (directory / INDEX).write_text("[]")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (pickled, "as pickle, which can run any code, allowed: safetensors .*save_pretrained"),
        (lambda d: (d / WEIGHTS).unlink(), "has no weights, allowed: a directory with model.safetensors"),
        (without_a_shard, "lacks model-2.safetensors, allowed: all 2 files"),
        (with_a_wrong_index, "is no index of weights"),
        (lambda d: (d / WEIGHTS).write_bytes(b"\0" * 99), "cannot be read as safetensors"),
        (lambda d: (d / "config.json").unlink(), "has no config.json, allowed: a Hugging Face directory"),
        (lambda d: (d / "config.json").write_text("{"), "cannot be read as JSON"),
        (lambda d: (d / "config.json").write_text("3"), "holds int 3, allowed: a JSON object"),
        (lambda d: (d / "tokenizer.json").unlink(), "no tokenizer in"),
        (lambda d: respell(d, vocab_size=200), "the tokenizer of .* has 300 ids, allowed: at most vocab_size = 200"),
        (lambda d: respell(d, quantization_config={"bits": 4}), "quantization_config of config.json is"),
        (lambda d: respell(d, architectures=5), "config.json of .* has a field of the wrong type"),
        (lambda d: respell(d, hidden_size="32"), "hidden_size is '32', allowed: int"),
        (lambda d: respell(d, rope_theta="x"), "has a field of the wrong type"),
        (lambda d: respell(d, rms_norm_eps=0.0), "rms_norm_eps of config.json is 0.0, allowed: above 0"),
        (lambda d: respell(d, num_hidden_layers=4), "model.layers.3.input_layernorm.weight is missing"),
        (lambda d: respell(d, num_hidden_layers=2), "model.layers.2.* is no part of this model"),
        (lambda d: respell(d, architectures=["RwkvForCausalLM"]), "has 'RwkvForCausalLM', allowed: one of Llama"),
        (lambda d: reweigh(d, lambda t: t.update({"model.norm.weight": np.ones(32, np.int8)})), "is int8, allowed"),
        (lambda d: reweigh(d, lambda t: t.update({"model.norm.weight": np.ones(32)})), "is float64, allowed"),
        (lambda d: reweigh(d, lambda t: t.pop("model.norm.weight")), "tensor model.norm.weight is missing"),
    ],
)
def test_what_cannot_be_read_leaves_nothing_behind(
    directory: Path, spoil: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    spoil(directory)
    with pytest.raises(UserError, match=message) as error:
        import_hf.main([f"--model={directory}", f"--workdir={tmp_path / 'run'}"])
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workdir={out}"], "--model"),
        (["--model={hf}"], "--workdir"),
        (["--model={hf}", "--workdir={hf}"], "--workdir=.* is not empty, allowed: a new or empty directory"),
        (["--model={hf}", "--workdir={hf}/config.json/x"], "--workdir=.* cannot be made"),
        (
            ["--model={hf}/config.json", "--workdir={out}"],
            "is a file, allowed: a directory, or a file that ends in .gguf",
        ),
        (
            ["--model={hf}/no/where", "--workdir={out}"],
            "does not exist, allowed: a directory, a .gguf file, or a hub id",
        ),
        (["--model=nobody/nothing", "--workdir={out}"], "is no directory here, and the hub gave .* tokenizer.json"),
    ],
)
def test_mistakes_leave_nothing_behind(directory: Path, flags: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        import_hf.main([flag.format(hf=directory, out=tmp_path / "run") for flag in flags])
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_of_a_hub_model_nothing_is_fetched_that_could_run(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    import huggingface_hub

    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **settings: asked.update(name=name, **settings) or directory
    )
    assert directory_of("somebody/something") == directory
    assert asked["name"] == "somebody/something"
    wanted = asked["allow_patterns"]
    for name in ("model-00001-of-00002.safetensors", "config.json", "tokenizer.json", INDEX, "merges.txt"):
        assert any(fnmatch.fnmatch(name, pattern) for pattern in wanted)
    for name in ("pytorch_model.bin", "modeling_dhara.py", "model.gguf"):
        assert not any(fnmatch.fnmatch(name, pattern) for pattern in wanted)


def test_which_gguf_file_is_meant_must_be_clear(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match="has 2 .gguf files, allowed: one, or the path of the one"):
        read_model(tmp_path)
    with pytest.raises(UserError, match=r"a.gguf cannot be read as GGUF"):
        read_model(tmp_path / "a.gguf")


def test_an_imported_workdir_is_like_any_other(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()  # an empty one may be filled
    import_hf.main([f"--model={directory}", f"--workdir={run}"])
    printed = capsys.readouterr()
    assert "LlamaForCausalLM as llama3, " in printed.out
    assert printed.err == ""
    assert json.loads((run / "COMPLETE").read_text()) == {"step": 0}
    config, manifest = (json.loads((run / f"{name}.json").read_text()) for name in ("config", "manifest"))
    assert (config["kind"], config["train"]["seq_len"], config["objective"]["kind"]) == ("train", 160, "causal")
    assert manifest["source"] == {
        "model": str(directory),
        "class": "LlamaForCausalLM",
        "weights_sha256": hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest(),
    }
    loaded = jaxlm.load(run)
    assert (loaded.step, loaded.mode) == (0, "ar")
    assert manifest["parameters"]["total"] == sum(leaf.size for _, leaf in paths(loaded.params))

    generate.main([f"--workdir={run}", "--prompt=If True, the", "--max_new_tokens=3", "--ignore_eos"])

    for i in range(40):
        (tmp_path / f"{i}.txt").write_text(f"Text {i}: returns the sum of {i} and {i * i}, or nothing at all. " * 3)
    data = PrepareConfig(files=str(tmp_path / "*.txt"), tokenizer=str(run / "tokenizer"), seq_len=16)
    prepare(data, tmp_path / "data", report=lambda text: None)
    out = tmp_path / "evaluation.json"
    evaluate.main([f"--workdir={run}", f"--data_dir={tmp_path / 'data'}", f"--out={out}"])
    assert math.isfinite(json.loads(out.read_text())["loss"])

    export_command.main([f"--workdir={run}", f"--out={tmp_path / 'again'}"])
    assert (tmp_path / "again" / WEIGHTS).read_bytes() == (directory / WEIGHTS).read_bytes()
    card = (tmp_path / "again" / "README.md").read_text()
    assert "license:" not in card  # it is not ours to give
    assert manifest["source"]["weights_sha256"] in card
    assert "## Training" not in card
    assert str(tmp_path) not in card
    assert "None" not in card


def test_a_tokenizer_with_a_beginning_and_another_end_keeps_its_ids(tmp_path: Path) -> None:
    Tokenizer.train(["a text, and the text of a text"] * 3, 280).save(tmp_path / "plain")
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "plain" / "tokenizer.json"))
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    begin = ("<|im_start|>", backend.token_to_id("<|im_start|>"))
    backend.post_processor = TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=begin[0], eos_token="<|im_end|>")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = Tokenizer.load(tmp_path / "theirs")
    assert (ours.end_of_text, ours.end_of_text_id) == ("<|im_end|>", theirs.eos_token_id)
    ours.save(tmp_path / "ours")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert again.eos_token == "<|im_end|>"
    for text in ("a text", "the end<|im_end|>and more", "", "<|im_start|>naïve 🙂"):
        assert again(text)["input_ids"] == theirs(text)["input_ids"]
        if "<|im_start|>" not in text:
            assert ours.encode_prompt(text) == theirs(text)["input_ids"]
    assert begin[1] not in ours.encode("a text")


GPT2_70M = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 512,
    "n_head": 8,
    "n_inner": None,
    "n_layer": 12,
    "n_positions": 1024,
    "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.1,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.55.2",
    "use_cache": True,
    "vocab_size": 50257,
}


def gpt2_tokenizer(directory: Path) -> None:
    """GPT-2's own files, as they lie in the directories of that time."""
    vocab, merges = gpt2_vocabulary()
    (directory / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), "utf-8")
    lines = "\n".join(" ".join(pair) for pair in merges)
    (directory / "merges.txt").write_text(f"#version: 0.2\n{lines}\n", "utf-8")
    special = dict.fromkeys(["bos_token", "eos_token", "pad_token", "unk_token"], "<|endoftext|>")
    (directory / "special_tokens_map.json").write_text(json.dumps(special))


@pytest.mark.parametrize("old", [False, True], ids=["as transformers saves it", "as openai-community/gpt2"])
def test_the_layout_of_gpt_2_70m_is_read(old: bool, tmp_path: Path) -> None:
    fields = GPT2_70M | {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 48, "n_ctx": 48}
    torch.manual_seed(0)
    hf = transformers.GPT2LMHeadModel(transformers.GPT2Config(**fields)).to(torch.bfloat16).eval()
    tensors = {name: t.float().numpy().astype(ml_dtypes.bfloat16) for name, t in hf.state_dict().items()}
    assert "transformer.h.1.attn.c_attn.weight" in tensors
    if old:
        tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        for layer in range(2):
            tensors[f"h.{layer}.attn.bias"] = np.tril(np.ones((1, 1, 48, 48), np.uint8))
            tensors[f"h.{layer}.attn.masked_bias"] = np.float32(-1e4)[None]
    else:
        del tensors["lm_head.weight"]
    save_file(tensors, tmp_path / WEIGHTS, {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(fields))
    gpt2_tokenizer(tmp_path)

    imported = read_model(tmp_path)
    assert imported.config.family == "gpt2"
    assert imported.warnings == ()
    assert imported.tokenizer.encode("Hello, I'm a language model,") == [15496, 11, 314, 1101, 257, 3303, 2746, 11]
    assert imported.tokenizer.end_of_text_id == 50256
    model, tokens = build_model(imported.config, ExecutionConfig(dtype="float32")), np.arange(40)[None] * 1111
    ours = model.logits(imported.params, model.hidden(imported.params, tokens, Structure(1)))
    with torch.no_grad():
        expected = hf.float()(torch.tensor(tokens)).logits.numpy()
    assert np.abs(np.asarray(ours) - expected).max() < 1e-4


def test_gpt_2_70m_has_its_published_size() -> None:
    config, _ = tables.of_config_json(GPT2_70M).from_config(GPT2_70M)
    assert sum(math.prod(leaf.shape) for _, leaf in paths(build_model(config).abstract_params())) == 64_085_504


DHARA_70M = {
    "architectures": ["DharaForMaskedDiffusion"],
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "modeling_dhara.DharaConfig",
        "AutoModel": "modeling_dhara.DharaForMaskedDiffusion",
        "AutoModelForCausalLM": "modeling_dhara.DharaForMaskedDiffusion",
    },
    "bos_token_id": 1,
    "canon_activation": False,
    "canon_bias": False,
    "canon_kernel": 4,
    "canon_residual": True,
    "canon_set": "AC",
    "eos_token_id": 2,
    "head_dim": 48,
    "hidden_act": "silu",
    "hidden_size": 384,
    "initializer_range": 0.02,
    "intermediate_size": 1024,
    "mask_epsilon": 0.001,
    "mask_token_id": 50256,
    "max_position_embeddings": 1024,
    "model_type": "dhara",
    "num_attention_heads": 8,
    "num_diffusion_steps": 1000,
    "num_hidden_layers": 32,
    "num_key_value_heads": 4,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.55.2",
    "use_cache": False,
    "use_flash_attention": False,
    "use_xformers": False,
    "vocab_size": 50304,
}


def test_dhara_70m_has_its_published_size() -> None:
    config, objective = tables.of_config_json(DHARA_70M).from_config(DHARA_70M)
    assert sum(math.prod(leaf.shape) for _, leaf in paths(build_model(config).abstract_params())) == 71_344_512
    assert (objective.kind, objective.block_size, objective.shift, objective.eps) == ("diffusion", 0, False, 0.001)


def test_the_layout_of_dhara_70m_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    D, F, H = 24, 40, 6
    small = {"hidden_size": D, "intermediate_size": F, "head_dim": H, "num_hidden_layers": 2}
    shapes = {"model.embed_tokens.weight": (50304, D), "model.norm.weight": (D,)}
    for layer in ("model.layers.0", "model.layers.1"):
        shapes |= {
            f"{layer}.input_layernorm.weight": (D,),
            f"{layer}.canon_a.conv.weight": (D, 1, 4),
            f"{layer}.self_attn.q_proj.weight": (8 * H, D),
            f"{layer}.self_attn.k_proj.weight": (4 * H, D),
            f"{layer}.self_attn.v_proj.weight": (4 * H, D),
            f"{layer}.self_attn.o_proj.weight": (D, 8 * H),
            f"{layer}.post_attention_layernorm.weight": (D,),
            f"{layer}.canon_c.conv.weight": (D, 1, 4),
            f"{layer}.mlp.gate_proj.weight": (F, D),
            f"{layer}.mlp.up_proj.weight": (F, D),
            f"{layer}.mlp.down_proj.weight": (D, F),
        }
    random = np.random.default_rng(0)
    tensors = {name: random.normal(0, 0.2, shape).astype(ml_dtypes.bfloat16) for name, shape in shapes.items()}
    (tmp_path / "hf").mkdir()
    save_file(tensors, tmp_path / "hf" / WEIGHTS, {"format": "pt"})
    (tmp_path / "hf" / "config.json").write_text(json.dumps(DHARA_70M | small))
    gpt2_tokenizer(tmp_path / "hf")

    import_hf.main([f"--model={tmp_path / 'hf'}", f"--workdir={tmp_path / 'run'}"])
    printed = capsys.readouterr()
    assert "DharaForMaskedDiffusion as dhara, " in printed.out
    (warning,) = printed.err.splitlines()
    assert warning.startswith("jaxlm: mask_token_id 50256 is also the end-of-text token, '<|endoftext|>'")

    loaded = jaxlm.load(tmp_path / "run")
    assert (loaded.mode, loaded.config.model.mask_token_id, loaded.structure.block_size) == ("diffusion", 50256, 0)
    kernel = np.asarray(loaded.params["layers"]["01"]["canon_c"]["kernel"])
    np.testing.assert_array_equal(kernel.T, tensors["model.layers.1.canon_c.conv.weight"][:, 0].astype(np.float32))
    (written,) = loaded.generate(["The"], max_new_tokens=6, steps=3, ignore_eos=True)
    assert len(written.token_ids) == 6
    assert max(written.token_ids) < 50256

    export_command.main([f"--workdir={tmp_path / 'run'}", f"--out={tmp_path / 'again'}"])
    again = read_model(tmp_path / "again")
    assert again.class_name == "JaxlmForMaskedDiffusion"
    assert (again.config, again.objective) == (loaded.config.model, loaded.config.objective)
    for (path, ours), (_, theirs) in zip(paths(loaded.params), paths(again.params), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs, err_msg=path)
