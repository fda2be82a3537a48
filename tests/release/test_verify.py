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
from tests.release.models import MODELS, export


def expected_of(trained) -> Expected:
    return expect(
        trained.logits,
        trained.generate,
        trained.tokenizer,
        trained.config.model,
        diffusion=trained.mode == "diffusion",
        parameters=parameter_counts(trained.model)["total"],
    )


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_text_are_jaxlms(make: Callable, interpreter: str, tmp_path: Path, name: str) -> None:
    trained = make(*MODELS[name])
    result = verify(export(trained, tmp_path / "model"), expected_of(trained), interpreter)
    print("\n".join(result.lines()))
    assert result.passed
    assert result.max_logit_difference < 1e-4


def test_bfloat16_weights_are_the_rounded_ones(make: Callable, interpreter: str, tmp_path: Path) -> None:
    import dataclasses

    from jaxlm.release.directory import rounded

    trained = make()
    directory = export(trained, tmp_path / "model", "bfloat16")
    assert {str(t.dtype) for t in load_file(directory / "model.safetensors").values()} == {"bfloat16"}
    same = dataclasses.replace(trained, params=rounded(trained.params, "bfloat16"))
    assert verify(directory, expected_of(same), interpreter).passed


def test_a_wrong_tap_is_found(make: Callable, interpreter: str, tmp_path: Path) -> None:
    trained = make()
    directory = export(trained, tmp_path / "model")
    tensors = load_file(directory / "model.safetensors")
    name = "model.layers.1.canon_c.conv.weight"
    tensors[name] = np.ascontiguousarray(tensors[name][..., ::-1])
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    result = verify(directory, expected_of(trained), interpreter)
    assert not result.passed
    assert result.max_logit_difference > 1e-2


def test_a_missing_tensor_is_found(make: Callable, tmp_path: Path) -> None:
    import sys

    trained = make()
    directory = export(trained, tmp_path / "model")
    tensors = load_file(directory / "model.safetensors")
    del tensors["model.layers.0.self_attn.q_proj.weight"]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    lines = verify(directory, expected_of(trained), sys.executable).lines()
    assert any(line.startswith("  FAILED") and "model.layers.0.self_attn.q_proj.weight" in line for line in lines)


def test_an_interpreter_without_pytorch_is_the_users_to_change(make: Callable, tmp_path: Path) -> None:
    trained = make()
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho torch >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match=r"needs the package torch.*jaxlm\[hf\]"):
        verify(tmp_path, expected_of(trained), str(python))
    with pytest.raises(UserError, match="cannot be run"):
        verify(tmp_path, expected_of(trained), str(tmp_path / "nothing"))
