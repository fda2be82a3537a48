"""Every warning: a shape that has it and one beside it that has not, and the source it names."""

from __future__ import annotations

import pytest

from jaxlm.model_config import ModelConfig
from jaxlm.sizing.advice import warnings

# Nothing is known against this one: 16 layers of 512, a small vocabulary, tiles, a tied head.
FINE = {"num_layers": 16, "hidden_size": 512, "intermediate_size": 1408, "head_dim": 64, "vocab_size": 8192}


def said(total: int = 45_000_000, **changed: object) -> list[str]:
    return warnings(ModelConfig(**(FINE | changed)), total)


def test_a_shape_that_nothing_is_known_against() -> None:
    assert said() == []


@pytest.mark.parametrize(
    ("field", "bad", "fine", "source"),
    [
        ("hidden_size", {"hidden_size": 511}, {"hidden_size": 512}, "MiniMind's README"),
        ("hidden_size", {"hidden_size": 1664}, {"hidden_size": 1536}, "MobileLLM, arXiv 2402.14905"),
        ("vocab_size", {"vocab_size": 10_112}, {"vocab_size": 9_984}, "the small-model scaling chapter"),
        ("tie_embeddings", {"tie_embeddings": False}, {"tie_embeddings": True}, "MobileLLM, arXiv 2402.14905"),
        ("intermediate_size", {"intermediate_size": 1400}, {"intermediate_size": 1344}, "NVIDIA's"),
        ("vocab_size", {"vocab_size": 8000}, {"vocab_size": 8064}, "NVIDIA's"),
        ("head_dim", {"head_dim": 30}, {"head_dim": 32}, "the configurations of Dhara-70M"),
    ],
)
def test_a_warning_names_the_field_and_its_source(field: str, bad: dict, fine: dict, source: str) -> None:
    text = said(**bad)[0]
    assert text.startswith(f"model.{field} ") and f" {bad[field]} " in text and source in text
    assert said(**fine) == []


@pytest.mark.parametrize(("total", "limit"), [(45, 10_000), (150, 20_000), (400, 50_000)])
def test_the_limit_of_the_vocabulary_goes_with_the_budget(total: int, limit: int) -> None:
    above, below = limit // 128 * 128 + 128, limit // 128 * 128
    [text] = said(total * 10**6, vocab_size=above)
    assert f"is above {limit}," in text
    assert said(total * 10**6, vocab_size=below) == []


def test_above_half_a_billion_no_limit_is_known() -> None:
    assert said(600_000_000, vocab_size=128_256, tie_embeddings=False) == []


def test_the_three_way_rule_comes_with_what_contradicts_it() -> None:
    none_of_them, exactly, deep = (said(hidden_size=384, num_layers=layers)[1] for layers in (24, 32, 64))
    assert "this shape has none of them" in none_of_them
    assert "allowed by its layers" in exactly and "allowed by its layers" in deep
    for text in (none_of_them, exactly, deep):
        assert "exactly 32 layers" in text and "4 x 768" in text and "31.98" in text and "the study" in text


def test_a_wide_and_flat_shape_is_the_study_s_counterexample() -> None:
    [text] = said(num_layers=4, hidden_size=768)
    assert "4 x 768" in text and "31.98" in text
    assert said(num_layers=12, hidden_size=768) == []
