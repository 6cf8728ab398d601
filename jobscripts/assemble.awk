# SPDX-License-Identifier: Apache-2.0
# assemble.awk - a job script from its template and the functions that all share
#
#   awk -f assemble.awk -v functions=functions.sh chain.sbatch.in >chain.sbatch
#   awk -f assemble.awk -v functions=functions.sh -v c=yes *.in >texts.h
#
# With c=yes every template becomes an array of C strings, one a line, with NULL
# behind the last.

# `line` with a backslash before each of the characters that match: what gsub()
# makes of backslashes is not the same in every awk.
function escape(line, match_one,    text, at)
{
    while ((at = match(line, match_one)) > 0) {
        text = text substr(line, 1, at - 1) "\\" substr(line, at, 1)
        line = substr(line, at + 1)
    }
    return text line
}

function put(line)
{
    if (c == "yes")
        line = "    \"" escape(line, "[\"\\\\]") "\","
    print line
}

# All of it behind its heading, which ends with the first empty line.
function put_functions(    line, inside)
{
    while ((getline line < functions) > 0) {
        if (inside)
            put(line)
        inside = inside || line == ""
    }
    close(functions)
}

function finish()
{
    if (c == "yes" && name != "")
        print "    NULL,\n};"
}

FNR == 1 {
    finish()
    name = FILENAME
    sub(/.*\//, "", name)
    sub(/\..*/, "", name)
    if (c == "yes")
        printf "static const char *const text_%s[] = {\n", name
}

/^@functions@$/ {
    put_functions()
    next
}

{ put($0) }

END { finish() }
