"""Templates: a text with holes, `The ___ of France is Paris.`, of which a diffusion model writes the holes.

A hole is a run of three or more underscores, one token for each; shorter runs are text, so that `a_b` stays a name. All
other text is kept as it is, the space before a hole included: write `The___ of` to leave that to the model.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from jaxlm.errors import UserError
from jaxlm.generation.diffusion import Row

_HOLE = re.compile(r"(_{3,})")


def read(template: str, encode: Callable[[str], list[int]]) -> list[int | None]:
    """The tokens of the text, and None for each token of a hole. Each piece of text is encoded by itself.

    Raises:
      UserError: no hole.
    """
    pieces = _HOLE.split(template)
    if len(pieces) == 1:
        raise UserError(f"--template={template!r} has no hole, allowed: ___, at least three underscores, one a token")
    row: list[int | None] = []
    for piece in pieces:
        row += [None] * len(piece) if _HOLE.fullmatch(piece) else encode(piece)
    return row


def check(row: Row, max_positions: int, trained_block_size: int, shift: bool) -> None:
    """Refuses what the model cannot fill: a text longer than its context, or one that it does not see as a whole.

    With a `shift` a hole is read one position before it.
    """
    if len(row) > max_positions:
        raise UserError(
            f"--template has {len(row)} tokens, holes included, allowed: at most model.max_positions = {max_positions}"
        )
    given = [at for at, token in enumerate(row) if token is not None]
    first_read = row.index(None) - shift
    if trained_block_size and given and given[-1] // trained_block_size > first_read // trained_block_size:
        raise UserError(
            f"--template needs a model that sees the text behind a hole, and this one reads in blocks of "
            f"{trained_block_size} from left to right, allowed: no text behind the block of the first hole"
        )


def join(template: str, token_ids: Sequence[int], decode: Callable[[list[int]], str]) -> str:
    """The template with the tokens in its holes; everything else is as it was given."""
    tokens = iter(token_ids)
    return _HOLE.sub(lambda hole: decode(list(itertools.islice(tokens, len(hole[0])))), template)
