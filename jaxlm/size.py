"""`python -m jaxlm.size --config=FILE`: what a configuration costs, in parameters, FLOPs and bytes; makes no arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jaxlm import command_line
from jaxlm.config import ModelConfig, RunConfig

# Bytes of fp32 values a parameter stands for while it is trained: itself, its gradient, AdamW's two moments.
_STATE_BYTES = {"parameters": 4, "gradients": 4, "optimizer": 8}


def main(argv: Sequence[str]) -> None:
    """Prints the size of a configuration as a table or as JSON."""
    parser = command_line.Parser("size", "Parameters, FLOPs and memory of a configuration.", config=RunConfig)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    args = parser.parse(argv)
    size = describe(args.config)
    print(json.dumps(size) if args.json else table(args.config, size))


def describe(config: RunConfig) -> dict[str, Any]:
    """The object that `size --json` prints: parameter counts, FLOPs per token of training, bytes of its state."""
    from jaxlm.families import build_model
    from jaxlm.training import flops

    counts = flops.parameter_counts(build_model(config.model, config.execution))
    return {
        "family": config.model.family,
        **counts,
        "flops_per_token": flops.flops_per_token(config.model, config.train.seq_len),
        "state_bytes": {name: size * counts["total"] for name, size in _STATE_BYTES.items()},
        "warnings": warnings(config.model),
    }


def warnings(model: ModelConfig) -> list[str]:
    """What the shape makes slower than it need be, one sentence each, with the source."""
    tiles = "matrix units work on such tiles (NVIDIA's matrix multiplication guide, Google's TPU performance guide)"
    out = []
    if model.vocab_size % 128:
        out.append(f"model.vocab_size {model.vocab_size} is not a multiple of 128: {tiles}")
    if model.intermediate_size % 64:
        out.append(f"model.intermediate_size {model.intermediate_size} is not a multiple of 64: {tiles}")
    return out


def table(config: RunConfig, size: dict[str, Any]) -> str:
    """The same as text, parts in the order of their size."""
    model, total = config.model, size["total"]
    parts = sorted(size["by_part"].items(), key=lambda part: -part[1])
    flops, state = size["flops_per_token"], size["state_bytes"]
    lines = [
        f"{model.family}: {model.num_layers} layers x {model.hidden_size}, feed-forward {model.intermediate_size}, "
        f"{model.num_heads}/{model.num_kv_heads} heads of {model.head_dim}, vocabulary {model.vocab_size}, "
        f"head {'tied' if model.tie_embeddings else 'untied'}",
        "",
        "parameters",
        *(f"  {name:<36}{count:>14,}{count / total:>8.1%}" for name, count in parts),
        f"  {'total':<36}{total:>14,}",
        f"  {'outside the embedding':<36}{size['non_embedding']:>14,}{size['non_embedding'] / total:>8.1%}",
        f"  {'active for one token':<36}{size['active']:>14,}{size['active'] / total:>8.1%}",
        "",
        f"training, MFLOP a token at {config.train.seq_len} positions",
        f"  {'6N':<36}{flops['six_n'] / 1e6:>14,.2f}",
        f"  {'with attention, every pair':<36}{flops['with_attention'] / 1e6:>14,.2f}",
        f"  {'with attention, causal half':<36}{flops['with_causal_attention'] / 1e6:>14,.2f}",
        "",
        "training state in fp32, MB (activations apart)",
        *(f"  {name:<36}{count / 1e6:>14,.1f}" for name, count in state.items()),
        f"  {'total':<36}{sum(state.values()) / 1e6:>14,.1f}",
        *(f"\nwarning: {text}" for text in size["warnings"]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    command_line.run(main)
