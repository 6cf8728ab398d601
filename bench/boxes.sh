#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boxes.sh - what crosses between unlike stages, beside PyTorch over gloo
#
#   boxes.sh --builddir DIR              (after make -C DIR/bench boxes)
#
# The same boxes between the same ranks of one node, there and back, point to
# point, $ROUNDS (3) alternating rounds; medians.  PYTHON names a python3 with
# torch.  Prints Markdown; exit code 1 if we take more than 1.1 times as long.
set -eu
rounds=${ROUNDS:-3}
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1-}" = --builddir ]; then
    build=$(cd "$2" && pwd)
    export BOXES=$build/bench/boxes
    exec "$build/cmd/merak" sandbox --nodes 1 -- "$here/boxes.sh"
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"

# ours RANKS WORD..; theirs RANKS BYTES: microseconds of a crossing
ours()
{
    srun -n"$1" --overcommit -i none "$BOXES" "${@:2}" >"$tmp/boxes"
    awk '/^boxes/ { print $3 }' "$tmp/boxes"
}
theirs()
{
    rm -f "$tmp/store"
    srun -n"$1" --overcommit -i none "$python" -W ignore "$here/boxes_pytorch.py" \
        "$tmp/boxes" "$2" "$tmp/store" 2>"$tmp/log" | awk '{ print $3 }' ||
        { cat "$tmp/log" >&2; exit 2; }
}

echo "| stages | KiB | Merak, us | gloo, us | gloo / Merak |"
echo "| --- | --- | --- | --- | --- |"
failed=0
while read -r ranks a b samples values; do
    for ((i = 0; i < rounds; i++)); do
        ours "$ranks" "$a" "$b" "$samples" "$values"
        theirs "$ranks" $((samples * values * 4)) >>"$tmp/gloo"
    done >"$tmp/merak"
    median() { sort -n "$1" | sed -n "$(((rounds + 1) / 2))p"; }
    row=$(awk -v m="$(median "$tmp/merak")" -v g="$(median "$tmp/gloo")" \
        -v what="$a, $b" -v kib=$((samples * values / 256)) 'BEGIN {
        printf "| %s | %d | %.1f | %.1f | %.2f |", what, kib, m, g, g / m }')
    echo "$row"
    awk -F'|' '{ exit !($6 < 1 / 1.1) }' <<<"$row" && failed=1
    rm -f "$tmp/gloo"
done <<'END'
2 1x1 1x1 12 2048
2 1x1 1x1 12 196608
3 2x1 1x1 12 2048
3 2x1 1x1 12 196608
3 1x1 1x2 12 196608
END
exit $failed
