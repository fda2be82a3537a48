#!/usr/bin/env bash
# bash launch/pocket_conversion.sh [--cpu] [SEED...]
#
# What a conversion saves, at pocket size: an autoregressive model (2M tokens), its conversion to diffusion (200K), and
# diffusion from scratch on 200K and on 2M tokens, once for each seed (default: 0 1 2). Trains and evaluates them one
# after another, then writes the report that compares them. Half an hour a seed on 2 CPU cores with no other work. Each
# command is printed before it runs; what is finished is skipped, so the same command goes on after an interruption.
#
#   --cpu        use the CPU, whatever else is here
#
#   JAXLM_RUNS   the folder for results (default: runs)
#   PYTHON       the Python that makes .venv (default: the first on the PATH that is 3.11 or newer)
set -euo pipefail
. "$(dirname "$0")/environment.sh"

seeds=
for word in "$@"; do
  case "$word" in
    --cpu) DEVICE=cpu ;;
    --help | -h)
      sed -n '2,12s/^# \{0,1\}//p' launch/pocket_conversion.sh
      exit 0
      ;;
    -*) stop "unknown flag '$word', allowed: --cpu, --help" ;;
    *[!0-9]*) stop "a seed is '$word', allowed: a whole number, 0 or above" ;;
    *) seeds="$seeds $word" ;;
  esac
done
[ -n "$seeds" ] || seeds="0 1 2"

python=.venv/bin/python
runs=${JAXLM_RUNS:-runs}
out=$runs/conversion

find_device
extras=data
if [ "$DEVICE" != cpu ]; then extras=$extras,$DEVICE; fi
install_jaxlm "$extras"
tune_malloc
mkdir -p "$out"

# from_scratch NAME TOKENS EVAL_EVERY: diffusion from random parameters, under the seed $seed.
from_scratch() {
  step "$1_$seed: $2 tokens of diffusion from scratch" "$out/$1_$seed/COMPLETE" \
    "$python" -m jaxlm.train --config=configs/pocket/family.py:dllm_canon --config.seed="$seed" \
    --config.train.total_tokens="$2" --config.train.eval_every="$3" --config.train.eval_windows=128 \
    --workdir="$out/$1_$seed"
}

step "text to windows of tokens" "$runs/quickstart/data/fingerprint.json" \
  "$python" -m jaxlm.prepare_data --config=configs/data/package_docs.py --out="$runs/quickstart/data"

workdirs=()
for seed in $seeds; do
  step "ar_$seed: an autoregressive model" "$out/ar_$seed/COMPLETE" \
    "$python" -m jaxlm.train --config=configs/pocket/llama3_canon.py --config.seed="$seed" --workdir="$out/ar_$seed"
  step "conversion_$seed: a diffusion model made from it" "$out/conversion_$seed/COMPLETE" \
    "$python" -m jaxlm.convert --config=configs/pocket/dhara.py --config.seed="$seed" \
    --config.train.eval_every=25 --init_from="$out/ar_$seed" --workdir="$out/conversion_$seed"
  from_scratch scratch_tenth 200K 50
  from_scratch scratch 2M 100
  for name in ar conversion scratch_tenth scratch; do
    workdir=$out/${name}_$seed
    step "${name}_$seed: loss on held-out text" "$workdir/evaluation.json" \
      "$python" -m jaxlm.evaluate --workdir="$workdir" --what=loss,baselines --out="$workdir/evaluation.json"
    workdirs+=("--workdir=$workdir")
  done
done

# Which seeds are compared may have changed.
rm -f "$out/report.md"
step "beside one another" "$out/report.md" "$python" -m jaxlm.report "${workdirs[@]}" --out="$out/report.md"
say "" "$out/report.md"
