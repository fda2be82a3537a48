"""Neural memory against the titans-pytorch package, against a loop over positions, and against itself in pieces."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.layers.neural_memory import NeuralMemory, network
from jaxlm.layers.parameters import Tree, bind, from_paths, initialise, paths, variables
from jaxlm.layers.reading import Reading
from jaxlm.layers.structure import Structure
from tests.quick_jit import quick_jit
from tests.random_tree import random_tree

D, N, H, CHUNK, BATCH = 20, 3, 8, 4, 16
B, T = 2, 37  # two memory batches and five positions, of which one is in an unfinished chunk
EPS = 1e-6
CAUSAL = Structure(1)


def build(**changes: Any) -> tuple[NeuralMemory, Tree]:
    """A memory, and parameters that are nowhere at their start."""
    fields = dict(memory_depth=2, memory_expansion=2.0, memory_chunk=CHUNK, memory_batch=BATCH, memory_max_rate=0.1)
    shape = dict(hidden_size=D, num_heads=N, num_kv_heads=N, head_dim=H, norm_eps=EPS, memory_forgetting=0.02)
    memory = NeuralMemory(ModelConfig(**shape | fields | changes), ExecutionConfig(dtype="float32"))
    abstract = from_paths({path: leaf.get_value() for path, leaf in paths(variables(memory))})
    return memory, random_tree(abstract, spread=0.2, norm=0.5)


def doubled(memory: NeuralMemory) -> NeuralMemory:
    """The same in float64: there, what is not rounding cannot be taken for it."""
    for part in (memory.key_value, memory.query, memory.rates, memory.gate, memory.out):
        part.dtype = jnp.dtype("float64")
    return memory


def text(length: int = T, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((B, length, D)).astype(np.float32)


def whole(memory: NeuralMemory, params: Tree, x_BTD: Any, segments_BT: Any = None) -> jax.Array:
    return bind(memory, params).whole(x_BTD, Reading(CAUSAL, jnp.arange(x_BTD.shape[1])[None], segments_BT))


def from_package(depth: int, max_rate: float) -> Any:
    """The package's memory, in float64."""
    import torch

    with warnings.catch_warnings():
        # One of the packages that it imports decorates functions with torch.jit.script, which torch deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        from titans_pytorch import MemoryMLP
        from titans_pytorch import NeuralMemory as Theirs
    torch.manual_seed(0)
    theirs = Theirs(
        dim=D,
        chunk_size=CHUNK,
        batch_size=BATCH,
        dim_head=H,
        heads=N,
        model=MemoryMLP(H, depth),
        qk_rmsnorm=True,
        default_step_transform_max_lr=max_rate,
    ).double()
    for module in theirs.modules():
        if isinstance(module, torch.nn.RMSNorm):
            module.eps = EPS  # none is given there, and what torch takes then depends on the type
    return theirs


def theirs_from_ours(params: Tree, depth: int) -> dict[str, np.ndarray]:
    """Our tree (of parameters, or of gradients) under the package's names."""
    ours = {path: np.asarray(leaf) for path, leaf in paths(params)}
    kernel, bias = ours["rates/kernel"].reshape(D, 3, N), ours["rates/bias"].reshape(3, N)
    out = {
        "retrieve_norm.weight": ours["read_norm/scale"],
        "store_norm.weight": ours["store_norm/scale"],
        "q_norm.gamma": ours["query_norm/scale"][:, None],
        "k_norm.gamma": ours["key_norm/scale"][:, None],
        "combine_heads.weight": ours["out/kernel"].T,
        "retrieve_gate.0.weight": ours["gate/kernel"].T,
        "to_queries.weight": ours["query/kernel"].T,
        "to_keys.weight": ours["key_value/kernel"][:, : N * H].T,
        "to_values.weight": ours["key_value/kernel"][:, N * H :].T,
        "memory_model_parameters.0": ours["start/scale"],
    }
    for i, name in enumerate(("to_adaptive_step", "to_momentum", "to_decay_factor")):
        out |= {f"{name}.0.weight": kernel[:, i].T, f"{name}.0.bias": bias[i]}
    return out | {f"memory_model_parameters.{i + 1}": ours[f"start/matrices/{i}"] for i in range(depth)}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_values_and_gradients_are_those_of_the_package(depth: int) -> None:
    import torch

    memory, params = build(memory_depth=depth)
    theirs, named = from_package(depth, 0.1), theirs_from_ours(params, depth)
    for name, parameter in theirs.named_parameters():
        if not name.startswith("memory_model."):  # a copy that is only there for its shapes
            # Not copied in place: the package gives all heads one storage, so that they would end up the same.
            parameter.data = torch.tensor(named.pop(name)).double()
    assert not named
    x_BTD, along = text(), text(seed=2)
    theirs_x = torch.tensor(x_BTD).double().requires_grad_()
    expected, _ = theirs(theirs_x)
    (torch.sin(expected) * torch.tensor(along)).sum().backward()

    def cost(params: Tree, x_BTD: jax.Array) -> tuple[jax.Array, jax.Array]:
        y_BTD = whole(memory, params, x_BTD)
        return jnp.sum(jnp.sin(y_BTD) * along), y_BTD

    doubled(memory)
    with jax.enable_x64(True):
        gradient = quick_jit(jax.grad(cost, argnums=(0, 1), has_aux=True))
        (of_params, of_x), found = gradient(jax.tree.map(np.float64, params), np.float64(x_BTD))

    def same(found: Any, expected: Any, name: str) -> None:
        expected = expected.detach().numpy()
        assert np.abs(expected).max() > 0.1, name
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max(), err_msg=name)

    same(found, expected, "y")
    same(of_x, theirs_x.grad, "x")
    their_gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, of_parameter in theirs_from_ours(of_params, depth).items():
        same(of_parameter, their_gradients[name], name)


def test_float32_is_no_further_off_than_rounding() -> None:
    memory, params = build()
    x_BTD = text()
    found = quick_jit(functools.partial(whole, memory))(params, x_BTD)
    with jax.enable_x64(True):
        wide = quick_jit(functools.partial(whole, doubled(build()[0])))
        expected = wide(jax.tree.map(np.float64, params), np.float64(x_BTD))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def loop(memory: NeuralMemory, params: Tree, x_TD: jax.Array) -> jax.Array:
    """The definition, one position after another and with a memory that is really there after each chunk: [T, D]."""
    module = bind(memory, params)
    stored = {name: leaf[0] for name, leaf in module.stored(x_TD[None]).items()}
    query_TNH = module.queries(x_TD[None])[0]
    weights = module.start.weights()
    held, momentum = weights, jax.tree.map(jnp.zeros_like, weights)
    f = jax.vmap(
        lambda w, x: network(x, memory.depth, lambda i, h: h @ w[str(i)], w["scale"])
    )  # over heads: [N, ...], [N, H]

    def surprise(weights: Any, key_NH: jax.Array, value_NH: jax.Array, theta_N: jax.Array) -> jax.Array:
        return jnp.sum(theta_N * jnp.mean(jnp.square(f(weights, key_NH) - value_NH), axis=-1))

    out, gradient = [], jax.tree.map(jnp.zeros_like, weights)
    for t in range(len(x_TD)):
        theta_N = memory.max_rate * jax.nn.sigmoid(stored["rates"][t, :, 0])
        one = jax.grad(surprise)(held, stored["key"][t], stored["value"][t], theta_N)
        gradient = jax.tree.map(jnp.add, gradient, one)
        if (t + 1) % CHUNK == 0:
            logits_N2 = jnp.mean(stored["rates"][t + 1 - CHUNK : t + 1, :, 1:], axis=0)
            eta_N, alpha_N = jax.nn.sigmoid(logits_N2).T

            def times(number_N: jax.Array, leaf: jax.Array) -> jax.Array:
                return number_N.reshape(-1, *((1,) * (leaf.ndim - 1))) * leaf

            momentum = jax.tree.map(lambda s, g, eta=eta_N: times(eta, s) - g, momentum, gradient)
            weights = jax.tree.map(lambda m, s, alpha=alpha_N: times(1 - alpha, m) + s, weights, momentum)
            gradient = jax.tree.map(jnp.zeros_like, gradient)
        if (t + 1) % BATCH == 0:
            held = weights
        out.append(f(weights, query_TNH[t]))
    return module.answer(x_TD[None], jnp.stack(out)[None])[0]


def test_the_parallel_form_is_the_loop() -> None:
    memory, params = build()
    x_BTD = text()
    expected = quick_jit(jax.vmap(functools.partial(loop, memory, params)))(x_BTD)
    np.testing.assert_allclose(
        quick_jit(functools.partial(whole, memory))(params, x_BTD), expected, atol=1e-5 * np.abs(expected).max()
    )


def test_isolated_documents_have_a_memory_each() -> None:
    """Boundaries on the grid of chunks and off it, several in one chunk, one on the edge of a memory batch."""
    memory, params = build()
    x_BTD = text()
    starts = [0, 5, 6, 16, 24, 29, 31]
    segments_T = np.searchsorted(starts, np.arange(T), side="right")
    run = quick_jit(functools.partial(whole, memory))
    found = run(params, x_BTD, jnp.tile(segments_T, (B, 1)))
    module = bind(memory, params)
    for start, stop in zip(starts, [*starts[1:], T], strict=True):
        if start % BATCH == 0:  # alone it has the same grid
            alone = run(params, np.pad(x_BTD[:, start:stop], ((0, 0), (0, T - stop + start), (0, 0))))
            np.testing.assert_allclose(found[:, start:stop], alone[:, : stop - start], atol=1e-4)
    # Positions 5 and 6 begin documents inside a chunk, and read what no text has changed; 7 completes the chunk.
    query = module.queries(x_BTD[:, 5:8]).swapaxes(1, 2)
    fresh = module.answer(x_BTD[:, 5:8], module.read(module.start_state(B), query).swapaxes(1, 2))
    np.testing.assert_allclose(found[:, 5:7], fresh[:, :2], atol=1e-5)
    assert np.abs(found[:, 7] - fresh[:, 2]).max() > 1e-3


def test_no_document_has_a_gradient_in_another() -> None:
    memory, params = build()
    starts = [0, 5, 6, 16, 29, 31]
    segments_T = jnp.searchsorted(jnp.array(starts), jnp.arange(T), side="right")

    def hidden(x_TD: jax.Array) -> jax.Array:
        return whole(memory, params, x_TD[None], segments_T[None])[0] @ jnp.linspace(1.0, 2.0, D)

    @quick_jit
    def reach(x_TD: jax.Array) -> jax.Array:
        # One after another: XLA 0.10.2 for CPUs gets the vmapped backward pass of a norm over several heads wrong.
        _, pull = jax.vjp(hidden, x_TD)
        return jnp.abs(jax.lax.map(lambda one_T: pull(one_T)[0], jnp.eye(T))).sum(-1) > 0

    index = np.arange(T)
    same = np.asarray(segments_T)[:, None] == np.asarray(segments_T)
    own_chunks = same & (index[None] < (index[:, None] + 1) // CHUNK * CHUNK)
    np.testing.assert_array_equal(reach(text()[0]), own_chunks | np.eye(T, dtype=bool))


@pytest.mark.parametrize("pieces", [[1] * T, [3, 1, 17, 14, 2], [27, 10]], ids=str)
def test_a_cache_gives_what_the_whole_sequence_gives(pieces: list[int]) -> None:
    """Also where rows are at different lengths, after a rejected draft, and with padding behind."""
    memory, params = build()
    x_BTD, size = text(), max(pieces)
    expected = np.asarray(quick_jit(functools.partial(whole, memory))(params, x_BTD))

    @quick_jit
    def extend(x_BbD: Any, cache: Any, length_B: Any, accepted_B: Any) -> Any:
        module = bind(memory, params)
        y_BbD, cache = module.extend(x_BbD, Reading(CAUSAL, jnp.zeros((1, 1)), None, length_B, accepted_B, {}), cache)
        return y_BbD, module.commit(cache, accepted_B)

    cache, at_B, out = memory.init_cache(B, T), np.zeros(B, np.int32), [[], []]
    both = list(zip(pieces, pieces[::-1], strict=True))
    for counts in both:
        _, cache = extend(text(size, seed=7), cache, at_B, np.zeros(B, np.int32))
        piece = text(size, seed=8)
        for row, count in enumerate(counts):
            piece[row, :count] = x_BTD[row, at_B[row] : at_B[row] + count]
        y_BbD, cache = extend(piece, cache, at_B, np.array(counts))
        for row, count in enumerate(counts):
            out[row].append(np.asarray(y_BbD)[row, :count])
        at_B = at_B + np.array(counts, np.int32)
    np.testing.assert_allclose([np.concatenate(rows) for rows in out], expected, atol=1e-5 * np.abs(expected).max())


def test_rows_know_nothing_of_each_other() -> None:
    memory, params = build()
    x_BTD = text()
    run = quick_jit(functools.partial(whole, memory))
    together, turned = run(params, x_BTD), run(params, x_BTD[::-1])
    np.testing.assert_array_equal(turned, together[::-1])
    np.testing.assert_array_equal(run(params, np.stack([x_BTD[0], text(seed=9)[1]]))[0], together[0])


def test_rates_start_where_the_configuration_says() -> None:
    memory, _ = build(memory_forgetting=0.1)
    params = initialise(memory, jax.random.key(0))
    theta_eta_alpha = 1 / (1 + np.exp(-params["rates"]["bias"].reshape(3, N)))
    np.testing.assert_allclose(theta_eta_alpha, np.repeat([[0.5], [0.5], [0.1]], N, axis=1), rtol=1e-6)
