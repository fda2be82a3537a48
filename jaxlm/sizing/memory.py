"""Bytes: what training holds at its peak, what decoding caches, what a checkpoint takes. Shapes alone; makes no arrays.

What a configuration leaves to `auto` is chosen as on a GPU, whatever machine this runs on: layers in a scan, fused
attention where it can run, experts in groups. Everything is for one device that holds the whole state and micro-batch.
Legend: B rows of a micro-batch, S positions of a row (both streams), D width, V vocabulary, N query and K key heads,
H head size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxlm.config import RunConfig
from jaxlm.families import Model, build_model, resolve
from jaxlm.layers.attention_kernels import choose
from jaxlm.objectives import Objective
from jaxlm.training.optimizer import build_optimizer
from jaxlm.training.state import around

REMAT = ("none", "dots", "full")
# What Orbax's compression leaves of fp32 numbers without structure, measured: signs and mantissas are random bits.
_PACKED = 0.93
_TARGET = {"layers": "scan", "experts": "grouped"}


@dataclass(frozen=True)
class _Saved:
    """Bytes between forward and backward: what the positions made, and what stands for parameters once more."""

    activations: int
    copies: int


def training_memory(config: RunConfig) -> dict[str, dict[str, Any]]:
    """What one update holds at its peak, for each rematerialisation: `{remat: {part: bytes, ..., "at": moment}}`.

    The peak is at one of two moments, and `at` says at which; the parts are those of that moment and add up to `total`:

    * `loss`: all layers have run, and one chunk of logits is there with its gradient;
    * `backward`: the gradients of all parameters are there (a scan stacks them); the values of the blocks that a scan
      takes together, one period of the layer pattern, are there once more, read from the stack or made again; and each
      value of the block that is gone through has its gradient.

    Parts: `parameters`, `optimizer` (moments), `gradients` (fp32; the running sum too, where micro-batches add up),
    `activations` (what the backward pass needs, by JAX's own account of it), `logits_chunk`, and `copies`: parameters
    of scanned layers stacked side by side or rounded to the compute dtype, and the head likewise.

    XLA's own `memory_analysis` of the compiled step is the yardstick (`python -m jaxlm.compile` asks it for a GPU).
    """
    model = _model(config, "none")
    state = jax.eval_shape(lambda params: around(params, build_optimizer(config)), model.abstract_params())
    parameters, optimizer = _bytes(state["params"]), _bytes(state["opt_state"])
    summed = parameters if config.train.accumulation > 1 else 0
    rows = config.train.micro_batch or config.train.batch_size
    dtype, shape = jnp.dtype(config.execution.dtype), model.config
    head = shape.vocab_size * shape.hidden_size
    chunk = min(config.execution.loss_chunk or config.train.seq_len, config.train.seq_len)
    hidden = rows * config.train.seq_len * shape.hidden_size * dtype.itemsize
    kept = {remat: _saved(_model(config, remat), config, rows) for remat in REMAT}
    period = len(shape.layer_pattern)
    together = period if model.execution.layers == "scan" and period <= shape.num_layers else 1
    block = (kept["none"].activations - kept["full"].activations) // shape.num_layers
    workspace = (together + 1) * block

    def peak(saved: _Saved) -> dict[str, Any]:
        loss = {
            "gradients": summed + 4 * head,
            "activations": saved.activations + 2 * hidden,
            "logits_chunk": 2 * 4 * rows * chunk * shape.vocab_size,
            "copies": saved.copies + (head * dtype.itemsize if dtype.itemsize < 4 else 0),
        }
        backward = {
            "gradients": summed + parameters,
            "activations": saved.activations + workspace,
            "logits_chunk": 0,
            "copies": saved.copies,
        }
        at, parts = max(("loss", loss), ("backward", backward), key=lambda moment: sum(moment[1].values()))
        parts = {"parameters": parameters, "optimizer": optimizer, **parts}
        return {**parts, "total": sum(parts.values()), "at": at}

    return {remat: peak(saved) for remat, saved in kept.items()}


def cache_bytes(config: RunConfig) -> tuple[int, int]:
    """Of a row that is decoded, in the compute dtype: bytes for each position, and bytes whatever its length.

    The latter are what convolutions and memories keep.
    """
    model, length = build_model(config.model, config.execution), config.train.seq_len

    def size(length: int) -> int:
        cache = jax.eval_shape(lambda: model.init_cache(1, length))
        return _bytes({name: part for name, part in cache.items() if name != "length"})

    per_position = (size(2 * length) - size(length)) // length
    return per_position, size(length) - per_position * length


def checkpoint_bytes(config: RunConfig) -> int:
    """Parameters and optimizer state in fp32 on disk, as Orbax packs them in the middle of a run."""
    model = build_model(config.model, config.execution)
    state = jax.eval_shape(lambda params: around(params, build_optimizer(config)), model.abstract_params())
    return round(_PACKED * _bytes(state))


def _model(config: RunConfig, remat: str) -> Model:
    execution, model = config.execution, resolve(config.model)
    chosen: dict[str, Any] = {name: value for name, value in _TARGET.items() if getattr(execution, name) == "auto"}
    if set("GL") & set(model.layer_kinds):
        where: dict[str, Any] = dict(backend="gpu", dtype=execution.dtype, head_dim=model.head_dim)
        chosen["attention"] = choose(execution.attention, **where)
    return build_model(model, dataclasses.replace(execution, remat=remat, **chosen))


def _saved(model: Model, config: RunConfig, rows: int) -> _Saved:
    """What `jax.vjp` of all layers holds for the backward pass, as it is traced."""
    fused = model.execution.attention == "cudnn"
    if fused:
        # The kernel cannot be traced without cuDNN. `_size_when_fused` takes out what it does not keep.
        model = build_model(model.config, dataclasses.replace(model.execution, attention="xla"))
    structure = Objective(config.objective, model).structure(config.train.seq_len)
    tokens = jax.ShapeDtypeStruct((rows, config.train.seq_len * structure.streams), jnp.int32)
    segments = tokens if config.data.isolate_documents else None

    def forward(params: Any, tokens: jax.Array, segments: jax.Array | None) -> Any:
        return jax.vjp(lambda params: model.hidden_and_losses(params, tokens, structure, segments), params)[1]

    params = model.abstract_params()
    shapes = {leaf.shape for leaf in jax.tree.leaves(params)}
    periods = model.config.num_layers // len(model.config.layer_pattern)
    stacked = {(periods, *shape) for shape in shapes}
    activations = copies = 0
    for leaf in jax.tree.leaves(jax.eval_shape(forward, params, tokens, segments)):
        if leaf.shape in stacked or (leaf.shape in shapes and leaf.dtype != jnp.float32):
            copies += _size(leaf)
        elif leaf.shape not in shapes:  # else it is a parameter itself, and no second one
            activations += _size_when_fused(leaf, model, tokens.shape) if fused else _size(leaf)
    return _Saved(activations, copies)


def _size_when_fused(leaf: jax.ShapeDtypeStruct, model: Model, row_shape: tuple[int, ...]) -> int:
    """Bytes of what plain attention keeps, where the fused kernel does.

    Of the weights [B, K, N / K * S, S] only the log-sum-exp of each row, and the output in the compute dtype.
    """
    (B, S), shape = row_shape, model.config
    rows = (B, shape.num_kv_heads, shape.num_heads // shape.num_kv_heads * S)
    if leaf.shape[-4:] == (*rows, S):
        return 4 * math.prod(leaf.shape[:-1])
    if leaf.shape[-4:] == (*rows, shape.head_dim):
        return leaf.size * jnp.dtype(model.execution.dtype).itemsize
    return _size(leaf)


def _size(leaf: jax.ShapeDtypeStruct) -> int:
    return leaf.size * leaf.dtype.itemsize


def _bytes(tree: Any) -> int:
    leaves: Iterable[jax.ShapeDtypeStruct] = jax.tree.leaves(tree)
    return sum(map(_size, leaves))
