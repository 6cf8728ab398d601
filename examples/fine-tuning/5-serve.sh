#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# 5-serve.sh - answer a question with the model that 4-merge.sh has written, or
# serve it
#
#   bash 5-serve.sh "Why is the sky blue?"
#   bash 5-serve.sh                          with vLLM, where that is installed

. "${SETTING:-$(dirname "$0")/setting.sh}"
set -e

if [ $# -gt 0 ]; then
    "${merak[@]}" generate --ckpt "$WORK/merged" --prompt "$1" \
        --tokens "${TOKENS:-200}"
else
    exec vllm serve "$WORK/merged"
fi
