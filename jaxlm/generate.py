"""`generate`: text from a trained model, autoregressive or diffusion."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from jaxlm import command_line
from jaxlm.errors import UserError


def main(argv: Sequence[str]) -> None:
    """Parses the flags, generates, prints."""
    parser = command_line.Parser("generate", __doc__ or "")
    add = parser.add_argument
    add("--workdir", required=False, help="a workdir of train or convert")
    add("--step", type=int, help="checkpoint; default: the newest")
    add("--prompt", action="append", default=[], help="text to go on from; repeatable")
    add("--prompts_file", help="a file with one prompt a line")
    add("--template", action="append", default=[], help="text with holes, a _ a token and at least ___; repeatable")
    add("--mode", choices=("ar", "diffusion"), help="default: what the run was trained for")
    add("--max_new_tokens", type=int, help="length of the continuation; default: 50")
    add("--temperature", type=float, default=0.0, help="0: greedy")
    add("--top_k", type=int, default=0, help="keep the k likeliest tokens; 0: all")
    add("--top_p", type=float, default=1.0, help="keep the likeliest tokens of this mass")
    add("--repetition_penalty", type=float, default=1.0, help="above 1: repeat less")
    add("--stop", action="append", default=[], help="end the text before this string; repeatable")
    add("--ignore_eos", action="store_true", help="do not stop at the end-of-text token")
    add("--steps", type=int, help="diffusion: passes; 0: one a token")
    add("--block_size", type=int, help="diffusion: fill in blocks of this size; 0: all at once")
    add("--threshold", type=float, help="diffusion: a pass writes all tokens that are at least this probable")
    add("--entropy_bound", type=float, help="diffusion: a pass writes tokens of up to this joint entropy, in nats")
    orders = "low_confidence, random, margin, entropy or revise"
    add("--remasking", help=f"diffusion: the order of writing, {orders}; default: low_confidence")
    add("--revise_rate", type=float, help="of --remasking=revise: share of the written tokens that a pass masks again")
    cache_help = "diffusion: none; block: exact, of a model made to read in blocks; prefix: an approximation for others"
    add("--cache", help=f"{cache_help}; default: block where it is exact")
    add("--seed", type=int, default=0, help="of the sampling")
    add("--batch_size", type=int, default=0, help="texts decoded together; 0: all")
    add("--dtype", choices=("float32", "bfloat16"), help="compute type; default: float32 on a CPU")
    add("--json", action="store_true", help="one JSON object a text, and nothing else")
    args = parser.parse(argv)
    if not args.workdir:
        raise UserError("--workdir is missing, allowed: a directory made by train or convert")
    if args.batch_size < 0:
        raise UserError(f"--batch_size is {args.batch_size}, allowed: at least 0 (0: all texts together)")
    if "" in args.stop:
        raise UserError("--stop is empty, allowed: the text to stop before")
    for name in ("max_new_tokens", "stop", "ignore_eos"):
        if args.template and getattr(args, name) not in (None, [], False):
            raise UserError(f"--{name} and --template are both given, allowed: one of them; a hole has its own length")

    from jaxlm.generation import Sampling, Selection, texts
    from jaxlm.trained import load

    given = texts.given(args.prompt, args.prompts_file, args.template)
    how: dict[str, Any] = dict(
        mode=args.mode,
        sampling=Sampling(args.temperature, args.top_k, args.top_p, args.repetition_penalty),
        steps=args.steps,
        block_size=args.block_size,
        cache=args.cache,
        selection=Selection(args.remasking, args.threshold, args.entropy_bound, args.revise_rate),
        seed=args.seed,
    )
    if not args.template:
        length = 50 if args.max_new_tokens is None else args.max_new_tokens
        how |= dict(max_new_tokens=length, stop=args.stop, ignore_eos=args.ignore_eos)
    trained = load(args.workdir, args.step, args.dtype)
    write = trained.infill if args.template else trained.generate
    batch = args.batch_size or len(given)
    for start in range(0, len(given), batch):
        for out in write(given[start : start + batch], first_row=start, **how):
            record = out.record()
            if args.json:
                print(json.dumps(record, ensure_ascii=False), flush=True)
                continue
            text = f"\033[1m{out.text}\033[0m" if sys.stdout.isatty() else out.text
            print(text if args.template else out.prompt + text)
            first = 1000 * record["seconds_to_first_token"]
            print(
                f"  [{record['num_new_tokens']} tokens, {record['passes']} passes, "
                f"{record['tokens_per_sec']:.1f} tokens/s, first after {first:.0f} ms, compilation apart]\n"
            )


if __name__ == "__main__":
    command_line.run(main)
