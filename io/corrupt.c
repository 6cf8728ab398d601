/* SPDX-License-Identifier: Apache-2.0 */
/* corrupt.c - tokens that are hidden, to be predicted
 *
 * Exactly k of n places are chosen, each set of k as likely as any other, by
 * going through them once: a place is taken with probability (places still to
 * be taken) / (places left).  Knuth, The Art of Computer Programming, vol. 2,
 * sec. 3.4.2, algorithm S.
 */
#include "config.h"

#include "io/corrupt.h"

#include "base/error.h"
#include "base/rng.h"
#include "merak/types.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the option -------------------------------------------------------------
 */

static const struct kind {
    const char *name;
    struct merak_corrupt by_default;
    int numbers;
} kinds[] = {
    {"auto", {.kind = MERAK_CORRUPT_AUTO}, 0},
    {"none", {.kind = MERAK_CORRUPT_NONE}, 0},
    {"mask", {MERAK_CORRUPT_MASK, 0.15, 0}, 1},
    {"spans", {MERAK_CORRUPT_SPANS, 0.15, 3}, 2},
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

/* The numbers behind a name: none, or ":X", or ":X,Y". */
static bool read_numbers(const char *text, const struct kind *kind,
                         struct merak_corrupt *c)
{
    double *const number[] = {&c->density, &c->mean};
    char *end;

    for (int i = 0; i < kind->numbers && *text != '\0'; i++) {
        if (*text++ != (i == 0 ? ':' : ','))
            return false;
        *number[i] = strtod(text, &end);
        if (end == text)
            return false;
        text = end;
    }
    return *text == '\0';
}

enum merak_status merak_corrupt_parse(const char *text,
                                      struct merak_corrupt *corrupt,
                                      struct merak_error *err)
{
    size_t n = strcspn(text, ":");
    struct merak_corrupt c;
    int k = 0;

    while (k < KINDS &&
           (strlen(kinds[k].name) != n || strncmp(text, kinds[k].name, n) != 0))
        k++;
    c = kinds[k % KINDS].by_default;
    if (k == KINDS || !read_numbers(text + n, &kinds[k], &c) ||
        (kinds[k].numbers > 0 && !(c.density > 0 && c.density < 1)) ||
        (kinds[k].numbers > 1 && !(c.mean >= 1 && c.mean <= 1e6)))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--corrupt: expected mask:SHARE, spans:SHARE,LENGTH, "
                          "none or auto, with a share between 0 and 1 and a "
                          "mean length of 1 or more, as spans:0.15,3, got "
                          "\"%.40s\"",
                          text);
    *corrupt = c;
    return MERAK_OK;
}

const char *merak_corrupt_text(const struct merak_corrupt *corrupt,
                               char text[MERAK_CORRUPT_TEXT])
{
    const struct kind *kind = &kinds[corrupt->kind];
    size_t n = (size_t)snprintf(text, MERAK_CORRUPT_TEXT, "%s", kind->name);

    if (kind->numbers > 0)
        n += (size_t)snprintf(text + n, MERAK_CORRUPT_TEXT - n, ":%g",
                              corrupt->density);
    if (kind->numbers > 1)
        snprintf(text + n, MERAK_CORRUPT_TEXT - n, ",%g", corrupt->mean);
    return text;
}

/* --- choosing ---------------------------------------------------------------
 */

/* Places still to be taken, and left. */
struct choice {
    uint64_t key;
    size_t wanted, left;
};

/* Is this place taken?  `draw` is a number that no other place has. */
static bool take(struct choice *c, uint64_t draw)
{
    bool taken = (double)merak_rng_uniform(c->key, draw) * (double)c->left <
                 (double)c->wanted;

    c->left--;
    c->wanted -= taken;
    return taken;
}

static size_t rounded(double x)
{
    return (size_t)rint(x);
}

/* --- masks ------------------------------------------------------------------
 */

size_t merak_masking_chosen(const struct merak_corrupt *corrupt, size_t seq)
{
    return rounded(corrupt->density * (double)seq);
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static bool is_special(const struct merak_masking *m, int32_t id)
{
    return m->n_special > 0 && bsearch(&id, m->special, m->n_special,
                                       sizeof(id), compare_ids) != NULL;
}

/* What a chosen token becomes. */
static int32_t replaced(const struct merak_masking *m, uint64_t key, size_t at,
                        int32_t id)
{
    float u = merak_rng_uniform(merak_rng_mix(key, 1), at);

    if (u < 0.8f)
        return m->mask;
    if (u < 0.9f)
        return (int32_t)(merak_rng_mix(merak_rng_mix(key, 2), at) % m->vocab);
    return id;
}

void merak_masking_apply(const struct merak_masking *m, uint64_t key,
                         int32_t *ids, int32_t *masked)
{
    struct choice plain = {.key = key}, special = {.key = key};

    for (size_t i = 0; i < m->seq; i++)
        special.left += is_special(m, ids[i]);
    plain.left = m->seq - special.left;
    plain.wanted = m->chosen < plain.left ? m->chosen : plain.left;
    special.wanted = m->chosen - plain.wanted;
    for (size_t i = 0; i < m->seq; i++) {
        int32_t id = ids[i];

        masked[i] = MERAK_NO_TARGET;
        if (!take(is_special(m, id) ? &special : &plain, i))
            continue;
        masked[i] = id;
        ids[i] = replaced(m, key, i, id);
    }
}

/* --- spans ------------------------------------------------------------------
 */

bool merak_spans_of(const struct merak_corrupt *corrupt, size_t raw,
                    struct merak_spans *spans)
{
    struct merak_spans s = {.raw = raw};

    s.noise = rounded(corrupt->density * (double)raw);
    s.spans = rounded((double)s.noise / corrupt->mean);
    s.source = raw - s.noise + s.spans + 1;
    s.target = s.noise + s.spans + 1;
    *spans = s;
    return s.spans > 0 && raw - s.noise >= s.spans;
}

/* The longest text whose source, or target, has no more than `most` tokens.
 * Both grow with the text, though not at every token. */
static bool fit(const struct merak_corrupt *corrupt, size_t most, bool target,
                struct merak_spans *spans)
{
    size_t lo = 0, hi = 1;
    struct merak_spans s;

    for (;; hi *= 2) {
        merak_spans_of(corrupt, hi, &s);
        if ((target ? s.target : s.source) > most)
            break;
        lo = hi;
    }
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        merak_spans_of(corrupt, mid, &s);
        if ((target ? s.target : s.source) > most)
            hi = mid;
        else
            lo = mid;
    }
    return merak_spans_of(corrupt, lo, spans);
}

bool merak_spans_fit(const struct merak_corrupt *corrupt, size_t source,
                     struct merak_spans *spans)
{
    return fit(corrupt, source, false, spans);
}

bool merak_spans_fit_target(const struct merak_corrupt *corrupt, size_t target,
                            struct merak_spans *spans)
{
    return fit(corrupt, target, true, spans);
}

/* Copy a run of n tokens in all, of which this is the part that ends where a
 * cut is taken or no token is left; returns how many. */
static size_t next_run(struct choice *cuts, uint64_t *draw)
{
    size_t n = 1;

    while (cuts->left > 0 && !take(cuts, (*draw)++))
        n++;
    return n;
}

void merak_spans_apply(const struct merak_spans *spans,
                       const struct merak_span_ids *ids, uint64_t key,
                       const int32_t *raw, int32_t *source, int32_t *target)
{
    /* n tokens have n - 1 places between them to cut at. */
    struct choice kept = {key, spans->spans - 1, spans->raw - spans->noise - 1};
    struct choice hidden = {merak_rng_mix(key, 1), spans->spans - 1,
                            spans->noise - 1};
    uint64_t draw_kept = 0, draw_hidden = 0;

    for (size_t i = 0; i < spans->spans; i++) {
        size_t n = next_run(&kept, &draw_kept);

        memcpy(source, raw, n * sizeof(*raw));
        source += n;
        raw += n;
        *source++ = *target++ = ids->sentinel - (int32_t)i;
        n = next_run(&hidden, &draw_hidden);
        memcpy(target, raw, n * sizeof(*raw));
        target += n;
        raw += n;
    }
    *source = *target = ids->end;
}
