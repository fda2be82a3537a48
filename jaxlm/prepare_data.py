"""`prepare_data --config=FILE --out=DIR`: text to fixed windows on disk, with tokenizer, statistics and fingerprint."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from jaxlm import command_line
from jaxlm.config import PrepareConfig
from jaxlm.errors import UserError
from jaxlm.progress import duration


def main(argv: Sequence[str]) -> None:
    """Runs the command; see `--help`."""
    parser = command_line.Parser("prepare_data", "Text to fixed windows on disk.", config=PrepareConfig)
    parser.add_argument("--out", metavar="DIR", default="", help="the data directory to write")
    args = parser.parse(argv)
    if not args.out:
        raise UserError("--out is missing, allowed: a directory, for example --out=runs/quickstart/data")
    from jaxlm.data.prepare import prepare  # tokenizers and TFDS take a second, --help should not

    out, started = Path(args.out), time.monotonic()
    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        written = prepare(args.config, out, report=lambda text: print(text, flush=True))
    finally:
        signal.signal(signal.SIGTERM, previous)
    if not written:
        print(f"{out} is complete and was made from this config: nothing to do")
        return
    print(f"wrote {out} in {duration(time.monotonic() - started)}; next:")
    model = "configs/pocket/llama3_canon.py" if args.config.seq_len <= 256 else "configs/llama3_canon.py"
    print(f"  python -m jaxlm.train --config={model} --config.data.dir={out} --workdir=runs/ar")


def _stop(signum: int, frame: FrameType | None) -> None:
    """Unwinds the stack, so that the partial directory is removed on the way."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    command_line.run(main)
