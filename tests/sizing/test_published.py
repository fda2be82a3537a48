"""Every count that was published for these models, or follows from their published shapes, by our own models.

Each number is written out with where it comes from. The study is "The Optimal Architecture for Small Language Models"
(codelion, 2025); its layers and widths are from its author's comments, totals follow from GPT-2's own vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from jaxlm import command_line
from jaxlm import config as configuration
from jaxlm.config import RunConfig
from jaxlm.families import build_model
from jaxlm.layers.parameters import paths
from jaxlm.model_config import ModelConfig
from jaxlm.sizing.memory import training_memory
from jaxlm.training import flops

STUDY = ModelConfig(family="llama3_canon", canon_set="AC")


def counted(**model: Any) -> dict[str, Any]:
    return flops.parameter_counts(build_model(ModelConfig(**model)))


def shipped(spec: str, **changed: Any) -> dict[str, Any]:
    overrides = [(f"model.{name}", str(value), False) for name, value in changed.items()]
    return flops.parameter_counts(build_model(command_line.load_config(spec, overrides, RunConfig).model))


# --- the study: seven GPT-2 models, and the families at 32 x 384 ---


@pytest.mark.parametrize(
    ("layers", "width", "matrices", "embedding", "share", "total"),
    [
        (4, 768, 28_311_552, 39_383_808, 58.1, 67_736_832),
        (12, 512, 37_748_736, 26_255_872, 41.0, 64_085_504),  # the card of gpt-2-70m: 64.09M
        (16, 448, 38_535_168, 22_973_888, 37.3, 61_603_136),
        (24, 384, 42_467_328, 19_691_904, 31.6, 62_279_808),
        (32, 384, 56_623_104, 19_691_904, 25.7, 76_475_520),
        (48, 320, 58_982_400, 16_409_920, 21.7, 75_592_640),
        (64, 256, 50_331_648, 13_127_936, 20.6, 63_673_088),
    ],
)
def test_the_depth_sweep(layers: int, width: int, matrices: int, embedding: int, share: float, total: int) -> None:
    found = shipped(f"configs/gpt2.py:{layers}")
    looked_up = found["total"] - found["non_embedding"]
    assert (found["total"], looked_up, round(100 * looked_up / total, 1)) == (total, embedding, share)
    model = build_model(command_line.load_config(f"configs/gpt2.py:{layers}", [], RunConfig).model)
    # What its author calls the parameters of the layers: L x 12 x D^2, matrices without biases and norms.
    kernels = [leaf for path, leaf in paths(model.abstract_params()) if path.endswith("/kernel")]
    assert sum(math.prod(leaf.shape) for leaf in kernels) == matrices == layers * 12 * width**2


@pytest.mark.parametrize(
    ("spec", "total", "said"),
    [
        ("configs/llama3_canon.py", 71_344_512, "71M"),
        ("configs/gpt2.py:32", 76_475_520, "76M"),
        ("configs/gemma3.py", 71_273_856, "71M"),
        ("configs/qwen3.py", 71_249_280, "71M"),
        ("configs/dhara.py", 71_344_512, "71M"),  # the card: 71.34M
        ("configs/dllm_canon.py", 71_344_512, "71M"),
        ("configs/llama3.py", 71_246_208, "71M"),
        ("configs/dllm.py", 71_246_208, "71M"),
    ],
)
def test_the_families(spec: str, total: int, said: str) -> None:
    assert shipped(spec)["total"] == total
    assert f"{shipped(spec)['total'] / 1e6:.0f}M" == said


def test_experts_that_come_to_the_published_67m_active() -> None:
    """The study names 67M active and no total: four or eight experts of 448 come to that, and to no 70M in all."""
    four, eight = shipped("configs/moe.py"), shipped("configs/moe.py", num_experts=8)
    shared = shipped("configs/moe.py", num_shared_experts=1, experts_per_token=1, normalize_experts=False)
    mega = [(round(found["active"] / 1e6, 1), round(found["total"] / 1e6, 1)) for found in (four, eight, shared)]
    assert mega == [(66.6, 99.6), (66.6, 165.7), (66.6, 116.1)]


def test_lfm2_is_not_the_published_80m() -> None:
    """The pattern of the 16-layer model twice has 12 attention layers: 74.22M; from 6 to 16 of them: 75.1M to 73.6M."""
    assert round(shipped("configs/lfm2.py")["total"] / 1e6, 2) == 74.22
    few, many = "CCCCG" * 6 + "CC", "CG" * 16
    assert [round(shipped("configs/lfm2.py", layer_pattern=p)["total"] / 1e6, 1) for p in (few, many)] == [75.1, 73.6]


def test_dhara_by_part() -> None:
    """Its config.json: one layer's attention, feed-forward, norms and Canon layers, and what is outside."""
    found = flops.parameter_counts(build_model(STUDY))
    per_layer = {"attention": 442_368, "feed_forward": 1_179_648, "canon": 3_072}
    assert {part: found["by_part"][part] for part in per_layer} == {part: 32 * n for part, n in per_layer.items()}
    assert found["by_part"]["norm"] == 32 * 768 + 384
    assert (found["by_part"]["embedding"], found["non_embedding"]) == (19_316_736, 52_027_776)


def test_canon_layers() -> None:
    """Canon AC: 98,304, "0.13 %" of the model; ABCD 458,752, 0.64 %."""
    plain = counted()["total"]
    ac, abcd = (counted(family="llama3_canon", canon_set=name)["total"] - plain for name in ("AC", "ABCD"))
    assert (ac, abcd) == (98_304, 458_752)
    assert (round(100 * ac / plain, 3), round(100 * abcd / plain, 2)) == (0.138, 0.64)


def test_the_author_s_250m_model() -> None:
    """dhara-250m-ar-base: 249.2M, Canon 638,976. Capped logits and norms after the rotation count nothing."""
    found = counted(
        family="llama3_canon",
        canon_set="ABCD",
        canon_d_width="product",
        vocab_size=49_152,
        hidden_size=768,
        intermediate_size=2176,
        num_heads=12,
        num_kv_heads=4,
        head_dim=64,
        qk_norm=True,
    )
    assert (found["total"], found["by_part"]["canon"]) == (249_205_504, 638_976)


# --- MobileLLM (facebookresearch/MobileLLM, configs/*.json) and MiniMind (jingyaogong/minimind) ---


@pytest.mark.parametrize(
    ("layers", "width", "heads", "kv_heads", "ffn", "tied", "untied"),
    [
        (30, 576, 9, 3, 1536, 124_635_456, 143_067_456),
        (32, 960, 15, 5, 2560, 345_355_200, 376_075_200),
        (40, 1152, 18, 6, 3072, 603_188_352, 640_052_352),
    ],
)
def test_mobilellm(layers: int, width: int, heads: int, kv_heads: int, ffn: int, tied: int, untied: int) -> None:
    for tie, total in ((True, tied), (False, untied)):
        found = counted(
            family="mobilellm",
            vocab_size=32_000,
            num_layers=layers,
            hidden_size=width,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=64,
            intermediate_size=ffn,
            tie_embeddings=tie,
        )
        assert found["total"] == total


def test_minimind2() -> None:
    """README of MiniMind2: 26M (25.8M), 104M, 145M; of the last 91.9M work for one token."""
    assert shipped("configs/minimind.py:small")["total"] == 25_829_888
    assert shipped("configs/minimind.py:base")["total"] == 104_030_976
    moe = shipped("configs/minimind.py:moe")
    assert (moe["total"], moe["active"]) == (145_029_760, 91_945_600)


def test_minimind2_only_with_its_own_widths_and_key_heads() -> None:
    """A feed-forward of "~1365" (the scaling chapter) comes to 25.30M and 117.15M; 8 key heads to 28.98M and more."""
    specs = [f"configs/minimind.py:{name}" for name in ("small", "base", "moe")]
    chapter = [shipped(spec, intermediate_size=1365)["total"] for spec in specs]
    assert (round(chapter[0] / 1e6, 2), round(chapter[2] / 1e6, 2)) == (25.30, 117.15)
    more_keys = [shipped(spec, num_kv_heads=8)["total"] for spec in specs]
    assert [round(total / 1e6, 2) for total in more_keys] == [28.98, 118.19, 149.94]


def test_what_minimind2_small_saves_by_tying() -> None:
    """3,276,800, 12.69 % of it."""
    untied, tied = (shipped("configs/minimind.py:small", tie_embeddings=tie)["total"] for tie in (False, True))
    assert untied - tied == 3_276_800 and round(100 * 3_276_800 / tied, 2) == 12.69


def test_minimind3() -> None:
    """64M, and 198M with four experts of which one works; query and key heads normed."""
    shape: dict[str, Any] = {"hidden_size": 768, "head_dim": 96, "num_kv_heads": 4, "intermediate_size": 2432}
    dense = shipped("configs/minimind.py:small", qk_norm=True, **shape)
    experts = {"num_experts": 4, "experts_per_token": 1, "normalize_experts": False}
    moe = shipped("configs/minimind.py:small", qk_norm=True, **shape, **experts)
    assert (dense["total"], moe["total"]) == (63_912_192, 198_416_640)


# --- what the study's 18 hours for 1B tokens on an A40 come to, with Dhara's 71,344,512 parameters ---

TOKENS, SECONDS, A40 = 1e9, 18 * 3600, flops.PEAK_FLOPS["NVIDIA A40"]


def per_token() -> dict[str, float]:
    found = flops.flops_per_token(STUDY, 1024)
    return {**found, "without_embedding": 6.0 * flops.parameter_counts(build_model(STUDY))["non_embedding"]}


@pytest.mark.parametrize(
    ("convention", "mega", "tera_per_second", "mfu", "hours"),
    [
        ("six_n", 428.07, 6.61, 4.4, (2.65, 1.99, 1.59)),
        ("with_attention", 579.06, 8.94, 6.0, (3.58, 2.69, 2.15)),
        ("with_causal_attention", 503.56, 7.77, 5.2, (3.11, 2.34, 1.87)),
        ("without_embedding", 312.17, 4.82, 3.2, (1.93, 1.45, 1.16)),
    ],
)
def test_flops_of_the_study(
    convention: str, mega: float, tera_per_second: float, mfu: float, hours: tuple[float, ...]
) -> None:
    cost, rate = per_token()[convention], TOKENS / SECONDS
    assert round(rate) == 15_432
    assert (round(cost / 1e6, 2), round(cost * rate / 1e12, 2)) == (mega, tera_per_second)
    assert round(100 * cost * rate / A40, 1) == mfu
    assert tuple(round(cost * TOKENS / (share * A40) / 3600, 2) for share in (0.3, 0.4, 0.5)) == hours


def test_an_h200_at_30_percent() -> None:
    """About 512 thousand tokens a second, a billion in 33 minutes, 100M (a conversion) in 3.3."""
    rate = 0.3 * flops.PEAK_FLOPS["NVIDIA H200"] / per_token()["with_attention"]
    assert round(rate / 1e3) == 512
    assert (round(TOKENS / rate / 60), round(TOKENS / 10 / rate / 60, 1)) == (33, 3.3)


def test_memory_of_the_study() -> None:
    """All logits of 64 windows in fp32 are 13.2 GB, of 8 windows 1.65; parameters and two moments 0.86 GB."""
    held = {}
    for rows in (64, 8):
        train = {"micro_batch": rows, "batch_tokens": rows * 1024}
        config = configuration.replace(
            RunConfig(model=STUDY), train=train, execution={"loss_chunk": 0, "remat": "full"}
        )
        held[rows] = training_memory(config)["full"]["logits_chunk"] / 2  # and as much for their gradient
    assert (round(held[64] / 1e9, 1), round(held[8] / 1e9, 2)) == (13.2, 1.65)
    assert round(12 * flops.parameter_counts(build_model(STUDY))["total"] / 1e9, 2) == 0.86


def test_a_decoder_that_only_waits_for_its_weights() -> None:
    """142.7 MB in bf16: an A40 that reads 696 GB a second could write about 4,900 tokens; the study wrote 48."""
    weights = 2 * flops.parameter_counts(build_model(STUDY))["total"]
    assert round(weights / 1e6, 1) == 142.7
    assert round(696e9 / weights, -2) == 4900 and round(100 * 48 / (696e9 / weights), 1) == 1.0
