/* SPDX-License-Identifier: Apache-2.0 */
/* list_parse.c - cuts, stages, recomputation and --zero1 as options give them
 */
#include "config.h"

#include "partitioner/plan/choice.h"
#include "partitioner/plan/list_text.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DIGITS 9

static size_t count_items(const char *text)
{
    size_t n = 1;

    for (; *text != '\0'; text++)
        n += *text == '-';
    return n;
}

/* The number at *text_p, which is moved past it; -1 if there is none. */
static int next_number(const char **text_p)
{
    size_t n = strspn(*text_p, "0123456789");
    int value = n > 0 && n <= MOST_DIGITS ? atoi(*text_p) : -1;

    *text_p += n;
    return value;
}

/* Skip a dash that an item follows; also true at the end, else false. */
static bool skip_dash(const char **text_p)
{
    if (**text_p == '\0')
        return true;
    return *(*text_p)++ == '-' && **text_p != '\0';
}

/* --- cut ------------------------------------------------------------------ */

static enum merak_status bad_cut(const char *text, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--cut: expected auto, or cut points with dashes "
                      "between, as in 1-3-5, got \"%.60s\"",
                      text);
}

/* Cut points must ascend: otherwise nothing lies between two of them. */
static enum merak_status check_order(const char *text, const int *cut, size_t n,
                                     struct merak_error *err)
{
    for (size_t i = 1; i < n; i++) {
        if (cut[i] == cut[i - 1])
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--cut %.60s: nothing lies between %d and %d; "
                              "expected each cut point once",
                              text, cut[i - 1], cut[i]);
        if (cut[i] < cut[i - 1])
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--cut %.60s: %d comes after %d; expected "
                              "ascending cut points",
                              text, cut[i], cut[i - 1]);
    }
    return MERAK_OK;
}

enum merak_status merak_given_set_cut(const char *text,
                                      struct merak_given_lists *lists,
                                      struct merak_error *err)
{
    size_t n = count_items(text);
    const char *at = text;
    int *cut;

    free((void *)lists->cut);
    lists->cut = NULL;
    if (strcmp(text, "auto") == 0)
        return MERAK_OK;
    lists->cut = cut = calloc(n, sizeof(*cut));
    if (cut == NULL)
        return merak_fail_nomem(err, n * sizeof(*cut));
    lists->n_cut = (int)n;
    for (size_t i = 0; i < n; i++) {
        cut[i] = next_number(&at);
        if (cut[i] < 0 || !skip_dash(&at))
            return bad_cut(text, err);
    }
    return check_order(text, cut, n, err);
}

/* --- stages --------------------------------------------------------------- */

#define MOST_DEGREE 65535

static enum merak_status bad_stages(const char *text, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--stages: expected for each stage its replicas x its "
                      "tensor ranks, 1..%d, with commas or dashes between, as "
                      "in 2x4,8x1,4x2, got \"%.60s\"",
                      MOST_DEGREE, text);
}

static bool next_degree(const char **text_p, int *degree_p)
{
    *degree_p = next_number(text_p);
    return *degree_p >= 1 && *degree_p <= MOST_DEGREE;
}

enum merak_status merak_given_set_stages(const char *text,
                                         struct merak_given_lists *lists,
                                         struct merak_error *err)
{
    const char *at = text;
    struct merak_stage_degrees *stage;
    size_t n = 1;

    free((void *)lists->stage);
    lists->stage = NULL;
    lists->n_stages = 0;
    lists->auto_stages = strcmp(text, "auto") == 0;
    if (lists->auto_stages)
        return MERAK_OK;
    for (const char *c = text; *c != '\0'; c++)
        n += *c == '-' || *c == ',';
    if (n > MOST_DEGREE)
        return bad_stages(text, err);
    lists->stage = stage = calloc(n, sizeof(*stage));
    if (stage == NULL)
        return merak_fail_nomem(err, n * sizeof(*stage));
    lists->n_stages = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (!next_degree(&at, &stage[i].dp) || *at++ != 'x' ||
            !next_degree(&at, &stage[i].tp) ||
            (i + 1 < n ? *at != '-' && *at != ',' : *at != '\0'))
            return bad_stages(text, err);
        at += i + 1 < n;
    }
    return MERAK_OK;
}

/* --- recompute ------------------------------------------------------------ */

static bool find_word(const char *text, enum merak_recompute *recompute_p)
{
    static const char *const word[] = {[MERAK_RECOMPUTE_NONE] = "none",
                                       [MERAK_RECOMPUTE_FULL] = "full",
                                       [MERAK_RECOMPUTE_SELECTIVE] =
                                           "selective",
                                       [MERAK_RECOMPUTE_AUTO] = "auto"};

    for (size_t i = 0; i < sizeof(word) / sizeof(*word); i++) {
        if (strcmp(text, word[i]) == 0) {
            *recompute_p = (enum merak_recompute)i;
            return true;
        }
    }
    return false;
}

static enum merak_status bad_recompute(const char *text,
                                       struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--recompute: expected none|full|selective|auto, or "
                      "for each part a (attention) or how many blocks, as in "
                      "a-2-0, of which after / as many as --offload leaves, "
                      "as in a/a-8/3, got \"%.60s\"",
                      text);
}

/* What a part drops, "8", "8/3", "a" or "a/a", at *text_p, which is moved past
 * it. */
static bool next_drop(const char **text_p, struct merak_drop *drop)
{
    drop->attention = **text_p == 'a';
    if (drop->attention)
        ++*text_p;
    else
        drop->blocks = next_number(text_p);
    if (drop->blocks < 0 || **text_p != '/')
        return drop->blocks >= 0;
    ++*text_p;
    if (!drop->attention) {
        drop->again = next_number(text_p);
        return drop->again >= 0 && drop->again <= drop->blocks;
    }
    drop->again = **text_p == 'a';
    *text_p += drop->again;
    return drop->again > 0;
}

enum merak_status merak_given_set_recompute(const char *text,
                                            struct merak_given_lists *lists,
                                            enum merak_recompute *recompute_p,
                                            struct merak_error *err)
{
    size_t n = count_items(text);
    const char *at = text;
    struct merak_drop *drop;

    free((void *)lists->drop);
    lists->drop = NULL;
    if (find_word(text, recompute_p))
        return MERAK_OK;
    lists->drop = drop = calloc(n + MERAK_MAX_SHARED, sizeof(*drop));
    if (drop == NULL)
        return merak_fail_nomem(err, n * sizeof(*drop));
    lists->n_drop = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (!next_drop(&at, &drop[i]) || !skip_dash(&at))
            return bad_recompute(text, err);
    }
    *recompute_p = merak_drops_any(drop, (int)n) ? MERAK_RECOMPUTE_AUTO
                                                 : MERAK_RECOMPUTE_NONE;
    return MERAK_OK;
}

void merak_given_fini(struct merak_given_lists *lists)
{
    free((void *)lists->cut);
    free((void *)lists->drop);
    free((void *)lists->stage);
    lists->cut = NULL;
    lists->drop = NULL;
    lists->stage = NULL;
}

/* --- a word ---------------------------------------------------------------- */

enum merak_status merak_zero1_parse(const char *text, int *zero_p,
                                    struct merak_error *err)
{
    bool yes = strcmp(text, "yes") == 0 || strcmp(text, "on") == 0;

    if (!yes && strcmp(text, "no") != 0 && strcmp(text, "off") != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--zero1: expected no|yes, got \"%.60s\"; --zero "
                          "has all levels",
                          text);
    *zero_p = yes;
    return MERAK_OK;
}
