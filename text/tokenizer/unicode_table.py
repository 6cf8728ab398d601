#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write text/tokenizer/unicode_table.h: the code points of \\p{L}, \\p{N} and
\\w, nfc_table.h: what the canonical normalization forms (UAX #15) go by, and
nfkc_table.h: what those of compatibility decompose beside that.

    pip install unicodedata2==16.0.0 tokenizers==0.23.3
    python3 text/tokenizer/unicode_table.py

Unicode 16 is what the tokenizers package (0.23) splits by.  The table is
ours, not a library's, because token ids must not depend on which version
of a library a machine has.  What belongs to a word (\\w) is asked of the
package itself, and so is what it knows how to normalize: its form C is that
of an older Unicode, in which later marks have no class.
"""
import pathlib

import unicodedata2 as unicodedata
from tokenizers import AddedToken, Tokenizer, models, normalizers

SCALARS = [*range(0xd800), *range(0xe000, 0x110000)]


def runs(cps):
    found = []
    for cp in cps:
        if found and found[-1][1] == cp - 1:
            found[-1][1] = cp
        else:
            found.append([cp, cp])
    return found


def ranges(letter):
    return runs(cp for cp in range(0x110000)
                if unicodedata.category(chr(cp))[0] == letter)


def words():
    """A single_word token is not found behind what belongs to a word."""
    tok = Tokenizer(models.BPE())
    tok.add_tokens([AddedToken("<|t|>", single_word=True, normalized=False)])
    return runs(cp for cp in SCALARS if not tok.encode(chr(cp) + "<|t|>").ids)


NFD = normalizers.NFD()


def is_mark(cp):
    """Does it go in front of a mark of the last class?"""
    text = "a\u0345" + chr(cp)
    return cp == 0x345 or NFD.normalize_str(text) != text


def combining():
    found = []
    for cp in SCALARS:
        ccc = unicodedata.combining(chr(cp))
        if not ccc or not is_mark(cp):
            continue
        if found and found[-1][1] == cp - 1 and found[-1][2] == ccc:
            found[-1][1] = cp
        else:
            found.append([cp, cp, ccc])
    return found


def decompositions():
    """One step, [cp, first, second or 0]; Hangul follows a rule."""
    for cp in SCALARS:
        parts = unicodedata.decomposition(chr(cp)).split()
        if (parts and not parts[0].startswith("<") and
                NFD.normalize_str(chr(cp)) != chr(cp)):
            parts = [int(x, 16) for x in parts] + [0]
            yield [cp, parts[0], parts[1]]


def compositions():
    """[first, second, cp] of those that form C composes again."""
    rows = [[a, b, cp] for cp, a, b in decompositions()
            if b and unicodedata.normalize("NFC", chr(cp)) == chr(cp)]
    return sorted(rows)


NFKD = normalizers.NFKD()


def compatible_pairs():
    for cp in SCALARS:
        text = NFKD.normalize_str(chr(cp))
        if text != NFD.normalize_str(chr(cp)):
            yield cp, [ord(c) for c in text]


def compatible(pairs):
    """Runs [lo, hi, where the decomposition of lo begins, the length of each],
    and all of them; a length of 0: those of one character that ascends as the
    run does, of which the first is there."""
    rows, parts = [], []
    for cp, text in pairs:
        lo, hi, at, n = rows[-1] if rows else (0, -2, 0, 0)
        follows = hi + 1 == cp and len(text) == max(n, 1)
        ascends = follows and text[0] == parts[at] + cp - lo and n < 2
        if ascends and (n == 0 or hi == lo):
            rows[-1] = [lo, cp, at, 0]
        elif follows and n > 0:
            rows[-1][1] = cp
            parts += text
        else:
            rows.append([cp, cp, len(parts), len(text)])
            parts += text
    return rows, parts


def rows_of(name, fields, rows):
    lines = [f"static const struct {fields} {name}[] = {{"]
    for i in range(0, len(rows), 3):
        lines.append("    " + " ".join(
            "{" + ", ".join(f"0x{x:x}" for x in row) + "},"
            for row in rows[i:i + 3]))
    return "\n".join(lines + ["};", ""])


def table(name, rows):
    lines = [f"static const struct range {name}[] = {{"]
    for i in range(0, len(rows), 3):
        lines.append("    " + " ".join(
            f"{{0x{lo:x}, 0x{hi:x}}}," for lo, hi in rows[i:i + 3]))
    return "\n".join(lines + ["};", ""])


def array(name, values):
    lines = [f"static const uint32_t {name}[] = {{"]
    for i in range(0, len(values), 8):
        lines.append("    " + " ".join(f"0x{x:x}," for x in values[i:i + 8]))
    return "\n".join(lines + ["};", ""])


out = pathlib.Path(__file__).with_name("unicode_table.h")
out.write_text(f"""/* SPDX-License-Identifier: Apache-2.0 */
/* Made by unicode_table.py from Unicode {unicodedata.unidata_version}. */
/* clang-format off */
{table("letters", ranges("L"))}
{table("numbers", ranges("N"))}
{table("words", words())}""")
out = pathlib.Path(__file__).with_name("nfc_table.h")
out.write_text(f"""/* SPDX-License-Identifier: Apache-2.0 */
/* Made by unicode_table.py from Unicode {unicodedata.unidata_version}. */
/* clang-format off */
{rows_of("combining", "combining", combining())}
{rows_of("decompositions", "decomposition", list(decompositions()))}
{rows_of("compositions", "composition", compositions())}""")
rows, parts = compatible(compatible_pairs())
out = pathlib.Path(__file__).with_name("nfkc_table.h")
out.write_text(f"""/* SPDX-License-Identifier: Apache-2.0 */
/* Made by unicode_table.py from Unicode {unicodedata.unidata_version}. */
/* clang-format off */
{rows_of("compatible", "compatible", rows)}
{array("compatible_part", parts)}""")
