#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# 3-watch.sh - the run, over all its starts
#
#   bash 3-watch.sh
#
# grafana.json is the dashboard of what merak.prom tells Prometheus.

. "${SETTING:-$(dirname "$0")/setting.sh}"

"${merak[@]}" report "$WORK/run"
echo "tensorboard --logdir $WORK/run/ckpt/tensorboard"
echo "node_exporter --collector.textfile.directory=$WORK"
