"""The conditions under which a speed was measured: the machine."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Any

from jaxlm.benchmarks.worker import allocator


def machine() -> dict[str, Any]:
    """What the machine is and how busy it was before: plain values.

    `load_average` counts the processes that wanted a core in the last minute.
    """
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": cores(),
        "load_average": os.getloadavg()[0],
        "allocator": allocator(os.environ),
    }


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    """The processor by name, as far as the system tells."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
