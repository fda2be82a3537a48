"""Every published claim as a hypothesis, and what a study says to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlm.evaluation.tasks import STUDY
from jaxlm.study import published
from jaxlm.study.cells import Study
from jaxlm.study.claim_tests import (
    MEAN,
    TRUTH,
    UNTESTED,
    Best,
    Better,
    Cheaper,
    Ratio,
    Same,
    Test,
    Tiers,
    Untestable,
    Wins,
    all_pairs,
    measure_of,
)
from jaxlm.study.comparisons import Comparisons, Difference, corrected, in_brief
from jaxlm.study.measures import BITS, tasks_of
from jaxlm.study.published_means import is_wide, three_way_rule
from jaxlm.study.report import POCKET_PARAMETERS

SEVEN = tuple(row.row for row in published.SWEEP)
FAMILIES = tuple(row.row for row in published.FAMILIES if row.hidden is not None)  # the twelfth has no name
DIFFUSION = ("dllm_canon", "dhara", "dllm")
OTHERS = tuple(row for row in FAMILIES if row not in DIFFUSION)
LADDER = ("gpt2-32", "gpt2_rms", "gpt2_rope", "gpt2_swiglu", "gpt2_no_bias", "llama3")
SAME_WITHIN = 2.0  # points: the article's 2 %
PUBLISHED_MEANS, PUBLISHED_TRUTH = {"mean_6": "mean of six", "mean_7": "mean of seven"}, "truthfulqa_mc2"
_QUOTED = "articles that quote the study"


@dataclass(frozen=True)
class Claim:
    """Something that is published.

    Attributes:
      id: its name.
      text: what is claimed.
      source: where.
      published: the figures given for it.
      test: by what a study answers it.
    """

    id: str
    text: str
    source: str
    published: str
    test: Test


@dataclass(frozen=True)
class Answer:
    """What a study says to a claim.

    Attributes:
      claim: which.
      verdict: "holds", "does not hold", "a smaller one is found" (and the claimed size is not excluded), "no difference
        at this size" (also of a claim that there is none: neither shown nor refuted), or "not tested".
      words: why, or what is missing.
      differences: that it rests on.
      is_pocket: whether all rows are pocket models: then it tests the machinery and not the claim.
    """

    claim: Claim
    verdict: str
    words: str
    differences: tuple[Difference, ...]
    is_pocket: bool


CLAIMS = (
    Claim(
        "tiers", "The seven shapes fall into two tiers, more than 6 points apart, with a spread of 0.5 within each.",
        published.ARTICLE, "means of the tiers 6.08 apart, nearest members 5.54; spread 0.35 and 0.82",
        Tiers(gap=6.0, spread=0.5),
    ),
    Claim(
        "hidden_512", "A width of at least 512 puts a shape into the upper tier.",
        published.ARTICLE, "it misses 3 of the 7 published labels", Tiers(6.0, 0.5, is_wide),
    ),
    Claim(
        "three_way", "A width of at least 512, or 32 layers, or at least 64, puts a shape into the upper tier.",
        published.ARTICLE, "it misses 1 of the 7 published labels, 4 x 768", Tiers(6.0, 0.5, three_way_rule),
    ),
    Claim(
        "best_32", "32 layers are the best of the seven shapes.",
        published.ARTICLE, "38.50, next 38.21 and 38.15",
        Best(("gpt2-32",), tuple(row for row in SEVEN if row != "gpt2-32"), MEAN),
    ),
    Claim(
        "wins_5_of_7", "32 layers win 5 of the 7 benchmarks against 12 layers.",
        _QUOTED, "WinoGrande +1.18, MMLU +1.66, TruthfulQA -1.48; the others are not published",
        Wins("gpt2-12", "gpt2-32", STUDY, 5),
    ),
    Claim(
        "families", "At 32 layers all families are within 2 % of one another.",
        published.ARTICLE, "31.81 to 33.22, means of seven", Same(all_pairs(FAMILIES), MEAN, SAME_WITHIN),
    ),
    Claim(
        "modern_parts", "RMSNorm, rotary positions, SwiGLU and grouped queries have no effect at this size.",
        published.ARTICLE, "GPT-2 33.18; LLaMA3 is not published",
        Same((("gpt2-32", "llama3"), *zip(LADDER, LADDER[1:], strict=False)), MEAN, SAME_WITHIN),
    ),
    Claim(
        "speed", "Diffusion writes at least 3.8 times as fast.",
        published.ARTICLE, "183.5 against 48 tokens/s", Ratio("dhara", "gpt2-32", "tokens_per_sec", "rounds", 3.8),
    ),
    Claim(
        "first_token", "Its first token takes at least 1.4 times as long.",
        _QUOTED, "35.5 against about 25 ms",
        Ratio("dhara", "gpt2-32", "seconds_to_first_token", "rounds_to_first_token", 1.4),
    ),
    Claim(
        "memory", "It takes at least 1.6 times the memory.",
        _QUOTED, "0.24 against 0.15 GB", Ratio("dhara", "gpt2-32", "memory_bytes", "", 1.6),
    ),
    Claim(
        "truth_best", "A diffusion model is best on TruthfulQA.",
        published.ARTICLE, "49.27, 47.50 and 47.08 against 45.83 of GPT-2", Best(DIFFUSION, OTHERS, TRUTH),
    ),
    Claim(
        "truth_bidirectional", "It is, because it reads in both directions.",
        published.ARTICLE, "no figure", Better("dhara-causal", "dhara", TRUTH),
    ),
    Claim(
        "truth_order", "It is, because it does not write from left to right.",
        published.ARTICLE, "no figure", Better("dhara-in_order", "dhara", TRUTH),
    ),
    Claim(
        "truth_revision", "It is, because it revises what it wrote.",
        published.ARTICLE, "no figure",
        Untestable(
            "its options are chosen by likelihood and nothing is written, so revision cannot be in the score; "
            "it would take answers written with and without revision, which no row has"
        ),
    ),
    Claim(
        "canon_ar", "Canon layers add a point on TruthfulQA to LLaMA3.",
        _QUOTED, "+1.0", Better("llama3", "llama3_canon", TRUTH, published.CANON["llama3"]),
    ),
    Claim(
        "canon_diffusion", "Canon layers add two points on TruthfulQA to diffusion.",
        _QUOTED, "+2.19", Better("dllm", "dllm_canon", TRUTH, published.CANON["dllm"]),
    ),
    Claim(
        "conversion_cost", "Conversion takes a tenth of the tokens of diffusion from scratch.",
        _QUOTED, "100M tokens against 1B, without the 1B of the run that it starts from",
        Cheaper(("dhara", "dllm_canon", "dllm_canon_tenth"), 10.0),
    ),
    Claim(
        "conversion_tasks", "The converted model is better than diffusion from scratch on some tasks.",
        published.ARTICLE, "mean 31.85 against 31.81; TruthfulQA 47.50 against 49.27",
        Wins("dllm_canon", "dhara", STUDY, 1),
    ),
    Claim(
        "mix", "The mix of 50 % FinePDFs, 30 % DCLM, 20 % FineWeb-Edu is the best (on held-out text of this mix).",
        published.MIXING, "perplexity 27.38; FinePDFs alone 6.76, DCLM alone 126.76, each on its own text",
        Best(("llama3",), tuple(mix.row for mix in published.MIXES[1:]), BITS),
    ),
    Claim(
        "mix_mean", "The same mix is the best by benchmarks (which of a study without a network are from this mix).",
        published.MIXING, "no figure", Best(("llama3",), tuple(mix.row for mix in published.MIXES[1:]), MEAN),
    ),
    Claim(
        "deeper", "Above a width of 512 deeper is better than wider.",
        published.MOBILELLM, "30 layers of 576 are released for 125M parameters",
        Better("mobilellm-12", "mobilellm-30", MEAN),
    ),
)  # fmt: skip


def answers(comparisons: Comparisons) -> list[Answer]:
    """What the study says to each claim.

    Differences are corrected by Holm's procedure for all that claims of a difference rest on; those of a claim that
    there is none, for one another. A claim that needs a row, a task or a measurement that is not there is not tested,
    and the answer says what is missing.
    """
    study, is_pocket = comparisons.study, _is_pocket(comparisons.study)
    found = [[comparisons.compare(a, b, measure_of(study, m)) for a, b, m in claim.test.pairs()] for claim in CLAIMS]
    whole = [[d for d in of if isinstance(d, Difference)] if _is_whole(of) else [] for of in found]
    together = [d for claim, of in zip(CLAIMS, whole, strict=True) if claim.test.is_corrected for d in of]
    adjusted = iter(corrected(together))
    out = []
    for claim, of, differences in zip(CLAIMS, found, whole, strict=True):
        if not _is_whole(of):
            lacks = [part for lack in of if isinstance(lack, str) for part in lack.split("; ")]
            out.append(Answer(claim, UNTESTED, in_brief(lacks), (), is_pocket))
            continue
        differences = [next(adjusted) for _ in of] if claim.test.is_corrected else corrected(differences)
        verdict, why = claim.test.judge(study, differences)
        out.append(Answer(claim, verdict, why + _stand_in(claim.test, study), tuple(differences), is_pocket))
    return out


def _is_whole(found: Sequence[Difference | str]) -> bool:
    return all(isinstance(one, Difference) for one in found)


def _stand_in(test: Test, study: Study) -> str:
    """Which of the study's own measures was taken where another is published."""
    used, evaluate = {measure for _, _, measure in test.pairs()}, study.config.evaluate
    notes = []
    if MEAN in used and evaluate.mean not in PUBLISHED_MEANS:
        notes.append(f"the mean is over {', '.join(tasks_of(evaluate.mean))}, a stand-in for the study's tasks")
    if TRUTH in used and evaluate.truth != PUBLISHED_TRUTH:
        notes.append(f"the task is {evaluate.truth}, a stand-in for TruthfulQA")
    return "".join(f"; {note}" for note in notes)


def _is_pocket(study: Study) -> bool:
    sizes = [r.run.manifest.get("parameters", {}).get("total") for r in study.results if r.run is not None]
    return bool(sizes) and all(size is not None and size < POCKET_PARAMETERS for size in sizes)
