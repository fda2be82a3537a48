"""A workdir on disk: config.json, manifest.json, tokenizer/, lock, COMPLETE.

`config.json` is what makes a directory a workdir. All of it appears at once, by a rename, when everything that the
user could have got wrong has been checked; so a refused command leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import jaxlm
from jaxlm import fields
from jaxlm.config import FREE_BETWEEN_STARTS, RunConfig
from jaxlm.errors import UserError
from jaxlm.families import resolve
from jaxlm.lock import held
from jaxlm.training.vocabulary import grown

CONFIG, MANIFEST, TOKENIZER, LOCK, COMPLETE = "config.json", "manifest.json", "tokenizer", "lock", "COMPLETE"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "ml-collections", "numpy")


class Saveable(Protocol):
    """A tokenizer, as far as a workdir is concerned."""

    def save(self, directory: str | Path) -> None: ...


def read(workdir: str | Path) -> tuple[RunConfig, str]:
    """The resolved configuration of a workdir and its kind, "train" or "convert". Raises UserError if it is none."""
    path = Path(workdir) / CONFIG
    if not path.is_file():
        what = "is no jaxlm workdir (it has no config.json)" if Path(workdir).is_dir() else "does not exist"
        raise UserError(f"{str(workdir)!r} {what}, allowed: the --workdir of a train or convert run")
    values = read_json(path)
    kind = values.pop("kind", None)
    if kind not in ("train", "convert"):
        raise UserError(f"{path} has kind {kind!r}, allowed: 'train' or 'convert'")
    config = fields.build(RunConfig, values)
    return dataclasses.replace(config, model=resolve(config.model)), kind


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of a workdir, or UserError."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error})") from None


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    temporary.write_text(json.dumps(values, indent=2) + "\n", "utf-8")
    os.replace(temporary, path)


def exists(workdir: Path) -> bool:
    """Whether `workdir` is one; False if it may become one. Raises UserError where something else is in the way."""
    if (workdir / CONFIG).is_file():
        return True
    if workdir.exists() and (not workdir.is_dir() or any(workdir.iterdir())):
        raise UserError(f"--workdir={workdir} is not empty and no jaxlm workdir, allowed: a new or empty directory")
    return False


def create(workdir: Path, config: RunConfig, kind: str, manifest: Mapping[str, Any], tokenizer: Saveable) -> None:
    """Makes a workdir, all at once. Raises UserError if another process has just made it."""
    temporary = workdir.with_name(f".{workdir.name}.tmp-{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
        tokenizer.save(temporary / TOKENIZER)
        write_json(temporary / MANIFEST, manifest)
        write_config(temporary, config, kind)
        os.rename(temporary, workdir)  # also onto an empty directory, and never onto another
    except OSError as error:
        raise UserError(f"--workdir={workdir} cannot be made ({error.strerror})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_config(workdir: Path, config: RunConfig, kind: str) -> None:
    """Writes config.json: the resolved configuration and its kind."""
    write_json(workdir / CONFIG, {"kind": kind, **fields.to_dict(config)})


def refuse_differences(workdir: Path, config: RunConfig, kind: str, init_from: str | None) -> None:
    """Raises UserError, with the fields, if `workdir` holds another run than the one that is asked for.

    Bookkeeping (FREE_BETWEEN_STARTS) may change. So may the place of the data: what they are is compared by their
    fingerprint. A mask token that the file leaves open is the one that was chosen then, and so is a vocabulary that a
    conversion has grown for it.
    """
    stored, stored_kind = read(workdir)
    if stored_kind != kind:
        raise UserError(f"--workdir={workdir} is a {stored_kind} run, allowed: the same command, or another workdir")
    different = [
        text
        for text in fields.differences(stored, config)
        if (name := text.split(" ", 1)[0]) not in FREE_BETWEEN_STARTS
        and name != "data.dir"
        and not (name == "model.mask_token_id" and config.model.mask_token_id is None)
        and not (
            name == "model.vocab_size"
            and kind == "convert"
            and stored.model.vocab_size == grown(config.model.vocab_size)
        )
    ]
    source = (read_json(workdir / MANIFEST).get("init_from") or {}).get("source")
    if source != init_from:
        different.append(f"--init_from ({source!r} there, {init_from!r} here)")
    if different:
        raise UserError(f"--workdir={workdir} is another run; these differ: {', '.join(different)}")


def refuse_other_data(workdir: Path, fingerprint: Mapping[str, Any]) -> None:
    """Raises UserError if the run in `workdir` was started on other data or with another tokenizer."""
    stored = read_json(workdir / MANIFEST)["data"]
    different = [name for name in ("data_sha256", "tokenizer_sha256") if stored.get(name) != fingerprint.get(name)]
    if different:
        values = ", ".join(
            f"{n} ({str(stored.get(n))[:12]} there, {str(fingerprint.get(n))[:12]} here)" for n in different
        )
        raise UserError(f"--workdir={workdir} was started on other data; these differ: {values}")


def environment() -> dict[str, Any]:
    """What a run depends on beside its configuration: versions, code, machine."""
    import jax

    versions = {"jaxlm": jaxlm.__version__} | {name: importlib.metadata.version(name) for name in PACKAGES}
    devices = jax.devices()
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **_git(),
        "devices": {"kind": devices[0].device_kind, "backend": devices[0].platform, "count": len(devices)},
        "processes": jax.process_count(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _git() -> dict[str, Any]:
    root = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed package may lie inside somebody else's repository; its revision would say nothing about this code.
    if (top := git("rev-parse", "--show-toplevel")) is None or Path(top).resolve() != root:
        return {"git_revision": None, "git_changes": None}
    return {
        "git_revision": git("rev-parse", "HEAD"),
        "git_changes": bool(git("status", "--porcelain", "jaxlm", "configs")),
    }


@contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Holds the workdir for this process. Raises UserError that says who holds it."""
    with held(workdir / LOCK, f"--workdir={workdir}"):
        yield


def is_complete(workdir: Path) -> bool:
    """Whether the run has made all of its steps."""
    return (workdir / COMPLETE).is_file()


def mark_complete(workdir: Path, values: Mapping[str, Any]) -> None:
    """Writes COMPLETE, the last thing a run writes: at least {"step": N}."""
    write_json(workdir / COMPLETE, values)
