"""What is exported says in transformers, 4.57 and 5, what it says in jaxlm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxlm.errors import UserError
from jaxlm.release.expectation import Expected, expect
from jaxlm.release.verify import verify
from jaxlm.training.flops import parameter_counts
from tests.release.models import MODELS, NATIVE, export, release_of


def expected_of(trained) -> Expected:
    return expect(
        trained.logits,
        trained.generate,
        trained.tokenizer.encode_prompt,
        release_of(trained),
        parameter_counts(trained.model)["total"],
    )


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_text_are_jaxlms(make: Callable, interpreter: str, tmp_path: Path, name: str) -> None:
    trained = make(*MODELS[name])
    result = verify(export(trained, tmp_path / "model"), release_of(trained), expected_of(trained), interpreter)
    print("\n".join(result.lines()))
    assert result.passed
    assert result.max_logit_difference < 1e-4
    assert not result.unchecked


@pytest.mark.parametrize("name", NATIVE)
def test_transformers_own_classes_say_what_jaxlm_says(
    make: Callable, interpreter: str, tmp_path: Path, name: str
) -> None:
    trained = make(NATIVE[name])
    release = release_of(trained, kind="native")
    assert release.class_name == name
    expected = expect(
        trained.logits,
        trained.generate,
        trained.tokenizer.encode_prompt,
        release,
        parameter_counts(trained.model)["total"],
    )
    directory = export(trained, tmp_path / "model", kind="auto")
    assert not list(directory.glob("*.py"))
    result = verify(directory, release, expected, interpreter)
    print("\n".join(result.lines()))
    assert result.passed
    assert any("one by one" in check for check in result.checks)
    # What version 4 gets wrong is said, and not taken for a fault of the release.
    assert bool(result.unchecked) == (name == "Lfm2ForCausalLM" and result.versions["transformers"].startswith("4."))


def test_bfloat16_weights_are_the_rounded_ones(make: Callable, interpreter: str, tmp_path: Path) -> None:
    import dataclasses

    from jaxlm.release.directory import rounded

    trained = make()
    directory = export(trained, tmp_path / "model", "bfloat16")
    assert {str(t.dtype) for t in load_file(directory / "model.safetensors").values()} == {"bfloat16"}
    same = dataclasses.replace(trained, params=rounded(trained.params, "bfloat16"))
    assert verify(directory, release_of(same), expected_of(same), interpreter).passed


def test_a_wrong_tap_is_found(make: Callable, interpreter: str, tmp_path: Path) -> None:
    trained = make()
    directory = export(trained, tmp_path / "model")
    tensors = load_file(directory / "model.safetensors")
    name = "model.layers.1.canon_c.conv.weight"
    tensors[name] = np.ascontiguousarray(tensors[name][..., ::-1])
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    result = verify(directory, release_of(trained), expected_of(trained), interpreter)
    assert not result.passed
    assert result.max_logit_difference > 1e-2


def test_a_missing_tensor_is_found(make: Callable, interpreter: str, tmp_path: Path) -> None:
    trained = make()
    directory = export(trained, tmp_path / "model")
    tensors = load_file(directory / "model.safetensors")
    del tensors["model.layers.0.self_attn.q_proj.weight"]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    lines = verify(directory, release_of(trained), expected_of(trained), interpreter).lines()
    assert any(line.startswith("  FAILED") and "model.layers.0.self_attn.q_proj.weight" in line for line in lines)


def test_an_interpreter_without_pytorch_is_the_users_to_change(make: Callable, tmp_path: Path) -> None:
    trained = make()
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho torch >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match=r"needs the package torch.*jaxlm\[hf\]"):
        verify(tmp_path, release_of(trained), expected_of(trained), str(python))
    with pytest.raises(UserError, match="cannot be run"):
        verify(tmp_path, release_of(trained), expected_of(trained), str(tmp_path / "nothing"))
