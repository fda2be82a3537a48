#!/usr/bin/env bash
# bash launch/test.sh [PYTEST ARGUMENTS]: installs what the tests need, then format, lint, types, scripts and tests.
# Needs Python 3.11 or newer with pip, and the package index that pip is set up for; nothing else is installed before.
set -euo pipefail
. "$(dirname "$0")/environment.sh"

say "installing for the tests (a few minutes and 4 GB the first time)"
install_jaxlm hf,eval,data,notebooks,reference,dev
ensure .venv-transformers4 transformers4 constraints-transformers4.txt torch transformers safetensors

# Each of two processes begins with half of the tests in order, so that what a module prepares is prepared once.
# Every check runs, so that one failure does not hide another; pytest comes last, so that its summary is the last line.
failed=0
run .venv/bin/ruff check . || failed=1
run .venv/bin/ruff format --check . || failed=1
run .venv/bin/mypy || failed=1
for script in launch/*.sh .ci/run; do
  bash -n "$script" || failed=1
done
[ "$failed" = 0 ] || say "checks before the tests failed, see above"
run .venv/bin/python -m pytest -q -n 2 --dist worksteal "$@" || failed=1
exit "$failed"
