"""What jaxlm says of a model, in a form that another implementation can be held against.

Legend: B rows, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlm.release.directory import Release

PROMPTS = ("Returns the sum of", "If True, the", "An", "Computes the gradient of a function with respect to its")
ROWS, POSITIONS, NEW_TOKENS = 4, 128, 64


@dataclass(frozen=True)
class Decoding:
    """One way of writing without sampling: arguments of transformers' `generate`, and the new tokens of jaxlm."""

    settings: dict[str, Any]
    token_ids: list[list[int]]


@dataclass(frozen=True)
class Expected:
    """What jaxlm says of a model.

    Attributes:
      tokens_BT: int, any tokens.
      logits_BTV: fp32, their logits.
      prompts: texts of different length.
      prompt_ids: their tokens.
      decodings: continuations of the prompts.
      generable: ids below this one may be generated, but for the mask token.
      mask_token_id: never generated.
      tied: whether the head is the embedding.
      parameters: how many numbers the model has.
    """

    tokens_BT: np.ndarray
    logits_BTV: np.ndarray
    prompts: Sequence[str]
    prompt_ids: list[list[int]]
    decodings: Sequence[Decoding]
    generable: int
    mask_token_id: int | None
    tied: bool
    parameters: int


# Arguments of transformers' `generate` that must all give the same tokens.
VARIANTS: dict[bool, tuple[dict[str, Any], ...]] = {False: ({"use_cache": True}, {"use_cache": False}), True: ({},)}


def expect(
    logits: Callable[[np.ndarray], Any],
    generate: Callable[..., Sequence[Any]],
    encode: Callable[[str], list[int]],
    release: Release,
    parameters: int,
) -> Expected:
    """Asks a model for logits of random tokens and for continuations of PROMPTS at temperature 0.

    Args:
      logits: token ids [B, T] to fp32 [B, T, V]; `logits` of what `jaxlm.load` returns.
      generate: its `generate`.
      encode: a prompt to token ids.
      release: the same model, as it is released.
      parameters: how many numbers it has.
    """
    config, tokenizer, diffusion = release.config, release.tokenizer, release.is_diffusion
    random = np.random.default_rng(0)
    # Longer than any window, as far as the context allows, or a wrong window would go unnoticed.
    length = min(config.max_positions, max(POSITIONS, 3 * config.sliding_window))
    tokens_BT = random.integers(0, tokenizer.vocab_size, (ROWS, length))
    if diffusion:
        assert config.mask_token_id is not None  # the objective has seen to it
        tokens_BT = np.where(random.random(tokens_BT.shape) < 0.5, config.mask_token_id, tokens_BT)
    prompt_ids = [encode(prompt) for prompt in PROMPTS]
    new = min(NEW_TOKENS, config.max_positions - max(map(len, prompt_ids)))
    # An end of text, if one comes early, would leave little to compare.
    written = [out.token_ids for out in generate(PROMPTS, max_new_tokens=new, ignore_eos=True)]
    settings = {"max_new_tokens": new, "eos_token_id": None}
    return Expected(
        tokens_BT=tokens_BT,
        logits_BTV=np.asarray(logits(tokens_BT), np.float32),
        prompts=PROMPTS,
        prompt_ids=prompt_ids,
        decodings=[Decoding(settings | variant, written) for variant in VARIANTS[diffusion]],
        generable=tokenizer.vocab_size,
        mask_token_id=config.mask_token_id,
        tied=config.tie_embeddings,
        parameters=parameters,
    )
