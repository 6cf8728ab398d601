/* SPDX-License-Identifier: Apache-2.0 */
/* device_save.c - write device files, as device.h describes them */
#include "config.h"

#include "partitioner/device/device_file.h"

#include "base/error.h"
#include "base/output.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static json_t *flops_object(const double *flops)
{
    return json_pack("{s:f, s:f}", "f32", flops[MERAK_F32], "bf16",
                     flops[MERAK_BF16]);
}

static json_t *kernels_object(const struct merak_rates *rates)
{
    json_t *of = json_object();

    for (int i = 0; rates != NULL && i < rates->n; i++) {
        const struct merak_op_rates *r = &rates->op[i];
        json_t *points = json_array();

        for (int k = 0; k < r->n; k++)
            json_array_append_new(
                points,
                json_pack("[f, f, f, f, f]", r->point[k].size.flops,
                          r->point[k].size.bytes, r->point[k].seconds,
                          r->point[k].size.width, r->point[k].size.reuse));
        json_object_set_new(of, r->op, points);
    }
    return of;
}

static void put_tables(json_t *out, const char *name,
                       struct merak_rates *const *rates)
{
    if (rates[MERAK_F32] == NULL && rates[MERAK_BF16] == NULL)
        return;
    json_object_set_new(out, name,
                        json_pack("{s:o, s:o}", "f32",
                                  kernels_object(rates[MERAK_F32]), "bf16",
                                  kernels_object(rates[MERAK_BF16])));
}

static void put_tuned(json_t *out, const struct merak_device *device)
{
    json_t *choices;

    if (device->tuned_for == NULL)
        return;
    choices = json_array();
    for (int i = 0; i < device->n_tuned; i++)
        json_array_append_new(choices, json_string(device->tuned[i]));
    json_object_set_new(
        out, "tuned",
        json_pack("{s:s, s:o}", "for", device->tuned_for, "choices", choices));
}

static json_t *level_object(const struct merak_level *level)
{
    return json_pack("{s:f, s:f}", "bytes_per_s", level->bytes_per_s,
                     "latency_s", level->latency_s);
}

static void put_groups(json_t *link, const struct merak_links *links)
{
    json_t *groups = json_array();

    for (int i = 0; i < links->n_groups; i++)
        json_array_append_new(
            groups, json_pack("{s:i, s:f, s:f}", "ranks", links->group[i].ranks,
                              "latency_s", links->group[i].latency_s,
                              "bytes_per_s", links->group[i].bytes_per_s));
    json_object_set_new(link, "groups", groups);
}

static void put_levels(json_t *out, const struct merak_links *links)
{
    json_t *rows = json_array();
    int last = merak_links_last(links);

    for (int l = 0; l <= last; l++) {
        const struct merak_level *level = &links->level[l];
        json_t *row = level_object(level);

        json_object_set_new(row, "name", json_string(level->name));
        json_object_set_new(row, "ranks", json_integer(level->ranks));
        if (level->way_bytes_per_s > 0)
            json_object_set_new(row, "way_bytes_per_s",
                                json_real(level->way_bytes_per_s));
        if (l == 0 && links->n_groups > 0)
            put_groups(row, links);
        json_array_append_new(rows, row);
    }
    json_object_set_new(out, "levels", rows);
}

/* As measured levels have no names yet. */
static bool is_named(const struct merak_level *level, const char *name)
{
    return level->name[0] == '\0' || strcmp(level->name, name) == 0;
}

/* Can "link" and "net" say the same? */
static bool has_short_form(const struct merak_links *links)
{
    int last = merak_links_last(links);

    return is_named(&links->level[0], "link") &&
           is_named(&links->level[last], "net") &&
           (last == 1 || (last == 2 && merak_links_near(links) == last &&
                          links->level[0].way_bytes_per_s == 0 &&
                          is_named(&links->level[1], "rack")));
}

static void put_link_and_net(json_t *out, const struct merak_links *links)
{
    int n_near = merak_links_near(links);
    const struct merak_level *near = &links->level[n_near - 1];
    const struct merak_level *net = &links->level[merak_links_last(links)];
    json_t *link = level_object(&links->level[0]), *between = level_object(net);
    int nodes = n_near > 1 ? near->ranks / links->level[0].ranks : 1;

    if (nodes > 1)
        json_object_set_new(link, "nodes", json_integer(nodes));
    if (links->n_groups > 0)
        put_groups(link, links);
    if (near->way_bytes_per_s > 0)
        json_object_set_new(between, "node_bytes_per_s",
                            json_real(near->way_bytes_per_s / nodes));
    json_object_set_new(out, "link", link);
    json_object_set_new(out, "net", between);
}

/* Write what depends on the device. */
static void put_rest(json_t *out, const struct merak_device *device)
{
    if (device->peak_flops_per_s[MERAK_F32] > 0)
        json_object_set_new(out, "peak_flops_per_s",
                            flops_object(device->peak_flops_per_s));
    if (has_short_form(&device->links))
        put_link_and_net(out, &device->links);
    else
        put_levels(out, &device->links);
    if (device->host.bytes_per_s > 0)
        json_object_set_new(out, "host",
                            json_pack("{s:I, s:f, s:f}", "memory_bytes",
                                      (json_int_t)device->host.bytes,
                                      "bytes_per_s", device->host.bytes_per_s,
                                      "latency_s", device->host.latency_s));
    if (device->interference_latency_s > 0 ||
        device->interference_bytes_per_s > 0)
        json_object_set_new(
            out, "beside",
            json_pack("{s:f, s:f}", "latency_s", device->interference_latency_s,
                      "bytes_per_s", device->interference_bytes_per_s));
    if (device->attention_flops_per_s[MERAK_BF16] > 0)
        json_object_set_new(out, "attention_flops_per_s",
                            flops_object(device->attention_flops_per_s));
    if (device->sums_roofline)
        json_object_set_new(out, "roofline", json_string("sum"));
    put_tables(out, "kernels", device->rates);
    put_tables(out, "tp_kernels", device->tp_rates);
    put_tuned(out, device);
    if (device->direct || merak_device_is_direct_by_name(device))
        json_object_set_new(out, "transport",
                            json_string(device->direct ? "nccl" : "ucx"));
}

enum merak_status merak_device_save(const struct merak_device *device,
                                    const char *path, struct merak_error *err)
{
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(6);
    json_t *out = json_pack("{s:s, s:i, s:I, s:o, s:f, s:f}", "name",
                            device->name, "ranks_per_node",
                            device->links.level[0].ranks, "memory_bytes",
                            (json_int_t)device->memory_bytes, "flops_per_s",
                            flops_object(device->flops_per_s), "bytes_per_s",
                            device->bytes_per_s, "kernel_s", device->kernel_s);
    struct merak_output file;
    enum merak_status rc;
    bool fine;

    if (out == NULL)
        return merak_fail_nomem(err, sizeof(*device));
    put_rest(out, device);
    rc = merak_output_open(&file, path, err);
    if (rc == MERAK_OK) {
        fine = json_dumpf(out, file.file, flags) == 0;
        if (fine && file.file == stdout)
            putchar('\n');
        rc = merak_output_close(&file, fine, err);
    }
    json_decref(out);
    return rc;
}
