"""`prepare_data` of the study's mix at several sizes: speed, memory of all processes, disk, hours for 1B tokens.

The three sources are made up at the size that is asked for, in the hub's layout (Parquet files with the column `text`):
documents joined from documentation strings of installed packages, drawn at random, so that none is another's copy.
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxlm.benchmarks.conditions import machine
from jaxlm.config import PrepareConfig
from jaxlm.data.sources.package_docs import PackageDocs
from jaxlm.errors import UserError
from jaxlm.fields import parse

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "data" / "study_mix.py"
PACKAGES = ("flax", "jax", "numpy", "optax")
# Of each source: its share, and the bytes of its shortest and longest documents (PDFs are long, web pages are not).
SOURCES = {"finepdfs": (0.5, 2_000, 100_000), "dclm": (0.3, 200, 20_000), "fineweb_edu": (0.2, 100, 10_000)}
BYTES_PER_TOKEN = 4.0  # of the made-up text, rounded up; half as much again is made, so that no source runs out
SPARE = 1.5
VALIDATION_SHARE = 0.05  # more than the study's, so that small sizes have validation windows of every source
FILE_BYTES = 50_000_000  # of text in one Parquet file
GROUP = 256  # documents of a row group
SECONDS = 0.1  # between two looks at the memory


@dataclass(frozen=True)
class Settings:
    """`sizes` are tokens of training windows by commas, as 10M,100M; `processes` as of `prepare_data`."""

    sizes: str
    processes: int


def measure(config: None, settings: Settings) -> dict[str, Any]:
    """Prepares each size in a process of its own. Values of JSON; `hours_for_1B` is at the largest size's speed."""
    if config is not None:
        raise UserError(f"--config is not read by --what=prepare, which measures {CONFIG.name}, allowed: --sizes")
    try:
        sizes = sorted(parse(int, text) for text in settings.sizes.split(","))
    except ValueError as error:
        raise UserError(f"--sizes is {settings.sizes!r} ({error}), allowed: numbers as 10M, by commas") from None
    try:
        import pyarrow
    except ImportError:
        raise UserError("--what=prepare needs the package pyarrow (pip install 'jaxlm[data]')") from None
    strings = documentation()
    versions = {name: importlib.metadata.version(name) for name in ("tensorflow-datasets", "array-record", "tiktoken")}
    runs = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            files = write_sources(Path(directory), strings, int(size * BYTES_PER_TOKEN * SPARE))
            runs.append(one_run(Path(directory) / "data", files, size, settings.processes))
    conditions = machine() | {
        "processes": settings.processes,
        "versions": versions | {"pyarrow": pyarrow.__version__},
        "memory": f"sum of the resident sets of all processes, every {SECONDS} s (shared pages count in each)",
    }
    hours = 1e9 / runs[-1]["tokens_per_sec"] / 3600
    return {"what": "prepare", "runs": runs, "hours_for_1B": hours, "conditions": conditions}


def documentation() -> list[str]:
    """Documentation strings of a few installed packages, those of fewer than 100 bytes left out."""
    packages = tuple(f"{name}=={importlib.metadata.version(name)}" for name in PACKAGES)
    source = PackageDocs("", PrepareConfig(source="package_docs", packages=packages))
    return [document.text for document in source.documents() if len(document.text) >= 100]


def write_sources(directory: Path, strings: Sequence[str], num_bytes: int) -> dict[str, str]:
    """Writes the made-up sources, about `num_bytes` of text in all; returns a pattern of files for each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, (share, shortest, longest) in SOURCES.items():
        left, number = num_bytes * share, 0
        texts = documents(random.Random(name), strings, shortest, longest)
        while left > 0:
            file, written = directory / f"{name}-{number:05d}.parquet", 0
            with pq.ParquetWriter(file, pa.schema({"text": pa.string()})) as writer:
                while written < min(left, FILE_BYTES):
                    group = [next(texts) for _ in range(GROUP)]
                    writer.write_table(pa.table({"text": group}))
                    written += sum(map(len, group))
            left, number = left - written, number + 1
    return {name: str(directory / f"{name}-*.parquet") for name in SOURCES}


def documents(rng: random.Random, strings: Sequence[str], shortest: int, longest: int) -> Iterator[str]:
    """Texts without end, their lengths spread evenly on a scale of ratios."""
    while True:
        wanted, parts = shortest * (longest / shortest) ** rng.random(), [f"{rng.random()}"]
        while wanted > 0:
            parts.append(rng.choice(strings)[: int(wanted) + 1])
            wanted -= len(parts[-1])
        yield "\n\n".join(parts)


def one_run(out: Path, files: Mapping[str, str], total_tokens: int, processes: int) -> dict[str, Any]:
    """Runs the command and watches it; raises RuntimeError with what it said if it fails."""
    argv = [
        sys.executable,
        "-m",
        "jaxlm.prepare_data",
        f"--config={CONFIG}",
        f"--out={out}",
        f"--processes={processes}",
    ]
    argv += [
        f"--config.validation_share={VALIDATION_SHARE}",
        f"--config.total_tokens={total_tokens}",
        *(f"--config.files.{name}={given}" for name, given in files.items()),
    ]
    started, peak = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as said:
        command = subprocess.Popen(argv, stdout=said, stderr=subprocess.STDOUT)
        try:
            while command.poll() is None:
                peak = max(peak, tree_bytes(command.pid))
                time.sleep(SECONDS)
        finally:
            command.kill()
        if command.returncode:
            said.seek(0)
            raise RuntimeError(f"prepare_data failed: {said.read()[-2000:]}")
    seconds = time.monotonic() - started
    statistics = json.loads((out / "statistics.json").read_text())
    tokens = (
        statistics["by_split"]["train"]["windows"]
        * json.loads((out / "fingerprint.json").read_text())["config"]["seq_len"]
    )
    return {
        "tokens": tokens,
        "bytes_per_token": statistics["bytes_per_token"],
        "seconds": seconds,
        "tokens_per_sec": tokens / seconds,
        "peak_bytes": peak,
        "disk_bytes": sum(file.stat().st_size for file in out.rglob("*") if file.is_file()),
    }


def tree_bytes(pid: int) -> int:
    """The resident memory of a process and all that it has started, as Linux's /proc tells; 0 where it does not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = [c for f in Path(f"/proc/{pid}/task").glob("*/children") for c in f.read_text().split()]
    except OSError:  # it has just ended
        return 0
    own = sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
    return own + sum(tree_bytes(int(child)) for child in children)


def table(result: Mapping[str, Any]) -> str:
    """The result for people."""
    at = result["conditions"]
    lines = [f"{'tokens':>14}{'seconds':>10}{'tokens/s':>12}{'peak memory, MB':>18}{'disk, bytes a token':>22}"]
    for run in result["runs"]:
        numbers = f"{run['tokens']:>14,}{run['seconds']:>10.1f}{run['tokens_per_sec']:>12,.0f}"
        lines.append(f"{numbers}{run['peak_bytes'] / 1e6:>18.0f}{run['disk_bytes'] / run['tokens']:>22.2f}")
    versions = ", ".join(f"{name} {version}" for name, version in at["versions"].items())
    return "\n".join(
        [
            *lines,
            f"1B tokens at the speed of the last line: {result['hours_for_1B']:.2f} hours",
            f"memory: {at['memory']}",
            f"{at['cpu']}, {at['cores']} cores, {at['processes']} processes, load before {at['load_average']:.1f}, "
            f"{versions}; {at['date']}",
        ]
    )
