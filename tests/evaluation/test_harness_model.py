"""What the harness is told, beside brute force: likelihoods, cuts, answers that share work, texts, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM

from jaxlm.errors import UserError
from jaxlm.evaluation import cost
from jaxlm.evaluation.continuation import Request
from jaxlm.evaluation.continuation_masks import ExactCounts
from jaxlm.evaluation.harness_model import HarnessModel
from jaxlm.generation import Sampling
from tests.evaluation import tiny_harness as tiny
from tests.evaluation.tiny_harness import MASK, TOKENIZER, VOCAB, model, question, writing

LETTERS = [" A", " B", " C", " D"]
QUESTIONS = [
    request
    for number, (context, answers) in enumerate(
        [
            ("the cat sat on the", [" mat", " log and so on", " dog"]),
            ("and so on, and ", ["the dog", "the mat and the log"]),
            ("", ["the cat", " on"]),
        ]
    )
    for request in question(context, answers, number)
]


class Counting:
    """Counts the rows of a model's forwards, and interrupts it after some of its answers."""

    def __init__(self, of: HarnessModel, monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> None:
        self.rows, self.answers = 0, 0
        run, stream = of.continuations._run, of.continuations.stream

        def counted(*args: Any) -> Any:
            for found in run(*args):
                self.rows += 1
                yield found

        def interrupted(*args: Any) -> Any:
            for found in stream(*args):
                if self.answers == stop_after:
                    raise KeyboardInterrupt
                self.answers += 1
                yield found

        monkeypatch.setattr(of.continuations, "_run", counted)
        monkeypatch.setattr(of.continuations, "stream", interrupted)


def llada(context: list[int], answer: list[int], draws: int, rng: np.random.Generator) -> float:
    """`get_log_likelihood.py` of LLaDA, a draw a forward: k of l answer tokens hidden, cross-entropy times l / k."""
    size = len(answer)
    first = rng.integers(1, size + 1)
    counts = np.round(np.linspace(first, first + (draws - 1) * size / draws, draws)).astype(int)
    counts = (counts - 1) % size + 1
    hidden_BC = np.stack([rng.permutation(size) < count for count in counts])
    rows = np.tile([*context, *answer], (draws, 1))
    rows[:, len(context) :][hidden_BC] = MASK
    log_probs_BCV = np.asarray(tiny.log_probs(rows))[:, len(context) :]
    nats_BC = -log_probs_BCV[:, np.arange(size), answer]
    return -float(np.mean((nats_BC * hidden_BC).sum(axis=1) * size / counts))


def test_the_bound_is_that_of_lladas_published_estimator() -> None:
    context, answer = "the cat sat", " on the mat and the log"
    ids = TOKENIZER.encode(answer)
    assert 2 ** len(ids) > 16, "or nothing is drawn"
    lm, ours = model("diffusion", report=lambda line: None), []
    for seed in range(20):
        lm.masks = ExactCounts(16, seed)
        ours.append(lm.loglikelihood(question(context, [answer, " x"]))[0][0])
    rng = np.random.default_rng(0)
    theirs = np.array([llada(TOKENIZER.encode(context), ids, 16, rng) for _ in range(20)])
    error = math.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / 20)
    assert 0 < error < 0.02 * abs(np.mean(ours))
    assert abs(np.mean(ours) - np.mean(theirs)) < 3 * error


def test_a_diffusion_models_answer_of_one_token_is_exact() -> None:
    context = "the cat sat on"
    lines = model("diffusion", report=lambda line: None)
    for letter, (value, _) in zip(LETTERS, lines.loglikelihood(question(context, ["A", "B", "C", "D"])), strict=True):
        row = TOKENIZER.encode(context)
        expected = tiny.log_probs(np.array([[*row, MASK]]))[0, len(row), TOKENIZER.encode(letter.strip())[0]]
        assert value == pytest.approx(float(expected), abs=2e-5)
    assert lines.mc_stderr == {"mats": 0.0}


@pytest.mark.parametrize(("kind", "block_size"), [("causal", None), ("diffusion", 0), ("diffusion", 4)])
def test_answers_of_one_token_share_a_row_and_lose_nothing(
    kind: str, block_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = question("the cat sat on the", ["A", "B", "C", "D"]) + question("so on", ["A", "B"], 1)
    lm = model(kind, block_size)
    counting = Counting(lm, monkeypatch)
    together = lm.loglikelihood(asked)
    assert counting.rows == 2
    rest = [Instance("loglikelihood", {}, ("the dog", "D"), 1, metadata=("mats", 0, 1))]
    alone = [lm.loglikelihood([request, *rest])[0] for request in asked]
    np.testing.assert_allclose([value for value, _ in together], [value for value, _ in alone], atol=2e-5)


@pytest.mark.parametrize(("kind", "block_size"), [("causal", None), ("diffusion", 0)])
def test_a_uniform_model_is_worth_ln_v_a_token(kind: str, block_size: int | None) -> None:
    lm = model(kind, block_size, tiny.UNIFORM)
    for request, (value, _) in zip(QUESTIONS, lm.loglikelihood(QUESTIONS), strict=True):
        space = " " if request.args[0].endswith(" ") else ""
        assert value == pytest.approx(-tiny.tokens(space + request.args[1]) * math.log(VOCAB), rel=1e-6)
    text = "the cat sat on the mat " * 10
    assert tiny.tokens(text) > tiny.POSITIONS
    (rolling,) = lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0, metadata=("t", 0, 1))])
    assert rolling == pytest.approx(-tiny.tokens(text) * math.log(VOCAB), rel=1e-6)


def test_equal_pairs_are_computed_once_and_the_answer_does_not_depend_on_what_is_asked_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm = model("diffusion", mc_samples=4)
    counting = Counting(lm, monkeypatch)
    twice = lm.loglikelihood(QUESTIONS + QUESTIONS)
    assert twice[: len(QUESTIONS)] == twice[len(QUESTIONS) :]
    assert counting.answers == len(QUESTIONS)
    np.testing.assert_allclose(lm.loglikelihood(QUESTIONS[3:5]), twice[3:5], atol=2e-5)


def test_what_does_not_fit_is_cut_on_the_left_and_counted_by_task() -> None:
    lm = model(max_length=16)
    long = "the cat sat on the mat and the dog sat on the log "
    answers = ["the mat", "the mat and the dog sat on the log, and so on, and so on and on"]
    assert tiny.tokens(answers[0]) < 16 < tiny.tokens(answers[1])
    asked = question(long, answers, task="long") + QUESTIONS
    values = lm.loglikelihood(asked)
    rows = [lm._encode_pair(long, answer) for answer in answers]
    expected = [(context + answer)[-17:] for context, answer in rows]
    for (value, _), kept, (_, answer) in zip(values[:2], expected, rows, strict=True):
        start = max(1, 17 - len(answer))
        (direct,) = lm.continuations.log_likelihoods(lm.params, [Request(kept[:start], kept[start:], 0)])
        assert value == pytest.approx(direct.log_likelihood, abs=2e-5)
    # An answer that does not fit by itself loses tokens whatever stands before it.
    lm.loglikelihood(question("", answers, task="alone"))
    assert lm.truncated["alone"] == {"contexts": 0, "continuations": 1, "tokens": tiny.tokens(answers[1]) - 16}
    lost = sum(len(context) + len(answer) - 17 for context, answer in rows)
    assert lm.truncated["long"] == {"contexts": 2, "continuations": 1, "tokens": lost}


@pytest.mark.parametrize(("kind", "stop_after"), [("causal", 3), ("diffusion", 4)])
def test_a_killed_evaluation_goes_on_from_the_cache_with_all_counts(
    kind: str, stop_after: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    settings = {"max_length": 16, "mc_samples": 4}
    asked = QUESTIONS + question("the cat sat on the mat and " * 3, ["so on", "the log", " A"], 9, "long")
    whole = model(kind, **settings)
    values = whole.loglikelihood(asked)
    database = str(tmp_path / "cache.db")

    killed = model(kind, **settings)
    Counting(killed, monkeypatch, stop_after)
    with pytest.raises(KeyboardInterrupt):
        CachingLM(killed, database).loglikelihood(asked)
    resumed = model(kind, **settings)
    counting, caching = Counting(resumed, monkeypatch), CachingLM(resumed, database)
    np.testing.assert_allclose(caching.loglikelihood(asked), values, atol=2e-5)
    assert counting.answers == len(asked) - stop_after
    assert resumed.truncated == whole.truncated and resumed.truncated["long"]["contexts"] == 3
    assert resumed.mc_stderr == pytest.approx(whole.mc_stderr, abs=2e-5)
    assert caching.loglikelihood(asked) and counting.answers == len(asked) - stop_after
    with pytest.raises(UserError, match="is that of parameters-ffff.*, allowed: a new one, or that of .*seed-5"):
        CachingLM(model(kind, seed=5, **settings), database)


def test_the_name_of_a_cache_tells_apart_whatever_decides_an_answer() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"kind": "diffusion"},
        {"kind": "diffusion", "block_size": 4},
        {"kind": "diffusion", "mc_samples": 4},
        {"seed": 1},
        {"max_length": 32},
        {"parameter_hash": "e" * 64},
        {"prefix_token_id": 7},
        {"writing": {"steps": 3}},
    ]
    names = [model(**change).cache_name for change in changes]
    assert len(set(names)) == len(names) and all("/" not in name and len(name) < 200 for name in names)


def test_texts_are_those_of_generate_up_to_the_stop_whatever_is_written_with_them() -> None:
    prompts = ["the cat", "the dog sat on the", "so"]
    own = tiny.trained("causal").generate(prompts, max_new_tokens=8)
    stop = own[1].text[3:5]
    asked = [writing(prompt, n, until=[stop], max_gen_toks=8, do_sample=False) for n, prompt in enumerate(prompts)]
    lm = model()
    assert lm.generate_until(asked) == [out.text.split(stop)[0] for out in own]
    assert lm.generate_until(asked[1:2]) == [own[1].text.split(stop)[0]]

    sampled = writing("the cat", until=[], max_gen_toks=8, do_sample=True, temperature=0.7, top_k=5, top_p=0.9)
    (expected,) = tiny.trained("causal").generate(
        ["the cat"], max_new_tokens=8, sampling=Sampling(0.7, 5, 0.9), seed=3, stop=[TOKENIZER.end_of_text]
    )
    assert model(seed=3).generate_until([sampled]) == [expected.text]

    long = "the cat sat on the mat " * 10
    (cut,) = lm.generate_until([writing(long, 7, until=[], max_gen_toks=8)])
    kept = TOKENIZER.encode(long)[-(tiny.POSITIONS - 8) :]
    assert cut == tiny.trained("causal").generate([kept], max_new_tokens=8)[0].text
    lost = tiny.tokens(long) - len(kept)
    assert lm.truncated == {"tales": {"contexts": 1, "continuations": 0, "tokens": lost}}


def test_a_diffusion_model_writes_with_its_own_decoder() -> None:
    asked = [writing("the cat", until=[], max_gen_toks=4)]
    (expected,) = tiny.trained("diffusion", 0).generate(["the cat"], max_new_tokens=4)
    assert model("diffusion", 0).generate_until(asked) == [expected.text]


def test_what_the_model_cannot_do_is_refused() -> None:
    with pytest.raises(UserError, match="task mats asks whether an answer is the greedy one"):
        model("diffusion").loglikelihood(question("the", [" cat"]))
    with pytest.raises(UserError, match="generation_kwargs have num_beams=4, allowed: until, max_gen_toks"):
        model().generate_until([writing("the", num_beams=4)])
    with pytest.raises(UserError, match="task tales wants 64 new tokens, allowed: fewer than max_length = 64"):
        model().generate_until([writing("the", max_gen_toks=64)])
    with pytest.raises(UserError, match="--apply_chat_template is given"):
        model().apply_chat_template([])
    with pytest.raises(UserError, match="max_length is 65, allowed: 2 to model.max_positions = 64"):
        model(max_length=65)


def test_the_cost_of_a_bound_is_told_before_and_is_what_it_then_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    lm = model("diffusion", mc_samples=32, report=said.append)
    counting = Counting(lm, monkeypatch)
    asked = [
        request
        for number in range(20)
        for request in question(f"the cat {number} sat", [" on the mat and the log", " on the dog and the mat"], number)
    ]
    lm.loglikelihood(asked)
    assert "40 answers to 20 questions, up to 32 masks each" in said[0] and f": {counting.rows:,} rows, " in said[0]
    assert "tok/s (measured here) the rest takes" in said[1] and "with mc_samples=8" in said[1]
    assert "a Monte-Carlo standard error of" in said[2] and "(mean of 4 questions); with mc_samples=8 about" in said[2]


def test_the_error_of_a_difference_is_the_spread_under_common_masks() -> None:
    lm = model("diffusion")
    context, answers = (
        TOKENIZER.encode("the cat sat"),
        [TOKENIZER.encode(t) for t in (" on the mat and", " on a mat, and so")],
    )
    requests = [Request(context, answer, number) for number in range(200) for answer in answers]
    results = lm.continuations.log_likelihoods(lm.params, requests, ExactCounts(draws=4))
    differences = np.array(
        [one.log_likelihood - other.log_likelihood for one, other in zip(results[::2], results[1::2], strict=True)]
    )
    claimed = np.array(
        [cost.difference_stderr(one, other) ** 2 for one, other in zip(results[::2], results[1::2], strict=True)]
    )
    squares = np.square(differences - differences.mean())
    noise = math.sqrt((squares.var() + claimed.var()) / 200)
    assert abs(squares.sum() / 199 - claimed.mean()) < 4 * noise < 0.8 * claimed.mean()
