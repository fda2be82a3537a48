"""`fingerprint --check` agrees with itself and names the first thing that differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxlm import fingerprint
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.training.fingerprints import config_sha256, first_difference


@pytest.fixture
def command(tiny: Callable[..., RunConfig], config_file: Callable[[RunConfig], str]) -> list[str]:
    return [f"--config={config_file(tiny(objective={'kind': 'diffusion'}))}"]


def test_it_agrees_with_itself_and_with_another_execution(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fingerprint.main([*command, f"--out={tmp_path}/fingerprint.json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "fingerprint.json").read_text())
    assert [len(printed[name]) for name in ("batches_sha256", "corruption_sha256", "losses")] == [3, 3, 3]
    assert len(set(printed["batches_sha256"] + printed["corruption_sha256"])) == 6
    fingerprint.main([*command, f"--check={tmp_path}/fingerprint.json", "--config.execution.attention=xla"])
    assert "agrees with" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"differs from .*: config_sha256 is .* \(seed is 1 here, 0 there\)"):
        fingerprint.main([*command, f"--check={tmp_path}/fingerprint.json", "--config.seed=1"])


def test_the_first_difference_is_named() -> None:
    mine = {
        "config_sha256": "c", "tokenizer_sha256": "t", "data_sha256": "d", "params_sha256": "p",
        "batches_sha256": ["b0", "b1"], "corruption_sha256": ["m0", "m1"], "losses": [5.0, 4.0], "dtype": "float32",
    }  # fmt: skip
    assert first_difference(mine, dict(mine)) is None
    assert first_difference(mine, {**mine, "losses": [5.0, 4.00005]}) is None
    for change, expected in (
        ({"params_sha256": "q", "losses": [1.0]}, "params_sha256 is p here, q there"),
        ({"batches_sha256": ["b0", "x"], "losses": [1.0, 1.0]}, r"batches_sha256[1] is b1 here, x there"),
        ({"losses": [5.0, 4.1]}, "losses[1] is 4.0 here, 4.1 there, further apart than 0.0001"),
        ({"losses": [5.0, float("nan")]}, "losses[1] is 4.0 here, nan there, further apart than 0.0001"),
        ({"losses": [5.0]}, "losses has 2 entries here, 1 there"),
    ):
        assert first_difference(mine, {**mine, **change}) == expected
    assert first_difference(mine, {**mine, "dtype": "bfloat16", "losses": [5.0, 4.01]}) is None


def test_bookkeeping_execution_and_places_are_not_part_of_it(tiny: Callable[..., RunConfig]) -> None:
    base = config_sha256(tiny())
    same = tiny(
        train={"save_every": 9, "tensorboard": True}, execution={"dtype": "bfloat16", "fsdp": 2}, data={"dir": "x"}
    )
    assert config_sha256(same) == base
    assert config_sha256(tiny(train={"learning_rate": 0.1})) != base
    assert config_sha256(tiny(convert={"warmup_share": 0.3})) != base


def test_a_file_that_is_no_fingerprint_is_refused(command: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        fingerprint.main([*command, f"--check={tmp_path}/nowhere.json"])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match="is no fingerprint"):
        fingerprint.main([*command, f"--check={tmp_path}/other.json"])
