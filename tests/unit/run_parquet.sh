#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_parquet.sh - rows of Parquet files are packed as their lines of JSON are
#
# Run from the build directory of tests/.  MERAK_TEST_PYTHON is a python3 with
# pyarrow; without one a stand-in prints the rows.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
python=${MERAK_TEST_PYTHON:-python3}
reads=
"$python" -c 'import pyarrow.parquet' 2>/dev/null &&
    reads=$(command -v "$python")
. "$here/in_tmp.sh"

cat >lines.py <<'PY'
import json
for i in range(4000):
    print(json.dumps({"messages": [
        {"role": "user", "content": "ask %d \u00e4\u6f22\"\\\n" % i * (i % 9 + 1)},
        {"role": "assistant", "content": "say %d" % i}]}))
PY
cat >rows.py <<'PY'
import datetime
import json
import sys
import pyarrow
import pyarrow.parquet

rows = [json.loads(line) for line in open(sys.argv[1])]
for i, row in enumerate(rows):
    # what nobody reads: columns of a table that was put together
    row.update(text=None, prompt=None, image=b"\xff", score=i / 3, tools=None,
               at=datetime.datetime(2026, 1, 1))
    for message in row["messages"]:
        message.update(weight=None, tool_calls=None)
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sys.argv[2],
                            row_group_size=700)
PY
"${reads:-python3}" lines.py >t.jsonl
if [ -n "$reads" ]; then
    export MERAK_PYTHON=$reads
    "$reads" rows.py t.jsonl t.parquet
else
    printf '#!/bin/sh\ncat t.jsonl\n' >rows
    chmod +x rows
    export MERAK_PYTHON=$PWD/rows
    printf 'PAR1' >t.parquet
fi
cp t.parquet u.bin
pack=("$merak" data pack --tokenizer byte --chat chatml --out)

# refuses TEXT FILE [OPTION..]: nothing is written
refuses()
{
    local text=$1
    shift
    ! "${pack[@]}" x "$@" 2>log && [ "$(wc -l <log)" -eq 1 ] &&
        grep -qF -- "$text" log && ! compgen -G 'x.*' >/dev/null
    ok $? "refused: $text" log
}

# same A B: the same files
same()
{
    cmp "$1.bin" "$2.bin" && cmp "$1.idx" "$2.idx" && cmp "$1.mask" "$2.mask"
}

echo 1..11

"${pack[@]}" want t.jsonl t.jsonl t.jsonl >log 2>&1 &&
    "${pack[@]}" got t.parquet u.bin t.jsonl >>log 2>&1 && same want got
ok $? "rows are packed as lines are, whatever the file's name" log
# Beside them, a task that was killed in its part, and begins it again
for i in 1 2 0; do
    [ $i -ne 1 ] || timeout -s KILL 0.02 "${pack[@]}" many --task 1/3 \
        t.parquet u.bin t.jsonl >>log 2>&1
    "${pack[@]}" many --task $i/3 t.parquet u.bin t.jsonl >>log 2>&1
done
same want many && [ ! -e many.parts ]
ok $? "three tasks, of which one was killed, write the same" log
refuses 'standard input holds Parquet data' - <t.parquet
gzip -k t.parquet
refuses 't.parquet.gz holds Parquet data' t.parquet.gz
(
    export MERAK_PYTHON=/nowhere/python3
    refuses 'looked for MERAK_PYTHON=/nowhere/python3: it cannot be run; pip install pyarrow there' \
        t.parquet
)
n=$((n + 1))

# stand_in TEXT..: a program, in place of python3
stand_in()
{
    printf '%s\n' '#!/bin/bash' "$@" >bin/python3
    chmod +x bin/python3
}
unset MERAK_PYTHON
mkdir bin
PATH=$PWD/bin:$PATH
stand_in 'echo "No module named pyarrow" >&2' 'exit 3'
refuses 'looked for python3 in PATH: No module named pyarrow;' t.parquet
stand_in 'echo Traceback: >&2' 'echo "Broken: no footer" >&2' 'exit 1'
refuses 't.parquet: its Parquet data cannot be read: Broken: no footer' t.parquet
stand_in 'head -n 30 t.jsonl' 'printf "{\"messag"' 'exit 1'
refuses 't.parquet: its Parquet data cannot be read: ' t.parquet --bad-lines skip
stand_in 'head -n 3 t.jsonl' 'kill -9 $$'
refuses 'was ended by signal 9 (Killed)' t.parquet
stand_in 'head -n 3 t.jsonl' "echo '{\"x\": 1}'" 'exec yes'
refuses 't.parquet row 4: no "text"; choose with --json-key' t.parquet
stand_in 'printf "%s\n" "${@:4}" >columns' "echo '{\"k\": \"a\"}'"
"${pack[@]}" x t.parquet --json-key k >log 2>&1 && [ "$(cat columns)" = k ]
ok $? "only columns that are read are asked for" log columns
