"""Routed experts: Mixtral's and Qwen3-MoE's, with shared ones also DeepSeek's. No token is ever dropped.

The router's scores are softmax over all experts; the k best work for a token (arXiv 2401.04088), weighted by their
scores, which are made to sum to 1 first if `normalize_experts`. Shared experts work for every token, unweighted
(DeepSeekMoE, arXiv 2401.06066), as one feed-forward of their joint width.
Legend: B rows, T positions, n = B T tokens, D width, F width of an expert, E experts, k experts a token.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.layers.feed_forward import GatedFeedForward, gated
from jaxlm.layers.linear import Linear, precision, residual_std
from jaxlm.layers.parameters import Normal, parameter
from jaxlm.layers.reading import Reading
from jaxlm.model_config import ModelConfig


class ExpertWeights(nnx.Module):
    """The matrices of all experts: `gate_up` [E, D, 2F] and `down` [E, F, D]."""

    def __init__(self, config: ModelConfig) -> None:
        E, D, F = config.num_experts, config.hidden_size, config.intermediate_size
        self.gate_up = parameter((E, D, 2 * F), Normal(config.init_std), ("expert", "embed", "mlp"))
        self.down = parameter((E, F, D), Normal(residual_std(config)), ("expert", "mlp", "embed"))


class Experts(nnx.Module):
    """A feed-forward of which each token uses a part.

    Two ways of computing the same: `dense` lets every expert work for every token and weighs most results with 0, which
    wastes arithmetic but is a plain matrix product on every backend and every mesh; `grouped` sorts the tokens by
    expert and multiplies each group by its own matrix (`jax.lax.ragged_dot`), which needs all tokens on one device.
    """

    def __init__(self, config: ModelConfig, execution: ExecutionConfig) -> None:
        # In fp32, whatever the rest is computed in: near ties, rounding would choose the experts.
        self.router = Linear(
            config.hidden_size, config.num_experts, std=config.init_std, logical=("embed", "expert"), dtype="float32"
        )
        self.experts = ExpertWeights(config)
        shared = config.num_shared_experts * config.intermediate_size
        self.shared = GatedFeedForward(config, execution, width=shared) if shared else None
        self.num_chosen, self.normalize = config.experts_per_token, config.normalize_experts
        self.activation = config.feed_forward
        self.grouped, self.dtype = execution.experts == "grouped", jnp.dtype(execution.dtype)

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]; notes the auxiliary losses of the rows in the reading."""
        logits_BTE = self.router(x_BTD)
        scores_BTE = jax.nn.softmax(logits_BTE, axis=-1)
        weights_BTk, chosen_BTk = jax.lax.top_k(scores_BTE, self.num_chosen)
        if self.normalize:
            weights_BTk = weights_BTk / jnp.sum(weights_BTk, axis=-1, keepdims=True)
        self._note_losses(logits_BTE, scores_BTE, chosen_BTk, reading)
        B, T, D = x_BTD.shape
        compute = self._grouped if self.grouped else self._dense
        y_nD = compute(
            x_BTD.reshape(B * T, D), weights_BTk.reshape(B * T, -1).astype(self.dtype), chosen_BTk.reshape(B * T, -1)
        )
        y_BTD = y_nD.reshape(B, T, D)
        return y_BTD if self.shared is None else y_BTD + self.shared(x_BTD, reading)

    def _note_losses(
        self, logits_BTE: jax.Array, scores_BTE: jax.Array, chosen_BTk: jax.Array, reading: Reading
    ) -> None:
        """`router_balance` = E sum_e f_e p_e and `router_z` = mean (log sum exp)^2, each over the positions of a row.

        f_e is how many of a position's k choices fall on expert e, p_e its mean score: k if the choice is even
        (Switch Transformer, arXiv 2101.03961; transformers' load_balancing_loss_func). z: ST-MoE, arXiv 2202.08906.
        """
        num_experts = logits_BTE.shape[-1]
        load_BE = jnp.mean(jnp.sum(jax.nn.one_hot(chosen_BTk, num_experts), axis=2), axis=1)
        reading.note("router_balance", num_experts * jnp.sum(load_BE * jnp.mean(scores_BTE, axis=1), axis=-1))
        reading.note("router_z", jnp.mean(jnp.square(jax.nn.logsumexp(logits_BTE, axis=-1)), axis=1))

    def _dense(self, x_nD: jax.Array, weights_nk: jax.Array, chosen_nk: jax.Array) -> jax.Array:
        exact: dict[str, Any] = dict(precision=precision(self.dtype))
        gate_up_EDF, down_EFD = self._matrices()
        weights_nE = jnp.sum(
            jax.nn.one_hot(chosen_nk, len(down_EFD), dtype=self.dtype) * weights_nk[:, :, None], axis=1
        )
        hidden_nEF = gated(self.activation, jnp.einsum("nd,edf->nef", x_nD, gate_up_EDF, **exact))
        return jnp.einsum("nef,efd->nd", hidden_nEF * weights_nE[:, :, None], down_EFD, **exact)

    def _grouped(self, x_nD: jax.Array, weights_nk: jax.Array, chosen_nk: jax.Array) -> jax.Array:
        exact: dict[str, Any] = dict(precision=precision(self.dtype))
        gate_up_EDF, down_EFD = self._matrices()
        order_m = jnp.argsort(chosen_nk.reshape(-1), stable=True)  # m = n k pairs of token and expert, by expert
        token_m = order_m // self.num_chosen
        sizes_E = jnp.bincount(chosen_nk.reshape(-1), length=len(down_EFD)).astype(jnp.int32)
        hidden_mF = gated(self.activation, jax.lax.ragged_dot(x_nD[token_m], gate_up_EDF, sizes_E, **exact))
        weighted_mF = hidden_mF * weights_nk.reshape(-1)[order_m][:, None]
        return jnp.zeros_like(x_nD).at[token_m].add(jax.lax.ragged_dot(weighted_mF, down_EFD, sizes_E, **exact))

    def _matrices(self) -> tuple[jax.Array, jax.Array]:
        return self.experts.gate_up[...].astype(self.dtype), self.experts.down[...].astype(self.dtype)
