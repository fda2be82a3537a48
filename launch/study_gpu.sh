#!/usr/bin/env bash
# bash launch/study_gpu.sh
#
# The study's Dhara at full size on one GPU: 1B tokens of autoregressive training, 100M of conversion, the seven
# benchmarks of both. The text is the study's mix, from the Hugging Face hub (its size is printed before it is fetched).
# The same command goes on after an interruption.
#
#   DATA_FILES   other text: patterns of .txt, .jsonl or .parquet files (also .gz), separated by commas; less than 1B
#                tokens of it are read more than once
#   JAXLM_RUNS   the folder for results (default: runs)
set -euo pipefail
. "$(dirname "$0")/environment.sh"

python=.venv/bin/python
out=${JAXLM_RUNS:-runs}/study

find_device
[ "$DEVICE" != cpu ] || stop "no GPU or TPU answers, allowed: a machine with one (launch/quickstart.sh needs none)"
need_disk 30
install_jaxlm "data,hf,eval,$DEVICE"
tune_malloc
mkdir -p "$out"

text=(--config=configs/data/study_mix.py)
if [ -n "${DATA_FILES:-}" ]; then
  text=(--config=configs/data/files.py --config.files="$DATA_FILES" --config.tokenizer=gpt2 --config.seq_len=1024
    --config.total_tokens=1e9)
fi
step "1. text to windows of 1024 GPT-2 tokens" "$out/data/fingerprint.json" \
  "$python" -m jaxlm.prepare_data "${text[@]}" --out="$out/data"
step "2. the autoregressive model" "$out/ar/COMPLETE" \
  "$python" -m jaxlm.train --config=configs/llama3_canon.py --config.data.dir="$out/data" --workdir="$out/ar"
step "3. Dhara, made from it" "$out/dhara/COMPLETE" \
  "$python" -m jaxlm.convert --config=configs/dhara.py --config.data.dir="$out/data" --init_from="$out/ar" \
  --workdir="$out/dhara"
for model in ar dhara; do
  step "4. loss on held-out text and the seven benchmarks: $model" "$out/$model/evaluation.json" \
    "$python" -m jaxlm.evaluate --workdir="$out/$model" --tasks=study --out="$out/$model/evaluation.json"
  step "5. as a Hugging Face directory: $model" "$out/$model/verification.json" \
    "$python" -m jaxlm.export --workdir="$out/$model" --out="$out/hf_$model" --verify
done
step "6. both beside one another" "$out/report.md" \
  "$python" -m jaxlm.report --workdir="$out/ar" --workdir="$out/dhara" --out="$out/report.md"
say "" "$out/report.md"
