"""The report of a study as files: `index.html`, `report.md` with `pictures/`, and `data.json`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jaxlm.errors import UserError
from jaxlm.study import report_table, study_figures
from jaxlm.study.cells import Study
from jaxlm.study.gathered import gather
from jaxlm.study.page import page
from jaxlm.study.sections import PICTURES, sections
from jaxlm.study.study_data import StudyData, study_data

PAGE, MARKDOWN, DATA, FOLDER = "index.html", "report.md", "data.json", "pictures"


def write(study: Study, out: Path) -> None:
    """Writes the report of a study into the folder `out`, each file whole or not at all."""
    data = study_data(study)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"--out={out} is a file or in one, allowed: a directory, there or new") from None
    (out / FOLDER).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=out) as name:
        scratch = Path(name)
        study_figures.draw(data, scratch)
        pictures = {picture: (scratch / f"{picture}.png").read_bytes() for picture in PICTURES}
        (scratch / PAGE).write_text(page(data, pictures), "utf-8")
        (scratch / MARKDOWN).write_text(markdown(data), "utf-8")
        (scratch / DATA).write_text(json.dumps(data.to_json(), indent=0) + "\n", "utf-8")
        for picture in PICTURES:
            os.replace(scratch / f"{picture}.png", out / FOLDER / f"{picture}.png")
        for file in (DATA, MARKDOWN, PAGE):
            os.replace(scratch / file, out / file)


def write_all(paths: Sequence[str | Path], out: Path) -> None:
    """The report of studies and runs beside one another. Raises UserError where a path is neither, or named twice."""
    write(gather(paths), out)


def markdown(data: StudyData) -> str:
    """The report without the details of each row, which the page has."""
    lines = [f"# {data.title}", ""]
    for sentence in data.opening:
        lines += [sentence, ""]
    lines += [f"Each row's configuration, curve and samples are in `{PAGE}`, all numbers in `{DATA}`.", ""]
    for section in sections(data):
        lines += [f"## {section.title}", ""]
        for paragraph in section.paragraphs:
            lines += [paragraph, ""]
        for title, table in section.tables:
            lines += [*([f"### {title}", ""] if title else []), *report_table.markdown(table)]
        for name in section.pictures:
            lines += [f"![{PICTURES[name]}, published and measured here]({FOLDER}/{name}.png)", ""]
    return "\n".join(lines).rstrip() + "\n"
