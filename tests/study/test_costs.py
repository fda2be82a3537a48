"""What a row costs is what its formulas say, each distinct run once, and `--list` tells it as promised."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from jaxlm import command_line, fields
from jaxlm.errors import UserError
from jaxlm.sizing.budget import step_flops
from jaxlm.study import __main__ as command
from jaxlm.study import costs, listing, rows
from jaxlm.study_config import StudyConfig

SMALL = (
    "--config.model.vocab_size=500 --config.model.hidden_size=64 --config.model.intermediate_size=128 "
    "--config.model.num_layers=2 --config.model.head_dim=8 --config.train.total_tokens=10_000 "
    "--config.train.batch_tokens=1024 --config.train.micro_batch=0"
)
LINES = (
    f"ar: train --config=configs/llama3.py {SMALL}",
    f"dhara: convert --config=configs/dhara.py {SMALL} --config.convert.block_sizes=4 --init_from=ar",
    "blind: read dhara --reading=causal",
    "unnamed:",
)
KEYS = {
    *("name", "command", "groups", "kind", "runs", "seeds", "parameters", "active", "in_range", "uncounted_tasks"),
    *("tokens", "train_flops", "evaluation_flops", "flops", "hours_a40", "hours_h200", "dollars"),
}


def study(**evaluate: object) -> StudyConfig:
    values = {
        "data": ("text: --config=configs/data/files.py",),
        "rows": LINES,
        "groups": ("pair: ar dhara", "all: ar dhara blind"),
        "seeds": (0, 1),
        "evaluate": {"tasks": "piqa,my_own", "controls": "length_only", "windows": 10, "draws": 3} | evaluate,
    }
    built: StudyConfig = fields.build(StudyConfig, values)
    return built


def test_training_and_evaluation_are_counted_by_hand() -> None:
    config = study()
    found = {cost.row.name: cost for cost in costs.of_rows(config, rows.read(config), [*rows.read(config)])}
    ar, dhara, blind = found["ar"], found["dhara"], found["blind"]
    assert ar.row.config is not None and dhara.row.config is not None
    steps = 10_000 // 1024
    per_token = step_flops(ar.row.config)[0]
    assert ar.tokens == steps * 1024 and ar.training == steps * 1024 * per_token
    assert ar.evaluation == pytest.approx((1_838 * 2 * 45 + 10 * 1024) * per_token / 3)
    assert ar.uncounted == ("my_own",)
    # 40 % of the steps are in blocks of 4, which read each window twice.
    whole, block = (
        step_flops(dataclasses.replace(dhara.row.config, objective=dataclasses.replace(o, block_size=size)))[0]
        for o in (dhara.row.config.objective,)
        for size in (None, 4)
    )
    first = int(0.4 * steps)
    assert dhara.training == pytest.approx(1024 * (first * block + (steps - first) * whole))
    assert dhara.evaluation == pytest.approx((1_838 * 2 * 45 * 128 + 3 * 10 * 1024) * whole / 3)
    assert (blind.training, blind.tokens, blind.evaluation) == (0, 0, dhara.evaluation)
    both = costs.with_source(dhara, found)
    assert both.tokens == ar.tokens + dhara.tokens and both.training == ar.training + dhara.training
    assert ar.hours("a40") == pytest.approx((ar.training / 0.3 + ar.evaluation / 0.1) / 149.7e12 / 3600)


def test_a_second_model_doubles_the_questions() -> None:
    alone, beside = study(windows=1), study(windows=1, controls="length_only,random_init")
    one, two = (costs.of_rows(config, rows.read(config), ["ar"])[0] for config in (alone, beside))
    scored = one.evaluation / (1_838 * 2 * 45 + 1024) * 1024
    assert two.evaluation - scored == pytest.approx(2 * (one.evaluation - scored))


def test_the_list_has_every_row_once_and_totals(tmp_path: Path) -> None:
    config = study()
    found = listing.as_json(config, rows.read(config), 2.0, tmp_path)
    assert [row["name"] for row in found["rows"]] == ["ar", "dhara", "blind", "unnamed"]
    for row in found["rows"]:
        assert set(row) - {"with_source"} == {*KEYS, "status"}
    ar, dhara, _, unnamed = found["rows"]
    assert ar["groups"] == ["pair", "all"] and ar["runs"] == 2 and ar["in_range"] is False
    assert ar["dollars"] == 2.0 * ar["hours_a40"]
    assert dhara["with_source"]["flops"] == pytest.approx(dhara["flops"] + ar["train_flops"])
    assert unnamed["flops"] is None and unnamed["status"] == "1 empty" and ar["status"] == "2 missing"
    assert found["totals"]["flops"] == pytest.approx(sum(row["flops"] * 2 for row in found["rows"][:3]))
    text = listing.table(config, rows.read(config), 2.0)
    assert "Not counted, for their size is not known here: my_own." in text and "and its AR base" in text


def test_the_command_lists_the_released_models(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--config=configs/study/released.py", "--list", "--json", "--only=released", "--price_per_hour=3"])
    found = json.loads(capsys.readouterr().out)
    assert [row["kind"] for row in found["rows"]] == ["import", "import"]
    assert found["assumptions"]["price_per_hour"] == 3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--list"], "--config is missing"),
        (["--config=configs/study/released.py"], "--workdir is missing"),
        (["--config=configs/study/released.py", "--json", "--workdir=w"], "--json is not used with --config"),
        (["--config=configs/study/released.py", "--list", "--only=gpt2_7m"], "--only has 'gpt2_7m'; did you mean"),
        (["--config=configs/study/released.py", "--list", "--seeds=one"], "--seeds is 'one', allowed: numbers"),
        (["--config=configs/llama3.py", "--list"], "is a configuration of train, convert and size"),
        (["--report=a,b"], "--out is missing"),
        (["--report=nowhere", "--out=o"], "nowhere"),
    ],
)
def test_what_does_not_go_together_is_refused(
    flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError) as error:
        command.main(flags)
    assert message in str(error.value)


def test_other_commands_refuse_a_study() -> None:
    from jaxlm.config import RunConfig

    with pytest.raises(UserError, match="is a configuration of study, not of this command"):
        command_line.load_config("configs/study/released.py", [], RunConfig)
