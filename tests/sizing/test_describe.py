"""The object that `size --json` prints, its tables, and its picture."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jaxlm import config as configuration
from jaxlm import size
from jaxlm.config import ExecutionConfig, ModelConfig, RunConfig, TrainConfig
from jaxlm.errors import UserError
from jaxlm.sizing.describe import describe
from jaxlm.sizing.plot import draw
from jaxlm.sizing.tables import comparison, table

SMALL = RunConfig(
    model=ModelConfig(num_layers=2, vocab_size=512, hidden_size=64, intermediate_size=128, num_heads=2, num_kv_heads=1),
    train=TrainConfig(seq_len=64, batch_tokens=512, total_tokens=512, micro_batch=4),
    execution=ExecutionConfig(remat="full", loss_chunk=32),
)
UNTIED = configuration.replace(SMALL, model={"tie_embeddings": False})
MOE = configuration.replace(SMALL, model={"family": "moe", "num_experts": 4, "experts_per_token": 1,
                                          "normalize_experts": False})  # fmt: skip


def test_the_share_of_the_embedding_and_what_tying_saves() -> None:
    tied, untied = describe(SMALL), describe(UNTIED)
    assert tied["embedding_share"] == pytest.approx(512 * 64 / tied["total"])
    assert untied["total"] - tied["total"] == tied["tying_saves"] == untied["tying_saves"] == 512 * 64
    assert tied["tied"] and not untied["tied"]


def test_the_memory_is_that_of_the_configuration_s_own_rematerialisation() -> None:
    found = describe(SMALL)
    assert list(found["training_memory_by_remat"]) == ["none", "dots", "full"]
    assert found["training_memory"] == found["training_memory_by_remat"]["full"]


def test_layers_that_run_twice_cost_twice() -> None:
    once, twice = describe(SMALL), describe(configuration.replace(SMALL, model={"layer_repeats": 2}))
    head = 6 * 512 * 64
    assert twice["total"] == once["total"]
    assert twice["flops_per_token"]["six_n"] - head == 2 * (once["flops_per_token"]["six_n"] - head)
    assert twice["kv_cache_bytes_per_token"] == 2 * once["kv_cache_bytes_per_token"]


def test_the_table_shows_everything() -> None:
    found = describe(SMALL)
    text = table(SMALL, found)
    for number in (found["total"], found["active"], found["tying_saves"], found["kv_cache_bytes_per_token"]):
        assert f"{number:,}" in text
    for number in (found["training_memory"]["total"], found["training_memory_by_remat"]["none"]["total"]):
        assert f"{number / 1e6:,.1f}" in text
    assert "4 windows of 64 in bfloat16, remat full" in text and "saved by tying the head" in text
    assert "that tying the head would save" in table(UNTIED, describe(UNTIED))
    assert all(warning in text for warning in found["warnings"]) and found["warnings"]


def test_configurations_stand_side_by_side() -> None:
    configs = {"tied": SMALL, "untied": UNTIED, "experts": MOE}
    sizes = {name: describe(config) for name, config in configs.items()}
    header, *lines = comparison(list(configs.items()), list(sizes.items())).splitlines()
    assert header.split() == ["tied", "untied", "experts"]
    rows = {name: cells for name, *cells in (re.split(r"\s{2,}", line.strip()) for line in lines)}
    assert rows["parameters"] == [f"{found['total']:,}" for found in sizes.values()]
    assert rows["active for one token"] == [f"{found['active']:,}" for found in sizes.values()]
    assert sizes["experts"]["active"] < sizes["experts"]["total"]
    assert rows["against the first"][0] == "+0.00%"


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p.pdf", b"%PDF")])
def test_a_picture_is_written_whole(name: str, start: bytes, tmp_path: Path) -> None:
    draw([("tied", describe(SMALL)), ("untied", describe(UNTIED))], tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("path", ["picture.gif", "picture", "nowhere/picture.png", "directory.png"])
def test_a_picture_that_cannot_be_written_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "directory.png").mkdir()
    with pytest.raises(UserError, match="--plot is .*allowed: a file") as refusal:
        draw([("small", describe(SMALL))], tmp_path / path)
    assert path in str(refusal.value)
    assert [left.name for left in tmp_path.iterdir()] == ["directory.png"]


def test_a_disk_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="p.png', allowed: a file that can be written .No space left"):
        draw([("small", describe(SMALL))], tmp_path / "p.png")
    assert list(tmp_path.iterdir()) == []


def test_a_config_beside_itself_has_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "configs/pocket/llama3_canon.py"
    size.main([f"--compare={spec},{spec}", "--json"])
    one, two = json.loads(capsys.readouterr().out)
    assert one == two
    with pytest.raises(UserError, match="no config file"):
        size.main(["--compare="])


def test_blocks_are_charged_for_both_streams() -> None:
    plain, blocks = (
        describe(configuration.replace(SMALL, objective={"kind": "diffusion", "block_size": block})) for block in (0, 8)
    )
    assert plain["flops_per_token"] == blocks["flops_per_token"]
    assert plain["flops_per_step_token"]["convention"] == "with_attention"
    assert blocks["flops_per_step_token"]["convention"] == "with_attention_two_streams"
    assert blocks["flops_per_step_token"]["flops"] > 1.3 * plain["flops_per_step_token"]["flops"]


@pytest.mark.parametrize("changes", [{"family": "titans_mac"}, {"family": "dllm"}], ids=str)
def test_what_training_refuses_has_no_size(changes: dict[str, str]) -> None:
    kind = "diffusion" if changes["family"] == "titans_mac" else "causal"
    with pytest.raises(UserError, match=f"objective.kind is '{kind}', allowed"):
        describe(configuration.replace(SMALL, model=changes, objective={"kind": kind}))


def test_overrides_apply_to_all_that_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    size.main(["--compare=configs/llama3.py,configs/qwen3.py", "--config.model.num_layers=2", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [size["family"] for size in found] == ["llama3", "qwen3"]
    assert found[1]["total"] - found[0]["total"] == 2 * 2 * 48  # query and key norms of two layers


def test_one_thing_is_asked_at_a_time() -> None:
    for argv in ([], ["--config=configs/llama3.py", "--compare=configs/llama3.py"]):
        with pytest.raises(UserError, match="--config.*allowed"):
            size.main(argv)
