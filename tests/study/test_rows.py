"""Rows are the commands that make them; what is wrong with a line is one line of error that names the row."""

from __future__ import annotations

import pytest

from jaxlm import command_line, fields
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.sizing import budget
from jaxlm.study import rows
from jaxlm.study_config import StudyConfig

SMALL = (
    "--config.model.vocab_size=500 --config.model.hidden_size=64 --config.model.intermediate_size=128 "
    "--config.model.num_layers=3 --config.model.head_dim=8"
)
AR = f"ar: train --config=configs/llama3.py {SMALL}"
DATA = ("text: --config=configs/data/files.py", "other: --config=configs/data/files.py")


def study(*lines: str, groups: tuple[str, ...] = ()) -> StudyConfig:
    built: StudyConfig = fields.build(StudyConfig, {"data": DATA, "rows": lines, "groups": groups})
    return built


def test_a_row_is_its_command() -> None:
    found = rows.read(
        study(
            AR,
            f"there: train --config=configs/llama3.py {SMALL} --data=other",
            f"dhara: convert --config=configs/dhara.py {SMALL} --init_from=ar",
            "blind: read dhara --reading=causal",
            "theirs: import codelion/dhara-70m",
            "unnamed:",
        )
    )
    ar = found["ar"]
    assert ar.config == command_line.load_config(
        "configs/llama3.py", command_line.split_overrides(SMALL.split())[1], RunConfig
    )
    assert [(row.kind, row.data, row.source, row.reading) for row in found.values()] == [
        ("train", "text", "", ""),
        ("train", "other", "", ""),
        ("convert", "text", "ar", ""),
        ("read", "", "dhara", "causal"),
        ("import", "", "codelion/dhara-70m", ""),
        ("", "", "", ""),
    ]
    assert rows.needed(found, ["blind"]) == ["ar", "dhara", "blind"]


@pytest.mark.parametrize("match", rows.MATCHES)
def test_a_matched_row_costs_what_the_other_does_and_keeps_its_layers(match: str) -> None:
    found = rows.read(study(f"deep: {AR.partition(':')[2]} --config.model.num_layers=6 --match={match}:ar", AR))
    deep, ar = found["deep"].config, found["ar"].config
    assert deep is not None and ar is not None and deep.model.num_layers == 6
    assert budget.cost(deep, match) == pytest.approx(budget.cost(ar, match), rel=budget.TOLERANCE)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "a: tarin --config=configs/llama3.py",
            "row 'a': it begins with 'tarin', allowed: train, convert, read, import",
        ),
        ("a: train", "row 'a': it has no --config"),
        ("a: train --config=configs/llama3.py --init_from=b", "row 'a': it has '--init_from=b'; train takes --config"),
        ("a: train --config=configs/llama.py", "row 'a': no config file 'configs/llama.py'; did you mean"),
        ("a: train --config=configs/llama3.py --config.model.num_layer=3", "row 'a': .*no such field; did you mean"),
        ("a: train --config=configs/llama3.py --data=texts", "row 'a': --data is 'texts'; did you mean 'text'"),
        ("a: train --config=configs/llama3.py b", "row 'a': it has b, allowed: flags"),
        ("a: train --config=configs/llama3.py --match=totl:ar", "row 'a': --match is 'totl:ar', allowed: total|"),
        ("a: train --config=configs/llama3.py --match=total:aa", "row 'a': there is no row 'aa'"),
        ("a: train --config=configs/llama3.py --match=total:empty", "row 'a': --match=total:empty, but 'empty' has no"),
        ("a: convert --config=configs/dhara.py", "row 'a': it has no --init_from"),
        ("a: convert --config=configs/llama3.py --init_from=ar", "row 'a': objective.kind is 'causal', allowed"),
        ("a: convert --config=configs/dhara.py --init_from=empty", "row 'a': it starts from 'empty', which has no"),
        ("a: convert --config=configs/dhara.py --init_from=a", "rows a -> a need one another"),
        ("a: read ar --reading=backwards", "row 'a': --reading is 'backwards', allowed: causal, in_order"),
        ("a: read ar --config.model.num_layers=3 --reading=causal", "row 'a': --config.model.num_layers is not used"),
        ("a: import", "row 'a': it has no name, allowed: one name"),
    ],
)
def test_a_bad_line_is_one_line_of_error(line: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        rows.read(study(line, AR, "empty:"))
    assert str(error.value).startswith(message.partition(".*")[0])
    assert message.partition(".*")[2] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rows": (AR, AR)}, "rows has two lines of the name 'ar', allowed: each name once"),
        ({"rows": ("a b: train",)}, "rows has 'a b: train', allowed: NAME: ..."),
        (
            {"rows": ("train --config=configs/llama3.py",)},
            "rows has 'train --config=configs/llama3.py', allowed: NAME:",
        ),
        ({"seeds": ()}, "seeds is empty"),
        ({"seeds": (1, 1)}, "seeds is (1, 1), allowed: each once"),
    ],
)
def test_names_are_names_and_each_stands_once(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as error:
        fields.build(StudyConfig, values)
    assert str(error.value).startswith(message)


def test_a_group_names_rows() -> None:
    with pytest.raises(UserError, match="group 'all' has 'ra'"):
        rows.read(study(AR, groups=("all: ar ra",)))
