"""How a module declares a parameter: shape, start, and logical axis names; the arrays live elsewhere.

Modules hold `ShapeDtypeStruct`s. `initialise` makes the arrays, each from the key of its own path, so that a part that
two models share starts from the same numbers in both, whatever else they contain and in whatever order they are built.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Tree = dict[str, Any]
Initializer = Callable[[jax.Array, tuple[int, ...]], jax.Array]

# The initializers are frozen dataclasses, not closures: equal ones compare equal, so that blocks of one kind have one
# pytree structure and can be stacked for a scan.


@dataclass(frozen=True)
class Normal:
    """Gaussian of a given standard deviation."""

    std: float

    def __call__(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return self.std * jax.random.normal(key, shape, jnp.float32)


@dataclass(frozen=True)
class Uniform:
    """Uniform between -bound and bound."""

    bound: float

    def __call__(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.uniform(key, shape, jnp.float32, -self.bound, self.bound)


@dataclass(frozen=True)
class Constant:
    """One value everywhere."""

    value: float

    def __call__(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jnp.full(shape, self.value, jnp.float32)


@dataclass(frozen=True)
class Parts:
    """A vector of equal parts, each with a value of its own."""

    values: tuple[float, ...]

    def __call__(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jnp.repeat(jnp.array(self.values, jnp.float32), shape[0] // len(self.values))


def parameter(shape: tuple[int, ...], initializer: Initializer, logical: tuple[str | None, ...]) -> nnx.Param[Any]:
    """An abstract fp32 parameter with one logical axis name a dimension (`jaxlm.training.sharding` reads them)."""
    assert len(shape) == len(logical), (shape, logical)
    return nnx.Param(jax.ShapeDtypeStruct(shape, jnp.float32), initializer=initializer, logical=logical)


def paths(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields `("layers/00/attention/qkv/kernel", leaf)` in sorted order."""
    for name in sorted(tree):
        value = tree[name]
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def from_paths(items: dict[str, Any]) -> Tree:
    """The nested dict whose `paths` are `items`."""
    tree: Tree = {}
    for path, leaf in items.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree


def variables(module: nnx.Module) -> Tree:
    """The module's parameters as a nested dict of `nnx.Param`."""
    return from_paths(
        {"/".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(nnx.state(module, nnx.Param))}
    )


def initialise(module: nnx.Module, key: jax.Array) -> Tree:
    """Arrays for every parameter of an abstract module: a nested dict, fp32."""
    # Those that start alike are drawn together: compiled one by one, the start of 64 layers takes as long as a step.
    alike: dict[tuple[Initializer, tuple[int, ...]], list[str]] = {}
    for path, leaf in paths(variables(module)):
        alike.setdefault((leaf.get_metadata()["initializer"], leaf.get_value().shape), []).append(path)
    out: dict[str, jax.Array] = {}
    for (initializer, shape), names in alike.items():
        sums_N = jnp.array([zlib.crc32(path.encode()) for path in names], jnp.uint32)
        keys_N = jax.vmap(jax.random.fold_in, (None, 0))(key, sums_N)
        drawn_N = jax.vmap(initializer, (0, None))(keys_N, shape)
        out |= dict(zip(names, drawn_N, strict=True))
    return from_paths(out)


def bind(module: nnx.Module, params: Tree) -> Any:
    """The module with `params` (arrays or tracers) in place of its abstract parameters; `module` stays as it is."""
    graphdef, state = nnx.split(module)
    flat = [(path, leaf.replace(_lookup(params, path))) for path, leaf in nnx.to_flat_state(state)]
    return nnx.merge(graphdef, nnx.from_flat_state(flat))


def _lookup(tree: Tree, path: tuple[Any, ...]) -> Any:
    for name in path:
        tree = tree[str(name)]
    return tree
