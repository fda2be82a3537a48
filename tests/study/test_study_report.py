"""The report of a study: every number of it is in its data, its page needs nothing else, its links have targets."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from jaxlm.errors import UserError
from jaxlm.evaluation.statistics import Score
from jaxlm.study import study_report
from jaxlm.study.cells import BROKEN, Study
from jaxlm.study.estimates import of_rows
from jaxlm.study.gathered import gather
from jaxlm.study.report_table import anchor
from jaxlm.study.study_data import POCKET

from .synthetic import Made, study

VOID = {"meta", "link", "img", "path", "polyline"}
LOADS = {"src", "href", "srcset", "data", "action", "poster"}


def made_up() -> Study:
    """Three rows of the sweep, one of them without a run, one that failed, and the empty one."""
    rng = np.random.default_rng(0)
    tokens = np.full(20, 16.0)

    def row(quality: float) -> Made:
        items = {task: (rng.random((2, 60)) < quality).astype(float) for task in ("one", "two", "truth")}
        windows = [Score(rng.normal(60, 3, 20), tokens, 3 * tokens) for _ in range(2)]
        losses = [{5: 6.0, 10: 5.0}] * 2
        return Made(items, windows, losses=losses, parameters=500_000)

    rows: dict[str, Made | None] = {
        "gpt2-4": row(0.3), "gpt2-12": row(0.4), "gpt2-16": None, "odd": row(0.3), "unnamed": Made(kind=""),
    }  # fmt: skip
    found = study(rows, groups=("sweep: gpt2-12 gpt2-4",))
    results = []
    for result in found.results:
        if result.run is not None and result.run.evaluation is not None:
            result.run.evaluation.update(num_windows=20, parameter_hash="abc", step=10)
        if result.cell.row.name == "gpt2-16":
            result = dataclasses.replace(result, status=BROKEN, error="train: it ran out of <memory>")
        results.append(result)
    return dataclasses.replace(found, results=tuple(results))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report."""
    out = tmp_path_factory.mktemp("study") / "report"
    study_report.write(made_up(), out)
    return out


class Page(HTMLParser):
    """Elements, ids, links and fields of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.values: list[float] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in LOADS:
                self.links.append(value or "")
            if name == "data-value":
                self.values.append(float(value or "nan"))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def numbers(value: Any) -> set[float]:
    """All numbers in plain values."""
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(numbers, value), set())
    return {float(value)} if isinstance(value, (int, float)) else set()


def test_the_page_is_well_formed_and_loads_nothing(report: Path) -> None:
    page = Page((report / "index.html").read_text("utf-8"))
    assert page.open == [] and len(set(page.ids)) == len(page.ids)
    inside = [link[1:] for link in page.links if link.startswith("#")]
    assert set(inside) <= set(page.ids) and anchor("gpt2-12") in inside and anchor("odd") in inside
    assert all(link.startswith(("#", "data:", "https://")) for link in page.links)
    text = (report / "index.html").read_text("utf-8")
    assert "<memory>" not in text and "it ran out of &lt;memory&gt;" in text
    assert "@import" not in text and "url(" not in text and "fetch(" not in text


def test_numbers_of_the_page_are_in_the_data(report: Path) -> None:
    data = json.loads((report / "data.json").read_text("utf-8"))
    known = numbers(data)
    for row in data["rows"]:
        shown = [measured["value"] for measured in row["measured"].values()]
        assert set(shown) <= set(Page((report / "index.html").read_text("utf-8")).values)
    assert {one["average"] for one in data["published"]["sweep"]} <= known
    assert {row["row"] for row in data["published"]["families"]} >= {"unnamed", "dhara"}


def test_the_first_line_says_that_pocket_rows_test_the_machinery(report: Path) -> None:
    text = (report / "report.md").read_text("utf-8")
    assert text.splitlines()[2] == POCKET
    assert "Failed, and why is told below: gpt2-16." in text and "Empty, for nothing is known of it: unnamed." in text
    assert "| gpt2-16 | gpt2-16, seed 0 | train: it ran out of \\<memory\\> |" in text
    for picture in (report / "pictures").iterdir():
        assert f"(pictures/{picture.name})" in text and picture.read_bytes().startswith(b"\x89PNG")


def test_published_and_measured_means_have_columns_of_their_own(report: Path) -> None:
    lines = (report / "report.md").read_text("utf-8").splitlines()
    header = next(line for line in lines if "average as published" in line).split(" | ")
    twelve = next(line for line in lines if line.startswith("| gpt2-12 |") and "512" in line).split(" | ")
    row = dict(zip(header, twelve, strict=True))
    assert row["average as published"] == "38.15 (6 tasks)" and row["mean of six, published"].startswith("38.1")
    assert row["mean of seven, published"] == "–"
    assert not {"mean of six, measured", "mean of seven, measured"} & set(row)  # nobody was asked these tasks
    assert "±" in row["own mean (a stand-in), measured"]
    assert any(line.startswith("| unnamed |") for line in lines)


def test_an_interval_counts_items_and_seeds() -> None:
    made = {"a": Made({"one": [[1, 1, 0, 0], [1, 1, 1, 0]]}), "b": Made({"one": [[1, 0, 0, 0], [1, 0, 0, 0]]})}
    found = study(made, mean="one")
    measured = of_rows({name: found.of(name) for name in made}, "one")
    assert measured["a"].value == 62.5 and measured["b"].value == 25
    # Items: means 1, 1, .5, 0; seeds: 12.5 squared and 0 over one degree each, halved.
    items = 100**2 * np.var([1, 1, 0.5, 0], ddof=1) / 4
    seeds = (2 * 12.5**2 / 2) / 2
    degrees = 2 * ((items + seeds) / seeds) ** 2
    assert measured["a"].half_width == pytest.approx(t.ppf(0.975, degrees) * np.sqrt(items + seeds))


def test_runs_of_ones_own_are_compared_by_the_names_of_their_directories(runs: SimpleNamespace, tmp_path: Path) -> None:
    twin = tmp_path / "elsewhere" / "ar"
    shutil.copytree(runs.ar, twin, ignore=shutil.ignore_patterns("checkpoints"))
    found = gather([runs.ar, twin, runs.diffusion])
    assert list(found.rows) == [f"{runs.ar.parent.name}.ar", "elsewhere.ar", "diffusion"]
    assert found.groups == {"runs": tuple(found.rows)}
    study_report.write_all([runs.ar, twin, runs.diffusion], tmp_path / "out")
    assert "diffusion" in (tmp_path / "out" / "report.md").read_text("utf-8")
    spaced = tmp_path / "else where" / "run 1"
    shutil.copytree(runs.ar, spaced, ignore=shutil.ignore_patterns("checkpoints"))
    assert list(gather([spaced, runs.diffusion]).groups["runs"]) == ["run_1", "diffusion"]
    with pytest.raises(UserError, match="is a file or in one"):
        study_report.write_all([runs.ar], tmp_path / "out" / "report.md")
    with pytest.raises(UserError, match="--report names no directory"):
        gather([])
    with pytest.raises(UserError, match="twice"):
        gather([runs.ar, f"{runs.ar}/../ar"])
    with pytest.raises(UserError, match="no jaxlm workdir"):
        gather([tmp_path])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not here")
def test_the_script_parses(tmp_path: Path) -> None:
    script = Path(study_report.__file__).with_name("page.js")
    assert len(script.read_text("utf-8").splitlines()) < 150
    subprocess.run(["node", "--check", str(script)], check=True, timeout=60)


@pytest.mark.skipif("JAXLM_BROWSER" not in os.environ, reason="JAXLM_BROWSER names no Chromium")
def test_in_a_browser_tables_sort_links_open_and_nothing_is_loaded(report: Path) -> None:
    script, page = Path(__file__).with_name("page_in_browser.cjs"), report / "index.html"
    command = ["node", str(script), str(page)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert found["messages"] == [] and found["loaded"] == [f"file://{page}"]
    values = [float(field.split()[0]) for field in found["up"]]
    assert values == sorted(values) and len(values) == 7
    assert found["down"] == found["up"][::-1] and found["sorted"] == "descending"
