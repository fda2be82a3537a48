"""The README's example of a new family does what the README says, in as few lines."""

from __future__ import annotations

import importlib
import re
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

from jaxlm.config import ObjectiveConfig
from jaxlm.families.registry import FAMILIES
from jaxlm.layers.parameters import paths
from jaxlm.release import tables
from jaxlm.release.mapping import from_hugging_face, to_hugging_face
from tests.families.test_against_transformers import assert_close, ours, text, theirs

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
SECTION = README.partition("## Adding a family")[2].partition("\n## ")[0]
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", SECTION, re.DOTALL))
NAME = "starcoder2"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the example, as modules, and their lines in the two registries."""
    for path, source in FILES.items():
        name = path.removesuffix(".py").replace("/", ".")
        module = types.ModuleType(name)
        exec(compile(source, path, "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    ((name, line),) = re.findall(r'registry.py` gets `"(\w+)": "(.*?)",`', SECTION)
    monkeypatch.setitem(FAMILIES, name, line)
    monkeypatch.setattr(tables, "NATIVE", (*tables.NATIVE, name))
    monkeypatch.setattr(tables, "ALL", (*tables.ALL, name))


def test_it_is_short_and_not_here_already() -> None:
    assert list(FILES) == [f"jaxlm/families/{NAME}.py", f"jaxlm/release/tables/{NAME}.py"]
    assert sum(source.count("\n") for source in FILES.values()) < 60
    assert NAME not in FAMILIES
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"jaxlm.families.{NAME}")


def test_its_logits_and_its_way_back_are_those_of_transformers(added, tiny, random_params, tmp_path) -> None:
    model = tiny(family=NAME, tie_embeddings=False)
    params, tokens = random_params(model), text(model)
    hf = theirs(model, params, tmp_path / "hf")
    assert type(hf).__name__ == "Starcoder2ForCausalLM"
    assert_close(ours(model, params, tokens), hf(torch.tensor(tokens)).logits)

    target = tables.of_config_json(hf.config.to_dict())
    config, objective = target.from_config(hf.config.to_dict())
    assert (config.family, objective) == (NAME, ObjectiveConfig())
    shape = ("vocab_size", "num_layers", "hidden_size", "intermediate_size", "num_kv_heads", "head_dim", "norm_eps")
    for name in (*shape, "norm", "feed_forward", "use_bias", "rope_theta", "tie_embeddings", "max_positions"):
        assert getattr(config, name) == getattr(model.config, name), name
    tensors = to_hugging_face(target.table(config), params)
    back = from_hugging_face(target.table(config), tensors, jax.tree.map(np.asarray, params))
    for (path, leaf), (_, returned) in zip(paths(params), paths(back), strict=True):
        np.testing.assert_array_equal(leaf, returned, err_msg=path)
