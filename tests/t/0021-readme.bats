#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0021-readme.bats - README as it stands: every block of it is run by an ordinary
# user, from an installed prefix, in the order of the page
#
# modes: installed
# long
#
# A block is a script, or, with lines that begin with $, commands and what they
# print.  What is not run says so above it: <!-- not run: WHY -->

load cluster

setup()
{
    ! is_built_with address || skip "cc alone does not link its runtime"
    ! is_built_with undefined || skip "cc alone does not link its runtime"
    cd "$BATS_TEST_TMPDIR"
    README=$PREFIX/share/doc/merak/README.md
}

# What `module load merak` does, by the module's own file.
module()
{
    local file=$PREFIX/share/merak/modulefiles/$2 line

    file=$(ls "$file"/*.lua) || return
    while IFS= read -r line; do
        eval "$line"
    done < <(sed -nE '
        s/^setenv\("([A-Z_]+)", "(.*)"\)/export \1=\2/p
        s/^prepend_path\("([A-Z_]+)", "(.*)"\)/export \1=\2:$\1/p' "$file")
}

# blocks LANGUAGE: each block into a file, block-01 and so on; those that are
# not run into not-run.
blocks()
{
    awk -v language="$1" '
        /^<!-- not run: / { why = $0 }
        /^```/ && open { open = 0; why = ""; next }
        /^```/ {
            open = 1
            if (substr($0, 4) != language) file = "/dev/null"
            else if (why != "") file = "not-run"
            else file = sprintf("block-%02d", ++n)
            next
        }
        open { print >file }
        !open && !/^<!--/ && NF > 0 { why = "" }' "$README"
}

# Commands of a block of both kinds, one a line; of those that are expected to
# fail, since they print an error, what they print follows a "!".
commands_of()
{
    awk '
        function flush() {
            if (command != "") print (error != "" ? "! " error "\n" : "") command
            command = error = ""
        }
        FNR == 1 { shown = /^\$ / }
        /^\$ / || !shown && !more { flush() }
        /^\$ / { $0 = substr($0, 3); more = 1 }
        !shown { more = 1 }
        more { command = command $0; more = sub(/\\$/, "", command); next }
        / error: / { error = $0 }
        END { flush() }' "$1"
}

# What the page takes for granted: a model that one has downloaded, and talks.
given()
{
    local model=Qwen2.5-0.5B-Instruct

    mkdir $model
    cp "$TESTS/vectors/tokenizer/tiny.json" $model/tokenizer.json
    cat >$model/config.json <<'JSON'
{"model_type": "qwen2", "num_hidden_layers": 2, "num_attention_heads": 2,
 "hidden_size": 16, "intermediate_size": 32, "vocab_size": 704,
 "max_position_embeddings": 2048, "hidden_act": "silu", "rms_norm_eps": 1e-6,
 "num_key_value_heads": 2, "tie_word_embeddings": true}
JSON
    echo '{"chat_template": "{% for m in messages %}<{{ m.role }}>{{ m.content
}}{% if not loop.last %} {% endif %}{% endfor %}"}' | tr -d '\n' \
        >$model/tokenizer_config.json
    for i in $(seq 4000); do
        echo "{\"prompt\": \"question $i is\", \"completion\": \"answer $i\"}"
    done >talks.jsonl
    merak data pack --tokenizer byte --out first talks.jsonl >/dev/null
    merak train --model $model --data first --seq 32 --steps 1 --ckpt first \
        2>/dev/null
    merak ckpt export first --format hf --out weights >/dev/null
    mv weights/*.safetensors $model/
}

@test "every block of README runs" {
    local block command error

    module load merak
    given
    blocks ""
    [ "$(ls block-* | wc -l)" -ge 15 ]
    for block in block-*; do
        error=
        while IFS= read -r command; do
            if [ "${command#! }" != "$command" ]; then
                error=${command#! }
                continue
            fi
            echo "\$ $command"
            # shellcheck disable=SC2294
            if ! eval "$command" >said 2>&1; then
                cat said
                [ -n "$error" ]
                grep -qF -- "${error#*error: }" said
            else
                tail -n 3 said
                [ -z "$error" ]
            fi
            case $command in
            *"srun -n32"*) cp said said-by-32 ;;
            esac
            error=
        done < <(commands_of "$block")
    done
    # 32 tasks train as one does
    grep -q "tp 8 x pp 4 x dp 1 on 4 nodes (placement: spank)" said-by-32
    grep -o 'step ./2  loss [0-9.]*' said-by-32 >by-32
    ./train --data corpus --steps 2 --global-batch 8 2>&1 |
        grep -o 'step ./2  loss [0-9.]*' >by-1
    paste by-32 by-1 | awk '{ d = $4 - $8 } NF != 8 || d > 2e-4 || d < -2e-4 { exit 1 }
        END { exit NR != 2 }'
    # without the module, as in a job that does not load it
    env -u LD_LIBRARY_PATH ./train plan --pp 2 >/dev/null
}

@test "the examples are built from the installed headers" {
    local name

    module load merak
    cp "$PREFIX"/share/merak/examples/*.c .
    for name in *.c; do
        cc -Wall -Werror "$name" -o "${name%.c}" \
            $(pkg-config --cflags --libs merak) -lm
    done
    merak data pack --tokenizer byte --out corpus "$README" >/dev/null
    run srun -n4 --overcommit --merak-tp=2 --merak-pp=2 ./own_op --data corpus \
        --seq 32 --steps 4
    echo "$output"
    [ "$status" -eq 0 ]
    four=$(grep -o 'step [14]/4  loss [0-9.]*' <<<"$output")
    one=$(./own_op --data corpus --seq 32 --steps 4 --global-batch 8 2>&1 |
        grep -o 'step [14]/4  loss [0-9.]*')
    paste <(echo "$four") <(echo "$one") | awk '
        { d = $4 - $8 } NF != 8 || d > 2e-4 || d < -2e-4 { exit 1 }
        END { exit NR != 2 }'
    run ./own_op --data corpus --seq 32 --steps 1 --dtype bf16
    [ "$status" -eq 66 ]
    [[ $output == *"leaky_relu: its kernel is for f32, got bf16"* ]]
}

@test "README's program is examples/train.c, and its pages are there" {
    local page

    blocks c
    # in the order of the file, but for what "..." leaves out
    awk 'NR == FNR { line[++n] = $0; next }
        $0 == "..." || $0 == "" { next }
        { while (++at <= n && line[at] != $0) { }
          if (at > n) { print "not in train.c: " $0; exit 1 } }' \
        "$PREFIX/share/merak/examples/train.c" block-01
    for page in $(grep -oE '\]\([a-z/]+\.[a-z]+\)|`doc/[a-z]+\.[a-z]+`' \
        "$README" | tr -d '])(`'); do
        [ -e "$(dirname "$README")/$page" ] || {
            echo "$page is not installed"
            false
        }
    done
}
