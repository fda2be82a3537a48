"""Titans with memory as context (arXiv 2501.00663): attention within segments, and a memory that learns on the way.

    tokens -> segments of segment_len, each ended by num_longterm_tokens learned vectors
    S:  x = x + attention(norm(x))                 within the segment, behind num_persistent_tokens learned keys
    M:  x = x + memory(x), then as S               memory_reading "residual"
        x = x + attention(norm(x)) * sigmoid(memory(x))                 "gate"
        x = x + memory_as_context(norm(x))                              "context"
    x = x + down(silu(gate) * up)                  gate, up = norm(x) @ gate_up

The layout is that of lucidrains' titans-pytorch ("residual", "gate"), which departs from the paper ("context", see
`layers.memory_context`): there, the memory stands before attention, reads what attention will read, and is not among
what is attended to; learned vectors end each segment, so that attention can leave there what the memory then stores;
persistent tokens are keys and values of each layer. Its settings: memory in layers 2, 4 and 6 of 8. Left out, as in
every family here: hyper-connections, value residuals, an untied head; its axial position embedding, whose part rotary
positions have; and what was added to it later (spectral norms, weight residuals, rates for each matrix).
Causal only. Legend: B rows, T positions, D width.
"""

from __future__ import annotations

import jax
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.families.pre_norm import feed_forward
from jaxlm.layers.memory_context import MemoryAsContext
from jaxlm.layers.neural_memory import NeuralMemory
from jaxlm.layers.norms import norm
from jaxlm.layers.reading import Mixer, Reading
from jaxlm.layers.segment_attention import SegmentAttention
from jaxlm.model_config import ModelConfig

PARTS = {
    "layer_pattern": "SMSMSMSS",
    "segment_len": 32,
    "num_longterm_tokens": 4,
    "num_persistent_tokens": 4,
    "memory_reading": "residual",
    "memory_depth": 2,
    "memory_expansion": 2.0,
    "memory_chunk": 4,
    "memory_batch": 128,
    "memory_max_rate": 0.1,
    # The package starts at a half: then what the network starts with is gone after a few chunks, its norm divides by
    # next to nothing, and gradients are ten times as large. Its own remedy is `init_decay_bias`.
    "memory_forgetting": 0.02,
}
CAUSAL_ONLY = "its memory stores what it reads from left to right, and a mask would be stored as if it were text"


class Block(nnx.Module):
    """Memory, attention within the segment, feed-forward."""

    kinds = "SM"
    takes_canon = False

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, kind: str) -> None:
        as_context = kind == "M" and config.memory_reading == "context"
        self.attention_norm = norm(config)
        self.memory = NeuralMemory(config, execution) if kind == "M" and not as_context else None
        self.attention = MemoryAsContext(config, execution) if as_context else SegmentAttention(config, execution)
        self.feed_forward_norm = norm(config)
        self.feed_forward = feed_forward(config, execution)
        self.gates = config.memory_reading == "gate"

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]."""
        if self.memory is None:
            x_BTD = x_BTD + reading.mix("attention", self.attention, self.attention_norm(x_BTD))
        else:
            known_BTD = reading.mix("memory", self.memory, x_BTD)
            if not self.gates:
                x_BTD = x_BTD + known_BTD
            h_BTD = reading.mix("attention", self.attention, self.attention_norm(x_BTD))
            x_BTD = x_BTD + (h_BTD * jax.nn.sigmoid(known_BTD) if self.gates else h_BTD)
        return x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD), reading)

    def mixers(self) -> dict[str, Mixer | None]:
        """The parts that keep a cache, by the names under which `__call__` mixes them."""
        return {"memory": self.memory, "attention": self.attention}
