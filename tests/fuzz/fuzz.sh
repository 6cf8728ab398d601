#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh - run the fuzz targets for FUZZ_SECONDS each; called by `make fuzz`
#
#   fuzz.sh TOP_SRCDIR TARGET...
#
# Where clang has libFuzzer, they are built by it in fuzz-build/ with the
# address and undefined sanitizers, and what they learn stays there in
# corpus/NAME for the next time.  Else this tree's own programs run, which
# change the same seeds without looking at what the code does.  FUZZ_TARGETS
# are those to run, as "config plan"; all if it is empty.  As many run at a
# time as there are cores.  What breaks a promise is left as crash-* in the
# working directory; TARGET FILE runs it again.  It ends with 1 if anything did.

set -u -o pipefail
export LC_ALL=C

top=$(cd "$1" && pwd -P) && shift || exit 2
here=$PWD seconds=${FUZZ_SECONDS:-30}
logs=$(mktemp -d) || exit 2
trap 'rm -rf "$logs"' EXIT

has_libfuzzer()
{
    command -v clang >/dev/null &&
        printf 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n)\n%s' \
            '{ return d == 0 && n > 0; }' >"$logs/probe.c" &&
        clang -fsanitize=fuzzer,address "$logs/probe.c" -o "$logs/probe" \
            >/dev/null 2>&1
}

# Only what the targets need: the libraries and themselves.
build_with_clang()
{
    mkdir -p fuzz-build && cd fuzz-build || return
    [ -f config.status ] || "$top/configure" CC=clang CXX=clang++ \
        CFLAGS='-O1 -g' --enable-sanitizer=fuzzer-no-link,address,undefined \
        --without-cuda --without-spank >configure.log 2>&1 || return
    for dir in base placement partitioner kernels text io runtime; do
        make -j"$(nproc)" -C "$dir" >make.log 2>&1 || return
    done
    make -j"$(nproc)" -C tests "$@" >make.log 2>&1
}

run_libfuzzer()
{
    local corpus=$here/fuzz-build/corpus/$1

    mkdir -p "$corpus"
    # Leaks are looked for once, at the end: at each input is slow.
    FUZZ_CORPUS=$corpus TMPDIR=$logs \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        LSAN_OPTIONS=suppressions=$top/tests/lsan.supp:print_suppressions=0 \
        "$here/fuzz-build/tests/fuzz/$1" -max_total_time="$seconds" \
        -timeout=10 -detect_leaks=0 -rss_limit_mb=3000 -max_len=65536 \
        -print_final_stats=1 -artifact_prefix="$here/crash-$1-" "$corpus"
}

run_driver()
{
    TMPDIR=$logs FUZZ_CRASHES=$here "$here/fuzz/$1" --seconds "$seconds" \
        --seed "${FUZZ_SEED:-1}"
}

# One target, and a line about it.
run_target()
{
    local log=$logs/$1.log

    if [ "$libfuzzer" = yes ]; then
        run_libfuzzer "$1" >"$log" 2>&1
    else
        run_driver "$1" >"$log" 2>&1
    fi || {
        tail -n 60 "$log"
        echo "FAIL $1"
        return 1
    }
    echo "ok $1: $(sed -n 's/^stat::number_of_executed_units: *\(.*\)/\1 inputs/p
        s/^[a-z_]*: \([0-9]* inputs\)$/\1/p' "$log")"
}

for target; do
    name=$(basename "$target")
    [ -z "${FUZZ_TARGETS-}" ] ||
        [[ " $FUZZ_TARGETS " == *" ${name#fuzz_} "* ]] && chosen+=("$name")
done
[ -n "${chosen-}" ] || {
    echo "fuzz.sh: no target of those: $FUZZ_TARGETS" >&2
    exit 2
}
libfuzzer=no
if has_libfuzzer; then
    (build_with_clang "${chosen[@]/#/fuzz/}") || {
        tail -n 30 fuzz-build/*.log
        exit 2
    }
    libfuzzer=yes
fi
echo "with $([ "$libfuzzer" = yes ] && echo "clang's libFuzzer" ||
    echo "the driver of this tree"), $seconds s each"
export -f run_target run_libfuzzer run_driver
export top here seconds logs libfuzzer
printf '%s\n' "${chosen[@]}" |
    xargs -n 1 -P "$(nproc)" bash -c 'run_target "$0" || exit 1'
