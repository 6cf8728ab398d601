#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# json_output.sh - commands that print facts print them with --json as well:
# the same numbers, one line of JSON each
#
# `merak generate` and `merak eval` have theirs in generate_alone.sh.  Run from
# the build directory of tests/.

set -u
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
merak=$PWD/../cmd/merak
make=$PWD/unit/trace_make

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

# shows DESCRIPTION FILTER WORD..: `merak WORD..` prints one line, of which the
# filter is true
shows()
{
    local what=$1 filter=$2

    shift 2
    "$merak" "$@" >out 2>err && [ "$(wc -l <out)" -eq 1 ] &&
        jq -e "$filter" out >/dev/null
    ok $? "$what" out err
}

echo 1..12

"$make" run 1f1b 4 8 && "$make" slow 1f1b 4 8 22
ok $? "traces whose times are known"
shows "trace summary: the run, its ranks and the mean" \
    'def near($x): (. - $x) | fabs < 1e-6;
     .ranks == 4 and .pp == 4 and .schedule == "1f1b" and .kept == [0, 5, 7]
     and .steps == [5, 7] and (.by_rank | map(.stage)) == [0, 1, 2, 3]
     and (.by_rank[3] | (.step_ms | near(356)) and (.wait_ms | near(62)))
     and (.mean | (.compute_ms | near(246))
          and (.compute_ms + .exposed_ms + .wait_ms + .idle_ms | near(356)))
     and (.plan.step_ms | near(356)) and (.over_plan | near(1))
     and (.bound | startswith("bound by the pipeline"))' \
    trace summary run --json
shows "and as many of the busiest instructions as --top says" \
    '(.busiest | length) == 1 and .busiest[0].name == "blocks_dx"
     and .busiest[0].calls == 32 and .steps == [7]' \
    trace summary run --json --top 1 --step 7
shows "trace diff: both runs, and what changed" \
    'def near($x): (. - $x) | fabs < 1e-6;
     (.a.mean.step_ms | near(356)) and (.b.mean.step_ms | near(378))
     and .b.dir == "slow" and (.changes | length) == 4
     and (.changes | all(.op == "blocks_dx" and .kind == "B"
          and (.a_median_ms | near(20)) and (.b_median_ms | near(22))
          and (.delta_ms | near(16))))' \
    trace diff run slow --json --top 4
shows "and with --predicted which of them is the prediction" \
    '.a.predicted and (.b.predicted | not)' trace diff run --predicted --json
! "$merak" trace svg run --text --json >out 2>err &&
    grep -q "svg has no --json" err
ok $? "a verb that prints no facts refuses it" err

seq 3000 >text
shows "data pack: what was written" \
    '.out == "d" and .tokens == 13893 and .type == "u16" and .documents == 1
     and .vocab == 257 and .bad_lines == 0 and .empty_documents == 0' \
    data pack --tokenizer byte --out d text --json
shows "data show: files, ids and text" \
    '.data == "d" and (.parts[0].files[0] | .path == "d.bin"
     and .tokens == 13893 and .least == 10 and .greatest == 57
     and .first[0:3] == [49, 10, 50] and (.text | startswith("1\n2\n")))' \
    data show --tokenizer byte d --json
shows "data show: the weights of a blend" \
    '(.parts | map(.weight)) == [1, 2] and
     (.parts | all(.files | length == 1))' data show --json "1 d 2 d.bin"
shows "data show: the bigram model" \
    '.bigram | .loss > 2 and .loss < .unigram and .valid_tokens == 1376' \
    data show --json --bigram --seq 16 --valid-fraction 0.1 d
printf 'a\xff\xfe' >bytes
"$merak" data pack --tokenizer byte --out b bytes >/dev/null
shows "bytes that are no UTF-8 are U+FFFD" \
    '.parts[0].files[0].text == "a\ufffd\ufffd"' \
    data show --tokenizer byte b --json
"$merak" data show --json d b >out &&
    [ "$(jq -r .data out)" = $'d\nb' ] && [ "$(wc -l <out)" -eq 2 ]
ok $? "a line for each data set" out
