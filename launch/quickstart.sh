#!/usr/bin/env bash
# bash launch/quickstart.sh [--cpu] [--no-torch]
#
# From text to two released models on this machine: installs jaxlm into .venv, trains a small LLaMA3-Canon model, makes a
# diffusion model of it, evaluates, samples and exports both, and writes a report. Each step is a command that is printed
# before it runs; what is finished is skipped, so the same command goes on after an interruption.
#
#   --cpu        use the CPU, whatever else is here
#   --no-torch   without PyTorch and transformers: the exported models are not loaded for comparison
#
#   JAXLM_RUNS   the folder for results (default: runs)
#   PYTHON       the Python that makes .venv (default: the first on the PATH that is 3.11 or newer)
set -euo pipefail
. "$(dirname "$0")/environment.sh"

torch=yes
for flag in "$@"; do
  case "$flag" in
    --cpu) DEVICE=cpu ;;
    --no-torch) torch=no ;;
    --help | -h)
      sed -n '2,12s/^# \{0,1\}//p' launch/quickstart.sh
      exit 0
      ;;
    *) stop "unknown flag '$flag', allowed: --cpu, --no-torch, --help" ;;
  esac
done

python=.venv/bin/python
out=${JAXLM_RUNS:-runs}/quickstart
started=$(date +%s)

find_device
extras=data
if [ "$torch" = yes ]; then extras=$extras,hf; fi
if [ "$DEVICE" != cpu ]; then extras=$extras,$DEVICE; fi
if [ ! -e "$out/report.md" ]; then
  case "$extras" in
    *cuda*) need_disk 14 ;;
    *) need_disk 6 ;;
  esac
  say "the first run takes 10 to 25 minutes on a laptop: packages, then the steps below"
fi
install_jaxlm "$extras"
tune_malloc
mkdir -p "$out"

step "1. text to windows of tokens" "$out/data/fingerprint.json" \
  "$python" -m jaxlm.prepare_data --config=configs/data/package_docs.py --out="$out/data"

step "2. an autoregressive model" "$out/ar/COMPLETE" \
  "$python" -m jaxlm.train --config=configs/pocket/llama3_canon.py --workdir="$out/ar"

step "3. a diffusion model made from it" "$out/diffusion/COMPLETE" \
  "$python" -m jaxlm.convert --config=configs/pocket/dhara.py --init_from="$out/ar" --workdir="$out/diffusion"

for model in ar diffusion; do
  step "4. loss on held-out text: $model" "$out/$model/evaluation.json" \
    "$python" -m jaxlm.evaluate --workdir="$out/$model" --what=loss,baselines --out="$out/$model/evaluation.json"
done

for model in ar diffusion; do
  step_into "5. samples and speed: $model" "$out/$model/generations.jsonl" \
    "$python" -m jaxlm.generate --workdir="$out/$model" --json --batch_size=1 --max_new_tokens=64 \
    --prompt="Returns the sum of" --prompt="If True, the" --prompt="An array of shape"
done

for model in ar diffusion; do
  if [ "$torch" = yes ]; then
    # What an earlier call with --no-torch exported is made again, this time compared.
    [ -e "$out/$model/verification.json" ] || rm -rf "$out/hf_$model"
    step "6. as a Hugging Face directory, compared in transformers: $model" "$out/$model/verification.json" \
      "$python" -m jaxlm.export --workdir="$out/$model" --out="$out/hf_$model" --verify
  else
    step "6. as a Hugging Face directory: $model" "$out/hf_$model/config.json" \
      "$python" -m jaxlm.export --workdir="$out/$model" --out="$out/hf_$model"
  fi
done
if [ "$torch" = yes ]; then
  step_into "   the study's own quick start on it" "$out/hf_diffusion_quickstart.txt" \
    "$python" launch/study_quickstart.py "$out/hf_diffusion"
fi

if [ "$RAN" = yes ]; then rm -f "$out/report.md"; fi
step "7. the report" "$out/report.md" \
  "$python" -m jaxlm.report --workdir="$out/ar" --workdir="$out/diffusion" --out="$out/report.md"

say "" "$(($(date +%s) - started)) seconds. The report:" "$out/report.md"
