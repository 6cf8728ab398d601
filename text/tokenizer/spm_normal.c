/* SPDX-License-Identifier: Apache-2.0 */
/* spm_normal.c - SentencePiece's normalizer
 *
 * The precompiled map is a u32 (bytes of the trie), the trie, and texts that
 * end in zeros.  The trie is a double array as of the Darts-clone library:
 * units of 32 bits, from the root at 0; a child is at its parent's index xor
 * the parent's offset xor its byte, which the unit repeats; the value of a
 * unit with a leaf, which is the offset of the replacement in the texts, is at
 * the unit's index xor its offset.  The longest text in the trie that is a
 * prefix of the input is replaced.  Nothing here is trusted: indices are
 * checked as they are used.
 */
#include "config.h"

#include "text/tokenizer/spm_normal.h"

#include "text/tokenizer/grapheme.h"
#include "text/tokenizer/rules.h"
#include "text/tokenizer/unicode.h"

struct map {
    const unsigned char *unit, *text;
    size_t units, text_bytes;
};

static bool open_map(const unsigned char *bytes, size_t n, struct map *map)
{
    uint32_t trie;

    if (n < sizeof(trie))
        return false;
    memcpy(&trie, bytes, sizeof(trie));
    if (trie % 4 != 0 || trie < 4 || trie > n - 4)
        return false;
    *map = (struct map){.unit = bytes + 4,
                        .text = bytes + 4 + trie,
                        .units = trie / 4,
                        .text_bytes = n - 4 - trie};
    return map->text_bytes > 0 && map->text[map->text_bytes - 1] == '\0';
}

bool merak_spm_map_is_sound(const unsigned char *map, size_t bytes)
{
    struct map m;

    return open_map(map, bytes, &m);
}

static uint32_t unit_at(const struct map *map, size_t place)
{
    uint32_t unit = 0;

    if (place < map->units)
        memcpy(&unit, map->unit + 4 * place, sizeof(unit));
    return unit;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The length of the prefix that is replaced, by *by_p: the shortest in the
 * trie or the longest; 0: none. */
static size_t find(const struct map *map, const unsigned char *text, size_t n,
                   bool shortest, const char **by_p)
{
    uint32_t unit = unit_at(map, 0);
    size_t place = offset_of(unit), found = 0;

    for (size_t i = 0; i < n && text[i] != 0; i++) {
        place ^= text[i];
        unit = unit_at(map, place);
        if ((unit & (1u << 31 | 0xff)) != text[i])
            break;
        place ^= offset_of(unit);
        if ((unit >> 8 & 1) != 0) {
            size_t at = unit_at(map, place) & 0x7fffffff;

            if (at >= map->text_bytes)
                break;
            *by_p = (const char *)map->text + at;
            found = i + 1;
            if (shortest)
                break;
        }
    }
    return found;
}

/* A prefix of the text, and its replacement. */
struct prefix {
    const char *by;
    size_t bytes, n;
};

static struct prefix next_prefix(const struct merak_spm_normal *normal,
                                 const struct map *map,
                                 const unsigned char *text, size_t n)
{
    struct prefix p = {.by = NULL};
    uint32_t cp;

    if (normal->map != NULL)
        p.bytes = find(map, text, n, false, &p.by);
    if (p.bytes > 0) {
        p.n = strlen(p.by);
        return p;
    }
    p.bytes = merak_utf8_decode(text, n, &cp);
    p.bytes = p.bytes > 0 ? p.bytes : 1;
    p.by = (const char *)text;
    p.n = p.bytes;
    return p;
}

static bool is_blank(const struct prefix *p)
{
    return p->n == 1 && p->by[0] == ' ';
}

static enum merak_status put(const struct merak_spm_normal *normal,
                             const char *text, size_t n,
                             struct merak_buffer *out, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < n && rc == MERAK_OK; i++) {
        if (text[i] == ' ' && normal->escape)
            rc = merak_buffer_add(out, MERAK_MARK, strlen(MERAK_MARK), err);
        else
            rc = merak_buffer_add(out, text + i, 1, err);
    }
    return rc;
}

static void drop_blanks_behind(const struct merak_spm_normal *normal,
                               size_t from, struct merak_buffer *out)
{
    const char *blank = normal->escape ? MERAK_MARK : " ";
    size_t n = strlen(blank);

    while (out->n - from >= n && memcmp(out->text + out->n - n, blank, n) == 0)
        out->n -= n;
}

enum merak_status merak_spm_normalize(const struct merak_spm_normal *normal,
                                      const unsigned char *text, size_t n,
                                      struct merak_buffer *out,
                                      struct merak_error *err)
{
    bool after_blank = normal->remove_extra, begun = false;
    enum merak_status rc = MERAK_OK;
    struct map map = {.unit = NULL};
    size_t from = out->n;

    if (normal->map != NULL)
        open_map(normal->map, normal->map_bytes, &map);
    while (n > 0 && rc == MERAK_OK) {
        struct prefix p = next_prefix(normal, &map, text, n);

        text += p.bytes;
        n -= p.bytes;
        if (!begun && normal->remove_extra && is_blank(&p))
            continue;
        if (!begun && normal->dummy_prefix)
            rc = put(normal, " ", 1, out, err);
        begun = true;
        while (after_blank && p.n > 0 && p.by[0] == ' ') {
            p.by++;
            p.n--;
        }
        if (rc == MERAK_OK && p.n > 0) {
            rc = put(normal, p.by, p.n, out, err);
            after_blank = normal->remove_extra && p.by[p.n - 1] == ' ';
        }
    }
    if (rc == MERAK_OK && normal->remove_extra)
        drop_blanks_behind(normal, from, out);
    return rc;
}

/* --- Hugging Face's way -------------------------------------------------- */

#define MOST_AT_ONCE 5 /* bytes of a grapheme that is replaced as a whole */

static enum merak_status put_replaced(const struct map *map,
                                      const unsigned char *text, size_t n,
                                      bool whole, struct merak_buffer *out,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    const char *by;

    if (whole && find(map, text, n, true, &by) > 0)
        return merak_buffer_add(out, by, strlen(by), err);
    for (size_t at = 0, bytes; at < n && rc == MERAK_OK; at += bytes) {
        uint32_t cp;

        bytes = merak_utf8_decode(text + at, n - at, &cp);
        bytes = bytes > 0 ? bytes : 1;
        rc = find(map, text + at, bytes, true, &by) > 0
                 ? merak_buffer_add(out, by, strlen(by), err)
                 : merak_buffer_add(out, text + at, bytes, err);
    }
    return rc;
}

enum merak_status merak_spm_replace(const struct merak_spm_normal *normal,
                                    const unsigned char *text, size_t n,
                                    struct merak_buffer *out,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    struct map map = {.unit = NULL};

    if (!open_map(normal->map, normal->map_bytes, &map))
        return merak_buffer_add(out, text, n, err);
    for (size_t at = 0, bytes; at < n && rc == MERAK_OK; at += bytes) {
        bytes = merak_grapheme(text + at, n - at);
        rc = put_replaced(&map, text + at, bytes, bytes <= MOST_AT_ONCE, out,
                          err);
    }
    return rc;
}
