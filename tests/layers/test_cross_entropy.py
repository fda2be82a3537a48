"""The chunked loss against optax, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxlm.layers.cross_entropy import chunked_nats

B, T, D, V = 3, 13, 8, 53


@pytest.mark.parametrize("chunk", [0, 1, 4, 13, 50])
def test_equals_optax_with_its_gradient(chunk) -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    x, head = jax.random.normal(keys[0], (B, T, D)), jax.random.normal(keys[1], (V, D))
    targets = jax.random.randint(keys[2], (B, T), 0, V)
    weights = jax.random.uniform(keys[3], (B, T))

    def ours(x, head):
        return jnp.sum(weights * chunked_nats(x, head, targets, chunk))

    def theirs(x, head):
        return jnp.sum(weights * optax.softmax_cross_entropy_with_integer_labels(x @ head.T, targets))

    np.testing.assert_allclose(ours(x, head), theirs(x, head), rtol=1e-6)
    for a, b in zip(jax.grad(ours, (0, 1))(x, head), jax.grad(theirs, (0, 1))(x, head), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_logits_are_fp32_when_the_operands_are_bf16() -> None:
    x, head = jax.random.normal(jax.random.key(0), (1, 4, 256)), jax.random.normal(jax.random.key(1), (V, 256))
    targets = jnp.zeros((1, 4), jnp.int32)
    rounded = chunked_nats(x.astype(jnp.bfloat16), head, targets, 0)
    assert rounded.dtype == jnp.float32
    # The same operands in fp32: what differs is only the order of fp32 sums.
    exact = chunked_nats(*(a.astype(jnp.bfloat16).astype(jnp.float32) for a in (x, head)), targets, 0)
    np.testing.assert_allclose(rounded, exact, rtol=1e-4)


def test_chunks_need_less_memory() -> None:
    x, head = jax.ShapeDtypeStruct((4, 256, 16), jnp.float32), jax.ShapeDtypeStruct((4096, 16), jnp.float32)
    targets = jax.ShapeDtypeStruct((4, 256), jnp.int32)

    def temporaries(chunk):
        loss = jax.value_and_grad(lambda x, head, t: chunked_nats(x, head, t, chunk).sum(), (0, 1))
        return jax.jit(loss).lower(x, head, targets).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(32) < temporaries(0) / 3
