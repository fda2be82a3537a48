"""A model: the definition of a family at a shape, closed over, and pure functions of a plain dict of parameters.

Legend: B rows, T positions, b new positions, D width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from jaxlm.config import ExecutionConfig
from jaxlm.errors import UserError
from jaxlm.families.registry import family, resolve
from jaxlm.families.trunk import Losses, Trunk
from jaxlm.layers.attention_kernels import choose
from jaxlm.layers.linear import logits
from jaxlm.layers.parameters import Tree, bind, from_paths, initialise, paths, variables
from jaxlm.layers.reading import Cache
from jaxlm.layers.structure import Structure
from jaxlm.model_config import ModelConfig


class Model:
    """Pure functions of (params, inputs).

    `config` is resolved (see `registry.resolve`); `execution` holds what was chosen where the config says `auto`.
    """

    def __init__(self, config: ModelConfig, execution: ExecutionConfig) -> None:
        self.config, self.execution = config, execution
        self.module = Trunk(config, execution, family(config.family).block)

    def init(self, key: jax.Array) -> Tree:
        """Parameters at the start, a nested dict of fp32 arrays; see `layers.parameters.initialise`."""
        return initialise(self.module, key)

    @functools.cached_property
    def _variables(self) -> dict[str, Any]:
        return dict(paths(variables(self.module)))

    def abstract_params(self) -> Tree:
        """The tree of `init`, of ShapeDtypeStruct."""
        return from_paths({path: leaf.get_value() for path, leaf in self._variables.items()})

    def logical_axes(self) -> Tree:
        """The tree of `init`, each leaf a tuple of logical axis names."""
        return from_paths({path: leaf.get_metadata()["logical"] for path, leaf in self._variables.items()})

    def bind(self, params: Tree) -> Trunk:
        """The NNX module with these parameters: what notebooks look at, and what the functions below call."""
        return bind(self.module, params)

    def hidden(
        self, params: Tree, tokens_BT: jax.Array, structure: Structure, segments_BT: jax.Array | None = None
    ) -> jax.Array:
        """int32 [B, T] to [B, T, D] after the final norm, in the compute dtype."""
        return self.hidden_and_losses(params, tokens_BT, structure, segments_BT)[0]

    def hidden_and_losses(
        self,
        params: Tree,
        tokens_BT: jax.Array,
        structure: Structure,
        segments_BT: jax.Array | None = None,
        *,
        noise_BTD: jax.Array | None = None,
        allowed_TT: jax.Array | None = None,
    ) -> tuple[jax.Array, Losses]:
        """`hidden`, and the auxiliary losses of each row by name, fp32 [B], times their coefficients.

        `noise_BTD` is added to the embeddings; `allowed_TT` (bool, query by key) is what attention sees at most.
        """
        x_BTD, losses = self.bind(params)(tokens_BT, structure, segments_BT, noise_BTD=noise_BTD, allowed_TT=allowed_TT)
        coefficients = {"router_balance": self.config.router_balance_coef, "router_z": self.config.router_z_coef}
        return x_BTD, {name: coefficients[name] * loss_B for name, loss_B in losses.items()}

    def head_VD(self, params: Tree) -> jax.Array:
        """The head, fp32 [V, D]."""
        return params["embedding" if self.config.tie_embeddings else "head"]["table"]

    def logits(self, params: Tree, x_BTD: jax.Array) -> jax.Array:
        """[..., D] to fp32 [..., V]."""
        return logits(x_BTD, self.head_VD(params))

    def init_cache(self, batch: int, length: int) -> Cache:
        """An empty cache for `batch` rows of up to `length` positions."""
        return self.module.init_cache(batch, length)

    def extend(
        self, params: Tree, tokens_Bb: jax.Array, cache: Cache, structure: Structure, num_new_B: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """B >= 1 new positions: hidden states [B, b, D], and a cache of which `commit` keeps a part.

        The cache must have room for length + b positions in every row.
        """
        return self.bind(params).extend(tokens_Bb, cache, structure, num_new_B)

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache:
        """Accepts the first n_B (int32 [B]) new positions of a cache that `extend` returned."""
        return self.module.commit(cache, n_B)


def build_model(config: ModelConfig, execution: ExecutionConfig | None = None) -> Model:
    """The model of a configuration; what `execution` leaves to `auto` is chosen for the present backend.

    Raises UserError for a family that does not exist, or a combination that the family refuses.
    """
    execution = execution or ExecutionConfig()
    config = resolve(config)
    backend = jax.default_backend()
    attention = execution.attention
    if set("GL") & set(config.layer_kinds):
        attention = choose(attention, backend=backend, dtype=execution.dtype, head_dim=config.head_dim)
    elif attention not in ("auto", "xla"):
        raise UserError(
            f"execution.attention is {attention!r}, allowed: 'auto' or 'xla' without G or L layers in "
            f"model.layer_pattern (it is {config.layer_pattern!r})"
        )
    else:
        attention = "xla"
    layers = execution.layers
    if layers == "auto":
        # A loop saves compile time; on a CPU unrolled layers run 14-20 % faster, and compiling is cheap there.
        layers = "unroll" if backend == "cpu" else "scan"
    experts = execution.experts
    if experts == "auto":
        # A CPU has no grouped product of its own, and sorting tokens of many devices would move them all.
        experts = "grouped" if backend != "cpu" and jax.device_count() == 1 else "dense"
    return Model(config, dataclasses.replace(execution, attention=attention, layers=layers, experts=experts))
