"""A checkout whose Python is a stand-in: which commands a script runs, in which order, and which it leaves out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Writes down its arguments, leaves what the real command writes last, and fails where it is told to.
STAND_IN = f"""#!{sys.executable}
import os, sys
from pathlib import Path

words = sys.argv[1:]
with open("log", "a") as log:
    print(*words, file=log)
if os.environ.get("FAIL", "nothing") in words:
    sys.exit(1)
if words[0] == "-c":
    print("gpt2 llama3_canon dhara")
flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
command = words[1].removeprefix("jaxlm.") if words[0] == "-m" else ""
made = {{
    "prepare_data": ["{{out}}/fingerprint.json"],
    "train": ["{{workdir}}/COMPLETE"],
    "convert": ["{{workdir}}/COMPLETE"],
    "evaluate": ["{{out}}"],
    "export": ["{{out}}/config.json"] + ["{{workdir}}/verification.json"] * ("--verify" in words),
    "report": ["{{out}}"],
}}
for file in made.get(command, []):
    file = Path(file.format(**flags))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
"""


def make_checkout(tmp_path: Path) -> Path:
    """A copy of what the scripts read, with a stand-in for Python."""
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STAND_IN)
    python.chmod(0o755)
    return tmp_path


def call(checkout: Path, script: str, *flags: str, **environment: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines printed, and what was run: a command's name, or the words of another call of Python."""
    log = checkout / "log"
    log.write_text("")
    done = subprocess.run(
        ["bash", str(checkout / "launch" / script), "--cpu", *flags],
        cwd=checkout.parent,
        env={name: value for name, value in os.environ.items() if name != "JAXLM_RUNS"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    ran = [
        words[1].removeprefix("jaxlm.") if words[1].startswith("jaxlm.") else " ".join(words[:3])
        for words in (line.split() for line in log.read_text().splitlines())
    ]
    ran = [word.split()[0] if word.startswith("launch/") else word for word in ran]
    return done.returncode, (done.stdout + done.stderr).splitlines(), ran
