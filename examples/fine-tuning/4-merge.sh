#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# 4-merge.sh - a model folder with the adapters in its weights, and the
# adapters alone
#
#   bash 4-merge.sh

. "${SETTING:-$(dirname "$0")/setting.sh}"
set -e

"${merak[@]}" ckpt export "$WORK/run/ckpt" --format hf --merge \
    --dtype "${DTYPE:-bf16}" --out "$WORK/merged"
"${merak[@]}" ckpt export "$WORK/run/ckpt" --format peft --out "$WORK/adapter"
