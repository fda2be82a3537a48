"""Rows of a study as a person writes them, each the command that makes it, and what they mean.

    gpt2-12:  train --config=configs/gpt2.py:12
    total-12: train --config=configs/gpt2.py:12 --match=total:gpt2-32
    dhara:    convert --config=configs/dhara.py --init_from=llama3_canon
    one_text: train --config=configs/llama3.py --data=finepdfs
    causal:   read dhara --reading=causal
    released: import codelion/dhara-70m
    unnamed:

`--init_from` and `read` name rows, `--data` a line of the study's data. `--match=total|non_embedding|flops:ROW` keeps
the layers and lets width and feed-forward follow, so that the row costs what the other one does (`sizing.budget`). A
`read` row has the weights of another one and asks them otherwise: `causal` lets no token see what follows it,
`in_order` writes from left to right with everything still hidden visible as masks. A row without a command stays empty.
"""

from __future__ import annotations

import functools
import shlex
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jaxlm import command_line
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.fields import nearest
from jaxlm.sizing import budget
from jaxlm.study.readings import READINGS
from jaxlm.study_config import StudyConfig, name_of, named

TRAIN, CONVERT, READ, IMPORT, EMPTY = "train", "convert", "read", "import", ""
MATCHES = ("total", "non_embedding", "flops")
_FLAGS = {TRAIN: ("config", "match", "data"), CONVERT: ("config", "init_from", "data"), READ: ("reading",), IMPORT: ()}
_NEEDED = {TRAIN: ("config",), CONVERT: ("config", "init_from"), READ: ("reading",), IMPORT: ()}


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
      name: its own.
      command: as it was written, without the name.
      kind: `train`, `convert`, `read`, `import`, or "" for an empty row.
      config: of `train` and `convert`, without directory of data and seed; else None.
      data: the name of the data that it reads; "" where it reads none.
      source: the row that it starts from (`convert`) or reads (`read`), or the model to import; else "".
      reading: of a `read` row, one of `READINGS`; else "".
    """

    name: str
    command: str
    kind: str
    config: RunConfig | None = None
    data: str = ""
    source: str = ""
    reading: str = ""


@functools.cache
def read(config: StudyConfig) -> Mapping[str, Row]:
    """The rows of a study by name, in order.

    Raises UserError for a line that is no command, a flag or a name that there is not, rows that need one another in a
    circle, and whatever is wrong with the configuration of a row.
    """
    lines = named(config.rows)
    data = [name_of(line) for line in config.data]
    found: dict[str, Row] = {}

    def row(name: str, waiting: tuple[str, ...]) -> Row:
        if name in waiting:
            raise UserError(f"rows {' -> '.join((*waiting, name))} need one another, allowed: no circle")
        if name not in found:
            try:
                found[name] = _row(name, lines[name], data, lambda other: row(_known(other, lines), (*waiting, name)))
            except UserError as error:
                if str(error).startswith("row"):
                    raise
                raise UserError(f"row {name!r}: {error}") from error
        return found[name]

    rows = {name: row(name, ()) for name in lines}
    for group in config.groups:
        for member in members(group):
            if member not in rows:
                raise UserError(f"group {name_of(group)!r} has {member!r}; {nearest(member, rows)}")
    return types.MappingProxyType(rows)


def members(group: str) -> tuple[str, ...]:
    """The names of the rows of a line `NAME: ROW ROW ...`."""
    return tuple(group.partition(":")[2].split())


def needed(rows: Mapping[str, Row], names: Sequence[str]) -> list[str]:
    """The named rows and those that they start from, each behind what it needs, in the order of the study."""

    def walk(name: str) -> Iterator[str]:
        if rows[name].kind in (CONVERT, READ):
            yield from walk(rows[name].source)
        yield name

    return list(dict.fromkeys(part for name in rows if name in names for part in walk(name)))


def _known(name: str, lines: dict[str, str]) -> str:
    if name not in lines:
        raise UserError(f"there is no row {name!r}; {nearest(name, lines)}")
    return name


def _row(name: str, command: str, data: Sequence[str], other: Callable[[str], Row]) -> Row:
    """One line; `other` gives another row by its name."""
    if not command:
        return Row(name, "", EMPTY)
    kind, *words = shlex.split(command)
    if kind not in _FLAGS:
        raise UserError(f"it begins with {kind!r}, allowed: {', '.join(_FLAGS)}, or nothing for an empty row")
    words, overrides = command_line.split_overrides(words)
    flags = dict(_flag(kind, word) for word in words if word.startswith("--"))
    named = [word for word in words if not word.startswith("--")]
    if len(named) != (kind in (READ, IMPORT)):
        raise UserError(
            f"it has {' '.join(named) or 'no name'}, allowed: {'one name' if kind in (READ, IMPORT) else 'flags'}"
        )
    for flag in _NEEDED[kind]:
        if flag not in flags:
            raise UserError(f"it has no --{flag}, which {kind} needs")
    if overrides and "config" not in flags:
        raise UserError(f"--config.{overrides[0][0]} is not used by {kind}")
    if kind == IMPORT:
        return Row(name, command, kind, source=named[0])
    if kind == READ:
        if flags["reading"] not in READINGS:
            raise UserError(f"--reading is {flags['reading']!r}, allowed: {', '.join(READINGS)}")
        source = other(named[0])
        _refuse(source, (TRAIN, CONVERT, IMPORT))
        return Row(name, command, kind, source=named[0], reading=flags["reading"])
    config = command_line.load_config(flags["config"], overrides, RunConfig)
    if "match" in flags:
        config = _matched(config, flags["match"], other)
    if kind == CONVERT:
        config.check_conversion()
        _refuse(other(flags["init_from"]), (TRAIN, CONVERT, IMPORT))
    chosen = flags.get("data", data[0] if data else "")
    if chosen not in data:
        raise UserError(f"--data is {chosen!r}; {nearest(chosen, data) if data else 'the study names no data'}")
    return Row(name, command, kind, config, chosen, flags.get("init_from", ""))


def _flag(kind: str, word: str) -> tuple[str, str]:
    flag, equals, value = word.removeprefix("--").partition("=")
    if flag not in _FLAGS[kind] or not equals:
        raise UserError(f"it has {word!r}; {kind} takes {', '.join(f'--{f}=...' for f in _FLAGS[kind]) or 'no flag'}")
    return flag, value


def _refuse(row: Row, allowed: Sequence[str]) -> None:
    if row.kind not in allowed:
        raise UserError(f"it starts from {row.name!r}, which has no weights of its own, allowed: a row that trains")


def _matched(config: RunConfig, match: str, other: Callable[[str], Row]) -> RunConfig:
    """The configuration with the width and the feed-forward that cost what another row does."""
    what, _, name = match.partition(":")
    if what not in MATCHES or not name:
        raise UserError(f"--match is {match!r}, allowed: {'|'.join(MATCHES)}:ROW")
    target = other(name).config
    if target is None:
        raise UserError(f"--match={match}, but {name!r} has no shape of its own, allowed: a row that trains")
    found = budget.propose(config, budget.cost(target, what), [config.model.num_layers], what, budget.FINE)
    return replace(config, model=found.shapes[0].config.model)
