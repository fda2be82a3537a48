"""Both advices are there, worked out on real models, and it is said that they disagree."""

from __future__ import annotations

import json

import pytest

from jaxlm import size
from jaxlm.config import ModelConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.sizing.recommend import recommend
from jaxlm.training import flops


def test_70_million_is_worked_out_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    size.main(["--recommend=70M", "--json"])
    found = json.loads(capsys.readouterr().out)
    chapter, study = found["chapter"], found["study"]
    assert (chapter["hidden_at_least"], chapter["layers"], chapter["vocabulary_below"]) == (512, [12, 20], 20_000)
    assert (study["layers"], study["hidden"], study["vocabulary"]) == (32, 384, 50_304)
    floor, inside = chapter["shapes"]
    assert (floor["layers"], floor["hidden"], floor["ffn"]) == (22, 512, 1_408)
    assert (floor["heads"], floor["kv_heads"], floor["vocabulary"]) == (8, 2, 16_384)
    assert floor["total"] == 70_408_704
    assert floor["embedding_share"] == pytest.approx(16_384 * 512 / 70_408_704)
    assert inside["hidden"] >= 512 and 12 <= inside["layers"] <= 20 and inside["vocabulary"] < 20_000
    assert abs(inside["total"] / 70e6 - 1) <= 0.005
    [skeleton] = study["shapes"]
    assert skeleton["total"] == 71_246_208
    assert skeleton["embedding_share"] == pytest.approx(50_304 * 384 / 71_246_208)


@pytest.mark.parametrize("total", [30_000_000, 70_000_000, 150_000_000])
def test_every_shape_is_counted_on_the_real_model(total: int) -> None:
    found = recommend(total)
    for shape in found["chapter"]["shapes"] + found["study"]["shapes"]:
        model = ModelConfig(
            family=shape["family"],
            vocab_size=shape["vocabulary"],
            num_layers=shape["layers"],
            hidden_size=shape["hidden"],
            intermediate_size=shape["ffn"],
            num_heads=shape["heads"],
            num_kv_heads=shape["kv_heads"],
            head_dim=shape["head_dim"],
        )
        assert shape["total"] == flops.parameter_counts(build_model(model))["total"]
        assert shape["flops_per_token"] == flops.flops_per_token(model, 1_024)


def test_the_text_says_that_they_disagree_and_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    size.main(["--recommend=70M"])
    text = capsys.readouterr().out
    for number in ("70,408,704", "71,246,208", "11.9%", "27.1%", "491.66", "502.97"):
        assert number in text
    assert "two sources that disagree" in text
    disagreements = text.partition("they disagree on")[2].partition("unknown")[0]
    assert [line.split(":")[0].strip() for line in disagreements.strip().splitlines()] == [
        "width",
        "layers",
        "vocabulary",
    ]
    assert "no comparison with the chapter's vocabulary is known here" in text


@pytest.mark.parametrize(
    ("total", "row", "limit"),
    [
        (49_999_999, "below 50M", 10_000),
        (50_000_000, "50M to 200M", 20_000),
        (200_000_000, "50M to 200M", 20_000),
        (201_000_000, "200M to 500M", 50_000),
    ],
)
def test_each_budget_has_its_row(total: int, row: str, limit: int) -> None:
    found = recommend(total)
    assert (found["chapter"]["row"], found["chapter"]["vocabulary_below"]) == (row, limit)


def test_what_is_not_known_is_said_not_invented() -> None:
    found = recommend(345_000_000)
    assert found["chapter"]["layers"] is None
    assert found["chapter"]["shapes"] == []
    assert any("only its limit on the vocabulary is known" in sentence for sentence in found["unknown"])
    assert any("what the study would choose" in sentence for sentence in found["unknown"])
    assert not any("what the study would choose" in sentence for sentence in recommend(70_000_000)["unknown"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--recommend=1e9"], "--recommend is 1,000,000,000, allowed: at most 500,000,000"),
        (["--recommend=1M"], "--recommend is 1,000,000, allowed: at least 7,013,888"),
        (["--recommend=much"], "--recommend is 'much', allowed: a number above 0"),
        (["--recommend=70M", "--config.seed=3"], "--config.seed is not used with --recommend"),
        (["--recommend=70M", "--config=configs/gpt2.py"], "--config is not used with --recommend"),
    ],
)
def test_mistakes_are_told_in_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        size.main(argv)
