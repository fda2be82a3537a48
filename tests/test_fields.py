"""Text, ConfigDict and frozen dataclass become one another; what does not fit is named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlm import fields
from jaxlm.fields import ConfigError, option, section


@dataclass(frozen=True)
class Inner:
    width: int = option(8, "", minimum=1)
    rate: float = option(0.5, "", minimum=0)
    sizes: tuple[int, ...] = option((1, 4), "", minimum=1)


@dataclass(frozen=True)
class Outer:
    name: str = option("a", "", allowed=("a", "b"))
    on: bool = option(True, "")
    limit: int | None = option(None, "", minimum=0)
    inner: Inner = section(Inner, "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-3", -3),
        ("1e9", 10**9),
        ("100M", 10**8),
        ("1B", 10**9),
        ("1_000", 1000),
        ("2.3M", 2_300_000),
        ("4k", 4000),
    ],
)
def test_whole_numbers_are_read_as_people_write_them(text: str, value: int) -> None:
    assert fields.parse(int, text) == value


@pytest.mark.parametrize("text", ["", "M", "1.5", "1e-3", "ten", "0x10", "nan", "inf", "1e999999999", "1M M"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        fields.parse(int, text)


@given(st.integers(min_value=1, max_value=10**9 - 1), st.sampled_from([("k", 3), ("M", 6), ("B", 9), ("T", 12)]))
def test_a_count_in_thousandths_of_a_unit_is_exact(thousandths: int, unit: tuple[str, int]) -> None:
    letter, power = unit
    text = f"{thousandths // 1000}.{thousandths % 1000:03d}{letter}"
    assert fields.parse(int, text) == thousandths * 10 ** (power - 3)


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (bool, "true", True),
        (bool, "0", False),
        (float, "3e-4", 3e-4),
        (float, "1", 1.0),
        (str, "1e9", "1e9"),
        (int | None, "none", None),
        (int | None, "5", 5),
        (bool | None, "false", False),
        (tuple[int, ...], "(1, 4,)", (1, 4)),
        (tuple[int, ...], "1,4", (1, 4)),
        (tuple[int, ...], "[]", ()),
        (tuple[str, ...], "a,b", ("a", "b")),
    ],
)
def test_text_is_read_by_the_type_of_the_field(annotation: Any, text: str, value: Any) -> None:
    parsed = fields.parse(annotation, text)
    assert parsed == value and type(parsed) is type(value)


def test_build_inverts_to_dict() -> None:
    value = Outer(name="b", on=False, limit=3, inner=Inner(width=2, rate=1.0, sizes=(2,)))
    assert fields.build(Outer, fields.to_dict(value)) == value


def test_absent_fields_take_their_defaults_and_whole_numbers_fit_where_floats_are_meant() -> None:
    built = fields.build(Outer, {"inner": {"rate": 1, "width": 16.0, "sizes": [2, 3]}})
    assert built == Outer(inner=Inner(width=16, rate=1.0, sizes=(2, 3)))
    assert type(built.inner.rate) is float and type(built.inner.width) is int


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nmae": "a"}, r"no field 'nmae' in the configuration; did you mean 'name'"),
        ({"inner": {"widht": 1}}, r"no field 'inner.widht' in the configuration; did you mean 'width'"),
        ({"inner": 3}, r"inner is 3, but it is a section"),
        ({"name": "c"}, r"name is 'c', allowed: 'a', 'b'"),
        ({"name": 1}, r"name is 1, allowed: str"),
        ({"on": 1}, r"on is 1, allowed: bool"),
        ({"limit": True}, r"limit is True, allowed: int or none"),
        ({"limit": -1}, r"limit is -1, allowed: at least 0"),
        ({"inner": {"width": 1.5}}, r"inner.width is 1.5, allowed: int"),
        ({"inner": {"rate": float("nan")}}, r"inner.rate is nan, allowed: a finite number"),
        ({"inner": {"sizes": (4, 0)}}, r"inner.sizes is \(4, 0\), allowed: at least 1"),
        ({"inner": {"sizes": 4}}, r"inner.sizes is 4, allowed: tuple of int"),
    ],
)
def test_a_mistake_is_named_with_its_value_and_what_is_allowed(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fields.build(Outer, values)


def test_every_leaf_is_listed_once_under_its_dotted_name() -> None:
    names = [name for name, _, _ in fields.leaves(Outer)]
    assert names == ["name", "on", "limit", "inner.width", "inner.rate", "inner.sizes"]


def test_differences_name_the_leaf_and_both_values() -> None:
    changed = dataclasses.replace(Outer(), limit=2, inner=Inner(width=9))
    assert fields.differences(Outer(), changed) == ["limit (None there, 2 here)", "inner.width (8 there, 9 here)"]
    assert fields.differences(Outer(), Outer()) == []


def test_a_config_dict_is_locked_and_has_every_default() -> None:
    config = fields.config_dict(Outer)
    assert fields.build(Outer, config) == Outer()
    with pytest.raises(AttributeError, match="locked"):
        config.nmae = "b"


@dataclass(frozen=True)
class Mixed:
    files: str | Mapping[str, str] = option("", "")
    weights: Mapping[str, float] = option(fields.Table(), "", minimum=0)


def test_names_with_values_become_a_table_that_can_be_hashed_and_come_back_through_json() -> None:
    config = fields.config_dict(Mixed)
    config.files = {"b": "x", "a": "y"}
    config.weights = {"b": 1, "a": 0.5}
    built = fields.build(Mixed, config)
    assert built == fields.build(Mixed, {"weights": {"a": 0.5, "b": 1.0}, "files": {"a": "y", "b": "x"}})
    assert hash(built) == hash(fields.build(Mixed, json.loads(json.dumps(fields.to_dict(built)))))
    assert list(built.weights) == ["a", "b"] and isinstance(built.weights["b"], float)
    config.files = "one"
    assert fields.build(Mixed, config).files == "one"
    assert fields.build(Mixed, {}) == Mixed()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weights": {"a": "much"}}, "weights is {'a': 'much'}, allowed: float by name"),
        ({"weights": {"a": -1.0}}, "weights is {'a': -1.0}, allowed: at least 0"),
        ({"weights": {"a": float("nan")}}, "weights is {'a': nan}, allowed: a finite number"),
        ({"weights": 1.0}, "weights is 1.0, allowed: float by name"),
        ({"files": {"a.b": "x"}}, "files is {'a.b': 'x'}, allowed: str or str by name"),
        ({"files": 3}, "files is 3, allowed: str or str by name"),
    ],
)
def test_what_is_no_table_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        fields.build(Mixed, values)
    assert str(error.value) == message


def test_a_table_is_typed_as_names_with_values() -> None:
    annotations = fields.hints(Mixed)
    assert fields.parse(annotations["weights"], "a=0.5, b=1e-3") == {"a": 0.5, "b": 0.001}
    assert fields.parse(annotations["weights"], "") == {}
    assert [fields.entry_type(annotations[name]) for name in ("files", "weights")] == [str, float]
    assert fields.entry_type(fields.hints(Inner)["sizes"]) is None
