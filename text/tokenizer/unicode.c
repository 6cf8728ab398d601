/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - UTF-8, and the character classes of split patterns */
#include "config.h"

#include "text/tokenizer/unicode.h"

struct range {
    uint32_t lo, hi;
};

#include "text/tokenizer/unicode_table.h"

#include "base/bisect.h"

static bool within(const struct range *ranges, size_t n, uint32_t cp)
{
    size_t i;

    MERAK_BISECT(i, 0, n, ranges[i].hi >= cp);
    return i < n && ranges[i].lo <= cp;
}

static bool is_space(uint32_t cp)
{
    if (cp < 0x1680)
        return (cp >= 0x9 && cp <= 0xd) || cp == 0x20 || cp == 0x85 ||
               cp == 0xa0;
    return cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static enum merak_char ascii_class(unsigned char c)
{
    unsigned char lower = c | 0x20;

    if (lower >= 'a' && lower <= 'z')
        return MERAK_CHAR_LETTER;
    if (c >= '0' && c <= '9')
        return MERAK_CHAR_NUMBER;
    return is_space(c) ? MERAK_CHAR_SPACE : MERAK_CHAR_OTHER;
}

bool merak_is_word(uint32_t cp)
{
    return within(words, sizeof(words) / sizeof(*words), cp);
}

enum merak_char merak_char_class(uint32_t cp)
{
    if (cp < 0x80)
        return ascii_class((unsigned char)cp);
    if (is_space(cp))
        return MERAK_CHAR_SPACE;
    if (within(letters, sizeof(letters) / sizeof(*letters), cp))
        return MERAK_CHAR_LETTER;
    if (within(numbers, sizeof(numbers) / sizeof(*numbers), cp))
        return MERAK_CHAR_NUMBER;
    return MERAK_CHAR_OTHER;
}

size_t merak_utf8_decode(const unsigned char *text, size_t n, uint32_t *cp_p)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = text[0];
    size_t bytes = c < 0x80   ? 1
                   : c < 0xc2 ? 0
                   : c < 0xe0 ? 2
                   : c < 0xf0 ? 3
                   : c < 0xf5 ? 4
                              : 0;
    uint32_t cp = bytes < 2 ? c : c & (0x7fu >> bytes);

    if (bytes > n)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        cp = cp << 6 | (text[i] & 0x3f);
    }
    if (cp < least[bytes] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        return 0;
    *cp_p = cp;
    return bytes;
}

size_t merak_utf8_encode(uint32_t cp, unsigned char *out)
{
    size_t bytes = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = bytes; i-- > 1;) {
        out[i] = 0x80 | (cp & 0x3f);
        cp >>= 6;
    }
    out[0] = lead[bytes] | (unsigned char)cp;
    return bytes;
}

enum merak_char merak_char_at(const unsigned char *text, size_t n,
                              size_t *bytes_p)
{
    uint32_t cp;
    size_t bytes;

    *bytes_p = 1;
    if (text[0] < 0x80)
        return ascii_class(text[0]);
    bytes = merak_utf8_decode(text, n, &cp);
    if (bytes == 0)
        return MERAK_CHAR_INVALID;
    *bytes_p = bytes;
    return merak_char_class(cp);
}
