"""Which positions of a canvas a denoising pass writes, and which written ones it masks again: as in jaxlm.

Letters in names: B rows, n positions, V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

RULES = ("low_confidence", "margin", "entropy", "revise")


@dataclass(frozen=True)
class Selection:
    """How the positions of a pass are chosen. None: not asked for.

    remasking: the order in which positions are written. `low_confidence`: by the probability of the chosen token
    (LLaDA, arXiv 2502.09992); `margin`: by the distance of the two likeliest tokens, and `entropy`: the lowest first
    (both Dream, arXiv 2508.15487); `revise`: low confidence that may change its mind. None: `low_confidence`, or
    `entropy` with an entropy bound. threshold: a pass writes every position whose confidence is at least this, and
    always the best one (Fast-dLLM, arXiv 2505.22618). entropy_bound: a pass writes in order of entropy (nats) while the
    sum, the largest one left out, is at most this (EB-Sampler, arXiv 2505.24857), and always the first. revise_rate: of
    `revise`, the share of the written tokens that a pass masks again (after ReMDM, arXiv 2503.00307).
    """

    remasking: str | None = None
    threshold: float | None = None
    entropy_bound: float | None = None
    revise_rate: float | None = None

    def __post_init__(self):
        if self.rule == "random":
            raise ValueError(
                f"remasking is 'random', allowed: {', '.join(RULES)}; jaxlm draws a random order from keys of JAX, "
                "which PyTorch cannot repeat"
            )
        if self.rule not in RULES:
            raise ValueError(f"remasking is {self.rule!r}, allowed: {', '.join(RULES)}")
        for name, value, most, allowed in (
            ("threshold", self.threshold, float("inf"), "at least 0 (above 1: one token a pass)"),
            ("entropy_bound", self.entropy_bound, float("inf"), "at least 0, in nats"),
            ("revise_rate", self.revise_rate, 1, "from 0 to 1"),
        ):
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name} is {value}, allowed: {allowed}")
        if self.threshold is not None and self.entropy_bound is not None:
            raise ValueError("threshold and entropy_bound are both given, allowed: one of them")
        if self.threshold is not None and self.rule not in ("low_confidence", "margin"):
            raise ValueError(f"threshold with remasking {self.rule!r}, allowed: low_confidence or margin")
        if self.entropy_bound is not None and self.rule != "entropy":
            raise ValueError(f"entropy_bound with remasking {self.rule!r}, allowed: entropy")
        if (self.rule == "revise") != (self.revise_rate is not None):
            raise ValueError(
                f"remasking {self.rule!r} with revise_rate {self.revise_rate}, allowed: revise with a rate from 0 to "
                "1, every other without one"
            )

    @property
    def rule(self):
        """The order that is used."""
        return self.remasking or ("low_confidence" if self.entropy_bound is None else "entropy")

    @property
    def adaptive(self):
        """Whether the model decides how many tokens a pass writes, and so how many passes there are."""
        return self.threshold is not None or self.entropy_bound is not None


def log_probability(logits_BnV, tokens_Bn):
    """Of each token, [B, n]."""
    return logits_BnV.log_softmax(-1).gather(-1, tokens_Bn[..., None])[..., 0]


def scores(rule, logits_BnV, choice_Bn):
    """How much a position is to be preferred, [B, n]: the larger, the sooner. Logits are -inf where never chosen."""
    if rule == "margin":
        best_Bn2 = logits_BnV.softmax(-1).topk(2, dim=-1).values
        return best_Bn2[..., 0] - best_Bn2[..., 1]
    if rule == "entropy":
        return -torch.special.entr(logits_BnV.softmax(-1)).sum(-1)
    return log_probability(logits_BnV, choice_Bn)


def first_ranks(score_Bn, among_Bn):
    """The rank of each position, 0 the largest score, and those that are not among them last.

    A stable sort gives equal scores to the lowest position, on every device and as in jaxlm.
    """
    return (-score_Bn).masked_fill(~among_Bn, torch.inf).sort(dim=1, stable=True).indices.argsort(dim=1)


def written(selection, score_Bn, open_Bn, count_B1):
    """Which of the open positions a pass writes, at least one in a row that has any.

    `count_B1` says how many, where the number is not the model's to decide.
    """
    rank_Bn = first_ranks(score_Bn, open_Bn)
    if selection.threshold is not None:
        # A margin is a difference of probabilities already; confidence is ranked by its logarithm.
        share_Bn = score_Bn if selection.rule == "margin" else score_Bn.exp()
        return open_Bn & ((share_Bn >= selection.threshold) | (rank_Bn == 0))
    if selection.entropy_bound is not None:
        rising_Bn = (-score_Bn).masked_fill(~open_Bn, torch.inf).sort(dim=1).values
        # Entropies rise, so the largest of the first r is the last of them: the others are what stands before it.
        allowed_Bn = F.pad(rising_Bn.cumsum(1)[:, :-1], (1, 0)) <= selection.entropy_bound
        return open_Bn & (allowed_Bn.gather(1, rank_Bn) | (rank_Bn == 0))
    return open_Bn & (rank_Bn < count_B1)


def masked_again(logits_BnV, token_Bn, old_Bn, revise_B1):
    """The `revise_B1` least probable of the old tokens, bool [B, n]."""
    return old_Bn & (first_ranks(-log_probability(logits_BnV, token_Bn), old_Bn) < revise_B1)
