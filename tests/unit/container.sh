#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# container.sh - the recipes of packaging/container and packaging/easybuild
#
# Nothing is built here: what they name exists, and what they contain parses.

set -u -o pipefail
export LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$top/packaging/container" || exit 1

# --- the packages that are installed are those that debian/control makes
sed -n 's/^Package: //p' "$top/debian/control" | sort >"$tmp/made"
grep -oE '/src/[a-z0-9-]+_\*\.deb' Dockerfile merak.def |
    sed 's|.*/src/||; s|_.*||' | sort -u >"$tmp/named"
[ "$(wc -l <"$tmp/named")" -eq 2 ] &&
    [ -z "$(comm -23 "$tmp/named" "$tmp/made")" ]
ok $? "packages are those of debian/control" "$tmp/named"

# --- what the runtime library needs is in one of the two
for file in Dockerfile merak.def; do
    grep -oE '/src/[a-z0-9-]+_\*\.deb' "$file" | sed 's|.*/src/||; s|_.*||' |
        sort -u | cmp -s - "$tmp/named"
    ok $? "$file installs all of them"
done

# --- what is copied is there
grep '^COPY [^-]' Dockerfile | while read -r _ from _; do
    [ -e "$top/$from" ] || echo "$from"
done >"$tmp/absent"
[ ! -s "$tmp/absent" ]
ok $? "what the Dockerfile copies is there" "$tmp/absent"

# --- each instruction is one of Docker's, and RUN's shell parses
sed -e '/^#/d' -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' Dockerfile |
    grep . >"$tmp/lines"
! grep -vE '^(ARG|FROM|RUN|WORKDIR|COPY|CMD) ' "$tmp/lines" &&
    sed -n 's/^RUN //p' "$tmp/lines" >"$tmp/run.sh" && [ -s "$tmp/run.sh" ] &&
    bash -n "$tmp/run.sh"
ok $? "the Dockerfile's instructions and their shell parse" "$tmp/lines"

# --- so do the sections of the definition
awk '/^%post/ { on = 1; next } /^[%A-Z]/ { on = 0 } on' merak.def >"$tmp/post.sh"
[ -s "$tmp/post.sh" ] && bash -n "$tmp/post.sh" &&
    [ "$(grep -c '^Bootstrap: ' merak.def)" -eq \
        "$(grep -c '^Stage: ' merak.def)" ] &&
    ! grep -E '^%' merak.def | grep -vE '^%(files|files from build|post|test|runscript)$'
ok $? "the sections of merak.def, and their shell, parse"

# --- both build in the same way
for word in mk-build-deps 'dpkg-buildpackage -b -us -uc' 'nocheck parallel='; do
    grep -qF -- "$word" Dockerfile && grep -qF -- "$word" merak.def || echo "$word"
done >"$tmp/differ"
[ ! -s "$tmp/differ" ]
ok $? "Dockerfile and merak.def build in the same way" "$tmp/differ"

if python3 -c 'import tomllib' 2>/dev/null; then
    python3 - merak.toml <<'PY'
import sys, tomllib
known = {"image", "mounts", "workdir", "writable", "annotations", "env"}
edf = tomllib.load(open(sys.argv[1], "rb"))
assert set(edf) <= known and edf["image"].endswith(".sqsh"), edf
assert all(m.count(":") == 1 for m in edf["mounts"]), edf
assert all(isinstance(v, str) for v in edf["env"].values()), edf
PY
    ok $? "merak.toml has the fields of an environment file"
    python3 - "$top"/packaging/easybuild/*.eb <<'PY'
import sys
for path in sys.argv[1:]:
    recipe = {"SHLIB_EXT": "so"}
    exec(compile(open(path).read(), path, "exec"), recipe)
    tool = recipe["toolchain"]
    end = "/%s-%s-%s-%s.eb" % (recipe["name"], recipe["version"],
                               tool["name"], tool["version"])
    assert path.endswith(end), (path, end)
    assert all(len(d) in (2, 3, 4) for d in recipe["dependencies"])
PY
    ok $? "the recipe of EasyBuild parses, and is named as it says"
else
    for what in merak.toml "the recipe of EasyBuild"; do
        n=$((n + 1))
        echo "ok $n - $what # SKIP no python3 with tomllib"
    done
fi
echo "1..$n"
