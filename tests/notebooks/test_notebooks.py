"""The notebooks: each is a pair of files that agree, and runs in a fresh kernel on runs of a few steps."""

import json
import os
from pathlib import Path

import jax
import jupytext
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import jaxlm
from jaxlm.config import PrepareConfig, RunConfig
from jaxlm.data.prepare import prepare
from jaxlm.fields import build
from jaxlm.study.study_data import study_data
from jaxlm.training import loop

from ..study.synthetic import Made, study

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
MODEL = {
    "family": "llama3_canon",
    "canon_set": "AC",
    "vocab_size": 320,
    "num_layers": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 8,
    "max_positions": 64,
}
TRAIN = {
    "total_tokens": 6 * 128,
    "batch_tokens": 128,
    "seq_len": 16,
    "log_every": 1,
    "eval_every": 6,
    "eval_windows": 2,
    "tensorboard": False,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A directory as JAXLM_RUNS names it, with what the notebooks read of the quickstart."""
    root = tmp_path_factory.mktemp("runs")
    out = root / "quickstart"
    (root / "text.txt").write_text("\n\n".join(f"Document {i} returns the value {2 * i + 1}." for i in range(400)))
    config = PrepareConfig(files=str(root / "text.txt"), tokenizer="train:300", seq_len=16)
    prepare(config, out / "data", report=lambda text: None)
    values = {"model": MODEL, "train": TRAIN, "data": {"dir": str(out / "data")}, "execution": {"data_parallel": 1}}
    loop.train(build(RunConfig, values), out / "ar", kind="train", init_from=None)
    values |= {"objective": {"kind": "diffusion"}, "convert": {"block_sizes": (4,), "warmup_share": 0.5}}
    loop.train(build(RunConfig, values), out / "diffusion", kind="convert", init_from=str(out / "ar"))
    return root


@pytest.fixture
def kernel(monkeypatch, tmp_path) -> None:
    """What a kernel inherits: this checkout, matplotlib's own choice of how to draw, nothing of the user's."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.delenv("MPLBACKEND", raising=False)


def execute(path: Path, *, started_in: Path) -> nbformat.NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": str(started_in)}}
    ).execute()
    return notebook


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def printed(notebook: nbformat.NotebookNode, stream: str) -> str:
    return "".join(o.text for o in outputs(notebook) if o.output_type == "stream" and o.name == stream)


@pytest.mark.parametrize("script", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_two_files_of_a_notebook_agree(script) -> None:
    """`jupytext --sync notebooks/*.py` brings them together again."""
    readable, notebook = jupytext.read(script), nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(notebook)
    for one in (readable, notebook):
        assert one.metadata.jupytext.formats == "ipynb,py:percent"
    assert [(c.cell_type, c.source) for c in notebook.cells] == [(c.cell_type, c.source) for c in readable.cells]
    assert readable.metadata.kernelspec == notebook.metadata.kernelspec
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code), "outputs are not kept"


def test_every_notebook_has_both_files() -> None:
    assert NOTEBOOKS
    assert [p.stem for p in NOTEBOOKS] == sorted(p.stem for p in (ROOT / "notebooks").glob("*.ipynb"))


def test_a_look_inside_runs_from_its_own_directory(runs, kernel, monkeypatch) -> None:
    monkeypatch.setenv("JAXLM_RUNS", str(runs))
    notebook = execute(ROOT / "notebooks" / "01_look_inside.ipynb", started_in=ROOT / "notebooks")
    shown = [output.data for output in outputs(notebook) if output.output_type == "display_data"]
    assert sum("image/png" in data for data in shown) == 4, "loss, taps, attention, denoising"
    assert any("treescope" in data.get("text/html", "") for data in shown)
    text = printed(notebook, "stdout")
    assert f"AR: step 6 of {runs / 'quickstart' / 'ar'}" in text
    total = sum(leaf.size for leaf in jax.tree.leaves(jaxlm.load(runs / "quickstart" / "ar").params))
    assert f"Total Parameters: {total:,}" in text
    assert "AR: share of attention on later positions, by layer: 0.00 0.00\n" in text
    ahead = text.split("diffusion: share of attention on later positions, by layer:")[1].split("\n")[0]
    assert all(0.2 < float(share) < 0.8 for share in ahead.split())
    assert printed(notebook, "stderr") == ""


def test_without_runs_it_says_how_to_make_them(kernel, monkeypatch) -> None:
    monkeypatch.setenv("JAXLM_RUNS", "nowhere")
    with pytest.raises(CellExecutionError) as caught:
        execute(ROOT / "notebooks" / "01_look_inside.ipynb", started_in=ROOT)
    where = ROOT / "nowhere" / "quickstart"
    assert caught.value.ename == "SystemExit"
    assert caught.value.evalue == (
        f"no finished run in {where / 'ar'} and {where / 'diffusion'}: `bash launch/quickstart.sh` makes them"
    )


def test_depth_and_width_runs_small(runs, kernel, monkeypatch) -> None:
    monkeypatch.setenv("JAXLM_RUNS", str(runs))
    monkeypatch.setenv("JAXLM_NOTEBOOK", "small")
    notebook = execute(ROOT / "notebooks" / "02_depth_and_width.ipynb", started_in=ROOT / "notebooks")
    shown = [output.data for output in outputs(notebook) if output.output_type == "display_data"]
    assert sum("image/png" in data for data in shown) == 4, "sizes, ranks, entropies, load"
    text = printed(notebook, "stdout")
    for total in ("67,736,832", "64,085,504", "61,603,136", "62,279,808", "76,475,520", "75,592,640", "63,673,088"):
        assert total in text, "the sweep as published"
    matched = [line for line in text.partition("matched at 70M")[2].splitlines() if " x " in line][1:8]
    totals = [int(line.split()[4].replace(",", "")) for line in matched]
    assert len(totals) == 7
    assert max(abs(total / 70e6 - 1) for total in totals) <= 0.005
    for name in ("2x", "6x", "moe"):
        assert any(path.name.startswith(name) for path in (runs / "depth_and_width").glob("*/"))
    assert text.count("after: embedding") == 2
    least = [float(line.split()[-3].rstrip(",")) for line in text.splitlines() if line.startswith("expert load")]
    assert len(least) == 2 and all(0 <= share <= 0.25 for share in least)


def test_ar_into_diffusion_runs_small(runs, kernel, monkeypatch) -> None:
    monkeypatch.setenv("JAXLM_RUNS", str(runs))
    monkeypatch.setenv("JAXLM_NOTEBOOK", "small")
    notebook = execute(ROOT / "notebooks" / "03_ar_into_diffusion.ipynb", started_in=ROOT / "notebooks")
    shown = [output.data for output in outputs(notebook) if output.output_type == "display_data"]
    assert sum("image/png" in data for data in shown) == 5, "structure, losses, noise levels, attention, order"
    text = printed(notebook, "stdout")
    stages = ["AR", "blocks of 1", "blocks of 4", "whole window", "back to blocks of 4"]
    phases = [line.split(": ")[1].split(",")[0] for line in text.splitlines() if line.startswith("updates ")]
    assert phases == stages[1:]
    for stage in stages:
        assert f"\nloss after {stage}: " in f"\n{text}"
        assert f"\n{stage}, ar " in text and (f"\n{stage}, diffusion " in text) == (stage != "AR")
    looks_ahead = [line for line in text.splitlines() if "attention on later positions" in line]
    share = {line.split(":")[0]: float(line.split()[-1]) for line in looks_ahead}
    assert share["AR"] == share["blocks of 1"] == 0 < share["blocks of 4"] < share["whole window"]
    assert "AR: 8 passes, 0% of the tokens" in text and "whole window: 2 passes" in text
    assert f"no runs to compare in {runs / 'conversion'}: `bash launch/pocket_conversion.sh` makes them" in text


def test_the_study_reads_a_report(kernel, monkeypatch, tmp_path) -> None:
    rng = np.random.default_rng(0)
    made = {name: Made({"one": (rng.random((2, 40)) < 0.4).astype(float)}) for name in ("gpt2-4", "gpt2-12", "own")}
    data = study_data(study(made, mean="one", groups=("sweep: gpt2-4 gpt2-12",)))
    (tmp_path / "data.json").write_text(json.dumps(data.to_json()))
    monkeypatch.setenv("JAXLM_STUDY", str(tmp_path / "data.json"))
    notebook = execute(ROOT / "notebooks" / "04_the_study.ipynb", started_in=ROOT / "notebooks")
    shown = [output.data for output in outputs(notebook) if output.output_type == "display_data"]
    assert sum("image/png" in output for output in shown) == 3, "differences, halves, published beside measured"
    text = printed(notebook, "stdout")
    value = data.measured("gpt2-12", "one").value - data.measured("gpt2-4", "one").value
    assert f"gpt2-12 minus gpt2-4: {value:+.2f} points" in text and "3 rows with all of one" in text
