/* SPDX-License-Identifier: Apache-2.0 */
/* array_box.c - the numbers of a box of an array
 *
 * A box is runs of elements that follow each other in the file, of the
 * innermost dims that it has whole and the one before them.
 */
#include "config.h"

#include "io/samples/array.h"

#include "base/error.h"
#include "base/half.h"
#include "io/file.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 16384  /* read at a time, on the stack, */
#define CHUNK_NUMBERS 2048 /* and converted */

static double of_16(enum merak_element type, uint16_t bits)
{
    return type == MERAK_ELEMENT_F16   ? (double)merak_f16_to_f32(bits)
           : type == MERAK_ELEMENT_I16 ? (double)(int16_t)bits
                                       : (double)bits;
}

static double of_32(enum merak_element type, uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return type == MERAK_ELEMENT_F32   ? (double)f
           : type == MERAK_ELEMENT_I32 ? (double)(int32_t)bits
                                       : (double)bits;
}

static double of_64(enum merak_element type, uint64_t bits)
{
    double f;

    memcpy(&f, &bits, sizeof(f));
    return type == MERAK_ELEMENT_F64   ? f
           : type == MERAK_ELEMENT_I64 ? (double)(int64_t)bits
                                       : (double)bits;
}

static double load_element(enum merak_element type, bool big_endian,
                           const unsigned char *p)
{
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;

    switch (merak_element_bytes(type)) {
    case 1:
        return type == MERAK_ELEMENT_I8 ? (int8_t)p[0] : p[0];
    case 2:
        memcpy(&v16, p, sizeof(v16));
        return of_16(type, big_endian ? be16toh(v16) : le16toh(v16));
    case 4:
        memcpy(&v32, p, sizeof(v32));
        return of_32(type, big_endian ? be32toh(v32) : le32toh(v32));
    default:
        memcpy(&v64, p, sizeof(v64));
        return of_64(type, big_endian ? be64toh(v64) : le64toh(v64));
    }
}

struct taker {
    merak_numbers_fn take;
    void *arg;
};

/* Hand over n elements that are in memory. */
static enum merak_status convert(const struct taker *to,
                                 enum merak_element type, bool big_endian,
                                 const unsigned char *from, size_t n,
                                 struct merak_error *err)
{
    size_t item = merak_element_bytes(type);
    double x[CHUNK_NUMBERS];
    enum merak_status rc = MERAK_OK;

    for (size_t done = 0; done < n && rc == MERAK_OK;) {
        size_t part = n - done < CHUNK_NUMBERS ? n - done : CHUNK_NUMBERS;

        for (size_t i = 0; i < part; i++)
            x[i] = load_element(type, big_endian, from + (done + i) * item);
        rc = to->take(to->arg, x, part, err);
        done += part;
    }
    return rc;
}

/* Hand over a run: n elements from the array's number `first` on. */
static enum merak_status read_run(const struct merak_array *array,
                                  const struct taker *to, size_t first,
                                  size_t n, struct merak_error *err)
{
    size_t item = merak_element_bytes(array->type), most = CHUNK_BYTES / item;
    uint64_t at = array->begin + (uint64_t)first * item;
    unsigned char chunk[CHUNK_BYTES];
    enum merak_status rc = MERAK_OK;

    if (array->memory != NULL)
        return convert(to, array->type, array->big_endian, array->memory + at,
                       n, err);
    while (n > 0 && rc == MERAK_OK) {
        size_t part = n < most ? n : most;

        rc = merak_file_read(array->fd, array->path, chunk, part * item, at,
                             err);
        if (rc == MERAK_OK)
            rc = convert(to, array->type, array->big_endian, chunk, part, err);
        at += part * item;
        n -= part;
    }
    return rc;
}

static enum merak_status read_h5(const struct merak_array *array,
                                 const size_t *lo, const size_t *len,
                                 const struct taker *to,
                                 struct merak_error *err)
{
    unsigned char *raw = NULL;
    enum merak_element type;
    size_t count = 1;
    enum merak_status rc =
        merak_h5_array_read(array, lo, len, &type, &raw, err);

    for (int d = 0; d < array->shape.ndim; d++)
        count *= len[d];
    if (rc == MERAK_OK)
        rc = convert(to, type, __BYTE_ORDER == __BIG_ENDIAN, raw, count, err);
    free(raw);
    return rc;
}

enum merak_status merak_array_read_box(const struct merak_array *array,
                                       const size_t *lo, const size_t *len,
                                       merak_numbers_fn take, void *arg,
                                       struct merak_error *err)
{
    const struct taker to = {take, arg};
    const size_t *dim = array->shape.dim;
    size_t run = 1, runs = 1;
    int d = array->shape.ndim - 1;
    enum merak_status rc = MERAK_OK;

    if (array->list != NULL)
        return merak_array_list_read(array, lo, len, take, arg, err);
    if (array->h5 != NULL)
        return read_h5(array, lo, len, &to, err);
    for (; d > 0 && len[d] == dim[d]; d--)
        run *= len[d];
    run *= len[d];
    for (int o = 0; o < d; o++)
        runs *= len[o];
    for (size_t r = 0; r < runs && rc == MERAK_OK; r++) {
        size_t rest = r, first = 0, stride = 1;

        for (int x = array->shape.ndim - 1; x >= 0; stride *= dim[x--]) {
            size_t i = x < d ? rest % len[x] : 0;

            rest = x < d ? rest / len[x] : rest;
            first += (lo[x] + i) * stride;
        }
        rc = read_run(array, &to, first, run, err);
    }
    return rc;
}

void merak_array_warn_of_chunks(const struct merak_array *array,
                                const size_t *lo, const size_t *len)
{
    if (array->list != NULL) {
        array = merak_array_list_opened(array->list, *lo++);
        len++;
    }
    if (array != NULL && array->h5 != NULL)
        merak_h5_array_warn(array, lo, len);
}

/* Where numbers go that are all wanted. */
struct store {
    double *out;
};

static enum merak_status store(void *arg, const double *x, size_t n,
                               struct merak_error *err)
{
    struct store *to = arg;

    (void)err;
    memcpy(to->out, x, n * sizeof(*x));
    to->out += n;
    return MERAK_OK;
}

enum merak_status merak_array_read(const struct merak_array *array,
                                   size_t first, size_t n, double *out,
                                   struct merak_error *err)
{
    size_t lo[MERAK_MAX_DIMS] = {first}, len[MERAK_MAX_DIMS] = {n};
    struct store to = {out};

    for (int d = 1; d < array->shape.ndim; d++)
        len[d] = array->shape.dim[d];
    return merak_array_read_box(array, lo, len, store, &to, err);
}
