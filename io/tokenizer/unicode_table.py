#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write io/tokenizer/unicode_table.h: the code points of \\p{L} and \\p{N}.

    pip install unicodedata2==16.0.0; python3 io/tokenizer/unicode_table.py

Unicode 16 is what the tokenizers package (0.23) splits by.  The table is
ours, not a library's, because token ids must not depend on which version
of a library a machine has.
"""
import pathlib

import unicodedata2 as unicodedata


def ranges(letter):
    found = []
    for cp in range(0x110000):
        if unicodedata.category(chr(cp))[0] != letter:
            continue
        if found and found[-1][1] == cp - 1:
            found[-1][1] = cp
        else:
            found.append([cp, cp])
    return found


def table(name, rows):
    lines = [f"static const struct range {name}[] = {{"]
    for i in range(0, len(rows), 3):
        lines.append("    " + " ".join(
            f"{{0x{lo:x}, 0x{hi:x}}}," for lo, hi in rows[i:i + 3]))
    return "\n".join(lines + ["};", ""])


out = pathlib.Path(__file__).with_name("unicode_table.h")
out.write_text(f"""/* SPDX-License-Identifier: Apache-2.0 */
/* Made by unicode_table.py from Unicode {unicodedata.unidata_version}. */
/* clang-format off */
{table("letters", ranges("L"))}
{table("numbers", ranges("N"))}""")
