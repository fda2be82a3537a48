"""The report of a study as one HTML page that needs nothing else: styles, script and pictures are in it."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from importlib import resources

from jaxlm.study import page_details, report_table
from jaxlm.study.sections import PICTURES, Section, sections
from jaxlm.study.study_data import POCKET, StudyData

FOLDED = "differences"  # the section whose tables are many and long


def page(data: StudyData, pictures: Mapping[str, bytes]) -> str:
    """The page. `pictures` are PNG files by name."""
    shown = sections(data)
    links = "".join(f'<li><a href="#{s.name}">{html.escape(s.title)}</a></li>' for s in shown)
    rows = "\n".join(page_details.details(data, row) for row in data.rows)
    body = "\n".join(_section(section, pictures) for section in shown)
    files = resources.files("jaxlm.study")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{html.escape(data.title)}</title>
<style>
{files.joinpath("page.css").read_text("utf-8")}</style>
</head>
<body>
<header>
<h1>{html.escape(data.title)}</h1>
{"".join(_opening(sentence) for sentence in data.opening)}
<p class="quiet">Report made {html.escape(data.made_at)} (UTC). Headings of tables sort them.</p>
</header>
<nav aria-label="sections"><ul>{links}<li><a href="#details">Each row</a></li></ul></nav>
<main>
{body}
<section id="details">
<h2>Each row</h2>
{rows}
</section>
</main>
<script>
{files.joinpath("page.js").read_text("utf-8")}</script>
</body>
</html>
"""


def _opening(sentence: str) -> str:
    kind = ' class="pocket"' if sentence == POCKET else ""
    return f"<p{kind}>{html.escape(sentence)}</p>\n"


def _section(section: Section, pictures: Mapping[str, bytes]) -> str:
    lines = [f'<section id="{section.name}">', f"<h2>{html.escape(section.title)}</h2>"]
    lines += [f"<p>{html.escape(paragraph)}</p>" for paragraph in section.paragraphs]
    for title, table in section.tables:
        inside = report_table.page(table)
        if section.name == FOLDED:
            inside = f"<details><summary>{html.escape(title)}</summary>{inside}</details>"
        elif title:
            inside = f"<h3>{html.escape(title)}</h3>{inside}"
        lines.append(inside)
    lines += [_picture(name, pictures[name]) for name in section.pictures]
    return "\n".join([*lines, "</section>"])


def _picture(name: str, png: bytes) -> str:
    source = base64.b64encode(png).decode("ascii")
    title = html.escape(PICTURES[name])
    return (
        f'<figure><img alt="{title}, published and measured here" src="data:image/png;base64,{source}">'
        f"<figcaption>{title}</figcaption></figure>"
    )
