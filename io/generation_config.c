/* SPDX-License-Identifier: Apache-2.0 */
/* generation_config.c - how a model's folder has text generated
 *
 * Fields that Merak obeys are read; of the others those that would change a
 * greedy or sampled text are listed by name.  What is left is about speed, or
 * about models of other kinds.
 */
#include "config.h"

#include "io/generation_config.h"

#include "base/bisect.h"
#include "base/error.h"
#include "io/hf_reader.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fields that change a text, and the number that does not; null, false and
 * empty lists do not, either. */
static const struct {
    const char *name;
    double neutral;
} others[] = {
    {"bad_words_ids", NAN},
    {"constraints", NAN},
    {"diversity_penalty", 0},
    {"dola_layers", NAN},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"exponential_decay_length_penalty", NAN},
    {"force_words_ids", NAN},
    {"forced_bos_token_id", NAN},
    {"forced_eos_token_id", NAN},
    {"guidance_scale", 1},
    {"max_time", NAN},
    {"min_p", 0},
    {"num_beam_groups", 1},
    {"num_beams", 1},
    {"num_return_sequences", 1},
    {"penalty_alpha", 0},
    {"sequence_bias", NAN},
    {"stop_strings", NAN},
    {"token_healing", NAN},
    {"top_h", NAN},
    {"typical_p", 1},
    {"watermarking_config", NAN},
};

/* --- lists of ids ----------------------------------------------------------
 */

/* Of the first id that is not less. */
static size_t place_of(const struct merak_token_list *list, int32_t id)
{
    size_t i;

    MERAK_BISECT(i, 0, list->n, list->id[i] >= id);
    return i;
}

bool merak_token_list_has(const struct merak_token_list *list, int32_t id)
{
    size_t at = place_of(list, id);

    return at < list->n && list->id[at] == id;
}

static enum merak_status reserve(struct merak_token_list *list, size_t n,
                                 struct merak_error *err)
{
    size_t room = 2 * list->room + n;
    int32_t *id;

    if (n <= list->room - list->n)
        return MERAK_OK;
    id = realloc(list->id, room * sizeof(*id));
    if (id == NULL)
        return merak_fail_nomem(err, room * sizeof(*id));
    list->id = id;
    list->room = room;
    return MERAK_OK;
}

enum merak_status merak_token_list_add(struct merak_token_list *list,
                                       int32_t id, struct merak_error *err)
{
    size_t at = place_of(list, id);
    enum merak_status rc;

    if (at < list->n && list->id[at] == id)
        return MERAK_OK;
    rc = reserve(list, 1, err);
    if (rc != MERAK_OK)
        return rc;
    memmove(list->id + at + 1, list->id + at,
            (list->n - at) * sizeof(*list->id));
    list->id[at] = id;
    list->n++;
    return MERAK_OK;
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Put ids that were appended into order: one at a time would take the square
 * of their number. */
static void put_in_order(struct merak_token_list *list)
{
    size_t n = 0;

    if (list->n > 1)
        qsort(list->id, list->n, sizeof(*list->id), compare_ids);
    for (size_t i = 0; i < list->n; i++) {
        if (n == 0 || list->id[n - 1] != list->id[i])
            list->id[n++] = list->id[i];
    }
    list->n = n;
}

/* An id, or a list of ids. */
static void read_ids(struct merak_hf_reader *r, const char *name, size_t vocab,
                     struct merak_token_list *list)
{
    const json_t *value = merak_hf_field(r, name);
    size_t n = json_is_array(value) ? json_array_size(value) : value != NULL;

    if (r->rc == MERAK_OK)
        r->rc = reserve(list, n, r->err);
    for (size_t i = 0; i < n && r->rc == MERAK_OK; i++) {
        const json_t *id =
            json_is_array(value) ? json_array_get(value, i) : value;

        if (!json_is_integer(id))
            merak_hf_refuse(r, name, "a token id, or a list of them");
        else if (json_integer_value(id) >= 0 &&
                 (uint64_t)json_integer_value(id) < vocab)
            list->id[list->n++] = (int32_t)json_integer_value(id);
    }
    put_in_order(list);
}

/* --- the file --------------------------------------------------------------
 */

/* A count, of which 0 and null mean none. */
static size_t read_count(struct merak_hf_reader *r, const char *name,
                         size_t or_else)
{
    const json_t *value = merak_hf_field(r, name);
    json_int_t n = json_integer_value(value);

    if (r->rc != MERAK_OK || value == NULL)
        return or_else;
    if (!json_is_integer(value) || n < 0 || n > INT32_MAX) {
        merak_hf_refuse(r, name, "a whole number, or null");
        return or_else;
    }
    return (size_t)n;
}

static bool is_neutral(const json_t *value, double neutral)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == neutral) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static void list_ignored(const json_t *root, char *text, size_t bytes)
{
    size_t at = 0;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const char *name = others[i].name;

        if (!is_neutral(json_object_get(root, name), others[i].neutral) &&
            at + strlen(name) + 2 < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s%s",
                                   at > 0 ? ", " : "", name);
    }
}

static void read_fields(struct merak_hf_reader *r, size_t vocab,
                        struct merak_generation_config *c)
{
    read_ids(r, "eos_token_id", vocab, &c->ends);
    read_ids(r, "suppress_tokens", vocab, &c->suppress);
    read_ids(r, "begin_suppress_tokens", vocab, &c->begin_suppress);
    c->repetition_penalty =
        (double)merak_hf_positive(r, "repetition_penalty", 1);
    c->no_repeat = read_count(r, "no_repeat_ngram_size", 0);
    c->min_tokens = read_count(r, "min_length", 0);
    c->min_new = read_count(r, "min_new_tokens", 0);
    c->max_tokens = read_count(r, "max_length", 0);
    c->max_new = read_count(r, "max_new_tokens", 0);
    c->samples = merak_hf_bool(r, "do_sample", false);
    c->temperature = merak_hf_real(r, "temperature", 1);
    c->top_k = read_count(r, "top_k", 50); /* transformers' default */
    c->top_p = merak_hf_real(r, "top_p", 1);
    list_ignored(r->root, c->ignored, sizeof(c->ignored));
}

static enum merak_status read_file(const char *path, size_t vocab,
                                   struct merak_generation_config *c,
                                   struct merak_error *err)
{
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why);
    struct merak_hf_reader r = {.root = root, .rc = MERAK_OK, .err = err};

    if (root == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.120s is not valid JSON: line %d: %s", path,
                          why.line, why.text);
    if (json_is_object(root))
        read_fields(&r, vocab, c);
    else
        r.rc = merak_fail(err, MERAK_ERR_CONFIG, "expected a JSON object");
    json_decref(root);
    if (r.rc != MERAK_OK)
        merak_error_wrap(err, "%.120s", path);
    return r.rc;
}

enum merak_status
merak_generation_config_read(const char *folder, size_t vocab,
                             struct merak_generation_config *config,
                             struct merak_error *err)
{
    static const char *const files[] = {"generation_config.json",
                                        "config.json"};
    struct merak_generation_config c = {
        .repetition_penalty = 1, .temperature = 1, .top_p = 1};
    char path[PATH_MAX + 32] = "";
    enum merak_status rc = MERAK_OK;
    size_t i = folder[0] == '\0' ? 2 : 0;

    for (; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        if (access(path, F_OK) == 0)
            break;
    }
    if (i < 2)
        rc = read_file(path, vocab, &c, err);
    if (rc == MERAK_OK)
        *config = c;
    else
        merak_generation_config_fini(&c);
    return rc;
}

void merak_generation_config_fini(struct merak_generation_config *config)
{
    free(config->ends.id);
    free(config->suppress.id);
    free(config->begin_suppress.id);
    memset(config, 0, sizeof(*config));
}
