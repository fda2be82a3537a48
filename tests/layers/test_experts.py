"""Routed experts against a plain loop over tokens in float64, and what their losses and gradients must be."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from jaxlm.config import ExecutionConfig
from jaxlm.families import build_model, resolve
from jaxlm.layers.experts import Experts
from jaxlm.layers.parameters import bind, variables
from jaxlm.layers.reading import Reading
from jaxlm.layers.structure import Structure
from jaxlm.model_config import ModelConfig
from tests.quick_jit import quick_jit
from tests.random_tree import random_tree

B, T, D, F, E = 3, 7, 12, 10, 5
SHAPE = dict(
    family="moe",
    num_layers=2,
    hidden_size=D,
    intermediate_size=F,
    num_heads=2,
    num_kv_heads=1,
    head_dim=6,
    vocab_size=31,
    max_positions=16,
    init_std=0.4,
    num_experts=E,
    experts_per_token=2,
)
MIXTRAL = {"normalize_experts": True}
DEEPSEEK = {"normalize_experts": False, "num_shared_experts": 2}


def experts(execution: dict | None = None, **changes) -> Experts:
    options = {"dtype": "float32", "experts": "dense"} | (execution or {})
    return Experts(resolve(ModelConfig(**SHAPE | changes)), ExecutionConfig(**options))


def inputs(rows: int = B) -> jax.Array:
    return jnp.asarray(np.random.default_rng(1).standard_normal((rows, T, D)), jnp.float32)


def start(module: Experts):
    return random_tree(variables(module), spread=0.4)


def apply(module: Experts, params, x_BTD):
    """The output, and the losses of the rows."""
    reading = Reading(Structure(1), jnp.zeros((1, 1), jnp.int32))
    return bind(module, params)(x_BTD, reading), reading.noted_B


def run(module: Experts, params, x_BTD):
    return quick_jit(functools.partial(apply, module))(params, x_BTD)


def expert(x: np.ndarray, gate_up: np.ndarray, down: np.ndarray) -> np.ndarray:
    gate, up = np.split(x @ gate_up, 2)
    return (gate / (1 + np.exp(-gate)) * up) @ down


def plain(params, x_BTD, chosen: int, normalize: bool) -> np.ndarray:
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    matrices = params["experts"]["gate_up"], params["experts"]["down"]
    out = np.zeros(x_BTD.shape)
    for place in np.ndindex(x_BTD.shape[:2]):
        x = np.asarray(x_BTD[place], np.float64)
        scores = np.exp(x @ params["router"]["kernel"])
        scores /= scores.sum()
        best = sorted(range(E), key=lambda e, scores=scores: -scores[e])[:chosen]
        total = sum(scores[e] for e in best) if normalize else 1.0
        out[place] = sum(scores[e] / total * expert(x, matrices[0][e], matrices[1][e]) for e in best)
        if "shared" in params:
            out[place] += expert(x, params["shared"]["gate_up"]["kernel"], params["shared"]["down"]["kernel"])
    return out


@pytest.mark.parametrize("how", ["dense", "grouped"])
@pytest.mark.parametrize("style", [MIXTRAL, DEEPSEEK], ids=["mixtral", "deepseek"])
@pytest.mark.parametrize("chosen", [1, 2, E])
def test_equals_a_loop_over_tokens(chosen, style, how) -> None:
    style = style if chosen > 1 else style | {"normalize_experts": False}
    module = experts({"experts": how}, experts_per_token=chosen, **style)
    params = start(module)
    expected = plain(params, inputs(), chosen, style["normalize_experts"])
    np.testing.assert_allclose(run(module, params, inputs())[0], expected, atol=2e-5)


@pytest.mark.parametrize("how", ["dense", "grouped"])
def test_choosing_all_experts_is_their_mixture_by_score(how) -> None:
    module = experts({"experts": how}, experts_per_token=E)
    params, x_BTD = start(module), inputs()
    scores_BTE = jax.nn.softmax(x_BTD @ params["router"]["kernel"])
    mixture = 0
    for e in range(E):
        gate, up = jnp.split(x_BTD @ params["experts"]["gate_up"][e], 2, axis=-1)
        mixture += scores_BTE[:, :, e, None] * ((jax.nn.silu(gate) * up) @ params["experts"]["down"][e])
    np.testing.assert_allclose(run(module, params, x_BTD)[0], mixture, atol=2e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 3e-2)])
@pytest.mark.parametrize("style", [MIXTRAL, DEEPSEEK, {"feed_forward": "geglu"}], ids=str)
def test_grouped_equals_dense_with_its_gradients(style, dtype, tolerance) -> None:
    def found(how):
        module = experts({"experts": how, "dtype": dtype}, **style)

        def loss(params, x_BTD):
            y_BTD, losses = apply(module, params, x_BTD)
            along_BTD = jax.random.normal(jax.random.key(3), y_BTD.shape)
            return jnp.sum(along_BTD * y_BTD) + sum(map(jnp.sum, losses.values())), y_BTD

        grads, y_BTD = quick_jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(
            start(module), inputs().astype(jnp.dtype(dtype))
        )
        assert y_BTD.dtype == jnp.dtype(dtype)
        return {"output": y_BTD, "gradients": grads}

    for (path, x), y in zip(jax.tree.leaves_with_path(found("dense")), jax.tree.leaves(found("grouped")), strict=True):
        x, y = (np.asarray(leaf, np.float32) for leaf in (x, y))
        np.testing.assert_allclose(y, x, atol=tolerance * np.abs(x).max(), rtol=0, err_msg=jax.tree_util.keystr(path))


def test_no_token_is_dropped_when_all_choose_one_expert() -> None:
    """21 tokens on one expert of five; each gets what it gets alone."""
    for how in ("dense", "grouped"):
        module = experts({"experts": how})
        params, x_BTD = start(module), jnp.abs(inputs())
        kernel = params["router"]["kernel"].at[:, 3].add(5.0).at[:, 1].add(2.0)
        params = {**params, "router": {"kernel": kernel}}
        chosen = jax.lax.top_k(x_BTD @ kernel, 2)[1]
        assert (np.asarray(chosen) == [3, 1]).all()
        y_BTD, _ = run(module, params, x_BTD)
        np.testing.assert_allclose(y_BTD, plain(params, x_BTD, 2, True), atol=2e-5)
        one_by_one = run(module, params, x_BTD.reshape(B * T, 1, D))[0].reshape(B, T, D)
        np.testing.assert_allclose(one_by_one, y_BTD, atol=1e-6)


@pytest.mark.parametrize("chosen", [1, 2, E])
def test_the_balancing_loss_of_an_even_choice_is_the_number_chosen(chosen) -> None:
    module = experts(experts_per_token=chosen, normalize_experts=False)
    params = start(module)
    # A router that knows nothing: equal scores.
    blind = {**params, "router": {"kernel": jnp.zeros((D, E))}}
    np.testing.assert_allclose(run(module, blind, inputs())[1]["router_balance"], chosen, rtol=1e-6)
    # One that is sure of itself, on tokens that want each expert equally often.
    kernel = jnp.zeros((D, E)).at[:E, :E].set(4 * jnp.eye(E) + 2 * jnp.roll(jnp.eye(E), 1, axis=1))
    sure = {**params, "router": {"kernel": kernel}}
    even = jnp.eye(D)[jnp.array([[0, 1, 2, 3, 4]])]
    np.testing.assert_allclose(run(module, sure, even)[1]["router_balance"], chosen, rtol=1e-6)
    # All for one expert: its share is 1, and its score nearly so.
    uneven = run(module, sure, jnp.eye(D)[jnp.zeros((1, 5), int)])[1]["router_balance"]
    scores = np.sort(np.asarray(jax.nn.softmax(kernel[0])))[::-1]
    np.testing.assert_allclose(uneven, E * scores[:chosen].sum(), rtol=1e-6)


def test_the_losses_of_a_row_are_transformers_and_st_moe_s() -> None:
    module = experts()
    params = start(module)
    _, noted = run(module, params, inputs())
    logits_BTE = np.asarray(inputs() @ params["router"]["kernel"])
    for row, logits_TE in enumerate(logits_BTE):
        balance = load_balancing_loss_func((torch.tensor(logits_TE),), num_experts=E, top_k=2)
        assert float(noted["router_balance"][row]) == pytest.approx(float(balance), rel=1e-5)
        z = torch.logsumexp(torch.tensor(logits_TE), dim=-1).square().mean()
        assert float(noted["router_z"][row]) == pytest.approx(float(z), rel=1e-5)
    assert {loss_B.dtype for loss_B in noted.values()} == {jnp.dtype("float32")}


@pytest.mark.parametrize("how", ["dense", "grouped"])
@pytest.mark.parametrize("style", [MIXTRAL, DEEPSEEK, DEEPSEEK | {"experts_per_token": 1}], ids=str)
def test_the_router_learns_from_the_output_and_from_each_loss(style, how) -> None:
    module = experts({"experts": how}, **style)

    def outcomes(kernel):
        y_BTD, noted = apply(module, {**start(module), "router": {"kernel": kernel}}, inputs())
        return {"output": jnp.sum(jnp.sin(y_BTD)), **{name: jnp.sum(loss_B) for name, loss_B in noted.items()}}

    def slopes(kernel):
        outcome, pull = jax.vjp(outcomes, kernel)
        return {name: pull({other: jnp.float32(other == name) for other in outcome})[0] for name in outcome}

    found = quick_jit(slopes)(start(module)["router"]["kernel"])
    assert set(found) == {"output", "router_balance", "router_z"}
    for name, slope_DE in found.items():
        assert np.isfinite(slope_DE).all(), name
        assert float(jnp.abs(slope_DE).max()) > 1e-3, name


def test_routing_is_decided_in_fp32_whatever_is_computed_in() -> None:
    """Tokens that bf16 could not tell apart: two router columns that differ by less than its resolution."""
    params = start(experts())
    column = params["router"]["kernel"][:, :1]
    kernel = jnp.concatenate([column * (1 + 1e-4 * e) for e in range(E)], axis=1)
    params = {**params, "router": {"kernel": kernel}}
    x_BTD = inputs().astype(jnp.bfloat16)
    exact, rounded = (run(experts({"dtype": dtype}), params, x_BTD)[1] for dtype in ("float32", "bfloat16"))
    for name in exact:
        np.testing.assert_array_equal(exact[name], rounded[name], err_msg=name)


@pytest.mark.parametrize("how", ["dense", "grouped"])
def test_a_batch_decodes_what_its_rows_decode_alone(how) -> None:
    model = build_model(
        ModelConfig(**SHAPE | DEEPSEEK), ExecutionConfig(dtype="float32", experts=how, attention="xla", layers="unroll")
    )
    params, extend = random_tree(model.abstract_params(), spread=0.4), quick_jit(model.extend, static_argnums=3)
    tokens_BT = jax.random.randint(jax.random.key(2), (B, T), 0, 31)
    lengths = [2, 7, 4]

    def decode(rows, lengths):
        """A padded prefill, then two steps."""
        n_B, out = jnp.array(lengths), []
        x, proposal = extend(params, rows, model.init_cache(len(rows), 16), Structure(1), n_B)
        out.append(x[jnp.arange(len(rows)), n_B - 1])
        for token in (5, 11):
            ones = jnp.ones(len(rows), jnp.int32)
            cache = model.commit(proposal, n_B if len(out) == 1 else ones)
            x, proposal = extend(params, jnp.full((len(rows), 1), token), cache, Structure(1), ones)
            out.append(x[:, 0])
        return jnp.stack(out, axis=1)

    together = decode(tokens_BT, lengths)
    for row, length in enumerate(lengths):
        alone = decode(tokens_BT[row : row + 1, :length], [length])
        np.testing.assert_allclose(together[row], alone[0], atol=1e-5)
