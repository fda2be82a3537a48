"""Both ends of a worker: a process of its own that builds something once and then works when it is told to.

A process each, so that each has a peak of memory of its own, and neither library is loaded beside the other. They are
spoken to in lines of JSON: jobs go in through standard input, answers come out through a descriptor that nothing else
knows, for libraries print on standard output as they please.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from jaxlm.errors import UserError

# Huge pages for what malloc hands out: 17 to 25 % of a training step on a CPU, in PyTorch and in JAX alike.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
ALLOCATOR_VARIABLES = ("LD_PRELOAD", "GLIBC_TUNABLES")


def allocator(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that choose the workers' allocator: the user's, if there are any, else ours."""
    return {name: environment[name] for name in ALLOCATOR_VARIABLES if environment.get(name)} or ALLOCATOR


@dataclass(frozen=True)
class Built:
    """What a worker made of its first job: plain values worth knowing, and one unit of work, which returns a loss."""

    facts: dict[str, Any]
    step: Callable[[], float]


def serve(build: Callable[[dict[str, Any]], Built]) -> None:
    """The worker's end: answers the first job with the facts, a {"steps": n} with seconds, losses and peak memory."""
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        built: Built | None = None
        for line in sys.stdin:
            job = json.loads(line)
            if built is None:
                built = build(job)
                answer = built.facts
            else:
                started = time.monotonic()
                losses = [built.step() for _ in range(job["steps"])]
                answer = {"seconds": time.monotonic() - started, "losses": losses, "peak_bytes": peak_bytes()}
            print(json.dumps(answer), file=answers, flush=True)


def peak_bytes() -> int:
    """The most memory that this process has held at once."""
    if platform.system() == "Linux":
        # Not getrusage, whose peak begins with what the parent held when it forked.
        with open("/proc/self/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes, on macOS


class Worker:
    """The other end. A context manager; leaving it ends the process, whatever it is doing.

    `module` is run with `python -m` on the CPU; `job` is what it builds from. `facts` is its answer.

    Raises:
      UserError: what the worker found wrong with the job.
      RuntimeError: it died of something else; the message holds its output.
    """

    def __init__(self, module: str, job: Mapping[str, Any]) -> None:
        self._output = tempfile.TemporaryFile("w+", encoding="utf-8")
        read, write = os.pipe()
        self._module, self._answers = module, os.fdopen(read, encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(write)],
            env=os.environ | allocator(os.environ) | {"JAX_PLATFORMS": "cpu"},
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            pass_fds=(write,),
            text=True,
        )
        os.close(write)
        try:
            self.facts = self.ask(job)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._answers.close()
        self._output.close()

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a job and waits for the answer."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(job), file=self._process.stdin, flush=True)
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return dict(json.loads(line))
        code = self._process.wait()
        self._output.seek(0)
        output = self._output.read().strip()
        if code == 2:
            raise UserError(output.splitlines()[-1].removeprefix("jaxlm: "))
        raise RuntimeError(f"{self._module} ended with code {code}:\n{output}")
