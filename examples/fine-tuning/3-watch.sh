#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# 3-watch.sh - the run, over all its starts
#
#   bash 3-watch.sh
#
# It writes report.html, a page of its own.  grafana.json is the dashboard of what merak.prom tells Prometheus.

. "${SETTING:-$(dirname "$0")/setting.sh}"
set -e

"${merak[@]}" report "$WORK/run/ckpt" --out "$WORK/report.html"
echo "tensorboard --logdir $WORK/run/ckpt/tensorboard"
echo "node_exporter --collector.textfile.directory=$WORK"
