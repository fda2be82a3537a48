"""On 8 virtual devices, data parallel, FSDP and accumulation give the losses of one, on equal batches and masks."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, RunConfig
from jaxlm.errors import UserError
from jaxlm.training import loop, workdir
from jaxlm.training.metrics import read_lines
from jaxlm.training.sharding import check_batch, make_mesh, partition

SCRIPT = Path(__file__).with_name("losses_on_meshes.py")
GRADIENTS = Path(__file__).with_name("gradients_on_meshes.py")


@pytest.mark.parametrize("kind", ["causal", "diffusion"])
def test_losses_do_not_depend_on_the_mesh(kind: str, tiny: Callable[..., RunConfig]) -> None:
    values = dataclasses.asdict(tiny(objective={"kind": kind}))
    values["objective"] = {"kind": kind}
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), json.dumps(values), "20"],
        capture_output=True, text=True, timeout=600, env=environment | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # What the partitioner says when it has to undo a layout it was given; FSDP must not depend on its luck.
    assert "full rematerialization" not in done.stderr
    found = json.loads(done.stdout)
    one = found.pop("one")
    assert len(set(one["batches"])) == 20
    assert len(set(one["masks"])) == (20 if kind == "diffusion" else 1)
    for name, other in found.items():
        for what in ("params", "batches", "masks"):
            assert other[what] == one[what], f"{what} on {name}"
        np.testing.assert_allclose(other["losses"], one["losses"], atol=1e-5, err_msg=name)
    assert one["losses"][0] - one["losses"][-1] > 0.5, "it learns, so the losses say something"
    # qkv is [32, 64]: the width is what fsdp splits.
    assert (one["shard"], found["data"]["shard"], found["data and fsdp"]["shard"]) == ([32, 64], [32, 64], [8, 64])


def test_one_gradient_whatever_the_rows_are_split_over() -> None:
    """1 x 8, 2 x 4 and 4 devices x 2; full and block diffusion, each also with crops, annealing and noise."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(GRADIENTS)], capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len({by_layout["1 x 8"]["loss"] for by_layout in found.values()}) == 4, "four objectives"
    for name, by_layout in found.items():
        for layout, one in by_layout.items():
            assert one["deviation"] < 1e-5, f"{name} on {layout}"
            assert one["loss"] == pytest.approx(by_layout["1 x 8"]["loss"], rel=1e-6)


def test_a_run_of_eight_devices_goes_on_with_one(
    tiny: Callable[..., RunConfig], config_file: Callable[[RunConfig], str], tmp_path: Path
) -> None:
    config = tiny(train={"total_tokens": 6 * 128}, execution={"data_parallel": -1})
    command = [sys.executable, "-m", "jaxlm.train", f"--config={config_file(config)}", f"--workdir={tmp_path}/run"]
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    subprocess.run([*command, "--config.train.stop_at=3"], check=True, timeout=300, env=environment)
    assert workdir.read_json(tmp_path / "run" / "manifest.json")["mesh"] == {"data": 8, "fsdp": 1}
    loop.train(config, tmp_path / "run", kind="train")
    loop.train(tiny(train={"total_tokens": 6 * 128}), tmp_path / "one", kind="train")
    moved, straight = ([line["loss"] for line in read_lines(tmp_path / name)] for name in ("run", "one"))
    np.testing.assert_allclose(moved, straight, atol=1e-5)


class Mesh:
    """As much of a mesh as `partition` reads."""

    shape = {"data": 2, "fsdp": 4}


@pytest.mark.parametrize(
    ("shape", "logical", "expected"),
    [
        ((64, 32), ("vocab", "embed"), (None, "fsdp")),
        ((32, 96), ("embed", "mlp"), ("fsdp", None)),
        ((30, 96), ("embed", "mlp"), (None, "fsdp")),  # the width does not divide: the largest that does
        ((4, 30), (None, "embed"), ("fsdp", None)),
        ((3, 30), (None, "embed"), (None, None)),
    ],
)
def test_the_rule_table(shape: tuple[int, ...], logical: tuple[str, ...], expected: tuple[str | None, ...]) -> None:
    assert tuple(partition(shape, logical, Mesh())) == expected  # type: ignore[arg-type]


def test_an_axis_without_a_rule_is_an_error() -> None:
    with pytest.raises(KeyError, match="experts"):
        partition((8, 32), ("experts", "embed"), Mesh())  # type: ignore[arg-type]


def test_sizes_that_do_not_fit_the_machine_are_refused(tiny: Callable[..., RunConfig]) -> None:
    for execution, message in (
        ({"data_parallel": 64, "fsdp": 2}, "is 64 x 2, allowed: at most the"),
        ({"data_parallel": 0}, "execution.data_parallel is 0, allowed: at least 1"),
        ({"fsdp": 1000}, "execution.fsdp is 1000, allowed: a divisor of the"),
    ):
        with pytest.raises(UserError, match=message):
            make_mesh(ExecutionConfig(**execution))  # type: ignore[arg-type]

    class Eight:
        size = 8

    check_batch(tiny(), Eight())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="train.micro_batch is 4 rows, allowed: a multiple of the 8 devices"):
        check_batch(tiny(train={"micro_batch": 4}), Eight())  # type: ignore[arg-type]
