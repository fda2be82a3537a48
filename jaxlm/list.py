"""`python -m jaxlm.list`: what there is to choose from: families, sources, tasks, configs with a line each."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path

from jaxlm import command_line


def main(argv: Sequence[str]) -> None:
    """Prints the registries and the configs of the folder it is run in."""
    parser = command_line.Parser(
        "list", "Families, sources of text, groups of benchmark tasks, and the configs below ./configs."
    )
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    args = parser.parse(argv)
    found = choices(Path("configs"))
    if args.json:
        print(json.dumps(found))
        return
    for title, entries in found.items():
        print(f"{title}:")
        print("\n".join(f"  {name:<36} {line}" for name, line in entries.items()) or "  none here; run in the checkout")


def choices(configs: Path) -> dict[str, dict[str, str]]:
    """Name and one line of every family, source, group of tasks (and the tasks made here) and config."""
    from jaxlm.data.sources import SOURCES
    from jaxlm.evaluation.bigbench_tasks import TASKS
    from jaxlm.evaluation.tasks import ABOUT
    from jaxlm.families.registry import FAMILIES

    return {
        "families": dict(FAMILIES),
        "sources": {name: summary(source.__doc__) for name, source in SOURCES.items()},
        "tasks": ABOUT | {name: f"{t.what}; {t.num_items:,} items of {t.choices} options" for name, t in TASKS.items()},
        "configs": {str(path): first_line(path) for path in sorted(configs.rglob("*.py"))},
    }


def summary(doc: str | None) -> str:
    """The first line of a docstring."""
    return (doc or "").partition("\n")[0]


def first_line(path: Path) -> str:
    """The first line of a Python file's docstring, without running the file."""
    return summary(ast.get_docstring(ast.parse(path.read_text("utf-8"))))


if __name__ == "__main__":
    command_line.run(main)
