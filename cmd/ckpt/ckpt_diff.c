/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_diff.c - `merak ckpt diff`: compare two checkpoints
 *
 * The degrees that wrote them are printed, but do not count as differences:
 * the same values in other files are the same checkpoint.
 */
#include "config.h"

#include "cmd/ckpt/ckpt_verbs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct diff {
    bool json, tensors_only;
    struct merak_ckpt *a, *b;
    int n, n_equal; /* tensors */
    bool state_differs;
    json_t *tensors, *state; /* with --json: the differences */
    struct merak_progress progress;
};

static const struct merak_option rows[] = {
    {"tensors-only", MERAK_OPTION_YES, offsetof(struct diff, tensors_only),
     .about = "leave out the state: step, position in the data and so on"},
    {"json", MERAK_OPTION_YES, offsetof(struct diff, json),
     .about = "as a line of JSON"},
};
const struct merak_option_table ckpt_diff_options = {rows, sizeof(rows) /
                                                               sizeof(rows[0])};

/* --- tensors ----------------------------------------------------------------
 */

static void unravel(const struct merak_shape *shape, size_t index,
                    struct merak_shape *at)
{
    at->ndim = shape->ndim;
    for (int d = shape->ndim - 1; d >= 0; d--) {
        at->dim[d] = index % shape->dim[d];
        index /= shape->dim[d];
    }
}

static void print_different(const struct merak_ckpt_difference *d)
{
    struct merak_shape at;
    char text[160];

    printf("%s: %zu of %zu elements differ", d->name, d->n, d->elements);
    if (d->n > d->n_not_finite) {
        unravel(&d->a, d->at, &at);
        printf(", by at most %.4g (relative %.4g), %.9g and %.9g at %s",
               d->max_abs, d->max_rel, (double)d->a_at, (double)d->b_at,
               merak_shape_text(text, &at));
    }
    if (d->n_not_finite > 0)
        printf("; %zu are not finite in one", d->n_not_finite);
    putchar('\n');
}

static void print_difference(const struct merak_ckpt_difference *d)
{
    char a[160], b[160];

    switch (d->relation) {
    case MERAK_CKPT_DIFFERENT:
        print_different(d);
        break;
    case MERAK_CKPT_OTHER_SHAPE:
        printf("%s: shape %s and %s\n", d->name, merak_shape_text(a, &d->a),
               merak_shape_text(b, &d->b));
        break;
    case MERAK_CKPT_ONLY_A:
        printf("%s: only in the first\n", d->name);
        break;
    default:
        printf("%s: only in the second\n", d->name);
    }
}

static json_t *json_difference(const struct merak_ckpt_difference *d)
{
    static const char *const relation[] = {
        [MERAK_CKPT_DIFFERENT] = "different",
        [MERAK_CKPT_OTHER_SHAPE] = "shape",
        [MERAK_CKPT_ONLY_A] = "only in the first",
        [MERAK_CKPT_ONLY_B] = "only in the second"};
    json_t *json = json_pack("{s:s, s:s}", "name", d->name, "relation",
                             relation[d->relation]);
    struct merak_shape at;

    if (d->relation != MERAK_CKPT_ONLY_B)
        json_object_set_new(json, "shape_a",
                            merak_ckpt_sizes_json(d->a.dim, d->a.ndim));
    if (d->relation != MERAK_CKPT_ONLY_A)
        json_object_set_new(json, "shape_b",
                            merak_ckpt_sizes_json(d->b.dim, d->b.ndim));
    if (d->relation != MERAK_CKPT_DIFFERENT)
        return json;
    json_object_update_new(json, json_pack("{s:I, s:I, s:I}", "elements",
                                           (json_int_t)d->elements, "different",
                                           (json_int_t)d->n, "not_finite",
                                           (json_int_t)d->n_not_finite));
    if (d->n == d->n_not_finite)
        return json;
    unravel(&d->a, d->at, &at);
    json_object_update_new(
        json,
        json_pack("{s:f, s:f, s:o, s:f, s:f}", "max_abs", d->max_abs, "max_rel",
                  d->max_rel, "at", merak_ckpt_sizes_json(at.dim, at.ndim), "a",
                  (double)d->a_at, "b", (double)d->b_at));
    return json;
}

static void take_tensor(void *arg, const struct merak_ckpt_difference *d)
{
    struct diff *diff = arg;

    diff->n++;
    if (d->relation == MERAK_CKPT_EQUAL) {
        diff->n_equal++;
        return;
    }
    merak_progress_clear(&diff->progress);
    if (diff->json)
        json_array_append_new(diff->tensors, json_difference(d));
    else
        print_difference(d);
}

/* --- the state --------------------------------------------------------------
 */

/* How it was computed, or how far the run that saved it was to go. */
static bool is_no_matter(const char *key)
{
    static const char *const none[] = {"tp", "pp",     "dp",   "cp",
                                       "ep", "stages", "steps"};

    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        if (strcmp(key, none[i]) == 0)
            return true;
    }
    return false;
}

static void take_field(struct diff *diff, const char *key, json_t *a, json_t *b)
{
    char *x, *y;

    if (json_equal(a, b))
        return;
    if (!is_no_matter(key))
        diff->state_differs = true;
    if (diff->json) {
        json_array_append_new(
            diff->state,
            json_pack("{s:s, s:O?, s:O?}", "field", key, "a", a, "b", b));
        return;
    }
    x = a == NULL ? NULL : json_dumps(a, JSON_ENCODE_ANY);
    y = b == NULL ? NULL : json_dumps(b, JSON_ENCODE_ANY);
    printf("%s: %s and %s%s\n", key, x == NULL ? "nothing" : x,
           y == NULL ? "nothing" : y,
           is_no_matter(key) ? ", which makes no difference" : "");
    free(x);
    free(y);
}

static void compare_state(struct diff *diff)
{
    json_t *a = merak_ckpt_state_json(merak_ckpt_state(diff->a));
    json_t *b = merak_ckpt_state_json(merak_ckpt_state(diff->b));
    const char *key;
    json_t *value;

    json_object_foreach(a, key, value)
        take_field(diff, key, value, json_object_get(b, key));
    json_object_foreach(b, key, value)
    {
        if (json_object_get(a, key) == NULL)
            take_field(diff, key, NULL, value);
    }
    json_decref(a);
    json_decref(b);
}

/* --- all of it --------------------------------------------------------------
 */

static int conclude(struct diff *diff, bool same)
{
    int code = same ? MERAK_EXIT_DONE : CKPT_EXIT_DIFFERENT;

    if (diff->json)
        return ckpt_flushed_json(
            "diff",
            json_pack("{s:s, s:s, s:b, s:i, s:i, s:O, s:O}", "a",
                      merak_ckpt_path(diff->a), "b", merak_ckpt_path(diff->b),
                      "equal", same, "tensors", diff->n, "tensors_equal",
                      diff->n_equal, "differences", diff->tensors, "state",
                      diff->state),
            code);
    if (diff->n_equal < diff->n)
        printf("%d of %d tensors are equal\n", diff->n_equal, diff->n);
    else
        printf("all %d tensors are equal\n", diff->n);
    return ckpt_flushed("diff", code);
}

static int compare(struct diff *diff)
{
    struct merak_error err;
    enum merak_status rc;
    bool same = true;

    if (!diff->tensors_only)
        compare_state(diff);
    merak_progress_init(&diff->progress, stderr, "diff", "B", 0);
    rc = merak_ckpt_compare(diff->a, diff->b, take_tensor, diff, &same,
                            &diff->progress, &err);
    merak_progress_clear(&diff->progress);
    if (rc != MERAK_OK)
        return ckpt_failed("diff", rc, &err);
    return conclude(diff, same && !diff->state_differs);
}

int ckpt_run_diff(int argc, char **argv)
{
    struct diff diff = {.json = false};
    struct ckpt_words words;
    struct merak_error err;
    enum merak_status rc;
    int code = ckpt_parse(&ckpt_diff_options, &diff, argc, argv, 2, 2,
                          "two directories", &words);

    if (code != MERAK_EXIT_DONE)
        return code;
    rc = merak_ckpt_open(words.word[0], &diff.a, &err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_open(words.word[1], &diff.b, &err);
    if (rc == MERAK_OK) {
        diff.tensors = json_array();
        diff.state = json_array();
        code = compare(&diff);
        json_decref(diff.tensors);
        json_decref(diff.state);
    } else {
        code = ckpt_failed("diff", rc, &err);
    }
    merak_ckpt_close(diff.a);
    merak_ckpt_close(diff.b);
    return code;
}
