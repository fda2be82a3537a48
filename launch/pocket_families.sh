#!/usr/bin/env bash
# bash launch/pocket_families.sh [--cpu] [FAMILY...]
#
# A pocket model of each family, or of those that are named: the same text, budget, batch, rate and seed, another
# architecture. Trains and evaluates them one after another, then sets them side by side in a table. Dhara is made from
# the pocket llama3_canon, with a fifth of its tokens. Each command is printed before it runs; what is finished is
# skipped, so the same command goes on after an interruption.
#
#   --cpu        use the CPU, whatever else is here
#
#   JAXLM_RUNS   the folder for results (default: runs)
#   PYTHON       the Python that makes .venv (default: the first on the PATH that is 3.11 or newer)
set -euo pipefail
. "$(dirname "$0")/environment.sh"

families=
for word in "$@"; do
  case "$word" in
    --cpu) DEVICE=cpu ;;
    --help | -h)
      sed -n '2,12s/^# \{0,1\}//p' launch/pocket_families.sh
      exit 0
      ;;
    -*) stop "unknown flag '$word', allowed: --cpu, --help" ;;
    *) families="$families $word" ;;
  esac
done

python=.venv/bin/python
runs=${JAXLM_RUNS:-runs}
out=$runs/pocket
tokens=100K # of the conversion

find_device
extras=data
if [ "$DEVICE" != cpu ]; then extras=$extras,$DEVICE; fi
install_jaxlm "$extras"
tune_malloc
mkdir -p "$out"
[ -n "$families" ] || families=$("$python" -c 'from jaxlm.families.registry import FAMILIES; print(*FAMILIES)')

# train FAMILY: into $out/FAMILY, and before it what it is made from.
train() {
  if [ "$1" = dhara ]; then
    train llama3_canon
    step "dhara: llama3_canon, converted" "$out/dhara/COMPLETE" \
      "$python" -m jaxlm.convert --config=configs/pocket/dhara.py --config.train.total_tokens="$tokens" \
      --init_from="$out/llama3_canon" --workdir="$out/dhara"
  else
    step "$1" "$out/$1/COMPLETE" \
      "$python" -m jaxlm.train --config="configs/pocket/family.py:$1" --workdir="$out/$1"
  fi
}

step "text to windows of tokens" "$runs/quickstart/data/fingerprint.json" \
  "$python" -m jaxlm.prepare_data --config=configs/data/package_docs.py --out="$runs/quickstart/data"

workdirs=()
for family in $families; do
  train "$family"
  step "$family: loss on held-out text" "$out/$family/evaluation.json" \
    "$python" -m jaxlm.evaluate --workdir="$out/$family" --what=loss,baselines --out="$out/$family/evaluation.json"
  workdirs+=("$out/$family")
done

rm -f "$out/families.md"
step_into "side by side" "$out/families.md" "$python" launch/pocket_table.py "${workdirs[@]}"
say "" "$(cat "$out/families.md")" "" "$out/families.md"
