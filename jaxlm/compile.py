"""`compile`: the training step compiled for a GPU that is not here: does it fit?"""

from __future__ import annotations

import json
from collections.abc import Sequence

from jaxlm import command_line
from jaxlm.config import RunConfig
from jaxlm.errors import UserError

GIB = 2**30


def main(argv: Sequence[str]) -> None:
    """Parses the flags, compiles, prints."""
    parser = command_line.Parser("compile", __doc__ or "", config=RunConfig)
    parser.add_argument("--target", help="a GPU of jaxlm/training/targets: a40, h200")
    parser.add_argument("--json", action="store_true", help="one JSON object, and nothing else")
    args = parser.parse(argv)
    if not args.target:
        raise UserError("--target is missing, allowed: a GPU of jaxlm/training/targets, for example --target=a40")

    from jaxlm.training.deviceless import compile_for

    model = args.config.model
    mask = model.vocab_size - 1 if model.mask_token_id is None else model.mask_token_id
    found = compile_for(args.config, args.target, mask)
    if args.json:
        print(json.dumps(found))
        return
    size = {name: f"{value / GIB:.1f} GiB" for name, value in found["bytes"].items()}
    fits = "fits" if found["fits"] else "DOES NOT FIT"
    print(f"{args.target}: {fits} ({size['peak']} of {found['device_bytes'] / GIB:.1f} GiB at its peak)")
    print(f"  state {size['arguments']}, temporaries {size['temporaries']}, compiled in {found['compile_seconds']} s")
    print(f"  calls {', '.join(found['custom_calls']) or 'no library'}")


if __name__ == "__main__":
    command_line.run(main)
