"""`prepare_data --config=FILE --out=DIR`: text to fixed windows on disk, with tokenizer, statistics and fingerprint."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from jaxlm import command_line
from jaxlm.benchmarks.conditions import cores
from jaxlm.config import PrepareConfig, RunConfig
from jaxlm.errors import UserError
from jaxlm.progress import duration

CHECKOUT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    """Runs the command; see `--help`."""
    about = "Text to fixed windows on disk. With --show and without --config it only looks at what is there."
    parser = command_line.Parser("prepare_data", about, config=PrepareConfig, config_needed=False)
    parser.add_argument("--out", metavar="DIR", default="", help="the data directory to write")
    parser.add_argument(
        "--processes", type=int, metavar="N", default=cores(), help="encode on so many; the result is the same"
    )
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print the first N training windows as text")
    args = parser.parse(argv)
    if args.processes < 1:
        raise UserError(f"--processes is {args.processes}, allowed: at least 1")
    if not args.out:
        raise UserError("--out is missing, allowed: a directory, for example --out=runs/quickstart/data")
    if args.show < 0:
        raise UserError(f"--show is {args.show}, allowed: a number of windows, or 0")
    if args.config is None and (args.overrides or not args.show):
        raise UserError(
            "--config is missing, allowed: a file of configs/data/, or --show=N of a directory that is there"
        )
    out, started = Path(args.out), time.monotonic()
    if args.config is None:
        _show(out, args.show)
        return
    from jaxlm.data.pictures import draw_missing
    from jaxlm.data.prepare import prepare  # tokenizers and TFDS take a second, --help should not

    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        written = prepare(args.config, out, lambda text: print(text, flush=True), processes=args.processes)
    finally:
        signal.signal(signal.SIGTERM, previous)
    draw_missing(out)
    if args.show:
        _show(out, args.show)
    if not written:
        print(f"{out} is complete and was made from this config: nothing to do")
        return
    print(f"wrote {out} in {duration(time.monotonic() - started)}; next:")
    print(f"  {next_command(out, args.config.seq_len)}")


def _show(data: Path, count: int) -> None:
    from jaxlm.data.cleaning import TRAIN
    from jaxlm.data.show import show
    from jaxlm.data.windows import Windows

    print(show(Windows.open(data), TRAIN, count))


def next_command(data: Path, seq_len: int) -> str:
    """A `train` command that runs on these windows: a shipped config, and what has to be overridden to fit them."""
    from jaxlm.data.tokenizer import Tokenizer
    from jaxlm.data.windows import TOKENIZER

    file = "configs/pocket/llama3_canon.py" if seq_len <= 256 else "configs/llama3_canon.py"
    base = command_line.load_config(str(CHECKOUT / file), [], RunConfig)
    changes: dict[str, object] = {"data.dir": str(data)}
    if seq_len != base.train.seq_len:
        rows = max(1, base.train.batch_tokens // seq_len)
        changes |= {"train.seq_len": seq_len, "train.batch_tokens": rows * seq_len, "train.micro_batch": 0}
    if seq_len > base.model.max_positions:
        changes["model.max_positions"] = seq_len
    ids = Tokenizer.load(data / TOKENIZER).vocab_size + 1  # and a mask token, for a conversion
    if ids > base.model.vocab_size:
        changes["model.vocab_size"] = -(-ids // 128) * 128
    overrides = " ".join(f"--config.{name}={value}" for name, value in changes.items())
    return f"python -m jaxlm.train --config={file} {overrides} --workdir=runs/ar"


def _stop(signum: int, frame: FrameType | None) -> None:
    """Unwinds the stack, so that the partial directory is removed on the way."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    command_line.run(main)
