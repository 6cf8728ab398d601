/* SPDX-License-Identifier: Apache-2.0 */
/* plan_lists.c - fields of a plan file, and a plan's lists in it */
#include "config.h"

#include "io/plan_lists.h"

#include "base/error.h"
#include "partitioner/plan/choice.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

json_t *merak_plan_cut_json(const int *list, int n)
{
    json_t *array = list == NULL ? json_null() : json_array();

    for (int i = 0; list != NULL && i < n; i++)
        json_array_append_new(array, json_integer(list[i]));
    return array;
}

json_t *merak_plan_drop_json(const struct merak_drop *drop, int n)
{
    json_t *array = drop == NULL ? json_null() : json_array();

    for (int i = 0; drop != NULL && i < n; i++) {
        json_t *item = json_pack("{s:b, s:i}", "attention", drop[i].attention,
                                 "blocks", drop[i].blocks);

        if (drop[i].again > 0)
            json_object_set_new(item, "again", json_integer(drop[i].again));
        json_array_append_new(array, item);
    }
    return array;
}

json_t *merak_plan_meshes_json(const struct merak_plan *p)
{
    json_t *array = json_array();

    for (int s = 0; s < p->pp; s++)
        json_array_append_new(array,
                              json_pack("{s:i, s:i}", "dp", p->stage[s].dp,
                                        "tp", p->stage[s].tp));
    return array;
}

json_t *merak_plan_kinds_json(const struct merak_plan_file *file)
{
    json_t *array = file->n_kinds > 0 ? json_array() : NULL;

    for (int k = 0; k < file->n_kinds; k++)
        json_array_append_new(
            array, json_pack("{s:s, s:i, s:f}", "device", file->kind[k].device,
                             "nodes", file->kind[k].nodes, "flops_per_s",
                             file->kind[k].flops_per_s));
    return array;
}

void merak_plan_read_kinds(const json_t *array, struct merak_plan_file *file)
{
    const json_t *item;
    size_t i;

    file->n_kinds = 0;
    json_array_foreach(array, i, item)
    {
        const char *device = json_string_value(json_object_get(item, "device"));
        json_int_t nodes = json_integer_value(json_object_get(item, "nodes"));
        struct merak_plan_kind *kind = &file->kind[file->n_kinds];

        if (i >= MERAK_PLAN_KINDS || device == NULL || nodes < 1 ||
            nodes > 65535) {
            file->n_kinds = 0;
            return;
        }
        snprintf(kind->device, sizeof(kind->device), "%s", device);
        kind->nodes = (int)nodes;
        kind->flops_per_s =
            json_number_value(json_object_get(item, "flops_per_s"));
        file->n_kinds++;
    }
}

void merak_plan_fail_field(struct merak_plan_reader *r, const char *key,
                           const json_t *value, const char *expected)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;

    if (r->rc == MERAK_OK)
        r->rc =
            merak_fail(r->err, MERAK_ERR_CONFIG,
                       "plan %s: %s is %.40s, expected %s; `merak plan "
                       "--json` writes plans",
                       r->name, key, text != NULL ? text : "missing", expected);
    free(text);
}

json_int_t merak_plan_read_integer(struct merak_plan_reader *r,
                                   const json_t *in, const char *key,
                                   json_int_t least, json_int_t most)
{
    const json_t *value = json_object_get(in, key);
    json_int_t n = json_integer_value(value);
    char expected[64];

    if (json_is_integer(value) && n >= least && n <= most)
        return n;
    snprintf(expected, sizeof(expected),
             "an integer %" JSON_INTEGER_FORMAT "..%" JSON_INTEGER_FORMAT,
             least, most);
    merak_plan_fail_field(r, key, value, expected);
    return least;
}

bool merak_plan_read_bool(struct merak_plan_reader *r, const json_t *in,
                          const char *key)
{
    const json_t *value = json_object_get(in, key);

    if (!json_is_boolean(value))
        merak_plan_fail_field(r, key, value, "true or false");
    return json_is_true(value);
}

/* Room for a list of n elements, of so many bytes each, that `value` has to be;
 * NULL if it is not. */
static void *list_create(struct merak_plan_reader *r, const char *key,
                         const json_t *value, size_t n, size_t bytes,
                         const char *expected)
{
    void *list = NULL;

    if (!json_is_array(value) || json_array_size(value) != n) {
        merak_plan_fail_field(r, key, value, expected);
        return NULL;
    }
    list = calloc(n + 1, bytes);
    if (list == NULL)
        r->rc = merak_fail_nomem(r->err, n * bytes);
    return list;
}

void merak_plan_read_cut(struct merak_plan_reader *r, const json_t *in,
                         struct merak_plan_file *file)
{
    const json_t *value = json_object_get(in, "cut"), *at;
    int parts = merak_plan_parts(&file->plan);
    size_t n = (size_t)(parts - merak_plan_shared(&file->plan)) - 1, i;
    json_int_t before = -1;
    char expected[64];

    if (r->rc != MERAK_OK || json_is_null(value))
        return;
    snprintf(expected, sizeof(expected), "%zu ascending integers", n);
    file->cut = list_create(r, "cut", value, n, sizeof(*file->cut), expected);
    if (file->cut == NULL)
        return;
    json_array_foreach(value, i, at)
    {
        json_int_t place = json_integer_value(at);

        if (!json_is_integer(at) || place <= before || place > INT_MAX)
            merak_plan_fail_field(r, "cut", value, expected);
        before = place;
        file->cut[i] = (int)place;
    }
    file->plan.cut = file->cut;
}

void merak_plan_read_drop(struct merak_plan_reader *r, const json_t *in,
                          struct merak_plan_file *file)
{
    const json_t *value = json_object_get(in, "drop"), *at;
    size_t n = (size_t)merak_plan_parts(&file->plan), i;
    char expected[64];

    if (r->rc != MERAK_OK || json_is_null(value))
        return;
    snprintf(expected, sizeof(expected), "%zu objects", n);
    file->drop =
        list_create(r, "drop", value, n, sizeof(*file->drop), expected);
    if (file->drop == NULL)
        return;
    json_array_foreach(value, i, at)
    {
        struct merak_drop *drop = &file->drop[i];

        drop->attention = merak_plan_read_bool(r, at, "attention");
        drop->blocks =
            (int)merak_plan_read_integer(r, at, "blocks", 0, INT_MAX);
        if (json_object_get(at, "again") != NULL)
            drop->again = (int)merak_plan_read_integer(
                r, at, "again", 1, drop->attention ? 1 : drop->blocks);
    }
    file->plan.drop = file->drop;
}

/* Degrees are those of the list, whose ranks follow one another. */
static void check_beside(struct merak_plan_reader *r, const json_t *in)
{
    static const char *const degree[] = {"tp", "dp", "cp", "ep"};
    const json_t *order = json_object_get(in, "order");
    const char *text = json_string_value(order);

    for (size_t i = 0; i < sizeof(degree) / sizeof(*degree); i++) {
        const json_t *value = json_object_get(in, degree[i]);

        if (value != NULL && json_integer_value(value) != 1)
            merak_plan_fail_field(r, degree[i], value, "1 beside meshes");
    }
    if (text == NULL || strcmp(text, "tp-dp-pp") != 0)
        merak_plan_fail_field(r, "order", order, "tp-dp-pp beside meshes");
}

void merak_plan_read_meshes(struct merak_plan_reader *r, const json_t *in,
                            struct merak_plan_file *file)
{
    const json_t *value = json_object_get(in, "meshes"), *at;
    struct merak_plan *p = &file->plan;
    size_t n = (size_t)p->pp, i;
    char expected[64];

    if (r->rc != MERAK_OK)
        return;
    snprintf(expected, sizeof(expected), "%zu objects of unlike degrees", n);
    file->stage =
        list_create(r, "meshes", value, n, sizeof(*file->stage), expected);
    if (file->stage == NULL)
        return;
    json_array_foreach(value, i, at)
    {
        file->stage[i].dp = (int)merak_plan_read_integer(r, at, "dp", 1, 65535);
        file->stage[i].tp = (int)merak_plan_read_integer(r, at, "tp", 1, 65535);
    }
    check_beside(r, in);
    if (r->rc == MERAK_OK)
        r->rc = merak_plan_set_stages(p, file->stage, p->pp, r->err);
    if (r->rc == MERAK_OK && p->stage == NULL)
        merak_plan_fail_field(r, "meshes", value, expected);
}
