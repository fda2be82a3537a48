"""Which positions of a canvas a denoising pass writes, and which written ones it masks again.

Legend: B rows, N canvas positions, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlm.errors import UserError

RULES = ("low_confidence", "random", "margin", "entropy", "revise")


@dataclass(frozen=True)
class Selection:
    """How the positions of a pass are chosen. None: not asked for.

    Attributes:
      remasking: the order in which positions are written. `low_confidence`: by the probability of the chosen token
        (LLaDA, arXiv 2502.09992); `random`; `margin`: by the distance of the two likeliest tokens, and `entropy`: the
        lowest first (both Dream, arXiv 2508.15487); `revise`: low confidence that may change its mind. None:
        `low_confidence`, or `entropy` with an entropy bound.
      threshold: a pass writes every position whose confidence is at least this, and always the best one (Fast-dLLM,
        arXiv 2505.22618), instead of as many as the steps ask for.
      entropy_bound: a pass writes in order of entropy (nats) while the sum, the largest one left out, is at most this
        (EB-Sampler, arXiv 2505.24857), and always the first.
      revise_rate: of `revise`, the share of the written tokens that a pass masks again (after ReMDM, arXiv 2503.00307).
    """

    remasking: str | None = None
    threshold: float | None = None
    entropy_bound: float | None = None
    revise_rate: float | None = None

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UserError(f"--remasking is {self.remasking!r}, allowed: {', '.join(RULES)}")
        for name, value, good, allowed in (
            ("threshold", self.threshold, lambda x: x >= 0, "at least 0 (above 1: one token a pass)"),
            ("entropy_bound", self.entropy_bound, lambda x: x >= 0, "at least 0, in nats"),
            ("revise_rate", self.revise_rate, lambda x: 0 <= x <= 1, "from 0 to 1"),
        ):
            if value is not None and not good(value):
                raise UserError(f"--{name} is {value}, allowed: {allowed}")
        if self.threshold is not None and self.entropy_bound is not None:
            raise UserError("--threshold and --entropy_bound are both given, allowed: one of them")
        if self.threshold is not None and self.rule not in ("low_confidence", "margin"):
            raise UserError(f"--threshold with --remasking={self.rule}, allowed: low_confidence or margin")
        if self.entropy_bound is not None and self.rule != "entropy":
            raise UserError(f"--entropy_bound with --remasking={self.rule}, allowed: entropy")
        if (self.rule == "revise") != (self.revise_rate is not None):
            raise UserError(
                f"--remasking={self.rule} with --revise_rate={self.revise_rate}, allowed: revise with a rate from 0 to "
                "1, every other without one"
            )

    @property
    def rule(self) -> str:
        """The order that is used."""
        if self.remasking is not None:
            return self.remasking
        return "low_confidence" if self.entropy_bound is None else "entropy"

    @property
    def adaptive(self) -> bool:
        """Whether the model decides how many tokens a pass writes, and so how many passes there are."""
        return self.threshold is not None or self.entropy_bound is not None


def log_probability(logits_BNV: jax.Array, tokens_BN: jax.Array) -> jax.Array:
    """Of each token, fp32 [B, N]."""
    log_probs_BNV = jax.nn.log_softmax(logits_BNV, axis=-1)
    return jnp.take_along_axis(log_probs_BNV, tokens_BN[:, :, None], axis=-1)[:, :, 0]


def scores(rule: str, logits_BNV: jax.Array, choice_BN: jax.Array, keys_BN: jax.Array) -> jax.Array:
    """How much a position is to be preferred: fp32 [B, N], the larger the sooner.

    Args:
      rule: one of `RULES`.
      logits_BNV: fp32, -inf where a token cannot be chosen.
      choice_BN: the token that each position would get.
      keys_BN: of this pass and each position; `random` alone reads them.
    """
    if rule == "random":
        # The keys themselves have drawn the tokens.
        return jax.vmap(jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1))))(keys_BN)
    if rule == "margin":
        best_BN2 = jax.lax.top_k(jax.nn.softmax(logits_BNV, axis=-1), 2)[0]
        return best_BN2[..., 0] - best_BN2[..., 1]
    if rule == "entropy":
        log_probs_BNV = jax.nn.log_softmax(logits_BNV, axis=-1)
        return jnp.sum(jnp.where(jnp.isneginf(log_probs_BNV), 0, jnp.exp(log_probs_BNV) * log_probs_BNV), axis=-1)
    return log_probability(logits_BNV, choice_BN)


def first_ranks(score_BN: jax.Array, among_BN: jax.Array) -> jax.Array:
    """The rank of each position, 0 the largest score, and those that are not among them last: int32 [B, N].

    A stable sort gives equal scores to the lowest position, here and in the exported PyTorch code.
    """
    order_BN = jnp.argsort(jnp.where(among_BN, -score_BN, jnp.inf), axis=1, stable=True)
    rows_B1, index_N = jnp.arange(len(order_BN))[:, None], jnp.arange(order_BN.shape[1])
    return jnp.zeros_like(order_BN).at[rows_B1, order_BN].set(index_N)


def written(selection: Selection, score_BN: jax.Array, open_BN: jax.Array, count_B: jax.Array) -> jax.Array:
    """Which of the open positions a pass writes: bool [B, N], at least one in a row that has any.

    Args:
      score_BN: see `scores`.
      open_BN: masked positions of the present block.
      count_B: how many, where the number is not the model's to decide.
    """
    rank_BN = first_ranks(score_BN, open_BN)
    if selection.threshold is not None:
        # A margin is a difference of probabilities already; confidence is ranked by its logarithm.
        share_BN = score_BN if selection.rule == "margin" else jnp.exp(score_BN)
        return open_BN & ((share_BN >= selection.threshold) | (rank_BN == 0))
    if selection.entropy_bound is not None:
        rising_BN = jnp.sort(jnp.where(open_BN, -score_BN, jnp.inf), axis=1)
        # Entropies rise, so the largest of the first r is the last of them: the others are what stands before it.
        before_BN = jnp.pad(jnp.cumsum(rising_BN, axis=1), ((0, 0), (1, 0)))[:, :-1]
        allowed_BN = (before_BN <= selection.entropy_bound) | (jnp.arange(before_BN.shape[1]) == 0)
        return open_BN & jnp.take_along_axis(allowed_BN, rank_BN, axis=1)
    return open_BN & (rank_BN < count_B[:, None])
