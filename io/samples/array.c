/* SPDX-License-Identifier: Apache-2.0 */
/* array.c - arrays of numbers in files */
#include "config.h"

#include "io/samples/array.h"

#include "base/error.h"
#include "base/half.h"
#include "base/size.h"
#include "io/file.h"
#include "io/tokens/inflow.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES ((size_t)64 << 10) /* more than a header takes */
#define CHUNK_BYTES 16384             /* converted at a time, on the stack */

static const struct {
    const char *name;
    size_t bytes;
} elements[] = {
    [MERAK_ELEMENT_U8] = {"u8", 1},   [MERAK_ELEMENT_I8] = {"i8", 1},
    [MERAK_ELEMENT_U16] = {"u16", 2}, [MERAK_ELEMENT_I16] = {"i16", 2},
    [MERAK_ELEMENT_U32] = {"u32", 4}, [MERAK_ELEMENT_I32] = {"i32", 4},
    [MERAK_ELEMENT_U64] = {"u64", 8}, [MERAK_ELEMENT_I64] = {"i64", 8},
    [MERAK_ELEMENT_F16] = {"f16", 2}, [MERAK_ELEMENT_F32] = {"f32", 4},
    [MERAK_ELEMENT_F64] = {"f64", 8},
};

const char *merak_element_name(enum merak_element type)
{
    return elements[type].name;
}

size_t merak_element_bytes(enum merak_element type)
{
    return elements[type].bytes;
}

bool merak_element_is_float(enum merak_element type)
{
    return type >= MERAK_ELEMENT_F16;
}

/* --- opening --------------------------------------------------------------
 */

/* All bytes of a compressed file. */
static enum merak_status unpack(struct merak_array *array,
                                struct merak_inflow *in,
                                struct merak_error *err)
{
    size_t room = 0, got = 1;
    enum merak_status rc = MERAK_OK;

    while (rc == MERAK_OK && got > 0) {
        if (array->bytes == room) {
            size_t more = room == 0 ? HEAD_BYTES : 2 * room;
            unsigned char *grown = realloc(array->memory, more);

            if (grown == NULL)
                return merak_fail_nomem(err, more);
            array->memory = grown;
            room = more;
        }
        rc = merak_inflow_read(in, array->memory + array->bytes,
                               room - array->bytes, &got, err);
        array->bytes += rc == MERAK_OK ? got : 0;
    }
    return rc;
}

static enum merak_status unpack_if_compressed(struct merak_array *array,
                                              struct merak_error *err)
{
    struct merak_inflow *in = NULL;
    enum merak_status rc = merak_inflow_open(array->fd, array->path, &in, err);

    if (rc == MERAK_OK && merak_inflow_is_compressed(in)) {
        rc = unpack(array, in, err);
        close(array->fd);
        array->fd = -1;
    }
    merak_inflow_close(in);
    return rc;
}

/* The elements that the header says there are. */
static enum merak_status check_size(struct merak_array *array, uint64_t bytes,
                                    struct merak_error *err)
{
    size_t need = merak_element_bytes(array->type);

    array->row = 1;
    for (int d = 0; d < array->shape.ndim; d++) {
        if (!merak_size_mul(need, array->shape.dim[d], &need))
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s: dims of too many elements to count",
                              array->path);
        if (d > 0)
            array->row *= array->shape.dim[d];
    }
    if (need == 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: an array without elements", array->path);
    if (array->h5 == NULL && array->begin + need != bytes)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s has %llu bytes, expected %llu by its header: it "
                          "is cut off, or is not what its first bytes say",
                          array->path, (unsigned long long)bytes,
                          (unsigned long long)(array->begin + need));
    return MERAK_OK;
}

static enum merak_status read_head(struct merak_array *array,
                                   const unsigned char *head, size_t n,
                                   const char *set, struct merak_error *err)
{
    if (n >= 10 && memcmp(head, "\x93NUMPY", 6) == 0)
        return merak_array_npy(array, head, n, err);
    if (n >= 4 && head[0] == 0 && head[1] == 0)
        return merak_array_idx(array, head, n, err);
    if (n >= 8 && memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0 && array->fd >= 0)
        return merak_h5_array_open(array, set, err);
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "%s is not an array: expected a file of idx (as MNIST "
                      "has them), npy or HDF5, the first two also compressed",
                      array->path);
}

static enum merak_status open_array(struct merak_array *array, const char *set,
                                    struct merak_error *err)
{
    unsigned char *head = NULL;
    uint64_t bytes;
    size_t n;
    enum merak_status rc =
        merak_file_open(array->path, &array->fd, &bytes, err);

    if (rc == MERAK_OK)
        rc = unpack_if_compressed(array, err);
    if (rc != MERAK_OK)
        return rc;
    if (array->memory != NULL) {
        rc = read_head(array, array->memory, array->bytes, set, err);
        return rc == MERAK_OK ? check_size(array, array->bytes, err) : rc;
    }
    n = bytes < HEAD_BYTES ? (size_t)bytes : HEAD_BYTES;
    head = malloc(n + 1);
    if (head == NULL)
        return merak_fail_nomem(err, n);
    rc = merak_file_read(array->fd, array->path, head, n, 0, err);
    if (rc == MERAK_OK)
        rc = read_head(array, head, n, set, err);
    free(head);
    return rc == MERAK_OK ? check_size(array, bytes, err) : rc;
}

enum merak_status merak_array_open(const char *path, const char *set,
                                   struct merak_array *array,
                                   struct merak_error *err)
{
    enum merak_status rc;

    *array = (struct merak_array){.fd = -1, .path = strdup(path)};
    if (array->path == NULL)
        return merak_fail_nomem(err, strlen(path));
    rc = open_array(array, set, err);
    if (rc != MERAK_OK)
        merak_array_close(array);
    return rc;
}

void merak_array_close(struct merak_array *array)
{
    int saved = errno;

    merak_h5_array_close(array->h5);
    if (array->fd >= 0)
        close(array->fd);
    free(array->memory);
    free(array->path);
    *array = (struct merak_array){.fd = -1};
    errno = saved;
}

/* --- reading --------------------------------------------------------------
 */

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

static double load_element(const struct merak_array *a, const unsigned char *p)
{
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;

    switch (merak_element_bytes(a->type)) {
    case 1:
        return a->type == MERAK_ELEMENT_I8 ? (int8_t)p[0] : p[0];
    case 2:
        memcpy(&v16, p, sizeof(v16));
        return of_16(a->type, a->big_endian ? be16toh(v16) : le16toh(v16));
    case 4:
        memcpy(&v32, p, sizeof(v32));
        return of_32(a->type, a->big_endian ? be32toh(v32) : le32toh(v32));
    default:
        memcpy(&v64, p, sizeof(v64));
        return of_64(a->type, a->big_endian ? be64toh(v64) : le64toh(v64));
    }
}

enum merak_status merak_array_read(const struct merak_array *array,
                                   size_t first, size_t n, double *out,
                                   struct merak_error *err)
{
    size_t item = merak_element_bytes(array->type), count = n * array->row;
    uint64_t at = array->begin + (uint64_t)first * array->row * item;
    unsigned char chunk[CHUNK_BYTES];

    if (array->h5 != NULL)
        return merak_h5_array_read(array, first, n, out, err);
    for (size_t done = 0; done < count;) {
        size_t part = count - done < sizeof(chunk) / item
                          ? count - done
                          : sizeof(chunk) / item;
        const unsigned char *from = chunk;
        enum merak_status rc = MERAK_OK;

        if (array->memory != NULL)
            from = array->memory + at;
        else
            rc = merak_file_read(array->fd, array->path, chunk, part * item, at,
                                 err);
        if (rc != MERAK_OK)
            return rc;
        for (size_t i = 0; i < part; i++)
            out[done + i] = load_element(array, from + i * item);
        done += part;
        at += part * item;
    }
    return MERAK_OK;
}
