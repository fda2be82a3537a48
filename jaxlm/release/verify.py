"""Does an exported directory, loaded with transformers, say what jaxlm says?

It is loaded by a process of its own, which may be another interpreter with another version of transformers, and which
keeps PyTorch out of this one.
Legend: B rows, T positions, V vocabulary.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxlm.errors import UserError
from jaxlm.release import reload
from jaxlm.release.directory import Release
from jaxlm.release.expectation import Expected

TOLERANCE = 1e-4  # of fp32 logits; transformers' own attention implementations differ by 8e-5 on SmolLM2


@dataclass(frozen=True)
class Verification:
    """The result: versions, the largest |logit difference|, and named checks with whether they hold.

    `unchecked` says what this transformers is known to do wrong, so that nothing is to be learnt from it.
    """

    versions: dict[str, str]
    max_logit_difference: float
    checks: dict[str, bool]
    unchecked: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything holds."""
        return all(self.checks.values())

    def record(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            **self.versions,
            "max_logit_difference": self.max_logit_difference,
            "tolerance": TOLERANCE,
            "passed": self.passed,
            "checks": self.checks,
            "unchecked": list(self.unchecked),
        }

    def lines(self) -> list[str]:
        """What `export --verify` prints."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [
            f"verified with {versions}:",
            *(f"  {'ok' if ok else 'FAILED':<7}{what}" for what, ok in self.checks.items()),
            *(f"  {'-':<7}{what}" for what in self.unchecked),
        ]


def verify(directory: Path, release: Release, expected: Expected, python: str) -> Verification:
    """Loads the `release` in `directory` with the interpreter `python` and compares.

    Raises:
      UserError: that interpreter has no PyTorch or no transformers, or does not exist.
      RuntimeError: loading or generating fails there; the message holds its output.
    """
    answers, logits_BTV = _ask(directory, release.format.remote_code, expected, python)
    difference = float(np.max(np.abs(logits_BTV - expected.logits_BTV)))
    B, T = expected.tokens_BT.shape
    checks = {
        f"it is a {answers['class']}": answers["class"] == release.class_name,
        f"every tensor found its place, none is left over{_listed(answers['loading'])}": not answers["loading"],
        f"{answers['parameters']:,} parameters, head {'tied' if answers['tied'] else 'untied'}": (
            (answers["parameters"], answers["tied"]) == (expected.parameters, expected.tied)
        ),
        f"max |logit difference|, {B} x {T} random tokens, fp32: {difference:.2e} (allowed: below {TOLERANCE:.0e})": (
            difference < TOLERANCE
        ),
        "the tokenizer gives jaxlm's ids": answers["prompt_ids"] == expected.prompt_ids,
    }
    since = release.format.pads_since
    whole = tuple(map(int, answers["transformers"].split(".")[:2])) >= since
    for decoding, theirs in zip(expected.decodings, answers["continuations"], strict=True):
        how = ", ".join(f"{name}={value}" for name, value in decoding.settings.items())
        for batched in ("single", "batch"):
            if not whole and (batched == "batch" or decoding.settings["use_cache"]):
                continue
            count = f"{len(expected.prompts)} prompts {'in one padded batch' if batched == 'batch' else 'one by one'}"
            checks[f"tokens at temperature 0 are jaxlm's: {count} ({how})"] = theirs[batched] == decoding.token_ids
    drawn = {token for row in answers["quick_start"] for token in row}
    checks[f"the study's quick start runs, one prompt and {len(expected.prompts)} padded"] = (
        max(drawn) < expected.generable and expected.mask_token_id not in drawn
    )
    unchecked = () if whole else (f"padded batches and caches, which are right from transformers {since[0]} on",)
    return Verification({name: answers[name] for name in ("transformers", "torch")}, difference, checks, unchecked)


def _listed(problems: dict[str, list[str]]) -> str:
    return "".join(f"; {name}: {', '.join(names)}" for name, names in problems.items())


def _ask(directory: Path, remote_code: bool, expected: Expected, python: str) -> tuple[dict[str, Any], np.ndarray]:
    with tempfile.TemporaryDirectory() as scratch:
        questions, answers = Path(scratch, "questions.json"), Path(scratch, "answers.json")
        asked = {
            "remote_code": remote_code,
            "tokens": expected.tokens_BT.tolist(),
            "prompts": list(expected.prompts),
            "settings": [decoding.settings for decoding in expected.decodings],
        }
        questions.write_text(json.dumps(asked), "utf-8")
        # transformers imports a copy of the code, which must not outlive it: the next directory may have its name.
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(Path(scratch, "modules"))}
        # -P: the script's own folder, which is a room of jaxlm, is no place to import from.
        command = [python, "-P", reload.__file__, str(directory), str(questions), str(answers)]
        try:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except OSError as error:
            raise UserError(f"--python={python} cannot be run ({error.strerror})") from None
        if done.returncode == reload.MISSING:
            missing = done.stderr.strip().splitlines()[-1]
            raise UserError(f"--verify needs the package {missing}; install the extra: pip install 'jaxlm[hf]'")
        if done.returncode:
            raise RuntimeError(f"loading {directory} with {python} failed:\n{done.stderr}")
        return json.loads(answers.read_text("utf-8")), np.load(f"{answers}.npy", allow_pickle=False)
