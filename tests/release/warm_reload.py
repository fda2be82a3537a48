"""`jaxlm.release.reload` many times over in one interpreter, which imports PyTorch and transformers once.

Run as a script it reads JSON lines `{"argv", "environment"}`, forks for each, and writes JSON lines `{"returncode",
"stderr"}`: what `subprocess.run` would have said of a process of its own.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from typing import Any


class Warm:
    """Stands in for `subprocess.run` of `[python, "-P", reload.py, ...]`, for one interpreter."""

    def __init__(self, python: str) -> None:
        self._server = subprocess.Popen(
            [python, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __call__(self, command: list[str], env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert self._server.stdin and self._server.stdout
        print(json.dumps({"argv": command[2:], "environment": env}), file=self._server.stdin, flush=True)
        said = json.loads(self._server.stdout.readline())
        return subprocess.CompletedProcess(command, said["returncode"], "", said["stderr"])

    def close(self) -> None:
        self._server.communicate("")


def run(argv: list[str], environment: dict[str, str]) -> int:
    """Runs the script `argv[0]` in this process, which ends with it; the exit code."""
    from transformers import dynamic_module_utils

    os.environ.update(environment)
    dynamic_module_utils.HF_MODULES_CACHE = environment["HF_MODULES_CACHE"]  # transformers asks only when it starts
    sys.argv = argv
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as stop:
        return int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                os.dup2(errors.fileno(), 1)  # the answers' pipe is not for the script
                os.dup2(errors.fileno(), 2)
                code = run(asked["argv"], asked["environment"])
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            _, status = os.waitpid(child, 0)
            errors.seek(0)
            said = {"returncode": os.waitstatus_to_exitcode(status), "stderr": errors.read().decode(errors="replace")}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
