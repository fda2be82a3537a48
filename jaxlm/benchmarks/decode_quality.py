"""What a way of decoding writes, judged by numbers that cannot all be won at once.

Repetition is likely under any language model, so perplexity alone would reward it; it has few different tokens, which
the unigram entropy shows. The text that really follows the prompts is judged beside the written ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlm.benchmarks.decode_ways import Subject
from jaxlm.config import ObjectiveConfig
from jaxlm.evaluation.continuation import Continuations, Request
from jaxlm.evaluation.continuation_masks import ExactCounts
from jaxlm.evaluation.statistics import ratio
from jaxlm.objectives import build_objective

DRAWS = 16  # masks of each text, of a diffusion model


@dataclass(frozen=True)
class Judge:
    """Scores continuations under a subject: exactly from left to right, by its ELBO otherwise."""

    subject: Subject
    continuations: Continuations

    @classmethod
    def of(cls, subject: Subject) -> Judge:
        """The judge that a subject is."""
        diffusion = subject.reading != "ar"
        config = ObjectiveConfig(
            kind="diffusion" if diffusion else "causal",
            block_size=subject.block_size if diffusion else None,
            shift=subject.shift if diffusion else None,
        )
        objective = build_objective(config, subject.model, mask_token_id=subject.mask_token_id)
        return cls(subject, Continuations(objective))

    def nats(self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> dict[str, float | None]:
        """Nats a token of the texts that follow the prompts, a bound for a diffusion model: mean and standard error."""
        requests = [Request(prompt, text, i) for i, (prompt, text) in enumerate(zip(prompts, texts, strict=True))]
        masks = ExactCounts(draws=DRAWS) if self.continuations.objective.is_bound else None
        found = self.continuations.log_likelihoods(self.subject.params, requests, masks)
        nats_N = np.array([-out.log_likelihood for out in found])
        mean = ratio(nats_N, np.array([out.num_tokens for out in found], np.float64))
        return {"nats": mean.value, "stderr": mean.stderr}


def unigram_entropy(texts: Sequence[Sequence[int]]) -> float:
    """Entropy (nats) of the tokens of a text, the mean over texts: ln n where all n differ, 0 where all are one."""

    def entropy(text: Sequence[int]) -> float:
        return -sum(n / len(text) * math.log(n / len(text)) for n in Counter(text).values())

    return sum(map(entropy, texts)) / len(texts)


def quality(
    own: Judge | None, twin: Judge, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """The numbers of one way: `own_elbo` under the model that wrote, `twin` nats and their `perplexity`, `entropy`."""
    under_twin = twin.nats(prompts, texts)
    assert under_twin["nats"] is not None
    return {
        "own_elbo": None if own is None else own.nats(prompts, texts),
        "twin": under_twin,
        "generative_perplexity": math.exp(under_twin["nats"]),
        "unigram_entropy": unigram_entropy(texts),
    }
