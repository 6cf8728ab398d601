/* SPDX-License-Identifier: Apache-2.0 */
/* vectors.c - reading tests/vectors/ */
#include "config.h"

#include "unit/vectors.h"

#include "unit/near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes not read yet. */
struct input {
    const char *file;
    const unsigned char *at, *end;
};

static void take(struct input *in, void *to, size_t n)
{
    if ((size_t)(in->end - in->at) < n)
        fail_msg("%s: ends early", in->file);
    memcpy(to, in->at, n);
    in->at += n;
}

/* The tests run on little-endian machines alone, as Merak does. */
static uint32_t take_int(struct input *in, size_t bytes)
{
    uint32_t x = 0;

    take(in, &x, bytes);
    return x;
}

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static void make_weight(struct input *in, struct vectors_record *r)
{
    double centre, width;
    uint64_t key;

    take(in, &centre, sizeof(centre));
    take(in, &width, sizeof(width));
    take(in, &key, sizeof(key));
    for (size_t i = 0; i < r->n; i++) {
        double u = (double)(mix(key + i) >> 40) / 16777216.0;

        r->f[i] = (float)(centre + width * (u - 0.5));
    }
}

static void read_record(struct input *in, struct vectors_record *r)
{
    uint32_t name = take_int(in, 2);
    size_t bytes;

    if (name >= sizeof(r->name))
        fail_msg("%s: a name of %u bytes", in->file, name);
    take(in, r->name, name);
    take(in, &r->kind, 1);
    r->shape.ndim = (int)take_int(in, 1);
    if (strchr("wfdi", r->kind) == NULL || r->shape.ndim > MERAK_MAX_DIMS)
        fail_msg("%s: %s: kind or dims unknown", in->file, r->name);
    r->n = 1;
    for (int d = 0; d < r->shape.ndim; d++) {
        r->shape.dim[d] = take_int(in, 4);
        r->n *= r->shape.dim[d];
    }
    if (r->n > 1000000)
        fail_msg("%s: %s: too large", in->file, r->name);
    bytes = r->n * (r->kind == 'd' ? 8 : 4);
    r->any = calloc(1, bytes + 1);
    assert_non_null(r->any);
    if (r->kind == 'w')
        make_weight(in, r);
    else
        take(in, r->any, bytes);
}

static size_t read_file(const char *file, unsigned char **bytes_p)
{
    const size_t max = 1024 * 1024;
    char path[1024];
    size_t n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/vectors/%s", TEST_SRCDIR, file);
    f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open %s", path);
    *bytes_p = malloc(max);
    assert_non_null(*bytes_p);
    n = fread(*bytes_p, 1, max, f);
    fclose(f);
    return n;
}

struct vectors *vectors_load(const char *file)
{
    struct vectors *v = calloc(1, sizeof(*v));
    struct input in = {.file = file};
    unsigned char *bytes;
    char magic[8];
    size_t n;

    assert_non_null(v);
    n = read_file(file, &bytes);
    in.at = bytes;
    in.end = bytes + n;
    take(&in, magic, sizeof(magic));
    assert_memory_equal(magic, "MRKVEC01", sizeof(magic));
    v->n = take_int(&in, 4);
    assert_in_range(v->n, 1, 10000);
    v->record = calloc(v->n, sizeof(*v->record));
    assert_non_null(v->record);
    for (size_t i = 0; i < v->n; i++)
        read_record(&in, &v->record[i]);
    if (in.at != in.end)
        fail_msg("%s: bytes after the last record", file);
    free(bytes);
    return v;
}

void vectors_free(struct vectors *v)
{
    if (v == NULL)
        return;
    for (size_t i = 0; i < v->n; i++)
        free(v->record[i].any);
    free(v->record);
    free(v);
}

const struct vectors_record *vectors_find(const struct vectors *v,
                                          const char *prefix, const char *name,
                                          char kind)
{
    size_t n = strlen(prefix);

    for (size_t i = 0; i < v->n; i++) {
        const struct vectors_record *r = &v->record[i];

        if (strncmp(r->name, prefix, n) != 0 || strcmp(r->name + n, name) != 0)
            continue;
        if (r->kind != kind && !(r->kind == 'w' && kind == 'f'))
            fail_msg("%s%s is of kind %c, not %c", prefix, name, r->kind, kind);
        return r;
    }
    fail_msg("no record %s%s", prefix, name);
    return NULL;
}
