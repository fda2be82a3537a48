"""`python -m jaxlm.study --config=FILE --workdir=DIR`: the rows of a study, trained, evaluated and compared.

Also what it would cost (`--list`), and the report of any runs (`--report=WORKDIR,WORKDIR`).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line, fields
from jaxlm.errors import UserError
from jaxlm.fields import nearest
from jaxlm.study_config import StudyConfig, listed, name_of

REPORT = "report"  # of a study's directory
PRICE_PER_HOUR = 2.0  # dollars
# Which flags go together, by the one that says what is wanted.
_USED = {
    "report": ("out",),
    "list": ("config", "workdir", "only", "seeds", "learning_rates", "json", "price_per_hour"),
    "config": ("workdir", "only", "seeds", "learning_rates"),
}


def main(argv: Sequence[str]) -> None:
    """Does what is left of a study and writes its report; with `--list` or `--report` only that."""
    parser = command_line.Parser(
        "study", "Rows of a study: done, listed or compared.", config=StudyConfig, config_needed=False
    )
    parser.add_argument("--workdir", metavar="DIR", help="where the study lives: new, empty, or the same study's")
    parser.add_argument("--only", metavar="A,B", help="rows or groups; what they start from is done too")
    parser.add_argument("--seeds", metavar="0,1", help="in place of the config's")
    parser.add_argument("--learning_rates", metavar="5e-4,1e-3", help="rows that train also with these peaks")
    parser.add_argument("--list", action="store_true", default=None, help="say what each row is and costs, no more")
    parser.add_argument("--json", action="store_true", default=None, help="with --list: JSON and nothing else")
    parser.add_argument("--price_per_hour", type=float, metavar="2", help="with --list: dollars for an hour of a GPU")
    parser.add_argument("--report", metavar="DIR,DIR", help="compare studies and workdirs that are there")
    parser.add_argument("--out", metavar="DIR", help="with --report: where it goes")
    args = parser.parse(argv)
    wanted = _wanted(args)
    if wanted == "report":
        from jaxlm.study import study_report

        if not args.out:
            raise UserError("--out is missing, allowed: a directory for the report")
        study_report.write_all(listed(args.report), Path(args.out))
        print(Path(args.out) / study_report.PAGE)
        return
    config = _with_flags(args.config, args)
    only = None if args.only is None else _rows(config, args.only)
    if wanted == "list":
        from jaxlm.study import listing, rows

        known = rows.read(config)
        chosen = {name: known[name] for name in rows.needed(known, only or list(known))}
        price = PRICE_PER_HOUR if args.price_per_hour is None else args.price_per_hour
        if not (math.isfinite(price) and price >= 0):
            raise UserError(f"--price_per_hour is {price:g}, allowed: dollars, not below 0")
        asked = (config, chosen, price, None if args.workdir is None else Path(args.workdir))
        print(json.dumps(listing.as_json(*asked)) if args.json else listing.table(*asked))
        return
    if not args.workdir:
        raise UserError("--workdir is missing, allowed: a directory for the study, or --list")
    from jaxlm.study import failures, runner, study_report

    study = runner.run(config, Path(args.workdir), only or ())
    study_report.write(study, Path(args.workdir) / REPORT)
    print(Path(args.workdir) / REPORT / study_report.PAGE)
    failures.conclude(study, only or ())


def _wanted(args: argparse.Namespace) -> str:
    """The flag that says what is wanted; refuses what does not go with it."""
    given = {name for name in {*_USED, *sum(_USED.values(), ())} if getattr(args, name) is not None}
    wanted = next((name for name in _USED if name in given), None)
    if wanted is None or (wanted == "list" and args.config is None):
        raise UserError("--config is missing, allowed: --config=FILE, or --report=WORKDIR,WORKDIR")
    if strange := given - {wanted, *_USED[wanted]}:
        raise UserError(
            f"--{min(strange)} is not used with --{wanted}, allowed with it: --{', --'.join(_USED[wanted])}"
        )
    return wanted


def _with_flags(config: StudyConfig, args: argparse.Namespace) -> StudyConfig:
    """The configuration with the seeds and the rates of the command line."""
    values = fields.to_dict(config)
    for name, kind in (("seeds", int), ("learning_rates", float)):
        if (text := getattr(args, name)) is not None:
            try:
                values[name] = fields.parse(tuple[kind, ...], text)  # type: ignore[valid-type]
            except ValueError:
                raise UserError(f"--{name} is {text!r}, allowed: numbers separated by commas") from None
    built: StudyConfig = fields.build(StudyConfig, values)
    return built


def _rows(config: StudyConfig, text: str) -> list[str]:
    """The rows that `--only` names, those of its groups among them, in the order of the study."""
    from jaxlm.study.rows import members

    rows, groups = [name_of(line) for line in config.rows], {name_of(line): members(line) for line in config.groups}
    chosen: set[str] = set()
    for name in listed(text):
        if name not in rows and name not in groups:
            raise UserError(f"--only has {name!r}; {nearest(name, [*rows, *groups])}")
        chosen.update([name] if name in rows else groups[name])
    if not chosen:
        raise UserError(f"--only is {text!r}, allowed: rows and groups of the study, separated by commas")
    return [name for name in rows if name in chosen]


if __name__ == "__main__":
    command_line.run(main)
