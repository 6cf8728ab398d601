#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0020-grid.bats - every schedule on 2 to 16 stages with 4 to 64 micro-batches:
# merak plan makes the programs of all stages and the checker passes them
#
# 17 micro-batches are more than the stages of any plan here: 64, which repeat
# what a schedule then does, are for the fewest and the most stages, and at night
# for all.

load cluster

setup()
{
    cd "$BATS_TEST_TMPDIR"
    cat >deep.json <<'EOF'
{"model_type": "gpt2", "n_layer": 32, "n_head": 2, "n_embd": 16,
 "vocab_size": 64, "n_positions": 16, "attn_pdrop": 0}
EOF
}

# Lines "SCHEDULE STAGES MICRO-BATCHES CHUNKS" of what a schedule promises to
# run: interleaved takes multiples of the stages, scp no fewer than the stages.
grid()
{
    local schedule=$1 p m chunks=1

    case $schedule in interleaved | zb-v) chunks=2 ;; esac
    for p in $(seq 2 16); do
        for m in 4 17 64; do
            [ "$m" -lt 64 ] || [ "$p" -eq 2 ] || [ "$p" -eq 16 ] ||
                [ -n "${TEST_ALL-}" ] || continue
            case $schedule in
            interleaved) m=$(((m + p - 1) / p * p)) ;;
            scp) [ "$m" -ge "$p" ] || continue ;;
            esac
            echo "$schedule $p $m $chunks"
        done
    done
}

# check SCHEDULE: all its plans; prints what was refused.
check()
{
    grid "$1" >plans
    [ "$(wc -l <plans)" -ge 20 ]
    xargs -P2 -L1 sh -c 'merak plan --model deep.json --seq 16 --schedule "$0" \
        --pp "$1" --global-batch "$2" --chunks "$3" >/dev/null 2>>refused ||
        echo "$*" >>refused' <plans
    cat refused
    [ ! -s refused ]
}

@test "1f1b passes the checker" { check 1f1b; }
@test "gpipe passes the checker" { check gpipe; }
@test "early passes the checker" { check early; }
@test "last passes the checker" { check last; }
@test "scp passes the checker" { check scp; }
@test "eager passes the checker" { check eager; }
@test "interleaved passes the checker" { check interleaved; }
@test "zb-h1 passes the checker" { check zb-h1; }
@test "zb-v passes the checker" { check zb-v; }
@test "slices pass the checker" { check sliced:4; }
