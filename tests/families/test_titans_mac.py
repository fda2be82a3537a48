"""Titans: the whole model against the titans-pytorch package, what it refuses, and what each reading sees."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.errors import UserError
from jaxlm.families import Model, resolve
from jaxlm.families.inspection import attention_weights
from jaxlm.layers.longterm_tokens import LongTermTokens
from jaxlm.layers.parameters import Tree, bind, paths
from jaxlm.layers.reading import Reading
from jaxlm.layers.structure import Structure
from jaxlm.model_config import ModelConfig
from tests.families.members import TITANS
from tests.families.reach import influence, pairs, then
from tests.quick_jit import quick_jit

T = 23
CAUSAL = Structure(1)
NO_MEMORY = {"memory_chunk": 0, "memory_batch": 0}


def from_package(config: ModelConfig) -> Any:
    """The package's model of that shape, without what this family leaves out."""
    import torch

    with warnings.catch_warnings():
        # Two of the packages that it imports still use what torch and Python deprecate.
        warnings.simplefilter("ignore", DeprecationWarning)
        from titans_pytorch import MemoryAsContextTransformer, MemoryMLP
    torch.manual_seed(0)
    theirs = MemoryAsContextTransformer(
        num_tokens=config.vocab_size,
        dim=config.hidden_size,
        depth=config.num_layers,
        segment_len=config.segment_len,
        num_longterm_mem_tokens=config.num_longterm_tokens,
        num_persist_mem_tokens=config.num_persistent_tokens,
        neural_memory_segment_len=config.memory_chunk,
        neural_memory_batch_size=config.memory_batch,
        neural_memory_layers=tuple(i + 1 for i, kind in enumerate(config.layer_kinds) if kind == "M"),
        neural_mem_gate_attn_output=config.memory_reading == "gate",
        neural_memory_model=MemoryMLP(config.head_dim, config.memory_depth),
        neural_memory_kwargs=dict(
            dim_head=config.head_dim,
            heads=config.num_heads,
            qk_rmsnorm=True,
            default_step_transform_max_lr=config.memory_max_rate,
        ),
        dim_head=config.head_dim,
        heads=config.num_heads,
        ff_mult=config.intermediate_size * 3 / 2 / config.hidden_size,
        num_residual_streams=1,
    )
    with torch.no_grad():
        for module in theirs.modules():
            if isinstance(module, torch.nn.RMSNorm):
                module.eps = config.norm_eps
        for parameter in theirs.axial_pos_emb.parameters():
            parameter.zero_()
        for *_, attention, feed_forward in theirs.layers:
            if attention.to_learned_v_mix is not None:
                attention.to_learned_v_mix[0].weight.zero_()
                attention.to_learned_v_mix[0].bias.fill_(-1e4)  # nothing of the first layer's values
            for linear in (feed_forward[1], feed_forward[3]):
                linear.bias.zero_()
    return theirs


def load(theirs: Any, params: Tree, config: ModelConfig) -> None:
    """Gives the package's model our numbers."""
    import torch

    N, H, D, F = config.num_heads, config.head_dim, config.hidden_size, config.intermediate_size

    def put(parameter: Any, value: Any) -> None:
        value = torch.tensor(np.ascontiguousarray(value))
        assert parameter.shape == value.shape, (parameter.shape, value.shape)
        parameter.data = value

    def pairs(x: np.ndarray) -> np.ndarray:
        """The last axis of heads: what turns together lies apart here (i, i + H/2) and side by side there."""
        return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape)

    ours = jax.tree.map(np.asarray, params)
    put(theirs.token_emb.weight, ours["embedding"]["table"])
    put(theirs.to_logits.weight, ours["embedding"]["table"])
    put(theirs.norm.weight, ours["final_norm"]["scale"])
    put(theirs.longterm_mems, ours["memory_tokens"]["table"])
    for layer, (*_, memory, attention, feed_forward) in zip(ours["layers"].values(), theirs.layers, strict=True):
        put(attention.norm.weight, layer["attention_norm"]["scale"])
        q, k, v = np.split(layer["attention"]["qkv"]["kernel"].reshape(D, 3 * N, H), 3, axis=1)
        put(attention.to_qkv.weight, np.concatenate([pairs(q), pairs(k), v], axis=1).reshape(D, -1).T)
        put(attention.to_out.weight, layer["attention"]["out"]["kernel"].T)
        keys, values = layer["attention"]["persistent"]
        put(attention.persistent_memory, np.stack([pairs(keys), values]))
        put(feed_forward[0].weight, layer["feed_forward_norm"]["scale"])
        gate, up = np.split(layer["feed_forward"]["gate_up"]["kernel"], [F], axis=1)
        put(feed_forward[1].weight, np.concatenate([up, gate], axis=1).T)
        put(feed_forward[3].weight, layer["feed_forward"]["down"]["kernel"].T)
        if memory is not None:
            own = layer["memory"]
            put(memory.retrieve_norm.weight, own["read_norm"]["scale"])
            put(memory.store_norm.weight, own["store_norm"]["scale"])
            put(memory.q_norm.gamma, own["query_norm"]["scale"][:, None])
            put(memory.k_norm.gamma, own["key_norm"]["scale"][:, None])
            put(memory.to_queries.weight, own["query"]["kernel"].T)
            put(memory.to_keys.weight, own["key_value"]["kernel"][:, : N * H].T)
            put(memory.to_values.weight, own["key_value"]["kernel"][:, N * H :].T)
            put(memory.retrieve_gate[0].weight, own["gate"]["kernel"].T)
            put(memory.combine_heads.weight, own["out"]["kernel"].T)
            rates = (memory.to_adaptive_step, memory.to_momentum, memory.to_decay_factor)
            for i, linear in enumerate(rates):
                put(linear[0].weight, own["rates"]["kernel"].reshape(D, 3, N)[:, i].T)
                put(linear[0].bias, own["rates"]["bias"].reshape(3, N)[i])
            put(memory.memory_model_parameters[0], own["start"]["scale"])
            for i, matrix in enumerate(own["start"]["matrices"].values()):
                put(memory.memory_model_parameters[i + 1], matrix)


@pytest.mark.parametrize("reading", ["residual", "gate"])
def test_logits_are_those_of_the_package(reading: str, tiny, random_params) -> None:
    import torch

    model: Model = tiny(**TITANS | {"memory_reading": reading, "num_kv_heads": 4, "intermediate_size": 64})
    params, config = random_params(model), model.config
    theirs = from_package(config)
    load(theirs, params, config)
    tokens_BT = np.asarray(jax.random.randint(jax.random.key(1), (2, T), 0, config.vocab_size))
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens_BT, dtype=torch.long)).numpy()
    found = quick_jit(lambda params, row: model.logits(params, model.hidden(params, row, CAUSAL)))(params, tokens_BT)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


READINGS = {
    "residual": TITANS,
    "gate": TITANS | {"memory_reading": "gate"},
    "context": TITANS | {"memory_reading": "context", "memory_batch": 0, "memory_chunk": 7},
}


def allowed(config: ModelConfig, documents: np.ndarray) -> np.ndarray:
    """What the rules let each token depend on after all layers: bool [T, T], found on the longer row."""
    segment, count, chunk = config.segment_len, config.num_longterm_tokens or 0, config.memory_chunk
    unit = segment + count
    token_at = [place for place in range(10**3) if place % unit < segment][: len(documents)]
    size = token_at[-1] + 1
    # A learned vector belongs to the document of the token before it.
    document = [documents[place // unit * segment + min(place % unit, segment - 1)] for place in range(size)]

    def attention(query: int, key: int) -> bool:
        return document[query] == document[key] and query // unit == key // unit and key <= query

    def memory(query: int, key: int) -> bool:
        """What is stored when a position is read: complete chunks, and of a chunk what its last document wrote."""
        done, end = (query + 1) // chunk * chunk, key // chunk * chunk + chunk - 1
        return (
            key < done and document[key] == document[end] == document[query] and document[done - 1] == document[query]
        )

    same = np.eye(size, dtype=bool)
    attends, remembers = pairs(attention, size), pairs(memory, size)
    seen = same
    for kind in config.layer_kinds:
        if kind == "M" and config.memory_reading == "context":
            # What was stored are results of this layer, and what the memory said of them before: segment by segment.
            held = pairs(lambda q, k: document[q] == document[k] and k // unit < q // unit, size)
            stored = attends | then(attends, held)
            seen = then(stored | then(remembers, stored) | same, seen)
        elif kind == "M":
            seen = then(attends | same, then(remembers | same, seen)) | then(remembers | same, seen)
        else:
            seen = then(attends, seen)
    # The vectors are the same whatever the text is; what they found in it they pass on.
    return seen[np.ix_(token_at, token_at)]


@pytest.mark.parametrize("reading", READINGS)
def test_a_sequence_sees_just_what_the_rules_allow(reading: str, tiny, random_params) -> None:
    """As one document and as several; with boundaries on no grid, on that of segments, and two within one chunk."""
    model: Model = tiny(**READINGS[reading] | {"num_layers": 2})
    params = random_params(model)
    x_TD = jax.random.normal(jax.random.key(5), (T, model.config.hidden_size))

    @quick_jit
    def found(params, x_TD, segments_T):
        def hidden(x_TD):
            trunk = model.bind(params)
            trunk.embedding = lambda tokens_BT: x_TD[tokens_BT]
            return trunk(jnp.arange(T)[None], CAUSAL, segments_T[None])[0][0]

        return influence(hidden, x_TD)

    for starts in ([], [10], [4, 7, 8, 15], [5, 6, 20]):
        documents = np.searchsorted(starts, np.arange(T), side="right")
        expected = allowed(model.config, documents)
        np.testing.assert_array_equal(found(params, x_TD, jnp.array(documents)), expected, err_msg=str(starts))


@pytest.mark.parametrize("reading", READINGS)
def test_a_packed_document_on_the_grid_equals_the_document_alone(reading: str, tiny, random_params) -> None:
    """With a segment of 5 + 2 and a memory batch of 14 positions, every tenth token starts both."""
    changes = {} if reading == "context" else {"memory_batch": 14}
    model: Model = tiny(**READINGS[reading] | changes)
    params = random_params(model)
    tokens_BT = jax.random.randint(jax.random.key(1), (2, 30), 0, 61)
    run = quick_jit(lambda params, *row: model.logits(params, model.hidden(params, row[0], CAUSAL, *row[1:])))
    packed = np.asarray(run(params, tokens_BT, jnp.repeat(jnp.array([[4, 2, 3]] * 2), 10, axis=1)))
    alone = np.asarray(run(params, tokens_BT.reshape(6, 10))).reshape(packed.shape)
    np.testing.assert_allclose(packed, alone, atol=1e-4)
    assert np.abs(packed - run(params, tokens_BT))[:, 10:].max() > 0.1  # it is not that documents do not matter


@pytest.mark.parametrize("before", [0, 3, 5, 6, 10, 14])
def test_what_is_woven_in_comes_out(before: int) -> None:
    module = LongTermTokens(2, 5, 4, std=0.02, dtype="float32")
    bound = bind(module, {"table": -1.0 - jnp.arange(8.0).reshape(2, 4)})
    x_BbD = jnp.arange(1.0, 8.0)[None, :, None] * jnp.ones((2, 1, 4))
    whole = bound.weave(jnp.arange(1.0, 23.0)[None, :, None] * jnp.ones((2, 1, 4)))
    assert whole.shape[1] == module.lengthened(22) == 22 + 4 * 2
    assert whole[0, :, 0].tolist()[:16] == [1, 2, 3, 4, 5, -1, -5, 6, 7, 8, 9, 10, -1, -5, 11, 12]
    woven = bound.weave(x_BbD + before, jnp.array([before, before]))
    count = module.lengthened(before + 7) - module.lengthened(before)
    begin = module.lengthened(before)
    np.testing.assert_array_equal(woven[:, :count], whole[:, begin : begin + count])
    np.testing.assert_array_equal(bound.unweave(woven, 7, jnp.array([before, before])), x_BbD + before)


def test_persistent_tokens_do_not_start_alike(tiny) -> None:
    """Equal ones would get equal gradients, and stay one token."""
    starts = [leaf for path, leaf in paths(tiny(**TITANS).init(jax.random.key(0))) if path.endswith("persistent")]
    for leaf in starts:
        assert np.abs(np.diff(leaf, axis=2)).max() > 0.01


def test_what_is_left_open_is_the_package_s() -> None:
    config = resolve(ModelConfig(family="titans_mac"))
    assert config.layer_kinds == "SMSMSMSS" * 4
    assert (config.segment_len, config.num_longterm_tokens, config.num_persistent_tokens) == (32, 4, 4)
    assert (config.memory_chunk, config.memory_batch, config.memory_max_rate) == (4, 128, 0.1)
    assert (config.memory_reading, config.tie_embeddings) == ("residual", True)
    assert resolve(config) == config


def test_the_paper_s_reading_learns_a_segment_at_once() -> None:
    config = resolve(ModelConfig(family="titans_mac", memory_reading="context", num_longterm_tokens=0))
    assert (config.memory_batch, config.num_longterm_tokens) == (32, 0)
    assert resolve(config) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"canon_set": "AC"}, "model.canon_set is 'AC', allowed: '' for model.family 'titans_mac'"),
        ({"layer_pattern": "GM"}, "model.layer_pattern is 'GM', allowed: no G for model.family 'titans_mac'"),
        ({"memory_forgetting": 1.0}, "model.memory_forgetting is 1.0, allowed: below 1"),
        ({"memory_chunk": 3}, "model.memory_chunk is 3, allowed: a divisor of model.memory_batch = 128"),
        (
            {"memory_reading": "context", "num_longterm_tokens": 2},
            "model.memory_chunk is 4, allowed: a divisor of a seg",
        ),
        ({"memory_expansion": 0.01}, "model.memory_expansion is 0.01, allowed: at least 0.0208333, one unit of model."),
        ({"memory_reading": "context", "memory_batch": 64}, "model.memory_batch is 64, allowed: 36 for"),
        ({"layer_pattern": "S", "memory_depth": 3}, "model.memory_depth is 3, allowed: 0 without M layers"),
        ({"family": "llama3", "segment_len": 8}, "model.segment_len is 8, allowed: 0 without S or M layers"),
        ({"family": "llama3", "num_longterm_tokens": 0}, "model.num_longterm_tokens is 0, allowed: None without S or"),
        ({"query_scalar": 3.0}, "model.query_scalar is 3.0, allowed: 0 with S or M"),
        ({"use_bias": True}, "model.use_bias is True, allowed: False with S layers"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        resolve(dataclasses.replace(ModelConfig(family="titans_mac"), **changes))
    assert str(refusal.value).startswith(message)


def test_attention_maps_times_the_values_are_what_attention_gave(tiny, random_params) -> None:
    model: Model = tiny(**TITANS | {"layer_pattern": "S", "num_layers": 1} | NO_MEMORY)
    trunk = model.bind(random_params(model))
    tokens_BT = jax.random.randint(jax.random.key(1), (2, T), 0, 61)
    ((_, (map_BNTS,)),) = attention_weights(model, random_params(model), tokens_BT, CAUSAL).items()
    (block,), x_BTD = trunk.layers.values(), trunk.enter(tokens_BT, jnp.arange(T)[None])
    size, persistent = x_BTD.shape[1], model.config.num_persistent_tokens
    assert map_BNTS.shape == (2, 4, size, persistent + size)
    np.testing.assert_allclose(map_BNTS.sum(-1), 1, atol=1e-6)
    reading = Reading(CAUSAL, jnp.arange(size)[None])
    h_BTD = block.attention_norm(x_BTD)
    _, _, v_BTKH = block.attention.project(h_BTD, reading.positions_BT)
    front_BPKH = jnp.broadcast_to(block.attention.persistent[...][1].swapaxes(0, 1), (2, persistent, 2, 8))
    values = jnp.repeat(jnp.concatenate([front_BPKH, v_BTKH], axis=1), 2, axis=2)
    found = block.attention.out(jnp.einsum("bnts,bsnh->btnh", map_BNTS, values).reshape(2, size, -1))
    np.testing.assert_allclose(found, block.attention.whole(h_BTD, reading), atol=1e-5)


def test_kernels_that_it_has_no_use_for_are_refused(tiny) -> None:
    assert tiny(**TITANS).execution.attention == "xla"
    with pytest.raises(UserError, match="execution.attention is 'blocked', allowed: 'auto' or 'xla' without G or L"):
        tiny({"attention": "blocked"}, **TITANS)
