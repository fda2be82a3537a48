"""What a run starts from: another workdir, a model from outside, and a vocabulary without room for a mask."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxlm.config import RunConfig
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.layers.parameters import paths
from jaxlm.model_config import ModelConfig
from jaxlm.training import checkpoint, loop, workdir
from jaxlm.training.vocabulary import grown, lengthened

FULL = {"vocab_size": 300}  # as many rows as the tokenizer has ids
ONE_STEP = {"total_tokens": 128}


@dataclass(frozen=True)
class Outside:
    """A model that no workdir holds."""

    config: ModelConfig
    params: dict[str, Any]
    tokenizer: Tokenizer


@pytest.fixture
def outside(tiny: Callable[..., RunConfig], data_dir: Path) -> Outside:
    model = build_model(tiny(model=FULL).model)
    params = jax.tree.map(np.asarray, model.init(jax.random.key(3)))
    return Outside(model.config, params, Tokenizer.load(data_dir / "tokenizer"))


@pytest.fixture
def hugging_face(tmp_path: Path) -> Path:
    """A directory that looks like one."""
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return tmp_path / "hf"


@pytest.mark.parametrize(("ids", "rows"), [(50_257, 50_304), (49_152, 49_280), (300, 384), (127, 128), (128, 256)])
def test_a_full_vocabulary_grows_to_the_next_multiple_of_128(ids: int, rows: int) -> None:
    assert grown(ids) == rows


def test_new_rows_are_the_mean_of_the_others_and_the_others_stay() -> None:
    table = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    longer = lengthened({"embedding": {"table": table}, "final_norm": {"scale": np.ones(3)}}, 8)
    np.testing.assert_array_equal(longer["embedding"]["table"][:5], table)
    np.testing.assert_allclose(longer["embedding"]["table"][5:], [table.mean(0)] * 3, rtol=1e-6)
    assert longer["final_norm"]["scale"].shape == (3,)


def test_a_conversion_grows_the_vocabulary_and_says_so(
    tiny: Callable[..., RunConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also with an untied head, and the same command again is the same run."""
    model = FULL | {"family": "gpt2", "tie_embeddings": False}
    loop.train(tiny(model=model, train=ONE_STEP), tmp_path / "ar", kind="train")
    before, _ = checkpoint.load_params(tmp_path / "ar", model=build_model(tiny(model=model).model))
    diffusion = tiny(model=model, objective={"kind": "diffusion"}, train=ONE_STEP | {"learning_rate": 0.0})
    for _ in range(2):
        loop.train(diffusion, tmp_path / "converted", kind="convert", init_from=str(tmp_path / "ar"))
    assert "the vocabulary grew from 300 to 384 rows, for the mask token 300" in capsys.readouterr().err
    stored, _ = workdir.read(tmp_path / "converted")
    assert (stored.model.vocab_size, stored.model.mask_token_id) == (384, 300)
    after, _ = checkpoint.load_params(tmp_path / "converted", model=build_model(stored.model))
    for name in ("embedding", "head"):
        old, new = before[name]["table"], after[name]["table"]
        np.testing.assert_array_equal(new[:300], old)
        np.testing.assert_allclose(new[300:], np.tile(np.mean(old, 0), (84, 1)), atol=1e-7)
    manifest = json.loads((tmp_path / "converted" / "manifest.json").read_text())
    assert manifest["parameters"]["by_part"]["embedding"] == 384 * 32


def test_a_model_from_outside_is_trained_on_and_converted(
    outside: Outside, hugging_face: Path, tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    frozen = ONE_STEP | {"learning_rate": 0.0}
    for kind, objective in (("train", {}), ("convert", {"objective": {"kind": "diffusion"}})):
        run = tmp_path / kind
        loop.train(
            tiny(model=FULL, train=frozen, **objective),
            run,
            kind=kind,
            init_from=str(hugging_face),
            read_foreign=lambda directory: outside,
        )
        stored, _ = workdir.read(run)
        params, _ = checkpoint.load_params(run, model=build_model(stored.model))
        found = dict(paths(params))
        for path, leaf in paths(outside.params):
            np.testing.assert_array_equal(found[path][: len(leaf)], leaf, err_msg=path)
    assert json.loads((tmp_path / "convert" / "manifest.json").read_text())["init_from"]["source"] == str(hugging_face)


def test_a_model_from_outside_that_does_not_fit_is_refused(
    outside: Outside, hugging_face: Path, tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    other_tokenizer = dataclasses.replace(outside, tokenizer=Tokenizer.train(["other text entirely"], 260))
    for config, foreign, message in (
        (tiny(model=FULL), other_tokenizer, "was trained with another tokenizer"),
        (
            tiny(model=FULL | {"hidden_size": 48}),
            outside,
            r"has embedding/table \[300, 32\], allowed: \[300, 48\] \(one of \d+ that differ\)",
        ),
        (tiny(model=FULL | {"use_bias": True}), outside, r"has layers/00/attention/out/bias absent, allowed: \[32\]"),
    ):
        with pytest.raises(UserError, match=message):
            loop.train(
                config, tmp_path / "run", kind="train", init_from=str(hugging_face), read_foreign=lambda _, f=foreign: f
            )
    with pytest.raises(UserError, match="is a Hugging Face directory; allowed here: a jaxlm workdir"):
        loop.train(tiny(), tmp_path / "run", kind="train", init_from=str(hugging_face))
    assert not (tmp_path / "run").exists()


def test_the_mask_may_be_the_end_of_text_as_in_the_released_dhara(
    tiny: Callable[..., RunConfig], data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = Tokenizer.load(data_dir / "tokenizer").end_of_text_id
    config = tiny(objective={"kind": "diffusion"}, model={"mask_token_id": end}, train=ONE_STEP)
    loop.train(config, tmp_path / "run", kind="train")
    assert f"the mask token {end} is also end-of-text" in capsys.readouterr().err
    assert workdir.read(tmp_path / "run")[0].model.mask_token_id == end
