#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write text/tokenizer/grapheme_table.h: what joins characters to what a reader
takes for one (UAX #29).

    pip install regex
    python3 text/tokenizer/grapheme_table.py

Unicode 17 is what the tokenizers package (0.23) cuts by, through Rust's
unicode-segmentation 1.13, and regex 2026.  Syllables of Hangul are computed.
"""
import pathlib

import regex

TEXT = "".join(chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000)
# a later class takes the place of an earlier one
CLASSES = [
    ("CONTROL", r"\p{GCB=Control}"), ("CR", r"\p{GCB=CR}"),
    ("LF", r"\p{GCB=LF}"), ("ZWJ", r"\p{GCB=ZWJ}"),
    ("REGIONAL", r"\p{GCB=Regional_Indicator}"),
    ("PREPEND", r"\p{GCB=Prepend}"), ("SPACING", r"\p{GCB=SpacingMark}"),
    ("L", r"\p{GCB=L}"), ("V", r"\p{GCB=V}"), ("T", r"\p{GCB=T}"),
    ("PICTURE", r"\p{Extended_Pictographic}"),
    ("CONSONANT", r"\p{InCB=Consonant}"),
    ("APART", r"\p{GCB=Extend}"),
    ("EXTEND", r"[\p{GCB=Extend}&&\p{InCB=Extend}]"),
    ("LINKER", r"[\p{GCB=Extend}&&\p{InCB=Linker}]"),
]


def main():
    name_of = {}
    for name, pattern in CLASSES:
        for char in regex.findall(pattern, TEXT, flags=regex.V1):
            name_of[ord(char)] = name
    found = []
    for cp in sorted(name_of):
        if found and found[-1][1] == cp - 1 and found[-1][2] == name_of[cp]:
            found[-1][1] = cp
        else:
            found.append([cp, cp, name_of[cp]])
    rows = [f"{{{lo:#x}, {hi:#x}, JOIN_{name}}}," for lo, hi, name in found]
    lines = ["    " + " ".join(rows[i:i + 2]) for i in range(0, len(rows), 2)]
    path = pathlib.Path(__file__).with_name("grapheme_table.h")
    path.write_text("\n".join([
        "/* SPDX-License-Identifier: Apache-2.0 */",
        f"/* Made by {pathlib.Path(__file__).name} from Unicode 17. */",
        "/* clang-format off */",
        "static const struct join_range joins[] = {", *lines, "};",
        "/* clang-format on */", ""]))


if __name__ == "__main__":
    main()
