/* SPDX-License-Identifier: Apache-2.0 */
/* array.c - arrays of numbers in files */
#include "config.h"

#include "io/samples/array.h"

#include "base/error.h"
#include "base/size.h"
#include "io/file.h"
#include "io/tokens/inflow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES ((size_t)64 << 10) /* more than a header takes */

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
    if (array->h5 == NULL && (array->begin + need > bytes ||
                              (!array->within && array->begin + need < bytes)))
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

    merak_array_list_close(array->list);
    merak_h5_array_close(array->h5);
    if (array->fd >= 0)
        close(array->fd);
    free(array->memory);
    free(array->path);
    *array = (struct merak_array){.fd = -1};
    errno = saved;
}
