/* SPDX-License-Identifier: Apache-2.0 */
/* grapheme.c - grapheme clusters, by the rules of UAX #29 */
#include "config.h"

#include "text/tokenizer/grapheme.h"

#include "text/tokenizer/unicode.h"

/* Classes: Grapheme_Cluster_Break, pictographs, and Indic conjuncts. */
enum join {
    JOIN_OTHER,
    JOIN_CONTROL,
    JOIN_CR,
    JOIN_LF,
    JOIN_EXTEND,
    JOIN_LINKER, /* extends, and links consonants */
    JOIN_APART,  /* extends, but links no consonants */
    JOIN_ZWJ,
    JOIN_REGIONAL,
    JOIN_PREPEND,
    JOIN_SPACING,
    JOIN_L,
    JOIN_V,
    JOIN_T,
    JOIN_LV,
    JOIN_LVT,
    JOIN_PICTURE,
    JOIN_CONSONANT,
};

struct join_range {
    uint32_t lo, hi;
    enum join join;
};

#include "text/tokenizer/grapheme_table.h"

#include "base/bisect.h"

enum { N_JOINS = sizeof(joins) / sizeof(joins[0]) };

static enum join join_of(uint32_t cp)
{
    size_t i;

    if (cp >= 0x20 && cp < 0x7f)
        return JOIN_OTHER;
    if (cp >= 0xac00 && cp <= 0xd7a3)
        return (cp - 0xac00) % 28 == 0 ? JOIN_LV : JOIN_LVT;
    MERAK_BISECT(i, 0, N_JOINS, joins[i].hi >= cp);
    return i < N_JOINS && joins[i].lo <= cp ? joins[i].join : JOIN_OTHER;
}

static bool extends(enum join c)
{
    return c == JOIN_EXTEND || c == JOIN_LINKER || c == JOIN_APART;
}

static bool stands_alone(enum join c)
{
    return c == JOIN_CONTROL || c == JOIN_CR || c == JOIN_LF;
}

/* The state of a cluster up to its last character so far. */
struct cluster {
    enum join last;
    int picture;       /* 1: a pictograph and extenders; 2: then a ZWJ */
    int conjunct;      /* 1: a consonant; 2: followed by a linker */
    bool odd_regional; /* of regional indicators, two are a flag */
};

static void take(struct cluster *c, enum join next)
{
    bool kept = next == JOIN_EXTEND || next == JOIN_ZWJ;

    if (next == JOIN_PICTURE)
        c->picture = 1;
    else if (c->picture != 1 || !extends(next))
        c->picture = c->picture == 1 && next == JOIN_ZWJ ? 2 : 0;
    if (next == JOIN_CONSONANT)
        c->conjunct = 1;
    else if (next == JOIN_LINKER)
        c->conjunct = c->conjunct > 0 ? 2 : 0;
    else if (!kept)
        c->conjunct = 0;
    c->odd_regional = next == JOIN_REGIONAL && !c->odd_regional;
    c->last = next;
}

static bool is_syllable(enum join last, enum join next)
{
    switch (last) {
    case JOIN_L:
        return next == JOIN_L || next == JOIN_V || next == JOIN_LV ||
               next == JOIN_LVT;
    case JOIN_LV:
    case JOIN_V:
        return next == JOIN_V || next == JOIN_T;
    case JOIN_LVT:
    case JOIN_T:
        return next == JOIN_T;
    default:
        return false;
    }
}

static bool goes_on(const struct cluster *c, enum join next)
{
    if (c->last == JOIN_CR && next == JOIN_LF)
        return true;
    if (stands_alone(c->last) || stands_alone(next))
        return false;
    return extends(next) || next == JOIN_ZWJ || next == JOIN_SPACING ||
           c->last == JOIN_PREPEND || is_syllable(c->last, next) ||
           (c->conjunct == 2 && next == JOIN_CONSONANT) ||
           (c->picture == 2 && next == JOIN_PICTURE) ||
           (c->odd_regional && next == JOIN_REGIONAL);
}

size_t merak_grapheme(const unsigned char *text, size_t n)
{
    struct cluster c = {.last = JOIN_OTHER};
    uint32_t cp = 0;
    size_t bytes = merak_utf8_decode(text, n, &cp), end = bytes;

    if (bytes == 0)
        return 1;
    take(&c, join_of(cp));
    while (end < n) {
        enum join next;

        bytes = merak_utf8_decode(text + end, n - end, &cp);
        if (bytes == 0)
            break;
        next = join_of(cp);
        if (!goes_on(&c, next))
            break;
        take(&c, next);
        end += bytes;
    }
    return end;
}
