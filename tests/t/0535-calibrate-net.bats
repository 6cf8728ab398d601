#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0535-calibrate-net.bats - links of known rates, measured and planned by
#
# alone: it compares times
#
# What is measured grows until it takes half a second: at these rates the last
# size takes little longer.  What is refused is in t/0532.

load cluster
load calm
load links

# Three nodes; in a round what is measured, between two of them by two ranks
# each and between all by one; then a run of two replicas, predicted by that:
# numbers in a line.
measure_links()
{
    cat >rounds <<'END'
set -e
net() # FILE SRUN-OPTION...
{
    local file=$1

    shift
    srun --overcommit "$@" merak calibrate --net --out "$file" --rounds 2 >&2
}
step()
{
    rm -rf trace metrics
    srun -N2 --ntasks-per-node=2 --overcommit --merak-tp=2 --merak-dp=2 \
        --merak-order=tp-pp-dp merak train --model model.json --data text \
        --device two.json --seq 16 --micro-batch 1 --global-batch 2 \
        --threads 1 --backend emu --emu-unit-ms 20 --eval-samples 0 --steps 4 \
        --zero1 yes --trace trace --metrics metrics >&2
    merak trace summary trace --top 0 | awk '$1 == "plan" { print $2 }'
    tail -n +2 metrics | jq '.step_s * 1e3' | sort -g | sed -n 2p
}
net two.json -N2 --ntasks-per-node=2
net three.json -N3 --ntasks-per-node=1
echo $(jq '.net | .bytes_per_s, .node_bytes_per_s, .latency_s' two.json) \
    $(jq '.net | .bytes_per_s' three.json) $(step)
END
    merak sandbox --nodes 3 --link-gbit "$1" -- bash rounds
}

# Exchanges of three get less: two send to one at the same time.
links_are_known()
{
    local got

    got=$(measure_links 0.03) || return
    echo "of a rank, of a node, latency, of three nodes; predicted, \
measured: $got"
    awk -v want=3.75e6 '
        function near(x, y, most) { return x > y / most && x < y * most }
        { exit !(near($1, want, 1.1) && near($2, want, 1.1) &&
            $3 < 0.03 && near($4, want / 1.3, 1.4) && near($5, $6, 1.15)) }' \
        <<<"$got"
}

# Ways of a pair of islands and another, measured by two ranks a node and one.
measure_ways()
{
    cat >sites.json <<'END'
{"islands": [{"name": "a", "nodes": "n[1-2]"}, {"name": "b", "nodes": "n3"},
             {"name": "c", "nodes": "n4"}],
 "between": [["a", "b", {"bytes_per_s": 1.6e7, "latency_s": 0}],
             ["b", "c", {"bytes_per_s": 4e6, "latency_s": 0}],
             ["c", "a", {"bytes_per_s": 8e6, "latency_s": 0}]]}
END
    jq 'del(.between)' sites.json >islands.json
    merak sandbox --links sites.json -- srun -N4 --ntasks-per-node=2 \
        --overcommit merak calibrate --between islands.json --rounds 2 \
        --out got.json >&2
    jq -r '.between[] | "\(.[0])\(.[1]) \(.[2].bytes_per_s)
        \(.[2].latency_s)"' got.json
}

ways_are_known()
{
    local got

    got=$(measure_ways | tr '\n' ' ') || return
    echo "ways, bytes/s, latency: $got"
    awk '
        function is(way, want) {
            return $(n + 1) == way && $(n + 2) > 0.85 * want &&
                $(n + 2) < 1.15 * want && $(n += 3) < 0.01
        }
        { exit !(is("ab", 1.6e7) && is("ac", 8e6) && is("bc", 4e6)) }' <<<"$got"
}

@test "ways between islands have the rates that are known" {
    need_root
    in_calm ways_are_known
    # what was written is what plans read
    cat >model.json <<'END'
{"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4,
 "n_positions": 16, "vocab_size": 257, "activation_function": "gelu_new",
 "embd_pdrop": 0, "resid_pdrop": 0, "attn_pdrop": 0}
END
    sed -i 's/n\[1-2\]/n1/' got.json
    merak plan --model model.json --device cpu --links got.json --seq 16 \
        --ranks-per-node 1 --global-batch 12 --pp 3 |
        grep 'islands, in the order of ranks: .*, .*, '
}

@test "links have the rate that is known, of a rank and of a node" {
    need_root
    cat >model.json <<'END'
{"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4,
 "n_positions": 16, "vocab_size": 257, "activation_function": "gelu_new",
 "embd_pdrop": 0, "resid_pdrop": 0, "attn_pdrop": 0,
 "tie_word_embeddings": false}
END
    merak data pack --tokenizer byte --out text \
        /usr/share/common-licenses/GPL-3 >/dev/null
    in_calm links_are_known
}
