"""`generate`: text from a trained model, autoregressive or diffusion."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line
from jaxlm.errors import UserError


def _prompts(prompts: list[str], file: str | None) -> list[str]:
    if file is None:
        if not prompts:
            raise UserError("--prompt is missing, allowed: --prompt=TEXT (repeatable) or --prompts_file=FILE")
        return prompts
    if prompts:
        raise UserError("--prompt and --prompts_file are both given, allowed: one of them")
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--prompts_file={file} cannot be read as UTF-8 text: {error}") from error
    if not lines:
        raise UserError(f"--prompts_file={file} is empty, allowed: one prompt a line")
    return lines


def main(argv: Sequence[str]) -> None:
    """Parses the flags, generates, prints."""
    parser = command_line.Parser("generate", __doc__ or "")
    parser.add_argument("--workdir", required=False, help="a workdir of train or convert")
    parser.add_argument("--step", type=int, help="checkpoint; default: the newest")
    parser.add_argument("--prompt", action="append", default=[], help="text to go on from; repeatable")
    parser.add_argument("--prompts_file", help="a file with one prompt a line")
    parser.add_argument("--mode", choices=("ar", "diffusion"), help="default: what the run was trained for")
    parser.add_argument("--max_new_tokens", type=int, default=50, help="length of the continuation")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy")
    parser.add_argument("--top_k", type=int, default=0, help="keep the k likeliest tokens; 0: all")
    parser.add_argument("--top_p", type=float, default=1.0, help="keep the likeliest tokens of this mass")
    parser.add_argument("--repetition_penalty", type=float, default=1.0, help="above 1: repeat less")
    parser.add_argument("--stop", action="append", default=[], help="end the text before this string; repeatable")
    parser.add_argument("--ignore_eos", action="store_true", help="do not stop at the end-of-text token")
    parser.add_argument("--steps", type=int, default=0, help="diffusion: passes; 0: one a token")
    parser.add_argument(
        "--block_size", type=int, default=0, help="diffusion: fill in blocks of this size; 0: all at once"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sampling")
    parser.add_argument("--batch_size", type=int, default=0, help="prompts decoded together; 0: all")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="compute type; default: float32 on a CPU")
    parser.add_argument("--json", action="store_true", help="one JSON object a prompt, and nothing else")
    args = parser.parse(argv)
    if not args.workdir:
        raise UserError("--workdir is missing, allowed: a directory made by train or convert")
    if args.batch_size < 0:
        raise UserError(f"--batch_size is {args.batch_size}, allowed: at least 0 (0: all prompts together)")
    if "" in args.stop:
        raise UserError("--stop is empty, allowed: the text to stop before")
    prompts = _prompts(args.prompt, args.prompts_file)

    from jaxlm.generation import Sampling
    from jaxlm.trained import load

    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.repetition_penalty)
    trained = load(args.workdir, args.step, args.dtype)
    batch = args.batch_size or len(prompts)
    for start in range(0, len(prompts), batch):
        for out in trained.generate(
            prompts[start : start + batch],
            max_new_tokens=args.max_new_tokens,
            mode=args.mode,
            sampling=sampling,
            steps=args.steps,
            block_size=args.block_size,
            seed=args.seed,
            stop=args.stop,
            ignore_eos=args.ignore_eos,
        ):
            record = out.record()
            if args.json:
                print(json.dumps(record, ensure_ascii=False), flush=True)
                continue
            print(f"{out.prompt}\033[1m{out.text}\033[0m" if sys.stdout.isatty() else f"{out.prompt}{out.text}")
            first = 1000 * record["seconds_to_first_token"]
            print(
                f"  [{record['num_new_tokens']} tokens, {record['passes']} passes, "
                f"{record['tokens_per_sec']:.1f} tokens/s, first after {first:.0f} ms, compilation apart]\n"
            )


if __name__ == "__main__":
    command_line.run(main)
