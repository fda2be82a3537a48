"""`jax.jit` for what a test runs once or twice on a few numbers: there, compiling takes all the time."""

import functools
from typing import Any

import jax

quick_jit = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)


@functools.lru_cache(maxsize=128)
def quick_decoder(function: Any, static: tuple[Any, ...], tree: Any, shapes: tuple[Any, ...]) -> Any:
    """In place of `jaxlm.generation.result._compiled`, which compiles what decodes."""
    jitted = quick_jit(functools.partial(function, **dict(static)))
    return jitted.lower(*jax.tree.unflatten(tree, shapes)).compile()
