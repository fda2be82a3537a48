"""Decoders are compiled for a few tokens here: quickly."""

import pytest

from jaxlm.generation import result
from tests.quick_jit import quick_decoder


@pytest.fixture(autouse=True)
def quick_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "_compiled", quick_decoder)
