#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# 6-prefer.sh - go on from the merged model with pairs of answers, of which one
# is preferred (direct preference optimization)
#
#   bash 6-prefer.sh        packs PAIRS, evaluates them with the merged model,
#                           and submits a job that trains adapters
#
# PAIRS has lines with "prompt", "chosen" and "rejected", of texts or of
# messages.  The run is in $WORK/prefer; WORK=$WORK/prefer then suits 3-watch.sh
# and 4-merge.sh.

. "${SETTING:-$(dirname "$0")/setting.sh}"
set -e
merged=$WORK/merged
mkdir -p "$WORK/prefer"

"${srun[@]}" -N1 -n1 -c "$CPUS" "${merak[@]}" data pack --tokenizer "$merged" \
    --out "$WORK/pairs" "${PAIRS:-pairs.jsonl}"
"${srun[@]}" -N1 -n1 -c "$CPUS" "${merak[@]}" eval --ckpt "$merged" \
    --data "$WORK/pairs" --reference --dtype "${DTYPE:-bf16}"

"${merak[@]}" jobscript single --name prefer --run-dir "$WORK/prefer/run" \
    --nodes "$NODES" --tasks "$TASKS" --cpus "$CPUS" --tp "$TP" --pp "$PP" \
    --time "${TIME:-4:00:00}" --save-seconds "${SAVE_SECONDS:-300}" -- \
    "${merak[@]}" train --model "$merged" --init-from "$merged" \
    --objective dpo --dpo-beta "${BETA:-0.1}" --lora-rank 16 --lora-alpha 32 \
    --data "$WORK/pairs" --seq "$SEQ" --global-batch "$BATCH" \
    --steps "${PREFER_STEPS:-200}" --lr 5e-6 --warmup 10 \
    --dtype "${DTYPE:-bf16}" --tensorboard yes \
    --openmetrics "$WORK/prefer/merak.prom" \
    >"$WORK/prefer.sbatch"
sbatch --parsable ${SBATCH_OPTIONS-} "$WORK/prefer.sbatch"
