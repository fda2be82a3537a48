"""Every config, with each of its arguments, builds, can be overridden, and opens with its recipe and true numbers."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jaxlm import command_line, fields
from jaxlm.config import PrepareConfig, RunConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model, resolve
from jaxlm.families.registry import FAMILIES, family
from jaxlm.training import flops
from jaxlm.training.schedule import phases_of

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("*.py"))

# What follows the colon, and the parameters that it stands for; None: the file alone.
STUDY: dict[str, dict[str | None, int]] = {
    "configs/dhara.py": {None: 71_344_512},
    "configs/dhara_block.py": {None: 71_344_512},
    "configs/dllm.py": {None: 71_246_208},
    "configs/dllm_canon.py": {None: 71_344_512},
    "configs/gemma3.py": {None: 71_273_856},
    "configs/gpt2.py": {
        None: 76_475_520,
        "4": 67_736_832,
        "12": 64_085_504,
        "16": 61_603_136,
        "24": 62_279_808,
        "32": 76_475_520,
        "48": 75_592_640,
        "64": 63_673_088,
        "124m": 124_439_808,
    },
    "configs/lfm2.py": {None: 74_219_520},
    "configs/llama3.py": {None: 71_246_208},
    "configs/llama3_canon.py": {None: 71_344_512},
    "configs/minimind.py": {None: 25_829_888, "small": 25_829_888, "base": 104_030_976, "moe": 145_029_760},
    "configs/mobilellm.py": {
        None: 124_635_456,
        "125m": 124_635_456,
        "350m": 345_355_200,
        "125m_ls": 124_635_456,
        "350m_ls": 345_355_200,
        "125m_12l": 124_865_280,
        "125m_42l": 124_463_616,
    },
    "configs/moe.py": {None: 99_606_912, "active67m": 99_606_912, "total70m": 71_295_360},
    "configs/qwen3.py": {None: 71_249_280},
    "configs/titans_mac.py": {None: 79_430_304},
}
POCKET: dict[str, dict[str | None, int]] = {
    "configs/pocket/dhara.py": {None: 2_391_744},
    "configs/pocket/dhara_block.py": {None: 2_391_744},
    "configs/pocket/family.py": {
        None: 2_385_600,
        "gpt2": 2_640_000,
        "llama3": 2_385_600,
        "llama3_canon": 2_391_744,
        "qwen3": 2_385_856,
        "gemma3": 2_387_392,
        "lfm2": 2_534_848,
        "moe": 3_568_320,
        "titans_mac": 2_743_652,
        "dllm": 2_385_600,
        "dllm_canon": 2_391_744,
        "dhara": 2_391_744,
        "mobilellm": 1_598_400,
        "minimind": 2_361_024,
    },
    "configs/pocket/llama3_canon.py": {None: 2_391_744},
}
DATA: dict[str, dict[str | None, int]] = {
    f"configs/data/{name}.py": {None: 0}
    for name in ("austen", "files", "package_docs", "package_docs_mix", "study_mix")
}
STUDIES = {f"configs/study/{name}.py" for name in ("paper", "pocket", "released")}
COUNTS = {
    f"{file}:{argument}" if argument else file: total
    for file, sizes in (STUDY | POCKET).items()
    for argument, total in sizes.items()
}
SPECS = [*COUNTS, *DATA]
CONVERSIONS = {"dhara": 100_000_000, "dhara_block": 125_000_000}  # of one family, and their tokens
A40, MFU = 149.7e12, 0.3


def class_of(spec: str) -> type:
    return PrepareConfig if spec.startswith("configs/data/") else RunConfig


@cache
def config_of(spec: str) -> Any:
    return command_line.load_config(spec, [], class_of(spec))


@cache
def size_of(spec: str) -> dict[str, Any]:
    config = config_of(spec)
    counts = flops.parameter_counts(build_model(config.model, config.execution))
    return {**counts, "flops_per_token": flops.flops_per_token(config.model, config.train.seq_len)}


def docstring(spec: str) -> str:
    return ast.get_docstring(ast.parse((ROOT / spec.partition(":")[0]).read_text("utf-8"))) or ""


def value_at(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config


def test_every_file_is_tested() -> None:
    assert set(FILES) == {*STUDY, *POCKET, *DATA, *STUDIES}


def test_every_family_has_its_file_and_its_pocket_version() -> None:
    assert {f"configs/{name}.py" for name in {*FAMILIES, *CONVERSIONS}} == set(STUDY)
    assert FAMILIES.keys() == {name for name in POCKET["configs/pocket/family.py"] if name}


@pytest.mark.parametrize("spec", SPECS)
def test_it_builds_and_survives_json(spec: str) -> None:
    config = config_of(spec)
    assert fields.build(class_of(spec), json.loads(json.dumps(fields.to_dict(config)))) == config


def as_overrides(config: Any, cls: type) -> list[tuple[str, str | None, bool]]:
    """Every leaf as somebody would type it."""
    values: dict[str, Any] = {}
    for name, _, _ in fields.leaves(cls):
        value = value_at(config, name)
        entries = isinstance(value, fields.Table)
        values |= {f"{name}.{key}": entry for key, entry in value.items()} if entries else {name: value}
    return [(n, ",".join(map(str, v)) if isinstance(v, tuple) else str(v), False) for n, v in values.items()]


@pytest.mark.parametrize("spec", SPECS)
def test_every_leaf_can_be_overridden(spec: str) -> None:
    config, cls = config_of(spec), class_of(spec)
    assert command_line.load_config(spec, as_overrides(config, cls), cls) == config


@pytest.mark.parametrize("spec", ["configs/dhara.py", "configs/data/package_docs.py"])
def test_a_leaf_that_is_overridden_changes_no_other(spec: str) -> None:
    config, cls = config_of(spec), class_of(spec)
    for override in as_overrides(config, cls):
        assert command_line.load_config(spec, [override], cls) == config, override


@pytest.mark.parametrize("spec", COUNTS)
def test_it_is_of_its_family_and_has_the_parameters_that_its_docstring_names(spec: str) -> None:
    config = config_of(spec)
    stem, argument = Path(spec.partition(":")[0]).stem, spec.partition(":")[2]
    assert config.model.family == (argument or "llama3" if stem == "family" else stem.removesuffix("_block"))
    assert size_of(spec)["total"] == COUNTS[spec]
    assert f"{COUNTS[spec]:,}" in docstring(spec)
    assert (config.objective.kind == "diffusion") == family(config.model.family).diffusion


@pytest.mark.parametrize("spec", [spec for spec in COUNTS if spec.partition(":")[0] in STUDY])
def test_a_study_config_names_its_cost_and_trains_as_the_study_did(spec: str) -> None:
    config, per_token = config_of(spec), size_of(spec)["flops_per_token"]
    cost = per_token["with_causal_attention" if config.objective.kind == "causal" else "with_attention"]
    assert f"{cost / 1e6:,.2f}" in docstring(spec)
    assert config.train.batch_tokens == 122_880 and config.optimizer == config_of("configs/llama3.py").optimizer
    if (stem := Path(spec).stem) in CONVERSIONS:  # every token twice in the block phases
        assert config.train.total_tokens == CONVERSIONS[stem]
        return
    assert (config.train.total_tokens, config.train.learning_rate) == (1_000_000_000, 5e-4)
    hours = config.train.total_tokens * cost / (MFU * A40) / 3600
    assert f" {hours:.1f}" in docstring(spec)


def test_a_conversion_for_block_decoding_is_the_plain_one_with_a_decay_to_blocks_of_32() -> None:
    for folder in ("configs", "configs/pocket"):
        plain, block = (config_of(f"{folder}/{name}.py") for name in CONVERSIONS)
        ways = {"total_tokens", "batch_tokens", "eval_every", "eval_windows", "save_every", "keep"}
        different = {name.partition(" ")[0].rpartition(".")[::2] for name in fields.differences(plain, block)}
        assert {section for section, _ in different} == {"convert", "train"}
        assert {name for section, name in different if section == "train"} <= ways
        before, after = phases_of(plain, "convert"), phases_of(block, "convert")
        assert after[-1].block_size == 32
        assert [phase.block_size for phase in after[: len(before)]] == [phase.block_size for phase in before]
        for one, other in zip(before, after, strict=False):
            assert abs((one.stop - one.start) - (other.stop - other.start)) <= 1
        # The last phase has three checkpoints with their validations, for `merge`.
        train, last = block.train, after[-1]
        saved = [n for n in range(last.start + 1, last.stop + 1) if n % train.save_every == 0 or n == last.stop]
        assert train.keep == 3 <= len(saved) and train.eval_every == train.save_every


def test_experts_count_where_they_work() -> None:
    active = {spec: size_of(spec)["active"] for spec in COUNTS if size_of(spec)["active"] < COUNTS[spec]}
    assert active == {
        "configs/moe.py": 66_576_768,
        "configs/moe.py:active67m": 66_576_768,
        "configs/moe.py:total70m": 52_420_992,
        "configs/minimind.py:moe": 91_945_600,
        "configs/pocket/family.py:moe": 2_388_672,
    }
    assert all(f"{count:,}" in docstring(spec) for spec, count in active.items())


def test_mobilellm_has_its_budget_at_three_depths() -> None:
    shapes = [f"configs/mobilellm.py:{name}" for name in ("125m_12l", "125m", "125m_42l")]
    assert [config_of(spec).model.num_layers for spec in shapes] == [12, 30, 42]
    assert all(abs(COUNTS[spec] / COUNTS[shapes[1]] - 1) < 0.005 for spec in shapes)


def test_the_pocket_families_differ_in_nothing_but_the_model() -> None:
    one = config_of("configs/pocket/family.py")
    for name in FAMILIES:
        other = config_of(f"configs/pocket/family.py:{name}")
        assert {d.partition(".")[0] for d in fields.differences(one, other)} <= {"model", "objective"}
        model = resolve(other.model)
        assert (model.vocab_size, model.hidden_size) == (one.model.vocab_size, one.model.hidden_size)
        assert model.num_layers * model.layer_repeats == one.model.num_layers


@pytest.mark.parametrize("file", [file for file, sizes in (STUDY | POCKET).items() if len(sizes) > 1])
def test_an_unknown_argument_is_answered_with_all_that_are_known(file: str) -> None:
    with pytest.raises(UserError, match="nonesuch") as error:
        command_line.load_config(f"{file}:nonesuch", [], RunConfig)
    named = str(error.value).partition("allowed: ")[2].removeprefix("one of ").partition(";")[0].split(", ")
    assert named == [argument for argument in (STUDY | POCKET)[file] if argument]


@pytest.mark.parametrize("file", FILES)
def test_the_docstring_is_the_recipe(file: str) -> None:
    doc = docstring(file)
    assert f"--config={file}" in doc, "the docstring gives the command"
    assert len(doc.partition("\n")[0]) <= 100, "its first line stands alone in `jaxlm list`"
