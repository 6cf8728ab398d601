/* SPDX-License-Identifier: Apache-2.0 */
/* device_file.c - read device files, as device.h describes them */
#include "config.h"

#include "partitioner/device/device_file.h"

#include "base/error.h"
#include "base/open.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Range of numbers, so that the time of any kernel is finite. */
#define LEAST 1e-30
#define MOST 1e30

struct reader {
    const char *path;
    struct merak_error *err;
    enum merak_status rc;
    const json_t *object; /* the last that was found, and its name */
    const char *name;
};

/* Is it 0, or in the range in which no quotient of two overflows? */
static bool is_amount(double x)
{
    return x == 0 || (x >= LEAST && x <= MOST);
}

/* A positive number at object[name] (or zero, if `zero`). */
static double number(struct reader *r, const json_t *object, const char *name,
                     bool zero)
{
    const json_t *value = json_object_get(object, name);
    double x = json_number_value(value);
    char is[32] = "missing", range[48] = "";

    if (r->rc != MERAK_OK ||
        (json_is_number(value) && is_amount(x) && (x > 0 || zero)))
        return x;
    if (json_is_number(value))
        snprintf(is, sizeof(is), "%g", x);
    else if (value != NULL)
        snprintf(is, sizeof(is), "of another kind");
    if (x > 0)
        snprintf(range, sizeof(range), ", %s%g to %g", zero ? "0 or " : "",
                 LEAST, MOST);
    r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                       "%s: field \"%s\"%s%s is %s; expected a number %s%s",
                       r->path, name, object == r->object ? " of " : "",
                       object == r->object ? r->name : "", is,
                       zero ? "not below 0" : "above 0", range);
    return 0;
}

/* A whole number from `least` on; `what` says which. */
static int whole(struct reader *r, const json_t *in, const char *name,
                 const char *what, int least)
{
    const int most = 65535;
    double x = number(r, in, name, false);

    if (r->rc == MERAK_OK && (x < least || x > most || x != floor(x)))
        r->rc =
            merak_fail(r->err, MERAK_ERR_FORMAT,
                       "%s: %s is %g; expected a whole number from %d to %d",
                       r->path, what, x, least, most);
    return r->rc == MERAK_OK ? (int)x : least;
}

/* Fields of the file and of its objects; each list ends with NULL. */
static const char *const device_fields[] = {"name",
                                            "ranks_per_node",
                                            "memory_bytes",
                                            "peak_flops_per_s",
                                            "notes",
                                            "flops_per_s",
                                            "bytes_per_s",
                                            "kernel_s",
                                            "link",
                                            "net",
                                            "levels",
                                            "host",
                                            "beside",
                                            "kernels",
                                            "tp_kernels",
                                            "roofline",
                                            "attention_flops_per_s",
                                            "tuned",
                                            "transport",
                                            NULL};
static const char *const dtype_fields[] = {"f32", "bf16", NULL};
static const char *const link_fields[] = {"bytes_per_s", "latency_s", "nodes",
                                          "groups", NULL};
static const char *const group_fields[] = {"ranks", "latency_s", "bytes_per_s",
                                           NULL};
static const char *const net_fields[] = {"bytes_per_s", "latency_s",
                                         "node_bytes_per_s", NULL};
static const char *const row_fields[] = {
    "name",   "ranks", "latency_s", "bytes_per_s", "way_bytes_per_s",
    "groups", NULL};
static const char *const tuned_fields[] = {"for", "choices", NULL};
static const char *const host_fields[] = {"memory_bytes", "bytes_per_s",
                                          "latency_s", NULL};
static const char *const beside_fields[] = {"latency_s", "bytes_per_s", NULL};

/* Refuse unknown fields: a misspelled one would otherwise be ignored. */
static void check_fields(struct reader *r, const json_t *in, const char *where,
                         const char *const *fields)
{
    json_t *object = (json_t *)(uintptr_t)in, *value;
    const char *name;
    char list[256];

    json_object_foreach(object, name, value)
    {
        size_t n = 0;
        int i = 0;

        while (fields[i] != NULL && strcmp(fields[i], name) != 0)
            i++;
        if (fields[i] != NULL || r->rc != MERAK_OK)
            continue;
        for (i = 0; fields[i] != NULL; i++)
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
                                  i > 0 ? ", " : "", fields[i]);
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: no field \"%.40s\"%s%s; there are %s", r->path,
                           name, where[0] != '\0' ? " of " : "", where, list);
    }
}

static const json_t *object(struct reader *r, const json_t *in,
                            const char *name, const char *const *fields)
{
    const json_t *value = json_object_get(in, name);

    if (r->rc == MERAK_OK && !json_is_object(value))
        r->rc =
            merak_fail(r->err, MERAK_ERR_FORMAT,
                       "%s: field \"%s\" is %s; expected an object", r->path,
                       name, value == NULL ? "missing" : "of another kind");
    if (fields != NULL)
        check_fields(r, value, name, fields);
    r->object = value;
    r->name = name;
    return value;
}

static void read_flops(struct reader *r, const json_t *in, const char *name,
                       double *flops)
{
    const json_t *by = object(r, in, name, dtype_fields);

    flops[MERAK_F32] = number(r, by, "f32", false);
    flops[MERAK_BF16] = number(r, by, "bf16", false);
}

/* Copy what fits, but no part of a character: invalid UTF-8 could not be
 * written again. */
static void copy_name(char *to, size_t size, const char *name)
{
    size_t n = strlen(name);

    if (n >= size) {
        n = size - 1;
        while (n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(to, name, n);
    to[n] = '\0';
}

/* A level is an object of its name. */
static const json_t *read_level(struct reader *r, const json_t *in,
                                const char *const *fields,
                                struct merak_level *level)
{
    const json_t *links = object(r, in, level->name, fields);

    level->bytes_per_s = number(r, links, "bytes_per_s", false);
    level->latency_s = number(r, links, "latency_s", true);
    return links;
}

static void read_group(struct reader *r, const json_t *in,
                       struct merak_device *d)
{
    struct merak_link_group *group = &d->links.group[d->links.n_groups];

    check_fields(r, in, "groups", group_fields);
    group->ranks = whole(r, in, "ranks", "the ranks of a group of link", 2);
    group->latency_s = number(r, in, "latency_s", true);
    group->bytes_per_s = number(r, in, "bytes_per_s", false);
    d->links.n_groups += r->rc == MERAK_OK;
}

static void read_groups(struct reader *r, const json_t *link,
                        struct merak_device *d)
{
    const json_t *groups = json_object_get(link, "groups");
    size_t n = json_array_size(groups);

    if (r->rc != MERAK_OK || groups == NULL)
        return;
    if (!json_is_array(groups) || n > MERAK_LINK_GROUPS)
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: field \"groups\" of link: expected a list of "
                           "at most %d objects",
                           r->path, MERAK_LINK_GROUPS);
    for (size_t i = 0; i < n && r->rc == MERAK_OK; i++)
        read_group(r, json_array_get(groups, i), d);
}

/* Without a "net" all ranks are on one node, or communicate as on one. */
static void read_link_and_net(struct reader *r, const json_t *in,
                              struct merak_device *d)
{
    struct merak_level *link = &d->links.level[0], *net = &d->links.level[1];
    const json_t *object;
    int nodes = 1;

    strcpy(link->name, "link");
    object = read_level(r, in, link_fields, link);
    if (json_object_get(object, "nodes") != NULL)
        nodes = whole(r, object, "nodes", "field \"nodes\" of link", 1);
    read_groups(r, object, d);
    *net =
        (struct merak_level){"net", 0, link->latency_s, link->bytes_per_s, 0};
    if (json_object_get(in, net->name) != NULL) {
        object = read_level(r, in, net_fields, net);
        if (json_object_get(object, "node_bytes_per_s") != NULL)
            link->way_bytes_per_s =
                number(r, object, "node_bytes_per_s", false);
    }
    merak_links_set_rack(&d->links, nodes);
}

/* A row of "levels"; the last one has no domains. */
static void read_row(struct reader *r, const json_t *in, bool last,
                     struct merak_level *row)
{
    const char *name = json_string_value(json_object_get(in, "name"));

    check_fields(r, in, "levels", row_fields);
    if (r->rc == MERAK_OK &&
        (name == NULL || name[0] == '\0' || strlen(name) >= sizeof(row->name)))
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: name of a level is %.40s; expected a string of "
                           "1 to %zu characters",
                           r->path, name == NULL ? "not a string" : name,
                           sizeof(row->name) - 1);
    if (r->rc != MERAK_OK)
        return;
    copy_name(row->name, sizeof(row->name), name);
    if (!last)
        row->ranks = whole(r, in, "ranks", "the ranks of a level", 1);
    else if (json_number_value(json_object_get(in, "ranks")) != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: the last of \"levels\", %s, joins all ranks; "
                           "expected \"ranks\" 0, or none",
                           r->path, name);
    row->bytes_per_s = number(r, in, "bytes_per_s", false);
    row->latency_s = number(r, in, "latency_s", true);
    if (json_object_get(in, "way_bytes_per_s") != NULL)
        row->way_bytes_per_s = number(r, in, "way_bytes_per_s", true);
}

static void read_levels(struct reader *r, const json_t *in,
                        struct merak_device *d)
{
    const json_t *rows = json_object_get(in, "levels");
    size_t n = json_array_size(rows);
    int each = d->links.level[0].ranks;

    for (int i = 0; i < 2; i++) {
        const char *other = i == 0 ? "link" : "net";

        if (r->rc == MERAK_OK && json_object_get(in, other) != NULL)
            r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                               "%s: \"levels\" and \"%s\" both given; the "
                               "first and the last of \"levels\" are what "
                               "\"link\" and \"net\" would say",
                               r->path, other);
    }
    if (r->rc == MERAK_OK && (n < 2 || n > MERAK_LEVELS))
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: field \"levels\": expected a list of 2 to %d "
                           "objects",
                           r->path, MERAK_LEVELS);
    for (size_t i = 0; i < n && r->rc == MERAK_OK; i++)
        read_row(r, json_array_get(rows, i), i + 1 == n, &d->links.level[i]);
    if (r->rc == MERAK_OK)
        read_groups(r, json_array_get(rows, 0), d);
    if (r->rc == MERAK_OK && each != d->links.level[0].ranks)
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: ranks_per_node is %d and level \"%s\", the "
                           "first, has %d ranks; expected the same",
                           r->path, each, d->links.level[0].name,
                           d->links.level[0].ranks);
    if (r->rc == MERAK_OK && merak_links_check(&d->links, r->err) != MERAK_OK) {
        merak_error_wrap(r->err, "%s", r->path);
        r->rc = r->err != NULL ? r->err->status : MERAK_ERR_FORMAT;
    }
}

static void read_links(struct reader *r, const json_t *in,
                       struct merak_device *d)
{
    if (json_object_get(in, "levels") != NULL)
        read_levels(r, in, d);
    else
        read_link_and_net(r, in, d);
}

/* Bytes of a rank. */
static size_t read_memory(struct reader *r, const json_t *in)
{
    double bytes = number(r, in, "memory_bytes", false);

    if (r->rc == MERAK_OK && (bytes < 1 || bytes > 0x1p60))
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: memory_bytes is %g; expected bytes of a rank, "
                           "1 to 2^60",
                           r->path, bytes);
    return r->rc == MERAK_OK ? (size_t)bytes : 0;
}

/* Optional. */
static void read_host(struct reader *r, const json_t *in,
                      struct merak_device *d)
{
    const json_t *host;

    if (json_object_get(in, "host") == NULL)
        return;
    host = object(r, in, "host", host_fields);
    d->host.bytes = read_memory(r, host);
    d->host.bytes_per_s = number(r, host, "bytes_per_s", false);
    d->host.latency_s = number(r, host, "latency_s", true);
}

static void read_beside(struct reader *r, const json_t *beside,
                        struct merak_device *d)
{
    check_fields(r, beside, "beside", beside_fields);
    d->interference_latency_s = number(r, beside, "latency_s", true);
    d->interference_bytes_per_s = number(r, beside, "bytes_per_s", true);
}

/* Times of kernels without a table; optional. */
static void read_roofline(struct reader *r, const json_t *in,
                          struct merak_device *d)
{
    const json_t *roofline = json_object_get(in, "roofline");
    const char *word = json_string_value(roofline);

    if (json_object_get(in, "attention_flops_per_s") != NULL)
        read_flops(r, in, "attention_flops_per_s", d->attention_flops_per_s);
    if (roofline == NULL || r->rc != MERAK_OK)
        return;
    d->sums_roofline = word != NULL && strcmp(word, "sum") == 0;
    if (!d->sums_roofline && (word == NULL || strcmp(word, "max") != 0))
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: field \"roofline\" is %.40s; expected \"max\" "
                           "or \"sum\"",
                           r->path, word == NULL ? "not a string" : word);
}

bool merak_device_is_direct_by_name(const struct merak_device *device)
{
    return strncmp(device->name, "cuda,", 5) == 0;
}

static void read_transport(struct reader *r, const json_t *in,
                           struct merak_device *d)
{
    const json_t *transport = json_object_get(in, "transport");
    const char *word = json_string_value(transport);

    d->direct = word != NULL ? strcmp(word, "nccl") == 0
                             : merak_device_is_direct_by_name(d);
    if (transport != NULL && r->rc == MERAK_OK && !d->direct &&
        (word == NULL || strcmp(word, "ucx") != 0))
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: field \"transport\" is %.40s; expected "
                           "\"nccl\" or \"ucx\"",
                           r->path, word == NULL ? "not a string" : word);
}

/* --- kernels -------------------------------------------------------------- */

static void read_point(struct reader *r, const char *op, const json_t *in,
                       struct merak_rates *rates)
{
    double x[5] = {0};
    size_t n = json_array_size(in);
    bool well = true;

    for (size_t i = 0; i < n && i < 5; i++) {
        const json_t *value = json_array_get(in, i);

        x[i] = json_number_value(value);
        well = well && json_is_number(value) && is_amount(x[i]);
    }
    if (!well || x[2] == 0 || x[0] + x[1] <= 0 || n < 3 || n > 5)
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: kernel %.40s: expected points of three to "
                           "five numbers, FLOPs, bytes, seconds, width and "
                           "reuse distance, up to %g",
                           r->path, op, MOST);
    else if (!merak_rates_add(
                 rates, op,
                 &(struct merak_rate_point){{x[0], x[1], x[3], x[4]}, x[2]}))
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: kernel %.40s: more than %d kernels, or %d "
                           "sizes of this one",
                           r->path, op, MERAK_RATE_OPS, MERAK_RATE_POINTS);
}

static void read_kernels(struct reader *r, const json_t *in, const char *dtype,
                         struct merak_rates **rates_p)
{
    json_t *of = (json_t *)(uintptr_t)object(r, in, dtype, NULL), *points;
    const char *op;

    if (r->rc != MERAK_OK)
        return;
    *rates_p = calloc(1, sizeof(**rates_p));
    if (*rates_p == NULL) {
        r->rc = merak_fail_nomem(r->err, sizeof(**rates_p));
        return;
    }
    json_object_foreach(of, op, points)
    {
        if (!json_is_array(points) && r->rc == MERAK_OK)
            r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                               "%s: kernel %.40s: expected a list of points",
                               r->path, op);
        for (size_t i = 0; i < json_array_size(points) && r->rc == MERAK_OK;
             i++)
            read_point(r, op, json_array_get(points, i), *rates_p);
    }
}

static void read_tables(struct reader *r, const json_t *in, const char *name,
                        struct merak_rates **rates)
{
    const json_t *kernels;

    if (json_object_get(in, name) == NULL)
        return;
    kernels = object(r, in, name, dtype_fields);
    read_kernels(r, kernels, "f32", &rates[MERAK_F32]);
    read_kernels(r, kernels, "bf16", &rates[MERAK_BF16]);
}

/* --- tuned choices ----------------------------------------------------------
 */

static void read_tuned(struct reader *r, const json_t *in,
                       struct merak_device *d)
{
    const json_t *tuned, *choices, *line;
    const char *for_what;
    size_t i;

    if (json_object_get(in, "tuned") == NULL || r->rc != MERAK_OK)
        return;
    tuned = object(r, in, "tuned", tuned_fields);
    for_what = json_string_value(json_object_get(tuned, "for"));
    choices = json_object_get(tuned, "choices");
    if (r->rc == MERAK_OK && (for_what == NULL || !json_is_array(choices)))
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "%s: field \"tuned\": expected \"for\", a string, "
                           "and \"choices\", a list of strings",
                           r->path);
    if (r->rc != MERAK_OK)
        return;
    d->tuned_for = strdup(for_what);
    if (d->tuned_for == NULL)
        r->rc = merak_fail_nomem(r->err, strlen(for_what));
    json_array_foreach(choices, i, line)
    {
        if (r->rc == MERAK_OK && !json_is_string(line))
            r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                               "%s: choice %zu of \"tuned\" is not a string",
                               r->path, i);
        if (r->rc == MERAK_OK)
            r->rc = merak_device_add_tuned(d, json_string_value(line), r->err);
    }
}

/* --- the file ------------------------------------------------------------- */

static void read_device(struct reader *r, const json_t *in,
                        struct merak_device *d)
{
    const char *name = json_string_value(json_object_get(in, "name"));

    check_fields(r, in, "", device_fields);
    if (name == NULL || name[0] == '\0')
        name = "file";
    copy_name(d->name, sizeof(d->name), name);
    d->links.level[0].ranks =
        whole(r, in, "ranks_per_node", "ranks_per_node", 1);
    d->memory_bytes = read_memory(r, in);
    read_flops(r, in, "flops_per_s", d->flops_per_s);
    if (json_object_get(in, "peak_flops_per_s") != NULL)
        read_flops(r, in, "peak_flops_per_s", d->peak_flops_per_s);
    d->bytes_per_s = number(r, in, "bytes_per_s", false);
    d->kernel_s = number(r, in, "kernel_s", true);
    read_links(r, in, d);
    read_roofline(r, in, d);
    read_host(r, in, d);
    if (json_object_get(in, "beside") != NULL)
        read_beside(r, object(r, in, "beside", NULL), d);
    read_tables(r, in, "kernels", d->rates);
    read_tables(r, in, "tp_kernels", d->tp_rates);
    read_tuned(r, in, d);
    read_transport(r, in, d);
}

enum merak_status merak_device_load(const char *path,
                                    struct merak_device *device,
                                    struct merak_error *err)
{
    struct reader r = {.path = path, .err = err};
    struct merak_device d = {0};
    json_error_t why;
    json_t *in;
    FILE *file;
    const char *closed = merak_fopen_regular(path, &file);

    if (closed != NULL)
        return merak_fail(err, MERAK_ERR_FORMAT, "device file %s: %s", path,
                          closed);
    in = json_loadf(file, JSON_REJECT_DUPLICATES, &why);
    fclose(file);
    if (in == NULL)
        return merak_fail(err, MERAK_ERR_FORMAT, "device file %s: %s (line %d)",
                          path, why.text, why.line);
    read_device(&r, in, &d);
    json_decref(in);
    if (r.rc == MERAK_OK) {
        merak_device_check_ops(path, &d);
        *device = d;
    } else {
        merak_device_fini(&d);
    }
    return r.rc;
}
