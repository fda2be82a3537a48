"""Neural memory (Titans, arXiv 2501.00663): a small network f that learns what it reads, while it reads it.

    k, v, theta, eta, alpha from norm_store(x);  q from norm_read(x)       one network a head
    loss_t = theta_t * mean((f_M(k_t) - v_t)^2)                            surprise
    S_c = eta_c S_(c-1) - sum of the gradients of chunk c                  momentum
    M_c = (1 - alpha_c) M_(c-1) + S_c                                      forgetting
    y_t = f_M(q_t), M the memory after the chunks that t completes or has behind it

As lucidrains' titans-pytorch does it: theta is a position's own, eta and alpha are a chunk's, from the mean over its
positions; the gradients of a whole memory batch are taken at the weights held at its start, so that they need not wait
for each other.

No memory of a chunk is ever built. A gradient is an outer product a e of what entered a matrix and what the loss says
of what left it, so M_c = P M_held + Q S_held - sum_i A_i a_i e_i with numbers P, Q, A that follow from eta and alpha,
and x @ M_c is x @ M_held, x @ S_held, and something like attention: sum_i A_i (x a_i) e_i. This is exact.

Whatever the rest is computed in, this is at least fp32. Legend: B rows, T positions, b new ones, D width, N heads, H
head dim, U positions of a memory batch, C chunks in it, W width inside f.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.layers import pieces
from jaxlm.layers.linear import Linear
from jaxlm.layers.memory_mixture import Mixture, mixtures
from jaxlm.layers.norms import RMSNorm
from jaxlm.layers.parameters import Constant, Parts, Uniform, parameter
from jaxlm.layers.reading import Cache, Reading
from jaxlm.model_config import ModelConfig

Weights = dict[str, jax.Array]  # of f: matrices "0", "1", ... and "scale", each [N, ...] or [B, N, ...]
_EXACT: dict[str, Any] = dict(precision=jax.lax.Precision.HIGHEST)
_LAYER_NORM_EPS = 1e-5


class StartWeights(nnx.Module):
    """f as it is before the first position, learned: `depth` matrices a head, Xavier-uniform, and a norm's scale."""

    def __init__(self, config: ModelConfig) -> None:
        N, H, widths = config.num_heads, config.head_dim, config.memory_widths
        self.matrices = nnx.Dict(
            {
                str(i): parameter((N, a, b), Uniform(math.sqrt(6 / (a + b))), (None, None, None))
                for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False))
            }
        )
        self.scale = parameter((N, H), Constant(0.0), (None, None))

    def weights(self) -> Weights:
        """The numbers by name."""
        return {name: matrix[...] for name, matrix in self.matrices.items()} | {"scale": self.scale[...]}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Their shapes, also of a module that holds no numbers."""
        found = {name: matrix.get_value().shape for name, matrix in self.matrices.items()}
        return found | {"scale": self.scale.get_value().shape}


def network(x: jax.Array, depth: int, product: Callable[[int, jax.Array], jax.Array], scale: jax.Array) -> jax.Array:
    """f: x + (1 + scale) * norm(mlp(x)), with GELU between the matrices; `product(i, h)` is h @ matrix i.

    The wrapper around the MLP is that of TTT (arXiv 2407.04620); the norm has mean and variance.
    """
    h = product(0, x)
    for i in range(1, depth):
        h = product(i, jax.nn.gelu(h, approximate=False))
    centred = h - jnp.mean(h, axis=-1, keepdims=True)
    normed = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + _LAYER_NORM_EPS)
    return x + (1.0 + scale) * normed


class NeuralMemory(nnx.Module):
    """A mixer: [B, T, D] to what the memory knows about each position, [B, T, D]."""

    def __init__(self, config: ModelConfig, execution: ExecutionConfig) -> None:
        D, N, H = config.hidden_size, config.num_heads, config.head_dim
        make: dict[str, Any] = dict(std=config.init_std, dtype=execution.dtype)
        self.store_norm, self.read_norm = RMSNorm(D, eps=config.norm_eps), RMSNorm(D, eps=config.norm_eps)
        self.key_value = Linear(D, 2 * N * H, logical=("embed", "heads"), **make)
        self.query = Linear(D, N * H, logical=("embed", "heads"), **make)
        forgetting = math.log(config.memory_forgetting / (1 - config.memory_forgetting))
        rates = Parts((0.0, 0.0, forgetting))  # logits of theta, eta and alpha
        self.rates = Linear(D, 3 * N, logical=("embed", "heads"), bias=rates, **make)
        self.gate = Linear(D, N, logical=("embed", "heads"), **make)
        self.out = Linear(N * H, D, logical=("heads", "embed"), **make)
        head: dict[str, Any] = dict(eps=config.norm_eps, unit_offset=True, heads=N, logical=None)
        self.key_norm, self.query_norm = RMSNorm(H, **head), RMSNorm(H, **head)
        self.start = StartWeights(config)
        self.depth, self.heads, self.head_dim = config.memory_depth, N, H
        self.chunk, self.unit, self.max_rate = config.memory_chunk, config.memory_batch, config.memory_max_rate

    def whole(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]; isolated documents have a fresh memory each."""
        assert reading.structure.causal, reading.structure
        items = {**self.stored(x_BTD), "query": self.queries(x_BTD)}
        if reading.segments_BT is not None:
            items["segments"] = reading.segments_BT
        state = self.start_state(x_BTD.shape[0], isolated=reading.segments_BT is not None)
        return self.answer(x_BTD, pieces.whole(self.step, state, items, self.unit))

    def init_cache(self, batch: int, length: int) -> Cache:
        """Memory and momentum at the start of the unfinished memory batch, and what that batch has to store so far."""
        del length
        N, H = self.heads, self.head_dim
        like = {"key": (N, H), "value": (N, H), "query": (N, H), "rates": (N, 3)}
        weights = {name: jnp.zeros((batch, *shape), jnp.float32) for name, shape in self.start.shapes().items()}
        held = pieces.empty({name: jax.ShapeDtypeStruct(s, jnp.float32) for name, s in like.items()}, batch, self.unit)
        return {"state": {"memory": weights, "momentum": weights}, "held": held}

    def extend(self, x_BbD: jax.Array, reading: Reading, cache: Cache) -> tuple[jax.Array, Cache]:
        """New positions [B, b, D]: the unfinished memory batch is done again with them, from the state at its start."""
        assert reading.length_B is not None and reading.structure.causal
        state = self.fresh_or(cache["state"], reading.length_B < self.unit)
        new = {**self.stored(x_BbD), "query": self.queries(x_BbD)}
        y_BbNH, proposal = pieces.extend(self.step, state, cache["held"], new, reading.length_B)
        return self.answer(x_BbD, y_BbNH), proposal

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache:
        """Keeps the state at the start of the memory batch that the n-th new position leaves unfinished."""
        state, held = pieces.commit(cache, n_B, self.unit)
        return {"state": state, "held": held}

    def start_state(self, batch: int, *, isolated: bool = False) -> dict[str, Any]:
        """Before the first position; with isolated documents, no document has been seen."""
        weights = jax.tree.map(lambda w: jnp.broadcast_to(w, (batch, *w.shape)), self.start.weights())
        state: dict[str, Any] = {"memory": weights, "momentum": jax.tree.map(jnp.zeros_like, weights)}
        return state | ({"document": jnp.full(batch, -1, jnp.int32)} if isolated else {})

    def fresh_or(self, state: dict[str, Any], fresh_B: jax.Array) -> dict[str, Any]:
        """The state at the start in rows that have finished no memory batch, the given one in the others."""

        def choose(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(fresh_B.reshape(-1, *((1,) * (new.ndim - 1))), new, old)

        return jax.tree.map(choose, self.start_state(len(fresh_B)), state)

    def stored(self, x_BTD: jax.Array) -> dict[str, jax.Array]:
        """What the memory learns from: keys and values [B, T, N, H], logits of theta, eta, alpha [B, T, N, 3]."""
        x_BTD = self.store_norm(x_BTD)
        key, value = jnp.split(self._heads(self.key_value(x_BTD), 2 * self.heads), 2, axis=2)
        rates = _wide(self.rates(x_BTD)).reshape(*x_BTD.shape[:2], 3, self.heads).swapaxes(2, 3)
        return {"key": self.key_norm(key), "value": value, "rates": rates}

    def queries(self, x_BTD: jax.Array) -> jax.Array:
        """[B, T, D] to [B, T, N, H]."""
        return self.query_norm(self._heads(self.query(self.read_norm(x_BTD)), self.heads))

    def answer(self, x_BTD: jax.Array, y_BTNH: jax.Array) -> jax.Array:
        """What was read for the queries of x, [B, T, N, H], each head gated by x, to [B, T, D]."""
        gate_BTN = jax.nn.sigmoid(self.gate(self.read_norm(x_BTD)))
        return self.out((y_BTNH.astype(gate_BTN.dtype) * gate_BTN[..., None]).reshape(*x_BTD.shape[:2], -1))

    def _heads(self, x_BTF: jax.Array, heads: int) -> jax.Array:
        return _wide(x_BTF).reshape(*x_BTF.shape[:2], heads, self.head_dim)

    def step(self, state: dict[str, Any], items: dict[str, jax.Array]) -> tuple[dict[str, Any], jax.Array]:
        """One memory batch: learns from it and answers its queries, [B, U, N, H].

        The items are those of `stored`, `query`, and `segments` [B, U] if documents are isolated.
        """
        documents = (items["segments"], state["document"]) if "segments" in items else None
        factors = self.learn(state, items)
        reads, memory, momentum = mixtures(items["rates"], self.chunk, documents)
        y_BNUH = self.read(state, items["query"].swapaxes(1, 2), factors, reads)
        after: dict[str, Any] = {
            "memory": self._mixed(state, factors, memory),
            "momentum": self._mixed(state, factors, momentum),
        }
        if documents is not None:
            after["document"] = items["segments"][:, -1]
        return after, y_BNUH.swapaxes(1, 2)

    def recall(self, state: dict[str, Any], x_BTD: jax.Array, segments_BT: jax.Array | None = None) -> jax.Array:
        """What the held memory knows about x, [B, T, D] to [B, T, D]; a new document's is the one before any text."""
        query_BNTH = self.queries(x_BTD).swapaxes(1, 2)
        y_BNTH = self.read(state, query_BNTH)
        if segments_BT is not None:
            own_B1T1 = (segments_BT == state["document"][:, None])[:, None, :, None]
            y_BNTH = jnp.where(own_B1T1, y_BNTH, self.read(self.start_state(len(x_BTD)), query_BNTH))
        return self.answer(x_BTD, y_BNTH.swapaxes(1, 2))

    def read(
        self, state: dict[str, Any], query_BNTH: jax.Array, factors: Weights | None = None, mix: Mixture | None = None
    ) -> jax.Array:
        """f(q), each position with the weights that `mix` says; without it, with those that the state holds."""
        memory, start = state["memory"], self.start.weights()
        if mix is None or factors is None:
            scale = memory["scale"][:, :, None]
            return network(query_BNTH, self.depth, lambda i, h: _matmul(h, memory[str(i)]), scale)

        def product(i: int, h: jax.Array) -> jax.Array:
            a, e = factors[f"a{i}"], factors[f"e{i}"]
            y = mix.held * _matmul(h, memory[str(i)]) + mix.momentum * _matmul(h, state["momentum"][str(i)])
            y = y - _matmul(_matmul(h, a.swapaxes(2, 3)) * mix.written, e)
            return y if mix.start is None else y + mix.start * _matmul(h, start[str(i)])

        scale = mix.held * memory["scale"][:, :, None] + mix.momentum * state["momentum"]["scale"][:, :, None]
        scale = scale - _matmul(mix.written, factors["scale"])
        if mix.start is not None:
            scale = scale + mix.start * start["scale"][:, None]
        return network(query_BNTH, self.depth, product, scale)

    def learn(self, state: dict[str, Any], items: dict[str, jax.Array]) -> Weights:
        """The gradients of the memory batch at the weights held at its start, as factors.

        Of matrix i for position t: a_t e_t, `a{i}` [B, N, U, W] and `e{i}` [B, N, U, W']; of the scale: `scale`
        [B, N, U, H]. theta is in them.
        """
        memory, start = state["memory"], self.start.weights()
        key, value = items["key"].swapaxes(1, 2), items["value"].swapaxes(1, 2)
        theta_BNU = self.max_rate * jax.nn.sigmoid(items["rates"][..., 0]).swapaxes(1, 2)
        own = None
        if "segments" in items:
            # A document that begins within the batch learns from where every document begins.
            own = (items["segments"] == state["document"][:, None])[:, None, :, None]

        def loss(nudges: Weights) -> tuple[jax.Array, Weights]:
            entered: Weights = {}

            def product(i: int, h: jax.Array) -> jax.Array:
                entered[f"a{i}"] = h
                y = _matmul(h, memory[str(i)])
                return (y if own is None else jnp.where(own, y, _matmul(h, start[str(i)]))) + nudges[f"e{i}"]

            scale = memory["scale"][:, :, None]
            if own is not None:
                scale = jnp.where(own, scale, start["scale"][:, None])
            error = network(key, self.depth, product, scale + nudges["scale"]) - value
            return jnp.sum(theta_BNU * jnp.mean(jnp.square(error), axis=-1)), entered

        # The gradient for a nudge of what leaves a matrix, at a nudge of 0, is that for what leaves it.
        nudges = {f"e{i}": jnp.zeros((*key.shape[:3], memory[str(i)].shape[-1]), key.dtype) for i in range(self.depth)}
        gradients, entered = jax.grad(loss, has_aux=True)(nudges | {"scale": jnp.zeros_like(key)})
        return gradients | entered

    def _mixed(self, state: dict[str, Any], factors: Weights, mix: Mixture) -> Weights:
        """The weights themselves that a mixture of one memory says."""
        start, out = self.start.weights(), {}
        for name, held in state["memory"].items():

            def times(weight_BN11: jax.Array, x: jax.Array) -> jax.Array:
                return weight_BN11.reshape(*weight_BN11.shape[:2], *((1,) * (x.ndim - 2))) * x

            if name == "scale":
                written = _matmul(mix.written, factors["scale"])[:, :, 0]
            else:
                a = factors[f"a{name}"] * mix.written.swapaxes(2, 3)
                written = _matmul(a.swapaxes(2, 3), factors[f"e{name}"])
            out[name] = times(mix.held, held) + times(mix.momentum, state["momentum"][name]) - written
            if mix.start is not None:
                out[name] = out[name] + times(mix.start, jnp.broadcast_to(start[name], held.shape))
        return out


def _matmul(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(x, y, **_EXACT)


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
