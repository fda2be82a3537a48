"""`python -m jaxlm.size --config=FILE`: what a configuration costs, in parameters, FLOPs and bytes; makes no arrays.

Also the other way round: `--budget` proposes shapes that cost the same, `--recommend` prints what is advised.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlm import command_line, fields
from jaxlm.config import RunConfig
from jaxlm.errors import UserError

# Which flags go together, by the one that says what is wanted.
_USED = {"recommend": (), "budget": ("config", "family", "depths", "match"), "compare": ("plot",), "config": ("plot",)}


def main(argv: Sequence[str]) -> None:
    """Prints the size of a configuration, of several side by side, or proposals, as a table or as JSON."""
    parser = command_line.Parser("size", "What configurations cost.", config=RunConfig, config_needed=False)
    parser.add_argument("--compare", metavar="A,B,...", help="config files, as FILE[:ARG], to show side by side")
    parser.add_argument("--plot", metavar="FILE", help="draw parameters and memory by part: .png, .svg or .pdf")
    parser.add_argument("--budget", metavar="70M", help="propose shapes that cost this")
    parser.add_argument("--family", metavar="NAME", help="with --budget: start from configs/NAME.py")
    parser.add_argument("--depths", metavar="L,L,...", help="with --budget; default: the study's seven")
    match_help = "with --budget: what it counts; flops: of training, per token; default: total"
    parser.add_argument("--match", choices=("total", "non_embedding", "flops"), help=match_help)
    parser.add_argument("--recommend", metavar="70M", help="what is advised for so many parameters")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    args = parser.parse(argv)
    found, text = {"recommend": _advised, "budget": _proposed, "compare": _sizes, "config": _sizes}[_wanted(args)](args)
    print(json.dumps(found) if args.json else text)


def _amount(flag: str, text: str) -> int:
    try:
        amount = fields.parse(int, text)
    except ValueError:
        amount = 0
    if amount < 1:
        raise UserError(f"--{flag} is {text!r}, allowed: a number above 0, as 70M")
    return amount


def _wanted(args: argparse.Namespace) -> str:
    """The flag that says what to print; refuses what does not go with it."""
    given = {name for name in (*_USED, *sum(_USED.values(), ())) if getattr(args, name) is not None}
    wanted = next((name for name in _USED if name in given), None)
    if wanted is None:
        raise UserError("--config is missing, allowed: --config=FILE, --compare=A,B, --budget=N or --recommend=N")
    if strange := given - {wanted, *_USED[wanted]}:
        also = ", ".join(f"--{name}" for name in (*_USED[wanted], "json"))
        raise UserError(f"--{min(strange)} is not used with --{wanted}, allowed with it: {also}")
    return wanted


def _sizes(args: argparse.Namespace) -> tuple[Any, str]:
    from jaxlm.sizing.describe import describe
    from jaxlm.sizing.plot import draw
    from jaxlm.sizing.tables import comparison, table

    specs = args.compare.split(",") if args.compare else [args.config_file]
    configs = {spec: command_line.load_config(spec, args.overrides, RunConfig) for spec in specs}
    sizes = {name: describe(config) for name, config in configs.items()}
    if args.plot is not None:
        draw(sizes, Path(args.plot))
    if args.compare:
        return list(sizes.values()), comparison(configs, sizes)
    return sizes[args.config_file], table(args.config, sizes[args.config_file])


def _proposed(args: argparse.Namespace) -> tuple[Any, str]:
    from jaxlm.sizing import budget

    if (args.config is None) == (args.family is None):
        raise UserError("--config and --family are both missing or both given, allowed with --budget: one of them")
    file = args.config_file or f"configs/{args.family}.py"
    as_it_stands = command_line.load_config(file, [], RunConfig)
    base = command_line.load_config(file, args.overrides, RunConfig)
    depths = budget.DEPTHS if args.depths is None else [_amount("depths", word) for word in args.depths.split(",")]
    proposal = budget.propose(base, _amount("budget", args.budget), depths, args.match or "total")
    return budget.as_json(proposal), budget.text(proposal, file, as_it_stands)


def _advised(args: argparse.Namespace) -> tuple[Any, str]:
    from jaxlm.sizing import recommend

    if args.overrides:
        raise UserError(f"--config.{args.overrides[0][0]} is not used with --recommend")
    found = recommend.recommend(_amount("recommend", args.recommend))
    return found, recommend.text(found)


if __name__ == "__main__":
    command_line.run(main)
