"""Parameters of every family at the sizes of the study and of the models rebuilt: published, or closed forms."""

import pytest

from jaxlm.config import ModelConfig
from jaxlm.families import build_model
from jaxlm.families.registry import FAMILIES
from jaxlm.layers.parameters import paths
from jaxlm.training.flops import parameter_counts
from tests.families.closed_form import closed_form
from tests.families.members import MEMBERS


def gpt2(layers: int, width: int) -> dict:
    heads = width // 64
    sizes = dict(num_layers=layers, hidden_size=width, intermediate_size=4 * width, head_dim=64)
    return {"family": "gpt2", "vocab_size": 50257, "num_heads": heads, "num_kv_heads": heads, **sizes}


def shape(family: str, vocab: int, layers: int, width: int, feed_forward: int, heads: tuple[int, int], **more) -> dict:
    sizes = dict(vocab_size=vocab, num_layers=layers, hidden_size=width, intermediate_size=feed_forward)
    return {"family": family, "num_heads": heads[0], "num_kv_heads": heads[1], "head_dim": width // heads[0]} | (
        sizes | more
    )


MOBILE = {"125m": ("mobilellm", 32000, 30, 576, 1536, (9, 3)), "350m": ("mobilellm", 32000, 32, 960, 2560, (15, 5))}
MINIMIND_MOE = shape("minimind", 6400, 8, 640, 1728, (8, 2), num_experts=4, num_shared_experts=1)

TABLE = {
    "gpt2 4 x 768": (gpt2(4, 768), 67_736_832),
    "gpt2 12 x 512": (gpt2(12, 512), 64_085_504),
    "gpt2 16 x 448": (gpt2(16, 448), 61_603_136),
    "gpt2 24 x 384": (gpt2(24, 384), 62_279_808),
    "gpt2 32 x 384": (gpt2(32, 384), 76_475_520),
    "gpt2 48 x 320": (gpt2(48, 320), 75_592_640),
    "gpt2 64 x 256": (gpt2(64, 256), 63_673_088),
    "gpt2 12 x 768": (gpt2(12, 768), 124_439_808),
    "llama3": ({"family": "llama3"}, 71_246_208),
    "llama3_canon": ({"family": "llama3_canon"}, 71_344_512),
    # 458,752 more than plain LLaMA 3 where D covers [gate, up].
    "llama3_canon ABCD": ({"family": "llama3_canon", "canon_set": "ABCD"}, 71_704_960),
    "qwen3": ({"family": "qwen3"}, 71_249_280),
    "gemma3": ({"family": "gemma3"}, 71_273_856),
    "lfm2": ({"family": "lfm2"}, 74_219_520),
    "titans_mac": ({"family": "titans_mac"}, 79_430_304),
    "dllm": ({"family": "dllm"}, 71_246_208),
    "dllm_canon": ({"family": "dllm_canon"}, 71_344_512),
    "dhara": ({"family": "dhara"}, 71_344_512),
    "mobilellm 125M": (shape(*MOBILE["125m"]), 124_635_456),
    "mobilellm 125M LS": (shape(*MOBILE["125m"], layer_repeats=2), 124_635_456),
    "mobilellm 350M": (shape(*MOBILE["350m"]), 345_355_200),
    "mobilellm 350M LS": (shape(*MOBILE["350m"], layer_repeats=2), 345_355_200),
    "minimind small": (shape("minimind", 6400, 8, 512, 1408, (8, 2)), 25_829_888),
    "minimind base": (shape("minimind", 6400, 16, 768, 2048, (8, 2)), 104_030_976),
    "minimind moe": (MINIMIND_MOE, 145_029_760),
}


@pytest.mark.parametrize(("values", "expected"), TABLE.values(), ids=TABLE)
def test_the_table(values, expected) -> None:
    counts = parameter_counts(build_model(ModelConfig(**values)))
    assert counts["total"] == expected == closed_form(ModelConfig(**values))
    assert sum(counts["by_part"].values()) == expected


def test_the_sweep_has_gpt2_s_formula() -> None:
    for layers, width in [(4, 768), (64, 256)]:
        formula = 50257 * width + 1024 * width + layers * (12 * width**2 + 13 * width) + 2 * width
        assert closed_form(ModelConfig(**gpt2(layers, width))) == formula


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
def test_every_family_has_a_closed_form(member, tiny) -> None:
    model = tiny(**member)
    assert parameter_counts(model)["total"] == closed_form(model.config)


def test_every_family_is_in_the_table() -> None:
    assert {values["family"] for values, _ in TABLE.values()} | {"moe"} == set(FAMILIES)


def test_experts_that_are_not_chosen_are_not_active() -> None:
    counts = parameter_counts(build_model(ModelConfig(**MINIMIND_MOE)))
    one_expert = 3 * 640 * 1728
    assert counts["active"] == counts["total"] - 8 * 2 * one_expert == 91_945_600
    dense = parameter_counts(build_model(ModelConfig(family="llama3")))
    assert dense["active"] == dense["total"]
    # Two experts of width 448 work for a token in each of 32 layers, and the router is always there.
    moe = parameter_counts(build_model(ModelConfig(family="moe", intermediate_size=448)))
    one_expert, experts = 3 * 384 * 448, 32 * 4
    assert moe["total"] == 71_246_208 - 32 * 3 * 384 * 1024 + experts * one_expert + experts * 384
    assert moe["active"] == moe["total"] - experts // 2 * one_expert


def test_what_is_looked_up_is_no_part_of_the_non_embedding_count() -> None:
    counts = parameter_counts(build_model(ModelConfig(**gpt2(12, 768))))
    assert counts["by_part"]["embedding"] == 50257 * 768 and counts["by_part"]["positions"] == 1024 * 768
    assert counts["non_embedding"] == counts["total"] - (50257 + 1024) * 768


def test_dhara_250m_canon_count_with_d_on_the_product() -> None:
    """The published 638,976 of dhara-250m: Canon D once the feed-forward width."""
    config = ModelConfig(
        **shape("llama3_canon", 49_152, 32, 768, 2176, (12, 4)), canon_set="ABCD", canon_d_width="product"
    )
    assert parameter_counts(build_model(config))["by_part"]["canon"] == 638_976


def test_gpt2_has_these_tensors() -> None:
    model = build_model(ModelConfig(**gpt2(12, 768)))
    shapes = {path: leaf.shape for path, leaf in paths(model.abstract_params()) if not path.startswith("layers/")}
    assert shapes == {
        "embedding/table": (50257, 768),
        "positions/table": (1024, 768),
        "final_norm/scale": (768,),
        "final_norm/bias": (768,),
    }
    first = {path[10:]: leaf.shape for path, leaf in paths(model.abstract_params()) if path.startswith("layers/00/")}
    assert first == {
        "attention_norm/scale": (768,),
        "attention_norm/bias": (768,),
        "attention/qkv/kernel": (768, 2304),
        "attention/qkv/bias": (2304,),
        "attention/out/kernel": (768, 768),
        "attention/out/bias": (768,),
        "feed_forward_norm/scale": (768,),
        "feed_forward_norm/bias": (768,),
        "feed_forward/up/kernel": (768, 3072),
        "feed_forward/up/bias": (3072,),
        "feed_forward/down/kernel": (3072, 768),
        "feed_forward/down/bias": (768,),
    }
