#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# 2-train.sh - train adapters in a job that requeues itself until it is done
#
#   bash 2-train.sh        submits the job, and prints its number
#
# Before its time limit the run saves and goes back into the queue, from where
# it resumes: metrics.jsonl, TensorBoard and the page for Prometheus show one
# run.

. "${SETTING:-$(dirname "$0")/setting.sh}"
set -e

"${merak[@]}" jobscript single --name lora --run-dir "$WORK/run" \
    --nodes "$NODES" --tasks "$TASKS" --cpus "$CPUS" --tp "$TP" --pp "$PP" \
    --time "${TIME:-4:00:00}" --save-seconds "${SAVE_SECONDS:-300}" -- \
    "${merak[@]}" train --model "$MODEL" --init-from "$MODEL" \
    --lora-rank 16 --lora-alpha 32 --lora-dropout 0.05 \
    --data "$WORK/talks" --seq "$SEQ" --global-batch "$BATCH" \
    --steps "$STEPS" --lr 1e-4 --warmup 10 --dtype "${DTYPE:-bf16}" \
    --tensorboard yes --openmetrics "$WORK/merak.prom" \
    >"$WORK/train.sbatch"
sbatch --parsable ${SBATCH_OPTIONS-} "$WORK/train.sbatch"
