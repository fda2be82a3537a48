"""`jax.jit` for what a test runs once or twice on a few numbers: there, compiling takes all the time."""

import functools

import jax

quick_jit = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)
