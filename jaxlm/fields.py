"""Typed fields: how a frozen dataclass, an `ml_collections.ConfigDict` and text on a command line become one another.

The dataclasses of `jaxlm.config` are the only place where a field, its type, its default and its limits are written
down. Everything else is derived from them: the ConfigDict that a file in `configs/` edits, the parsing of overrides,
`--help`, and the errors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import difflib
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ml_collections

from jaxlm.errors import UserError

_SCALE = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


class Table(Mapping[str, Any]):
    """What a field of type `Mapping[str, ...]` holds: names with values, in the order of the names; hashable."""

    def __init__(self, values: Mapping[str, Any] = types.MappingProxyType({})) -> None:
        self._values = dict(sorted(values.items()))

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


class ConfigError(UserError):
    """The user's mistake in a configuration; the message is one line that names field, value and what is allowed."""


def option(default: Any, doc: str, *, allowed: tuple[Any, ...] | None = None, minimum: float | None = None) -> Any:
    """A dataclass field with its documentation and its limits.

    `allowed` lists the only values it takes; `minimum` is the least one.
    """
    return dataclasses.field(default=default, metadata={"doc": doc, "allowed": allowed, "minimum": minimum})


def section(cls: type, doc: str) -> Any:
    """A dataclass field that holds another dataclass."""
    return dataclasses.field(default_factory=cls, metadata={"doc": doc})


def require(condition: bool, message: str) -> None:
    """Raises ConfigError with the message unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def type_name(annotation: Any) -> str:
    """How `--help` and error messages spell a type."""
    if annotation is type(None):
        return "none"
    if isinstance(annotation, types.UnionType):
        return " or ".join(type_name(a) for a in typing.get_args(annotation))
    if typing.get_origin(annotation) is tuple:
        return f"tuple of {type_name(typing.get_args(annotation)[0])}"
    if typing.get_origin(annotation) is Mapping:
        return f"{type_name(typing.get_args(annotation)[1])} by name"
    return annotation.__name__


def entry_type(annotation: Any) -> Any:
    """The type of the entries of a field that may hold names with values, None for every other field."""
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    return next((typing.get_args(a)[1] for a in options if typing.get_origin(a) is Mapping), None)


def nearest(name: str, names: Iterable[str]) -> str:
    """A sentence that offers the names most like `name`."""
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else f"it has {', '.join(names)}"


def _integer(text: str) -> int:
    """`1024`, `1e9`, `100M`, `1_000`: an integer, or ValueError."""
    text = text.strip().replace("_", "")
    scale = _SCALE.get(text[-1:].lower(), 1)
    try:
        # Decimal, because 2.3 * 10**6 is not a whole number in binary.
        number = decimal.Decimal(text[:-1] if scale != 1 else text) * scale
    except ArithmeticError:
        raise ValueError(f"{text!r} is no number that fits") from None
    if not number.is_finite() or number.adjusted() > 30 or number != int(number):
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def parse(annotation: Any, text: str) -> Any:
    """Reads `text` from a command line as a value of the type `annotation`.

    Integers accept `1e9`, `100M` and `1B`; names with values are written `a=1,b=2`. Raises ValueError where the text is
    not of that type.
    """
    if isinstance(annotation, types.UnionType):
        options = typing.get_args(annotation)
        if type(None) in options and text.strip().lower() in ("none", "null", ""):
            return None
        return parse(next(a for a in options if a is not type(None)), text)
    if typing.get_origin(annotation) is tuple:
        inner = text.strip().strip("()[]").strip()
        return tuple(parse(typing.get_args(annotation)[0], part) for part in inner.split(",") if part.strip())
    if typing.get_origin(annotation) is Mapping:
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        return {name.strip(): parse(typing.get_args(annotation)[1], value) for name, _, value in pairs}
    if annotation is bool:
        lowered = text.strip().lower()
        if lowered in ("true", "1", "yes"):
            return True
        if lowered in ("false", "0", "no"):
            return False
        raise ValueError("not true or false")
    if annotation is int:
        return _integer(text)
    if annotation is float:
        return float(text)
    return text


def _coerce(annotation: Any, value: Any) -> Any:
    """`value` as the type `annotation`, or ValueError. A file in `configs/` may write an int where a float is meant."""
    if isinstance(annotation, types.UnionType):
        for option_type in typing.get_args(annotation):
            with contextlib.suppress(ValueError):
                return _coerce(option_type, value)
        raise ValueError
    if typing.get_origin(annotation) is Mapping:
        if not isinstance(value, (Mapping, ml_collections.ConfigDict)):
            raise ValueError
        # A dot or an equals sign in a name could not be told from those of the command line.
        if not all(isinstance(name, str) and name and not set(name) & set(".=,") for name in value):
            raise ValueError
        return Table({name: _coerce(typing.get_args(annotation)[1], v) for name, v in value.items()})
    if typing.get_origin(annotation) is tuple:
        if not isinstance(value, (tuple, list)):
            raise ValueError
        return tuple(_coerce(typing.get_args(annotation)[0], v) for v in value)
    if annotation is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if annotation is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, annotation) and not (annotation is int and isinstance(value, bool)):
        return value
    raise ValueError


def hints(cls: type) -> dict[str, Any]:
    """The resolved annotation of each field of a dataclass."""
    return typing.get_type_hints(cls)


def leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
    """Yields `(dotted name, annotation, field)` for every leaf of a dataclass of dataclasses, in order."""
    annotations = hints(cls)
    for field in dataclasses.fields(cls):
        annotation = annotations[field.name]
        if dataclasses.is_dataclass(annotation):
            yield from leaves(typing.cast(type, annotation), f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, annotation, field


def defaults(cls: type) -> dict[str, Any]:
    """The defaults of a dataclass of dataclasses as a nested dict, as they are written.

    Not `to_dict(cls())`: an instance has already replaced a default of None by what follows from the other fields,
    and an edit of those would come too late.
    """
    annotations = hints(cls)
    return {
        f.name: defaults(annotations[f.name]) if dataclasses.is_dataclass(annotations[f.name]) else _plain(f.default)
        for f in dataclasses.fields(cls)
    }


def _plain(value: Any) -> Any:
    """The value of a leaf as JSON and ConfigDict know it."""
    return dict(value) if isinstance(value, Table) else value


def config_dict(cls: type) -> ml_collections.ConfigDict:
    """A locked, editable ConfigDict with the fields of a frozen dataclass at their defaults."""
    config = ml_collections.ConfigDict(defaults(cls), convert_dict=True)
    with config.ignore_type():
        for name, annotation, field in leaves(cls):
            if isinstance(annotation, types.UnionType) and entry_type(annotation) is not None:
                # A file may write one value or several with names; ConfigDict would hold on to the default's type.
                config[name] = ml_collections.FieldReference(_plain(field.default), field_type=object)
    return config.lock()


def to_dict(value: Any) -> dict[str, Any]:
    """A nested dict of plain values, the inverse of `build`; tuples stay tuples."""
    return {
        f.name: to_dict(v) if dataclasses.is_dataclass(v := getattr(value, f.name)) else _plain(v)
        for f in dataclasses.fields(value)
    }


def build(cls: type, values: Mapping[str, Any] | ml_collections.ConfigDict, prefix: str = "") -> Any:
    """Turns a nested mapping into the frozen dataclass `cls`; fields that are absent take their defaults.

    Raises ConfigError for an unknown field (with the nearest names), a wrong type, or a value outside its limits.
    """
    annotations = hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    out = {}
    for name, value in values.items():
        if name not in fields:
            raise ConfigError(f"no field {prefix + name!r} in the configuration; {nearest(name, fields)}")
        annotation, field, dotted = annotations[name], fields[name], prefix + name
        if dataclasses.is_dataclass(annotation):
            if not isinstance(value, (Mapping, ml_collections.ConfigDict)):
                raise ConfigError(f"{dotted} is {value!r}, but it is a section with fields of its own")
            out[name] = build(typing.cast(type, annotation), value, dotted + ".")
            continue
        try:
            out[name] = _coerce(annotation, value)
        except ValueError:
            raise ConfigError(f"{dotted} is {value!r}, allowed: {type_name(annotation)}") from None
        _check_limits(dotted, out[name], field)
    return cls(**out)


def _check_limits(dotted: str, value: Any, field: dataclasses.Field[Any]) -> None:
    allowed, minimum = field.metadata.get("allowed"), field.metadata.get("minimum")
    if value is None:
        return
    if allowed is not None and value not in allowed:
        raise ConfigError(f"{dotted} is {value!r}, allowed: {', '.join(map(repr, allowed))}")
    items = value.values() if isinstance(value, Table) else value if isinstance(value, tuple) else (value,)
    for item in items:
        if isinstance(item, float) and not math.isfinite(item):
            raise ConfigError(f"{dotted} is {value!r}, allowed: a finite number")
        if minimum is not None and item < minimum:
            raise ConfigError(f"{dotted} is {value!r}, allowed: at least {minimum}")


def differences(a: Any, b: Any, prefix: str = "") -> list[str]:
    """The dotted names of the leaves in which two dataclasses of one class differ, with both values."""
    out = []
    for field in dataclasses.fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if dataclasses.is_dataclass(x):
            out += differences(x, y, f"{prefix}{field.name}.")
        elif x != y:
            out.append(f"{prefix}{field.name} ({x!r} there, {y!r} here)")
    return out
