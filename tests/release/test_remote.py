"""The PyTorch code of a release, run in this process: padding, caches, decoding, saving."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jaxlm.generation import Sampling, autoregressive, diffusion
from jaxlm.release.remote import generation_jaxlm
from jaxlm.release.remote.cache_jaxlm import CACHE_NAME, JaxlmCache
from jaxlm.release.remote.configuration_jaxlm import JaxlmConfig
from jaxlm.trained import Trained
from tests.release.models import MODELS, export, release_of

PROMPTS = [[0, 17, 0], [5], list(range(40, 51))]  # id 0 is an ordinary token; one prompt is shorter than the taps
CANON = "everything Canon can be, with windows"
DIFFUSION = "diffusion, with windows"
BLOCKS = "diffusion in blocks"


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def load(make: Callable, tmp_path: Path) -> Callable[..., tuple[Trained, Any]]:
    def loaded(name: str, **changes: Any) -> tuple[Trained, Any]:
        model, objective = MODELS[name]
        trained = make(model | changes, objective)
        classes = importlib.import_module("jaxlm.release.remote.modeling_jaxlm")
        cls = getattr(classes, release_of(trained).class_name)
        return trained, cls.from_pretrained(export(trained, tmp_path / "model"), dtype=torch.float32)

    return loaded


def padded(prompts: list[list[int]], pad: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    return ids, mask


@pytest.mark.parametrize("name", [CANON, DIFFUSION, BLOCKS])
def test_what_stands_at_a_pad_has_no_influence(load: Callable, name: str) -> None:
    _, model = load(name)
    with torch.no_grad():
        one, other = (model(ids, attention_mask=mask).logits for ids, mask in (padded(PROMPTS, 0), padded(PROMPTS, 99)))
        for row, prompt in enumerate(PROMPTS):
            torch.testing.assert_close(one[row, -len(prompt) :], other[row, -len(prompt) :], rtol=0, atol=0)
            alone = model(torch.tensor([prompt])).logits[0]
            torch.testing.assert_close(one[row, -len(prompt) :], alone, rtol=0, atol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 20])
def test_cached_logits_are_the_uncached_ones_at_every_position(load: Callable, length: int) -> None:
    _, model = load(CANON)
    ids = torch.tensor([[int(i * i + 3) % 300 for i in range(24)]])
    with torch.no_grad():
        whole = model(ids).logits
        out = model(ids[:, :length], use_cache=True)
        parts = [out.logits]
        for i in range(length, ids.shape[1]):
            out = model(ids[:, i : i + 1], use_cache=True, **{CACHE_NAME: out[CACHE_NAME]})
            parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-4)


@pytest.mark.parametrize("settings", [{"num_beams": 3}, {"num_beams": 2, "repetition_penalty": 1.5}])
def test_beams_carry_their_convolutions_along(load: Callable, settings: dict) -> None:
    _, model = load(CANON)
    ids, mask = padded(PROMPTS)
    with_cache, without = (
        model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, use_cache=cached, **settings)
        for cached in (True, False)
    )
    assert torch.equal(with_cache, without)


def test_a_prompt_that_holds_the_pad_id_is_read_whole(load: Callable) -> None:
    trained, model = load(CANON)
    ids = torch.tensor([[17, 0, 0, 5]])
    ours = autoregressive.decode(
        trained.model,
        trained.params,
        ids.tolist(),
        max_new_tokens=8,
        sampling=Sampling(),
        tokenizer_size=trained.tokenizer.vocab_size,
        end_of_text_id=None,
    )
    theirs = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=None)
    assert theirs[0, 4:].tolist() == ours[0].token_ids


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (DIFFUSION, {"steps": 5}),
        (DIFFUSION, {"steps": 40}),
        (DIFFUSION, {"block_size": 6}),
        (DIFFUSION, {"block_size": 7, "steps": 11}),
        (DIFFUSION, {"repetition_penalty": 1.8}),
        (BLOCKS, {"steps": 9}),
        (BLOCKS, {"repetition_penalty": 1.3}),
    ],
)
def test_denoising_gives_jaxlms_tokens(load: Callable, name: str, settings: dict) -> None:
    trained, model = load(name)
    ours = diffusion.decode(
        trained.model,
        trained.params,
        diffusion.canvas(PROMPTS, 20, 160),
        sampling=Sampling(repetition_penalty=settings.get("repetition_penalty", 1.0)),
        tokenizer_size=trained.tokenizer.vocab_size,
        mask_token_id=trained.config.model.mask_token_id,
        shift=bool(trained.config.objective.shift),
        trained_block_size=trained.structure.block_size,
        steps=settings.get("steps", 0),
        block_size=settings.get("block_size", 0),
    )
    ids, mask = padded(PROMPTS)
    theirs = model.generate(ids, attention_mask=mask, max_new_tokens=20, eos_token_id=None, **settings)
    assert theirs[:, ids.shape[1] :].tolist() == [row.token_ids for row in ours]
    for prompt, row in zip(PROMPTS, ours, strict=True):
        single = model.generate(torch.tensor([prompt]), max_new_tokens=20, eos_token_id=None, **settings)
        assert single[0, len(prompt) :].tolist() == row.token_ids


def test_the_penalty_follows_the_sign_and_counts_text_only() -> None:
    logits = torch.tensor([[[-2.0, 3.0, 1.0, 4.0, -torch.inf]]])
    tokens, counted = torch.tensor([[0, 1, 3, 4, 1]]), torch.tensor([[True, True, False, True, True]])
    out = generation_jaxlm.penalise(logits, 2.0, tokens, counted)
    assert out.tolist() == [[[-4.0, 1.5, 1.0, 4.0, -torch.inf]]]


def test_a_text_ends_at_its_first_end_of_text(load: Callable) -> None:
    _, model = load(DIFFUSION)
    ids, mask = padded(PROMPTS)
    free = model.generate(ids, attention_mask=mask, max_new_tokens=20, eos_token_id=None)
    new = free[:, ids.shape[1] :]
    eos = [int(new[0, 4]), int(new[1, 2]), int(new[2, 7])]
    ended = model.generate(ids, attention_mask=mask, max_new_tokens=20, eos_token_id=eos, pad_token_id=1)[
        :, ids.shape[1] :
    ]
    lengths = [next(i for i, token in enumerate(row.tolist()) if token in eos) + 1 for row in new]
    assert ended.shape[1] == max(lengths)
    for row, length in enumerate(lengths):
        assert ended[row, :length].tolist() == new[row, :length].tolist()
        assert set(ended[row, length:].tolist()) <= {1}


def test_samples_stay_within_the_tokenizer_and_the_likeliest_alone_is_greedy(load: Callable) -> None:
    trained, model = load(DIFFUSION)
    ids, mask = padded(PROMPTS)
    torch.manual_seed(0)
    kinds = {"do_sample": True, "temperature": 50.0, "top_k": 0}
    out = model.generate(ids, attention_mask=mask, max_new_tokens=100, eos_token_id=None, **kinds)[:, ids.shape[1] :]
    assert out.unique().numel() > 60
    assert out.max() < trained.tokenizer.vocab_size
    greedy = model.generate(ids, attention_mask=mask, max_new_tokens=20, eos_token_id=None)
    one = model.generate(ids, attention_mask=mask, max_new_tokens=20, eos_token_id=None, do_sample=True, top_k=1)
    cold = model.generate(
        ids, attention_mask=mask, max_new_tokens=20, eos_token_id=None, do_sample=True, temperature=0.0
    )
    assert torch.equal(greedy, one)
    assert torch.equal(greedy, cold)


def test_returned_dicts_are_those_of_transformers(load: Callable) -> None:
    _, model = load(DIFFUSION)
    out = model.generate(torch.tensor([[3, 4]]), max_new_tokens=5, return_dict_in_generate=True, eos_token_id=None)
    assert out.sequences.shape == (1, 7)
    assert out.sequences[0, :2].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 5, "num_beams": 2}, "generate has no num_beams; it has steps, block_size, remasking"),
        ({}, "max_new_tokens is missing"),
        ({"max_new_tokens": 5, "block_size": 0}, "block_size is 0, allowed: at least 1, or None"),
        ({"max_new_tokens": 5, "steps": 0}, "steps is 0, allowed: at least the number of blocks, 1"),
        ({"max_new_tokens": 5, "steps": 2, "block_size": 2}, "steps is 2, allowed: at least the number of blocks, 3"),
        ({"max_new_tokens": 159}, "a prompt of 2 tokens and 159 new ones do not fit: max_position_embeddings is 160"),
    ],
)
def test_denoising_refuses_what_it_cannot_do(load: Callable, settings: dict, message: str) -> None:
    _, model = load(DIFFUSION)
    with pytest.raises(ValueError, match=message):
        model.generate(torch.tensor([[3, 4]]), **settings)


def test_a_model_trained_in_blocks_keeps_them(load: Callable) -> None:
    _, model = load(BLOCKS)
    with pytest.raises(ValueError, match="block_size is 5, allowed: 8, the model's own, or None"):
        model.generate(torch.tensor([[3, 4]]), max_new_tokens=5, block_size=5)


@pytest.mark.parametrize("name", [CANON, DIFFUSION])
def test_pads_on_the_right_are_refused(load: Callable, name: str) -> None:
    _, model = load(name)
    ids, mask = padded(PROMPTS)
    with pytest.raises(ValueError, match="zeros on the left"):
        model.generate(ids.flip(1), attention_mask=mask.flip(1), max_new_tokens=4)
    with pytest.raises(ValueError, match="attention_mask has shape"):
        model.generate(ids, attention_mask=mask[:, 1:], max_new_tokens=4)
    with pytest.raises(ValueError, match="generate needs a prompt"):
        model.generate(ids[:, :0], max_new_tokens=4)


def test_a_cache_refuses_what_would_corrupt_it(load: Callable) -> None:
    from transformers import DynamicCache

    _, model = load(CANON)
    ids, mask = padded(PROMPTS)
    with pytest.raises(ValueError, match="pads must be on the left"):
        model(ids.flip(1), attention_mask=mask.flip(1), use_cache=True)
    with pytest.raises(ValueError, match="the cache is a DynamicCache"):
        model(ids, **{CACHE_NAME: DynamicCache()})
    cache = model(ids, use_cache=True)[CACHE_NAME]
    with pytest.raises(ValueError, match="cannot be cropped"):
        cache.crop(-1)
    with pytest.raises(ValueError, match="not supported with stateful models"):
        model.generate(ids[:1], assistant_model=model, max_new_tokens=4)
    cache.reset()
    assert cache.canon_inputs == {}


def test_a_model_that_sees_ahead_has_no_cache(load: Callable) -> None:
    _, model = load(DIFFUSION)
    with pytest.raises(ValueError, match="only a model that reads from left to right has a cache"):
        model.model(torch.tensor([[1, 2]]), cache=JaxlmCache())


@pytest.mark.parametrize("tied", [True, False])
def test_saved_again_it_is_the_same(load: Callable, tmp_path: Path, tied: bool) -> None:
    _, model = load(CANON, tie_embeddings=tied)
    assert (model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()) is tied
    model.save_pretrained(tmp_path / "again")
    again, info = type(model).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(info.values())
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)


def test_a_fresh_model_starts_as_jaxlms_do() -> None:
    from jaxlm.release.remote.modeling_jaxlm import JaxlmForCausalLM

    torch.manual_seed(0)
    config = JaxlmConfig(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, canon_set="ABCD")
    model = JaxlmForCausalLM(config)
    taps = torch.cat([p.flatten() for name, p in model.named_parameters() if ".conv." in name])
    assert abs(taps.std() - 0.5 / 3**0.5) < 0.02
    assert taps.abs().max() <= 0.5
    assert abs(model.model.layers[0].self_attn.q_proj.weight.std() - 0.02) < 0.002


def test_the_loss_is_the_mean_over_the_labelled_tokens(load: Callable) -> None:
    _, model = load(CANON)
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        out = model(ids, labels=torch.tensor([[3, -100, 5, 6]]))
    nats = -out.logits.log_softmax(-1)
    torch.testing.assert_close(out.loss, (nats[0, 1, 5] + nats[0, 2, 6]) / 2)


@pytest.mark.parametrize("name", MODELS)
def test_every_field_of_the_config_is_one_of_the_class(load: Callable, name: str) -> None:
    import inspect

    from jaxlm.release.directory import config_json

    trained, model = load(name)
    written = config_json(release_of(trained))
    known = set(inspect.signature(JaxlmConfig.__init__).parameters)
    assert set(written) - known == {"model_type", "architectures", "auto_map", "dtype"}
    assert model.config.layer_kinds == trained.config.model.layer_kinds


def test_a_config_that_the_code_cannot_run_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_act is 'gelu', allowed: 'silu'"):
        JaxlmConfig(hidden_act="gelu")
    with pytest.raises(ValueError, match="layer_pattern 'GL' needs"):
        JaxlmConfig(layer_pattern="GL")


def test_a_mask_token_inside_the_tokenizer_is_never_generated(make: Callable, tmp_path: Path) -> None:
    from jaxlm.release.remote.modeling_jaxlm import JaxlmForMaskedDiffusion

    trained = make(*MODELS[DIFFUSION])
    inside = dataclasses.replace(trained.config.model, mask_token_id=7)
    trained = dataclasses.replace(trained, config=dataclasses.replace(trained.config, model=inside))
    model = JaxlmForMaskedDiffusion.from_pretrained(export(trained, tmp_path / "model"))
    out = model.generate(torch.tensor([[3, 4]]), max_new_tokens=50, do_sample=True, temperature=9.0, top_k=0)
    assert 7 not in out
    assert np.isin(7, model.config.never_generated)
