"""Each decoder of an exported diffusion model writes what jaxlm's writes, whatever the model reads and how."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxlm.errors import UserError
from jaxlm.generation import Sampling, Selection, diffusion, result, schedule, selection
from jaxlm.generation.result import Decoded
from jaxlm.layers.parameters import from_paths, paths
from jaxlm.release.expectation import PROMPTS, Decoding, expect
from jaxlm.release.remote import schedule_jaxlm, selection_jaxlm
from jaxlm.release.verify import verify
from jaxlm.trained import Trained
from jaxlm.training.flops import parameter_counts
from tests.quick_jit import quick_decoder
from tests.release.models import export, release_of

NEW = 20
MODELS = {
    "whole": {},
    "whole, shifted": {"shift": True},
    "in blocks": {"block_size": 8},
    "in blocks, shifted": {"block_size": 8, "shift": True},
}
DECODERS: dict[str, dict[str, Any]] = {
    "low confidence": {"steps": 9},
    "margin": {"remasking": "margin", "steps": 11},
    "entropy": {"remasking": "entropy"},
    "revision": {"remasking": "revise", "revise_rate": 0.4, "steps": 13},
    "threshold": {"threshold": 0.35},
    "threshold of a margin": {"remasking": "margin", "threshold": 0.2, "repetition_penalty": 1.5},
    "entropy bound": {"entropy_bound": 4.0},
}
IN_BLOCKS = ("entropy", "revision", "threshold")


@pytest.fixture(autouse=True)
def quick_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "_compiled", quick_decoder)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def load(make: Callable, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Trained, Any]]:
    """Each model once, with random numbers in norms and taps too.

    The last norm is three times as large, for the likeliest tokens to have probabilities of 0.2 to 0.7 and not all of
    0.05: what a threshold, a bound or an order decides here must not hang on the last bits of a logit. No token below
    changes if every parameter changes by 1e-5 of itself, a hundred roundings.
    """

    @functools.cache
    def loaded(name: str) -> tuple[Trained, Any]:
        trained = make({"num_layers": 2}, {"kind": "diffusion"} | MODELS[name])
        sharp = {path: leaf * (3 if path == "final_norm/scale" else 1) for path, leaf in paths(trained.params)}
        trained = dataclasses.replace(trained, params=from_paths(sharp))
        cls = importlib.import_module("jaxlm.release.remote.modeling_jaxlm").JaxlmForMaskedDiffusion
        out = export(trained, tmp_path_factory.mktemp("decoders") / "model")
        return trained, cls.from_pretrained(out, dtype=torch.float32)

    return loaded


@pytest.fixture(scope="module")
def decoded(load: Callable) -> Callable[..., list[Decoded]]:
    """`decoded(model, decoder, end of text)`: what jaxlm writes behind the prompts, in one batch."""

    @functools.cache
    def jaxlms(name: str, decoder: str, end_of_text_id: int | None = None) -> list[Decoded]:
        trained, _ = load(name)
        given = settings_of(name, decoder)
        sampling = Sampling(repetition_penalty=given.pop("repetition_penalty", 1.0))
        how = {key: given.pop(key) for key in ("steps", "block_size") if key in given}
        return diffusion.decode(
            trained.model,
            trained.params,
            diffusion.canvas(prompt_ids(trained), NEW, 160),
            sampling=sampling,
            selection=Selection(**given),
            tokenizer_size=trained.tokenizer.vocab_size,
            mask_token_id=trained.config.model.mask_token_id,
            shift=bool(trained.config.objective.shift),
            end_of_text_id=end_of_text_id,
            trained_block_size=trained.structure.block_size,
            **how,
        )

    return jaxlms


def settings_of(name: str, decoder: str) -> dict[str, Any]:
    """Blocks of 7, 7 and 6 places where the model has none of its own."""
    blocks = {"block_size": 7} if decoder in IN_BLOCKS and "block_size" not in MODELS[name] else {}
    return DECODERS[decoder] | blocks


def prompt_ids(trained: Trained) -> list[list[int]]:
    """Of four lengths, each of which begins elsewhere in the blocks of 8."""
    return [trained.tokenizer.encode_prompt(text) for text in PROMPTS]


def theirs(model: Any, prompts: list[list[int]], **settings: Any) -> tuple[list[list[int]], int]:
    """New tokens, and how many passes the batch took."""
    width, passes = max(map(len, prompts)), []
    ids = torch.tensor([[99] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    hook = model.model.register_forward_hook(lambda *_: passes.append(1))
    out = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, pad_token_id=1, **settings)
    hook.remove()
    return out[:, width:].tolist(), len(passes)


# Every decoder with the two models that differ most; with the others, one that is planned and one that decides itself.
CASES = [(name, decoder) for name in ("whole", "in blocks, shifted") for decoder in DECODERS]
CASES += [(name, decoder) for name in ("whole, shifted", "in blocks") for decoder in ("low confidence", "threshold")]


@pytest.mark.parametrize(("name", "decoder"), CASES)
def test_tokens_and_passes_are_jaxlms(load: Callable, decoded: Callable, name: str, decoder: str) -> None:
    trained, model = load(name)
    prompts, settings, ours = prompt_ids(trained), settings_of(name, decoder), decoded(name, decoder)
    tokens, passes = theirs(model, prompts, eos_token_id=None, **settings)
    assert tokens == [row.token_ids for row in ours]
    assert passes == max(row.passes for row in ours)
    if "threshold" in settings or "entropy_bound" in settings:
        assert 4 < passes < NEW  # or the rule would decide nothing here
        assert len({row.passes for row in ours}) > 1
    for prompt, row in zip(prompts, ours, strict=True):
        assert theirs(model, [prompt], eos_token_id=None, **settings) == ([row.token_ids], row.passes)


@pytest.mark.parametrize("decoder", ["low confidence", "revision", "threshold"])
def test_an_end_of_text_ends_rows_as_in_jaxlm(load: Callable, decoded: Callable, decoder: str) -> None:
    name = "in blocks, shifted"
    trained, model = load(name)
    free = decoded(name, decoder)
    end = free[0].token_ids[3]
    ours = decoded(name, decoder, end)
    longest = max(len(row.token_ids) for row in ours)
    settings = settings_of(name, decoder) | {"eos_token_id": end}
    tokens, passes = theirs(model, prompt_ids(trained), **settings)
    assert tokens == [row.token_ids + [1] * (longest - len(row.token_ids)) for row in ours]
    assert passes == max(row.passes for row in ours)
    assert len(ours[0].token_ids) <= 4
    # A token that may still change ends nothing.
    assert (ours[0].passes == free[0].passes) if decoder == "revision" else (ours[0].passes < free[0].passes)
    assert theirs(model, prompt_ids(trained)[:1], **settings) == ([ours[0].token_ids], ours[0].passes)


def test_every_decoder_travels_with_the_weights(
    load: Callable, decoded: Callable, interpreter: str, tmp_path: Path
) -> None:
    name = "in blocks, shifted"
    trained, _ = load(name)
    release = release_of(trained)
    encode, parameters = trained.tokenizer.encode_prompt, parameter_counts(trained.model)["total"]
    expected = expect(trained.logits, lambda *_, **__: [], encode, release, parameters)
    shared = {"max_new_tokens": NEW, "eos_token_id": None}
    decodings = [
        Decoding(settings_of(name, decoder) | shared, [row.token_ids for row in decoded(name, decoder)])
        for decoder in DECODERS
    ]
    expected = dataclasses.replace(expected, decodings=decodings)
    verified = verify(export(trained, tmp_path / "model"), release, expected, interpreter)
    print("\n".join(verified.lines()))
    assert verified.passed
    assert sum("tokens at temperature 0" in check for check in verified.checks) == 2 * len(DECODERS)


def test_the_schedule_is_jaxlms_and_writes_every_token() -> None:
    for new in range(1, 25):
        for steps in (None, *range(1, 30)):
            for block_size, grid, first in ((0, 0, 3), (5, 0, 3), (0, 4, 3), (0, 4, 8), (0, 4, 0)):
                positions = range(first, first + new)
                blocks = schedule_jaxlm.cut(first, new, block_size or new, grid)
                alone = schedule.block_by_block([positions], block_size, grid)
                assert schedule_jaxlm.block_by_block(blocks) == entries(alone)
                own = new if steps is None else steps
                if own < len(blocks):
                    with pytest.raises(ValueError, match=f"at least the number of blocks, {len(blocks)}"):
                        schedule_jaxlm.schedule(blocks, own)
                    continue
                for rate in (0.0, 0.4):
                    theirs = schedule_jaxlm.schedule(blocks, own, rate)
                    assert theirs == entries(schedule.plan([positions], steps or 0, block_size, grid, rate))
                    assert sum(count for _, _, count, _ in theirs) == new
                    assert min(count for _, _, count, _ in theirs) >= 1
                    assert len(theirs) == min(own, new)


def entries(passes: schedule.Passes) -> list[tuple[int, int, int, int]]:
    columns = (passes.start, passes.stop, passes.count, passes.revise)
    return list(zip(*(column[:, 0].tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    "chosen", [{}, {"threshold": 0.5}, {"remasking": "margin", "threshold": 0.2}, {"entropy_bound": 1.1}], ids=str
)
def test_of_equals_the_lowest_position_comes_first_and_a_closed_one_never(chosen: dict[str, Any]) -> None:
    """Logits of few different values, so that most scores are shared, and whole rows of them where nothing is open."""
    torch.manual_seed(0)
    logits = torch.randint(0, 3, (4, 9, 3)) * torch.tensor([3.0, 3.0, 0.0])
    logits[..., 2] = -torch.inf
    is_open = torch.rand(4, 9) < torch.tensor([[1.0], [0.7], [0.3], [0.0]])
    choice, count = logits.argmax(-1), torch.tensor([[2], [3], [1], [2]])
    theirs, ours = selection_jaxlm.Selection(**chosen), Selection(**chosen)
    score = selection_jaxlm.scores(theirs.rule, logits, choice)
    np.testing.assert_allclose(
        score, selection.scores(ours.rule, jnp.array(logits), jnp.array(choice), None), atol=1e-6
    )
    write = selection_jaxlm.written(theirs, score, is_open, count)
    # From one set of scores, for equal ones must be equal to the last bit in both.
    write_here = selection.written(ours, jnp.array(score), jnp.array(is_open), jnp.array(count)[:, 0])
    assert write.tolist() == write_here.tolist()
    assert write.any(1).tolist() == is_open.any(1).tolist()
    assert not (write & ~is_open).any()
    assert write[0, min(range(9), key=lambda place: (-score[0, place], place))]


@pytest.mark.parametrize(
    "given",
    [
        {"remasking": "best"},
        {"threshold": -0.1},
        {"threshold": float("nan")},
        {"entropy_bound": -1.0},
        {"remasking": "revise", "revise_rate": 1.5},
        {"threshold": 0.9, "entropy_bound": 1.0},
        {"remasking": "entropy", "threshold": 0.9},
        {"remasking": "margin", "entropy_bound": 1.0},
        {"remasking": "revise"},
        {"revise_rate": 0.1},
    ],
    ids=str,
)
def test_what_jaxlm_refuses_is_refused_before_anything_runs(load: Callable, given: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Selection(**given)
    with pytest.raises(ValueError, match=f"{list(given)[-1]}.*, allowed: ") as caught:
        load("whole")[1].generate(torch.tensor([[3, 4]]), max_new_tokens=5, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"remasking": "random"}, "remasking is 'random', allowed: .*revise; jaxlm draws .* from keys of JAX"),
        ({"steps": 4, "threshold": 0.5}, "steps and threshold are both given, allowed: one of them"),
        ({"steps": 4, "entropy_bound": 0.5}, "steps and entropy_bound are both given, allowed: one of them"),
    ],
    ids=str,
)
def test_what_cannot_be_done_here_is_refused(load: Callable, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load("whole")[1].generate(torch.tensor([[3, 4]]), max_new_tokens=5, **given)
