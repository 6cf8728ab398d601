#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# man.sh - the manual pages say what the programs say, and nothing else
#
# Compared, in both directions: options that --help lists against those a page
# explains, commands against pages, the plugin's options, arguments and
# variables against theirs.  Commands of examples are parsed, not run.  Run from
# the build directory of tests/.

set -u -o pipefail
export LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
man=$top/doc/man
merak=../cmd/merak
. "$(dirname "$0")/tap.sh"

# same DESCRIPTION WHAT: the sorted words in files `said` and `written` are the
# same, and there are some.
same()
{
    local status=0

    comm -23 "$tmp/said" "$tmp/written" |
        sed "s|^|# the program has it, the page does not: |" >"$tmp/diff"
    comm -13 "$tmp/said" "$tmp/written" |
        sed "s|^|# the page has it, the program does not: |" >>"$tmp/diff"
    [ -s "$tmp/said" ] || echo "# the program says nothing" >>"$tmp/diff"
    cat "$tmp/diff"
    [ ! -s "$tmp/diff" ] || status=1
    ok $status "$1"
}

# Options that "$@" --help lists.
options_of()
{
    "$@" --help | grep -oE -- '(^|[ ;])--[a-z][a-z0-9-]*' | tr -d ' ;' | sort -u
}

# "--OPTION WORD" for each word that "$@" --help lets an option have.
words_of()
{
    "$@" --help | grep -oE -- '--[a-z][a-z0-9-]* [a-z0-9-]+(\|[a-z0-9-]+)+' |
        awk '{ n = split($2, word, "|")
               for (i = 1; i <= n; i++) print $1, word[i] }' | sort -u
}

# Of the lines in file $2, those whose word is in page $1 where its option is
# explained: from the tag of the list to the next one.
words_in()
{
    sed 's/\\f.//g; s/\\//g' "$1" | awk -v lines="$2" '
        /^\.T[PQ]/ { tag = 1; next }
        tag && match($0, /--[a-z][a-z0-9-]*/) { at = substr($0, RSTART, RLENGTH) }
        /^\.S[HS]/ { at = "" }
        { tag = 0; text[at] = text[at] " " $0 }
        END {
            while ((getline <lines) > 0) {
                said = text[$1] " "
                gsub(/[^a-z0-9-]/, " ", said)
                if (index(said, " " $2 " ") > 0) print
            }
        }'
}

# Options that page $1 explains: the tags of its lists.
options_in()
{
    awk '/^\.T[PQ]/ { getline; print }' "$1" |
        sed -n 's/^\.BI\{0,1\}R\{0,1\} \\-\\-\([a-z][a-z0-9\\-]*\).*/--\1/p' |
        tr -d '\134' | grep -vx -e --help -e --version | sort -u
}

# The commands that page $1 shows, one a line: what merak, srun or a program runs
# in its displays.  In a display with prompts only these lines are commands.
examples_in()
{
    sed 's/\\f.//g; s/\\-/-/g; s/\\(aq/'\''/g; s/\\(dq/"/g; s/\\e/\\/g' "$1" |
        awk '
        function flush_block(    i, line) {
            for (i = 1; i <= n; i++) {
                line = text[i]
                if (prompts && !sub(/^\$ /, "", line)) continue
                if (line ~ /(^|[ |(])(merak|srun|\.\/[a-z]+) /) print line
            }
            n = prompts = 0
        }
        /^\.(nf|EX)/ { inside = 1; next }
        /^\.(fi|EE)/ { inside = 0; flush_block(); next }
        !inside { next }
        joined { text[n] = text[n] " " $0 }
        !joined { text[++n] = $0 }
        /^\$ / { prompts = 1 }
        { joined = sub(/\\$/, "", text[n]) }'
}

# Programs for the commands of examples, in folder $1: merak parses what it is
# given, and prints what it would refuse instead of running.  srun knows the
# plugin's options by file `plugin` there.
make_parsers()
{
    local name

    mkdir -p "$1"
    cat >"$1/merak" <<SH
#!/bin/bash
given=()
while [ \$# -gt 0 ] && [ "\$1" != -- ]; do
    # "..": what the reader adds
    [[ \$1 == .. || \$1 == ... ]] || given+=("\$1")
    shift
done
exec >&2 # what is printed may be redirected
"$(realpath $merak)" "\${given[@]}" --help >help </dev/null ||
    echo "merak \${given[*]}: exit code \$?"
case \${given[0]} in
data | ckpt | trace) grep -qE "merak \${given[0]} \${given[1]}( |\$)" help ||
    echo "merak \${given[0]} has no command \${given[1]}" ;;
jobscript) grep -qE "^  \${given[1]} " help ||
    echo "merak jobscript has no kind \${given[1]}" ;;
esac
[ \$# -lt 2 ] || "\${@:2}"
SH
    cat >"$1/srun" <<SH
#!/bin/bash
while [ \$# -gt 0 ]; do
    case \$1 in
    --merak-*) grep -qx -e "\${1%%=*}" "$1/plugin" ||
        echo "srun has no option \${1%%=*}" >&2 ;;
    merak | ./*) break ;;
    esac
    shift
done
"\$@"
SH
    # a program plans and trains its own model with merak's options
    cat >"$1/program" <<SH
#!/bin/bash
[ "\$1" = plan ] || set -- train "\$@"
exec merak "\$@"
SH
    for name in unet train recycle; do
        ln -s program "$1/$name"
    done
    for name in sbatch python3 zcat jq sinfo; do
        ln -s /bin/true "$1/$name"
    done
    chmod +x "$1"/*
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

$merak --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' |
    sort >"$tmp/said"
for page in "$man"/merak-*.1; do
    basename "$page" .1
done | sed 's/^merak-//' | sort >"$tmp/written"
commands=$(cat "$tmp/said")
same "every command has a page, every page a command"

sed -n '/^\.SH COMMANDS/,/^\.SH OPTIONS/s/^\.B \([a-z]*\)$/\1/p' \
    "$man/merak.1" | sort >"$tmp/written"
same "merak(1) lists every command"

for command in $commands; do
    case $command in
    data) verbs="pack show" ;;
    *) verbs= ;;
    esac
    if [ -n "$verbs" ]; then
        for verb in $verbs; do
            options_of $merak "$command" "$verb"
        done | sort -u >"$tmp/said"
    else
        options_of $merak "$command" | grep -vx -e --help >"$tmp/said"
    fi
    options_in "$man/merak-$command.1" >"$tmp/written"
    # a command without options needs no list
    if [ ! -s "$tmp/said" ] && [ ! -s "$tmp/written" ]; then
        ok 0 "merak-$command(1): no options on either side"
    else
        same "merak-$command(1) explains the options of merak $command"
    fi
    words_of $merak "$command" >"$tmp/said"
    words_in "$man/merak-$command.1" "$tmp/said" >"$tmp/written"
    [ ! -s "$tmp/said" ] ||
        same "merak-$command(1) names the words that options take"
done

rows='s/.*"\(merak-[a-z-]*\)", \(.*\), *$/\1 \2/p'
sed -n "$rows" "$top/spank_plugin/settings.c" >"$tmp/rows"

sed 's/ .*//; s/^/--/' "$tmp/rows" | sort >"$tmp/said"
sed -n 's/^\.BR \\-\\-\(merak[a-z\\-]*\)= .*/--\1/p' "$man/spank_merak.8" |
    tr -d '\134' | sort -u >"$tmp/written"
same "spank_merak(8) explains the plugin's options"

# Every variable of ours that a program or the plugin reads or sets.
grep -rhoE '"(SLURM_)?MERAK_[A-Z_]+"' --include='*.[ch]' "$top/base" \
    "$top/spank_plugin" "$top/runtime" "$top/io" "$top/cmd" \
    "$top/kernels" |
    grep -v '"MERAK_"' | tr -d '"' | sort -u >"$tmp/said"
cat "$man/merak.7" "$man/spank_merak.8" |
    grep -oE '(SLURM_)?MERAK_[A-Z]+(_[A-Z]+)*' | sort -u >"$tmp/written"
same "merak(7) and spank_merak(8) name every variable"

# `forward` is for evaluation, and refused for training.
$merak plan --schedule '?' 2>&1 | sed 's/.*there are: //' | tr -d ' ' |
    tr , '\n' | grep -vx forward | sort >"$tmp/said"
sed -n '/^\.SH SCHEDULES/,/^\.SH NUMBERS/p' "$man/merak.7" |
    awk '/^\.TP/ { getline; gsub(/\\/, ""); print $2 }' | sort >"$tmp/written"
same "merak(7) lists every schedule"

$merak plan --what-if '?=' 2>&1 | sed 's/.*there are //' | tr -d ' ' |
    tr , '\n' | sort >"$tmp/said"
sed -n '/what\\-if " LIST"/,/^The options/p' "$man/merak-plan.1" |
    tr -d '\134' | sed -n 's/^\.BI\{0,1\}R\{0,1\} \([a-z0-9-]*\)=.*/\1/p' |
    sort >"$tmp/written"
same "merak-plan(1) lists every choice for --what-if"

# Keys whose usual value is left out are there as well.
$merak plan --model "$top/tests/vectors/gpt2.json" --seq 16 --tp 2 \
    --micro-batch 2 --tp-batch 50 --branches gathered --json - |
    jq -r '.plan | keys[]' | sort >"$tmp/said"
sed -n '/^\.B plan$/,/^\.B run$/p' "$man/merak-plan.1" | grep -v '^\.B run' |
    grep -oE '[a-z_0-9]+' | sort -u | comm -12 - "$tmp/said" >"$tmp/written"
same "merak-plan(1) names every key of a plan"

sed -n 's/^ *MERAK_EXIT_[A-Z]* = \([0-9]*\),.*/\1/p' \
    "$top/runtime/runtime.h" | sort >"$tmp/said"
sed -n '/^\.SH EXIT STATUS/,/^\.SH EXAMPLES/s/^\.B \([0-9]*\)$/\1/p' \
    "$man/merak.1" | sort >"$tmp/written"
same "merak(1) lists every exit code"

make_parsers "$tmp/bin"
sed 's/ .*//; s/^/--/' "$tmp/rows" >"$tmp/bin/plugin"
for page in "$man"/*; do
    examples_in "$page" >"$tmp/commands"
    [ -s "$tmp/commands" ] || continue
    while IFS= read -r line; do
        (cd "$tmp/bin" && touch a.txt question.txt && PATH=$tmp/bin:$PATH &&
            set +u && eval "$line") </dev/null 2>&1 | sed "s/^/# /"
    done <"$tmp/commands" >"$tmp/refused"
    cat "$tmp/refused"
    [ ! -s "$tmp/refused" ]
    ok $? "$(basename "$page"): its $(wc -l <"$tmp/commands") commands are parsed"
done

for page in "$man"/*; do
    printf 'doc/man/%s\n' "$(basename "$page")"
done | sort >"$tmp/written"
grep -oE 'doc/man/[a-z_-]+\.[0-9]' "$top/Makefile.am" | sort -u >"$tmp/said"
same "every page is installed"

if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning "$man"/* 2>&1 | sed 's/^/# /' >"$tmp/lint"
    cat "$tmp/lint"
    [ ! -s "$tmp/lint" ]
    ok $? "mandoc finds nothing to warn of"
else
    n=$((n + 1))
    echo "ok $n - mandoc # skip not installed"
fi
echo "1..$n"
