"""What a decoder is given to write on: prompts, a file of them, or templates."""

from __future__ import annotations

from pathlib import Path

from jaxlm.errors import UserError


def given(prompts: list[str], prompts_file: str | None, templates: list[str]) -> list[str]:
    """The texts of the one source that is there; UserError for none, for two, and for a file that has none."""
    sources = {"prompt": prompts, "prompts_file": prompts_file, "template": templates}
    names = [name for name, value in sources.items() if value]
    if not names:
        raise UserError(
            "--prompt is missing, allowed: --prompt=TEXT or --template=TEXT (both repeatable), or --prompts_file=FILE"
        )
    if len(names) > 1:
        raise UserError(f"--{names[0]} and --{names[1]} are both given, allowed: one of them")
    return prompts or templates or _lines(str(prompts_file))


def _lines(file: str) -> list[str]:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--prompts_file={file} cannot be read as UTF-8 text: {error}") from error
    if not lines:
        raise UserError(f"--prompts_file={file} is empty, allowed: one prompt a line")
    return lines
