#!/bin/sh
# autogen.sh - make ./configure from configure.ac
set -e
cd "$(dirname "$0")"
mkdir -p build-aux m4
automake_dir=$(automake --print-libdir)
cp "$automake_dir/tap-driver.sh" build-aux/
exec autoreconf --install --warnings=none
