"""What fits together in a run, and what is said where it does not."""

from __future__ import annotations

import pytest

from jaxlm import config as configs
from jaxlm import fields
from jaxlm.config import ModelConfig, ObjectiveConfig, PrepareConfig, RunConfig, TrainConfig
from jaxlm.fields import ConfigError


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("model", {"num_kv_heads": 3}, "model.num_kv_heads is 3, allowed: a divisor of model.num_heads = 8"),
        ("model", {"head_dim": 3, "positions": "rope"}, "model.head_dim is 3, allowed: an even number"),
        ("model", {"canon_set": "CA"}, "model.canon_set is 'CA', allowed: any of ABCD, each once, in order"),
        ("model", {"canon_set": "AA"}, "model.canon_set is 'AA'"),
        ("model", {"layer_pattern": "GX"}, "model.layer_pattern is 'GX', allowed: a string of G, L, C, S and M"),
        ("model", {"layer_pattern": "LG"}, "model.sliding_window is 0, allowed: at least 1 with L layers"),
        ("model", {"sliding_window": 8, "layer_pattern": "G"}, "model.sliding_window is 8"),
        ("model", {"mask_token_id": 50304}, "model.mask_token_id is 50304, allowed: below model.vocab_size = 50304"),
        ("train", {"total_tokens": 1000}, "train.total_tokens is 1000, allowed: at least one batch"),
        ("train", {"batch_tokens": 1000}, "train.batch_tokens is 1000, allowed: a multiple of train.seq_len = 1024"),
        ("train", {"micro_batch": 7}, "train.micro_batch is 7, allowed: a divisor of the 120 windows of a batch"),
        ("optimizer", {"beta2": 1.0}, "optimizer.beta2 is 1.0, allowed: below 1"),
        ("objective", {"block_size": 4}, "objective.block_size is 4 and objective.shift True, allowed: 1 and True"),
        ("objective", {"eps": 1.0}, "objective.eps is 1.0, allowed: between 0 and 1"),
        ("objective", {"kind": "diffusion", "block_size": 2048}, "objective.block_size is 2048, allowed: at most"),
        ("objective", {"crop_share": 0.01}, "objective.crop_share is 0.01, allowed: 0 for objective.kind = 'causal'"),
        ("objective", {"anneal_steps": 5}, "objective.anneal_steps is 5, allowed: 0 for objective.kind = 'causal'"),
        ("objective", {"mask_noise_steps": 5}, "objective.mask_noise_steps is 5, allowed: 0 for objective.kind"),
        ("objective", {"kind": "diffusion", "crop_share": 1.5}, "objective.crop_share is 1.5, allowed: at most 1"),
        (
            "objective",
            {"kind": "diffusion", "anneal_steps": 5, "block_size": 4},
            "objective.anneal_steps is 5, allowed: 0 with objective.block_size = 4",
        ),
        (
            "objective",
            {"kind": "diffusion", "mask_noise_std": 0.1},
            "objective.mask_noise_std is 0.1 with objective.mask_noise_steps = 0, allowed: both above 0, or both 0",
        ),
        ("convert", {"warmup_share": 0.9, "decay_share": 0.2}, "convert.warmup_share"),
        (
            "convert",
            {"decay_share": 0.2},
            "convert.decay_share is 0.2 and convert.decay_tokens None, allowed: one above 0",
        ),
        ("convert", {"decay_tokens": 9}, "convert.decay_share is 0.0 and convert.decay_tokens 9, allowed: one above 0"),
        ("convert", {"decay_block_sizes": (8,)}, "convert.decay_share is 0.0 and convert.decay_tokens None"),
        (
            "convert",
            {"warmup_tokens": 9, "warmup_share": 0.2},
            "convert.warmup_tokens is 9 and convert.warmup_share 0.2",
        ),
        ("convert", {"warmup_tokens": 9, "block_sizes": ()}, "convert.warmup_tokens is 9, allowed: none without"),
        ("convert", {"warmup_parts": (1, 2)}, "convert.warmup_parts is (1.0, 2.0), allowed: a number above 0 for each"),
        (
            "convert",
            {"warmup_parts": (1, 2, 3, 0)},
            "convert.warmup_parts is (1.0, 2.0, 3.0, 0.0), allowed: a number above",
        ),
        ("optimizer", {"decay_share": 0.2}, "optimizer.decay_share is 0.2, allowed: 0.1, its default, unless"),
        (
            "optimizer",
            {"schedule": "wsd", "warmup_share": 0.5, "decay_share": 0.6},
            "optimizer.warmup_share + optimizer.decay_share is 1.1, allowed: at most 1",
        ),
        ("execution", {"dtype": "float16"}, "execution.dtype is 'float16', allowed: 'bfloat16', 'float32'"),
    ],
)
def test_what_does_not_fit_is_named(section: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        fields.build(RunConfig, {section: values})
    assert str(error.value).startswith(message)


def test_only_a_conversion_looks_at_its_block_sizes() -> None:
    values = {"convert": {"block_sizes": (1, 2048)}, "objective": {"kind": "diffusion"}}
    run = fields.build(RunConfig, values)
    with pytest.raises(ConfigError, match="convert.block_sizes has 2048, allowed: at most train.seq_len = 1024"):
        run.check_conversion()
    with pytest.raises(ConfigError, match="objective.kind is 'causal', allowed: 'diffusion'"):
        RunConfig().check_conversion()


def test_annealed_attention_builds_all_scores_and_takes_the_place_of_growing_blocks() -> None:
    annealed = {"kind": "diffusion", "anneal_steps": 5}
    run = fields.build(RunConfig, {"objective": annealed, "convert": {"block_sizes": ()}})
    assert run.execution.attention == "xla"
    run.check_conversion()
    with pytest.raises(ConfigError, match="execution.attention is 'cudnn', allowed: 'auto' or 'xla' with objective.an"):
        fields.build(RunConfig, {"objective": annealed, "execution": {"attention": "cudnn"}})
    for name, convert in (
        ("block_sizes", {}),
        ("decay_block_sizes", {"block_sizes": (), "decay_block_sizes": (32,), "decay_share": 0.2}),
    ):
        with pytest.raises(ConfigError, match=rf"convert.{name} is .*, allowed: \(\) with objective.anneal_steps"):
            fields.build(RunConfig, {"objective": annealed, "convert": convert}).check_conversion()


def test_windows_longer_than_the_model_are_refused() -> None:
    with pytest.raises(ConfigError, match="train.seq_len is 2048, allowed: at most model.max_positions = 1024"):
        fields.build(RunConfig, {"train": {"seq_len": 2048}})


def test_nothing_of_the_text_may_not_become_validation() -> None:
    with pytest.raises(ConfigError, match="validation_share is 0"):
        fields.build(PrepareConfig, {"validation_share": 0.0})


def test_the_studys_steps_are_exact() -> None:
    train = TrainConfig(total_tokens=1_000_000_000, batch_tokens=122_880, seq_len=1024, micro_batch=24)
    assert (train.num_steps, train.batch_size, train.accumulation) == (8138, 120, 5)


def test_block_size_and_shift_follow_from_the_kind_unless_they_are_given() -> None:
    assert (ObjectiveConfig().block_size, ObjectiveConfig().shift) == (1, True)
    diffusion = ObjectiveConfig(kind="diffusion")
    assert (diffusion.block_size, diffusion.shift) == (0, False)
    shifted = ObjectiveConfig(kind="diffusion", block_size=4, shift=True)
    assert (shifted.block_size, shifted.shift) == (4, True)


def test_the_kind_may_be_edited_after_the_defaults_were_written_out() -> None:
    # A causal default that is already resolved would turn this into diffusion in blocks of one, shifted.
    config = configs.run()
    config.objective.kind = "diffusion"
    built = fields.build(RunConfig, config).objective
    assert (built.block_size, built.shift) == (0, False)


def test_layer_patterns_are_tiled_and_cut() -> None:
    assert ModelConfig(num_layers=7, layer_pattern="LLG", sliding_window=4).layer_kinds == "LLGLLGL"


def test_replace_validates_anew() -> None:
    assert configs.replace(RunConfig(), train={"seq_len": 512}).train.seq_len == 512
    with pytest.raises(ConfigError, match="train.seq_len"):
        configs.replace(RunConfig(), train={"seq_len": 1000})


def test_bookkeeping_that_may_change_between_starts_exists() -> None:
    assert {name for name, _, _ in fields.leaves(RunConfig)} >= configs.FREE_BETWEEN_STARTS
