"""Sizes as text: one configuration in full, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlm.config import RunConfig

# The parts of the training memory in the order of their rows: key, what the row says.
MEMORY = {
    "parameters": "parameters",
    "optimizer": "moments of AdamW",
    "gradients": "gradients",
    "copies": "parameters stacked and rounded",
    "activations": "activations",
    "logits_chunk": "logits and their gradient",
}
_READS = {
    "with_causal_attention": "causal half",
    "with_attention": "every pair",
    "with_attention_two_streams": "both streams",
}
_MOMENTS = {"loss": "at the loss", "backward": "in the backward pass"}


def table(config: RunConfig, size: dict[str, Any]) -> str:
    """What `describe` says about one configuration, parts in the order of their size."""
    model, total, execution = config.model, size["total"], config.execution
    parts = sorted(size["by_part"].items(), key=lambda part: -part[1])
    flops, step, memory = size["flops_per_token"], size["flops_per_step_token"], size["training_memory"]
    rows = config.train.micro_batch or config.train.batch_size
    lines = [
        f"{model.family}: {model.num_layers} layers x {model.hidden_size}, feed-forward {model.intermediate_size}, "
        f"{model.num_heads}/{model.num_kv_heads} heads of {model.head_dim}, vocabulary {model.vocab_size}, "
        f"head {'tied' if size['tied'] else 'untied'}",
        "",
        "parameters",
        *(_row(name, f"{count:,}", count / total) for name, count in parts),
        _row("total", f"{total:,}"),
        _row("outside the embedding", f"{size['non_embedding']:,}", size["non_embedding"] / total),
        _row("active for one token", f"{size['active']:,}", size["active"] / total),
        _row(_tying(size), f"{size['tying_saves']:,}", size["tying_saves"] / total),
        "",
        f"training, MFLOP a token at {config.train.seq_len} positions",
        _row("6N", f"{flops['six_n'] / 1e6:,.2f}"),
        _row("with attention, every pair", f"{flops['with_attention'] / 1e6:,.2f}"),
        _row("with attention, causal half", f"{flops['with_causal_attention'] / 1e6:,.2f}"),
        _row(f"of this objective ({_READS[step['convention']]})", f"{step['flops'] / 1e6:,.2f}"),
        "",
        f"training memory, MB: {rows} windows of {config.train.seq_len} in {execution.dtype}, remat {execution.remat}, "
        f"most {_MOMENTS[memory['at']]}",
        *(_row(text, f"{memory[name] / 1e6:,.1f}", memory[name] / memory["total"]) for name, text in MEMORY.items()),
        _row("total", f"{memory['total'] / 1e6:,.1f}"),
        *(
            _row(f"total with remat {remat}", f"{other['total'] / 1e6:,.1f}")
            for remat, other in size["training_memory_by_remat"].items()
            if remat != execution.remat
        ),
        "",
        "on disk and in decoding",
        _row("checkpoint, MB", f"{size['checkpoint_bytes'] / 1e6:,.1f}"),
        _row("cache, bytes a position of a row", f"{size['kv_cache_bytes_per_token']:,}"),
        _row("cache, bytes a row of any length", f"{size['cache_bytes_fixed']:,}"),
        *(f"\nwarning: {text}" for text in size["warnings"]),
    ]
    return "\n".join(lines)


def _row(name: str, value: str, share: float | None = None) -> str:
    return f"  {name:<36}{value:>14}" + ("" if share is None else f"{share:>8.1%}")


def _tying(size: dict[str, Any]) -> str:
    return "saved by tying the head" if size["tied"] else "that tying the head would save"


def comparison(configs: Sequence[tuple[str, RunConfig]], sizes: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Several configurations with their names, a column each; their warnings below."""
    names, each = [name for name, _ in sizes], [size for _, size in sizes]
    first, models, runs = each[0], [config.model for _, config in configs], [config for _, config in configs]
    rows: list[tuple[str, list[str]]] = [
        ("", names),
        ("family", [model.family for model in models]),
        ("layers x width", [f"{model.num_layers} x {model.hidden_size}" for model in models]),
        ("feed-forward", [f"{model.intermediate_size:,}" for model in models]),
        ("heads", [f"{model.num_heads}/{model.num_kv_heads} of {model.head_dim}" for model in models]),
        ("vocabulary", [f"{model.vocab_size:,}" for model in models]),
        ("parameters", [f"{size['total']:,}" for size in each]),
        ("  against the first", [f"{size['total'] / first['total'] - 1:+.2%}" for size in each]),
        ("outside the embedding", [f"{size['non_embedding']:,}" for size in each]),
        ("active for one token", [f"{size['active']:,}" for size in each]),
        ("embedding share", [f"{size['embedding_share']:.1%}" for size in each]),
        ("head", ["tied" if size["tied"] else "untied" for size in each]),
        ("positions of a window", [f"{config.train.seq_len:,}" for config in runs]),
        ("MFLOP a token, 6N", [_mega(size["flops_per_token"]["six_n"], 2) for size in each]),
        ("  every pair", [_mega(size["flops_per_token"]["with_attention"], 2) for size in each]),
        ("  causal half", [_mega(size["flops_per_token"]["with_causal_attention"], 2) for size in each]),
        ("  a step of the objective", [_mega(size["flops_per_step_token"]["flops"], 2) for size in each]),
        ("windows of one forward", [str(c.train.micro_batch or c.train.batch_size) for c in runs]),
        ("training memory, MB", [_mega(size["training_memory"]["total"]) for size in each]),
        *(
            (f"  with remat {remat}", [_mega(size["training_memory_by_remat"][remat]["total"]) for size in each])
            for remat in first["training_memory_by_remat"]
        ),
        ("checkpoint, MB", [_mega(size["checkpoint_bytes"]) for size in each]),
        ("cache, bytes a position", [f"{size['kv_cache_bytes_per_token']:,}" for size in each]),
        ("cache, bytes a row", [f"{size['cache_bytes_fixed']:,}" for size in each]),
    ]
    widths = [max(len(cells[i]) for _, cells in rows) for i in range(len(sizes))]
    left = max(len(name) for name, _ in rows)
    lines = [
        f"{name:<{left}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for name, cells in rows
    ]
    return "\n".join(
        [*lines, *(f"\n{name}: {text}" for name, size in dict(sizes).items() for text in size["warnings"])]
    )


def _mega(value: float, digits: int = 1) -> str:
    return f"{value / 1e6:,.{digits}f}"
