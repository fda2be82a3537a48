"""A worker's two ends: what it prints does not disturb, what it dies of is told, and it never outlives its parent."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxlm.benchmarks.worker import ALLOCATOR, Worker, allocator
from jaxlm.errors import UserError

NOISY = """
from jaxlm import command_line
from jaxlm.benchmarks.worker import Built, serve
from jaxlm.errors import UserError

def build(job):
    print("a library is loading")
    if job["mood"] == "refuses":
        raise UserError("mood is 'refuses', allowed: another")
    if job["mood"] == "breaks":
        raise ZeroDivisionError("by zero")
    return Built({"mood": job["mood"]}, iter([3.0, 2.0, 1.0]).__next__)

command_line.run(lambda argv: serve(build))
"""


@pytest.fixture
def noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "noisy_worker.py").write_text(NOISY)
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}")
    return "noisy_worker"


def test_jobs_are_answered_in_order(noisy: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Worker(noisy, {"mood": "good"}) as worker:
        assert worker.facts == {"mood": "good"}
        assert worker.ask({"steps": 1})["losses"] == [3.0]
        answer = worker.ask({"steps": 2})
    assert answer["losses"] == [2.0, 1.0] and answer["seconds"] >= 0
    assert 1e6 < answer["peak_bytes"] < 1e9
    assert capfd.readouterr() == ("", "")


def test_a_refusal_arrives_as_one(noisy: str) -> None:
    with pytest.raises(UserError, match=r"^mood is 'refuses', allowed: another$"):
        Worker(noisy, {"mood": "refuses"})


def test_what_it_died_of_is_told(noisy: str) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)noisy_worker ended with code 1.*ZeroDivisionError: by zero"):
        Worker(noisy, {"mood": "breaks"})


def test_a_worker_that_has_gone_is_a_fault_and_not_a_wait(noisy: str) -> None:
    with Worker(noisy, {"mood": "good"}) as worker, pytest.raises(RuntimeError, match="StopIteration"):
        worker.ask({"steps": 4})


def test_the_users_allocator_is_not_replaced() -> None:
    assert allocator({}) == ALLOCATOR
    assert allocator({"LD_PRELOAD": "libtcmalloc.so", "HOME": "/"}) == {"LD_PRELOAD": "libtcmalloc.so"}
