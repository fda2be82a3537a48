"""`python -m jaxlm.fingerprint`: hashes and first losses that must be equal wherever the same configuration runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlm import command_line
from jaxlm.config import RunConfig
from jaxlm.errors import UserError


def main(argv: Sequence[str]) -> None:
    """Prints the fingerprint of a configuration as JSON; with --check compares it with one made elsewhere."""
    parser = command_line.Parser(
        "fingerprint",
        "What must be equal on every machine: parameters at init, first batches and masks (sha256), first losses.",
        config=RunConfig,
    )
    parser.add_argument("--check", metavar="FILE", help="compare with the fingerprint in FILE; exits 2 at a difference")
    parser.add_argument("--out", metavar="FILE", help="write it to FILE too")
    args = parser.parse(argv)
    expected = _read(Path(args.check)) if args.check else None
    # Imported after the flags, so that a mistake in them is answered before JAX starts.
    from jaxlm.training import fingerprints

    found = fingerprints.fingerprint(args.config)
    text = json.dumps(found, indent=2)
    print(text)
    if args.out:
        temporary = Path(f"{args.out}.tmp-{os.getpid()}")
        temporary.write_text(text + "\n", "utf-8")
        os.replace(temporary, args.out)
    if expected is not None:
        if difference := fingerprints.first_difference(found, expected):
            raise UserError(f"the fingerprint differs from {args.check}: {difference}")
        tolerance = fingerprints.LOSS_TOLERANCE[found["dtype"]]
        print(f"jaxlm: agrees with {args.check}, losses within {tolerance} nats", file=sys.stderr)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--check={path} cannot be read ({error}), allowed: a file made by fingerprint --out") from None
    if not isinstance(values, dict) or "params_sha256" not in values:
        raise UserError(f"--check={path} is no fingerprint, allowed: a file made by fingerprint --out")
    return values


if __name__ == "__main__":
    command_line.run(main)
