"""`python -m jaxlm.size --config=FILE`: what a configuration costs, in parameters, FLOPs and bytes; makes no arrays.

Also the other way round: `--budget` proposes shapes that cost the same, `--recommend` prints what is advised.
"""

from __future__ import annotations

import argparse
import contextlib
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
    parser.add_argument("--match", choices=("total", "non_embedding", "flops"), help="with --budget: what it counts")
    parser.add_argument("--recommend", metavar="70M", help="what is advised for so many parameters")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    args = parser.parse(argv)
    found, text = {"recommend": _advised, "budget": _proposed, "compare": _sizes, "config": _sizes}[_wanted(args)](args)
    print(json.dumps(found) if args.json else text)


def _amount(flag: str, text: str, like: str = "70M") -> int:
    with contextlib.suppress(ValueError):
        if (amount := fields.parse(int, text)) > 0:
            return amount
    raise UserError(f"--{flag} is {text!r}, allowed: a number above 0, as {like}")


def _wanted(args: argparse.Namespace) -> str:
    """The flag that says what to print; refuses what does not go with it."""
    given = {name for name in (*_USED, *sum(_USED.values(), ())) if getattr(args, name) is not None}
    wanted = next((name for name in _USED if name in given), None)
    if wanted is None:
        raise UserError("--config is missing, allowed: --config=FILE, --compare=A,B, --budget=N or --recommend=N")
    if strange := given - {wanted, *_USED[wanted]}:
        also = ", --".join((*_USED[wanted], "json"))
        raise UserError(f"--{min(strange)} is not used with --{wanted}, allowed with it: --{also}")
    return wanted


def _sizes(args: argparse.Namespace) -> tuple[Any, str]:
    from jaxlm.sizing.describe import describe
    from jaxlm.sizing.plot import draw
    from jaxlm.sizing.tables import comparison, table

    specs = [args.config_file] if args.compare is None else args.compare.split(",")
    configs = [(spec, command_line.load_config(spec, args.overrides, RunConfig)) for spec in specs]
    sizes = [(spec, describe(config)) for spec, config in configs]
    if args.plot is not None:
        draw(sizes, Path(args.plot))
    if args.compare is None:
        return sizes[0][1], table(args.config, sizes[0][1])
    return [size for _, size in sizes], comparison(configs, sizes)


def _proposed(args: argparse.Namespace) -> tuple[Any, str]:
    from jaxlm.sizing import budget

    if (args.config is None) == (args.family is None):
        raise UserError("--config and --family are both missing or both given, allowed with --budget: one of them")
    file = args.config_file or f"configs/{args.family}.py"
    if any(path == "model.num_layers" for path, *_ in args.overrides):
        raise UserError("--config.model.num_layers is not used with --budget, allowed: --depths")
    as_it_stands = command_line.load_config(file, [], RunConfig)
    base = command_line.load_config(file, args.overrides, RunConfig)
    asked = () if args.depths is None else args.depths.split(",")
    depths = [_amount("depths", word, "12") for word in asked] or budget.DEPTHS
    proposal = budget.propose(base, _amount("budget", args.budget), depths, args.match or "total")
    return budget.as_json(proposal), budget.text(proposal, file, as_it_stands)


def _advised(args: argparse.Namespace) -> tuple[Any, str]:
    from jaxlm.sizing import recommend

    if args.overrides:
        raise UserError(f"--config.{args.overrides[0][0]} is not used with --recommend, allowed: no overrides")
    found = recommend.recommend(_amount("recommend", args.recommend))
    return found, recommend.text(found)


if __name__ == "__main__":
    command_line.run(main)
