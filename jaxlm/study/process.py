"""What a process that does a study does to itself: signals, kept programs, words that go to a file."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

import jax

from jaxlm.generation.result import forget_compiled

CACHE = ("cache", "jax")  # of a study's directory
TERMINATED = 128 + signal.SIGTERM
AGAIN = 0.1  # seconds
_CALLBACKS = ("_xla_gc_callback", "_remove", "__del__")  # of a collector: what is raised in there is lost


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends the block by SystemExit(143), so that what is unfinished is removed on the way out.

    Training, which has its own handler, saves instead. Outside the main thread Python has no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(signum: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_name in _CALLBACKS:  # raised a moment later
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
            return
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(TERMINATED)  # libraries swallow what is raised while they are imported
        frame = frame.f_back
    raise SystemExit(TERMINATED)


@contextlib.contextmanager
def kept_compilations(workdir: Path) -> Iterator[None]:
    """Compiled programs, also quick ones, go to the study's directory, or where JAX_COMPILATION_CACHE_DIR says."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        yield
        return
    values = {
        "jax_compilation_cache_dir": str(workdir.joinpath(*CACHE)),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(jax.config, name) for name in values}
    try:
        for name, value in values.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def forget_programs() -> None:
    """Lets go of the compiled programs of a model that nobody asks any more."""
    forget_compiled()
    jax.clear_caches()
    gc.collect()


@contextlib.contextmanager
def quiet(log: Path, stream: TextIO) -> Iterator[None]:
    """What is said in the block goes to the end of the file `log`, unless `stream` is a terminal, where people look."""
    if stream.isatty():
        yield
        return
    with (
        log.open("a", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        yield
