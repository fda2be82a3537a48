"""How fast one model writes, and in how much memory: batch 1, under the protocol of the study.

An autoregressive model writes a token at a time with its cache. A diffusion model fills one canvas without a cache,
some tokens a pass, each pass over everything; where it was trained to read in blocks, also block after block with a
cache.
"""

from __future__ import annotations

import datetime
import math
import os
import statistics
from typing import Any

import jax

from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.generation.result import num_bytes
from jaxlm.study.readings import in_blocks
from jaxlm.study_config import DecodeConfig
from jaxlm.trained import Trained

LEFT_TO_RIGHT, CANVAS, BLOCKS = "left to right, cache", "whole canvas, no cache", "blocks, cache"


def measure(trained: Trained, windows: Windows, settings: DecodeConfig) -> dict[str, Any]:
    """What `decode.json` holds: of the protocol, at the top, and under `blocks` of block decoding, else None there.

    `tokens_per_sec` and `seconds_to_first_token` are medians of `rounds` and `rounds_to_first_token`; compilation and
    one run before the rounds do not count. `memory_bytes` is the sum of `weights_bytes`, `cache_bytes` and
    `logits_bytes` (fp32, of one pass): what a decoder has to hold, not what the process took.

    Raises UserError without a round, and where prompt and new tokens do not fit.
    """
    _check(trained, windows, settings)
    prompt = windows.split("validation")[0]["tokens"][: settings.prompt_tokens].tolist()
    before = os.getloadavg()[0]
    if trained.mode == "ar":
        found, blocks = _way(trained, prompt, settings, LEFT_TO_RIGHT), None
    else:
        found = _way(in_blocks(trained, 0), prompt, settings, CANVAS)
        blocks = _way(trained, prompt, settings, BLOCKS) if trained.structure.block_size > 1 else None
    return {
        **found,
        "blocks": blocks,
        "mode": trained.mode,
        "batch": 1,
        "prompt_tokens": settings.prompt_tokens,
        "new_tokens": settings.new_tokens,
        "conditions": {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "device_kind": jax.devices()[0].device_kind,
            "dtype": trained.model.execution.dtype,
            "load_average": before,
            "jax": jax.__version__,
        },
    }


def _check(trained: Trained, windows: Windows, settings: DecodeConfig) -> None:
    if settings.rounds < 1:
        raise UserError(f"decode.rounds is {settings.rounds}, allowed: at least 1, to measure anything")
    total, most = settings.prompt_tokens + settings.new_tokens, trained.model.config.max_positions
    if total > most:
        raise UserError(f"decode.prompt_tokens + decode.new_tokens is {total}, allowed: at most {most} of the model")
    if settings.prompt_tokens > windows.seq_len or not len(windows.split("validation")):
        raise UserError(
            f"decode.prompt_tokens is {settings.prompt_tokens}, allowed: at most {windows.seq_len}, of the validation "
            f"windows of {windows.directory}"
        )


def _way(trained: Trained, prompt: list[int], settings: DecodeConfig, way: str) -> dict[str, Any]:
    """One way to decode, greedily, through the end of a text: its times, passes and memory."""
    options: dict[str, Any] = {}
    if way != LEFT_TO_RIGHT:
        options = {"steps": _steps(trained, settings), "cache": "none" if way == CANVAS else "block"}
    decoded = [
        trained.generate([prompt], max_new_tokens=settings.new_tokens, ignore_eos=True, **options)[0].decoded
        for _ in range(settings.rounds + 1)
    ][1:]
    speeds, firsts = [settings.new_tokens / d.seconds for d in decoded], [d.seconds_to_first_token for d in decoded]
    last, weights = decoded[-1], num_bytes(trained.params)
    return {
        "way": way,
        "tokens_per_sec": statistics.median(speeds),
        "rounds": speeds,
        "seconds_to_first_token": statistics.median(firsts),
        "rounds_to_first_token": firsts,
        "passes": last.passes,
        "cache_passes": last.cache_passes,
        "tokens_per_pass": settings.new_tokens / (last.passes + last.cache_passes),
        "memory_bytes": weights + last.cache_bytes + last.logits_bytes,
        "weights_bytes": weights,
        "cache_bytes": last.cache_bytes,
        "logits_bytes": last.logits_bytes,
    }


def _steps(trained: Trained, settings: DecodeConfig) -> int:
    """Passes over all of the new tokens, so that each writes `tokens_per_pass` and the last of a block what is left."""
    grid = trained.structure.block_size
    first = settings.prompt_tokens - bool(trained.config.objective.shift)
    edges = [first, *range(first // grid * grid + grid, first + settings.new_tokens, grid)] if grid else [first]
    ends = [*edges[1:], first + settings.new_tokens]
    return sum(math.ceil((end - start) / settings.tokens_per_pass) for start, end in zip(edges, ends, strict=True))
