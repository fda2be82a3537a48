"""The same weights asked in other ways are what a loop over tokens says, and are kept apart."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlm
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.evaluation import record
from jaxlm.layers.structure import Structure
from jaxlm.study import decoding, evaluation, readings
from jaxlm.study.evaluation import Settings
from jaxlm.study.harness import from_workdir
from jaxlm.study_config import DecodeConfig
from jaxlm.trained import Trained
from tests.evaluation.tiny_harness import question

CONTEXT, CONTINUATION, BLOCK = "Number 3:", " 6 is even or odd 9 is", 8  # the last block size of the conversion


def token_by_token(trained: Trained, context: list[int], continuation: list[int], causal: bool) -> float:
    """Each token hidden behind clean text; behind it nothing, or masks up to the end of its block."""
    total = 0.0
    clean, mask = context + continuation, trained.config.model.mask_token_id
    for at in range(len(context), len(clean)):
        end = at + 1 if causal else min((at // BLOCK + 1) * BLOCK, len(clean))
        row = jnp.array([clean[:at] + [mask] * (end - at)], jnp.int32)
        hidden = trained.model.hidden(trained.params, row, Structure(1 if causal else BLOCK))
        logits_V = trained.model.logits(trained.params, hidden)[0, at]
        total += float(jax.nn.log_softmax(logits_V)[clean[at]])
    return total


@pytest.mark.parametrize("reading", readings.READINGS)
def test_a_reading_is_the_likelihood_of_writing_token_by_token(runs: SimpleNamespace, reading: str) -> None:
    lm = from_workdir(runs.diffusion, reading=reading)
    context, both = lm.tok_encode(CONTEXT), lm.tok_encode(CONTEXT + CONTINUATION)
    assert both[: len(context)] == context and 4 < len(both) - len(context) and len(both) > BLOCK
    found = lm.loglikelihood(question(CONTEXT, [CONTINUATION, " 6"]), disable_tqdm=True)[0][0]
    expected = token_by_token(jaxlm.load(runs.diffusion), context, both[len(context) :], reading == readings.CAUSAL)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_answers_of_readings_are_kept_apart(runs: SimpleNamespace) -> None:
    names = {from_workdir(runs.diffusion, reading=reading).cache_name for reading in ("", *readings.READINGS)}
    assert len(names) == 3


def test_only_what_can_be_read_in_another_way_is(runs: SimpleNamespace) -> None:
    with pytest.raises(UserError, match="reading is 'causal', allowed: none for an autoregressive model"):
        from_workdir(runs.ar, reading="causal")
    with pytest.raises(UserError, match="reading is 'back', allowed: causal, in_order"):
        from_workdir(runs.diffusion, reading="back")
    with pytest.raises(UserError, match="what is not empty, allowed: nothing with reading=in_order"):
        evaluation.evaluate(runs.diffusion, Settings(what=("loss",), reading="in_order"))


def test_the_causal_loss_is_another_one_of_the_same_parameters(runs: SimpleNamespace) -> None:
    own, causal = (
        evaluation.evaluate(runs.diffusion, Settings(what=("loss",), draws=2, reading=r)) for r in ("", "causal")
    )
    assert own["parameter_hash"] == causal["parameter_hash"] and own["loss"] != causal["loss"]
    assert causal["reading"] == "causal"
    score = record.score(causal)
    assert score is not None
    assert score.nats_per_token.value == pytest.approx(causal["loss"], abs=1e-9)
    assert score.bits_per_byte is not None and score.bits_per_byte.value == pytest.approx(causal["bits_per_byte"])


def test_decoding_is_measured_by_the_protocol(runs: SimpleNamespace) -> None:
    settings = DecodeConfig(rounds=2, prompt_tokens=4, new_tokens=8, tokens_per_pass=4)
    windows = Windows.open(runs.data)
    ar, diffusion = (decoding.measure(jaxlm.load(path), windows, settings) for path in (runs.ar, runs.diffusion))
    assert (ar["passes"], ar["cache_passes"], ar["blocks"]) == (7, 1, None)
    assert (diffusion["passes"], diffusion["cache_passes"], diffusion["tokens_per_pass"]) == (2, 0, 4)
    assert diffusion["blocks"]["cache_bytes"] > 0 == diffusion["cache_bytes"]
    for found in (ar, diffusion, diffusion["blocks"]):
        assert found["memory_bytes"] == found["weights_bytes"] + found["cache_bytes"] + found["logits_bytes"]
        assert len(found["rounds"]) == 2 and min(found["rounds"]) > 0
    for wrong, message in (
        (DecodeConfig(rounds=0), "decode.rounds is 0"),
        (DecodeConfig(prompt_tokens=10, new_tokens=7), "decode.prompt_tokens . decode.new_tokens is 17"),
    ):
        with pytest.raises(UserError, match=message):
            decoding.measure(jaxlm.load(runs.ar), windows, wrong)
