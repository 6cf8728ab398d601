/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c - headers of idx and npy files
 *
 * idx, big-endian: two zero bytes, a byte for the type (8 u8, 9 i8, 11 i16,
 * 12 i32, 13 f32, 14 f64), one for the number of dims, each dim as u32, then
 * the elements, row-major.  LeCun, Cortes and Burges have MNIST in it.
 *
 * npy: "\x93NUMPY", major and minor version, the header's length (u16, from
 * version 2 on u32), the header, the text of a dictionary of Python with
 * 'descr' (byte order, kind, bytes: '<f4'), 'fortran_order' and 'shape', then
 * the elements.  numpy.lib.format describes it.
 */
#include "config.h"

#include "io/samples/array.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t big_32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

enum merak_status merak_array_idx(struct merak_array *array,
                                  const unsigned char *head, size_t n,
                                  struct merak_error *err)
{
    static const struct {
        unsigned char code;
        enum merak_element type;
    } types[] = {
        {8, MERAK_ELEMENT_U8},   {9, MERAK_ELEMENT_I8},
        {11, MERAK_ELEMENT_I16}, {12, MERAK_ELEMENT_I32},
        {13, MERAK_ELEMENT_F32}, {14, MERAK_ELEMENT_F64},
    };
    size_t dims = head[3], k = 0;

    while (k < sizeof(types) / sizeof(*types) && types[k].code != head[2])
        k++;
    if (k == sizeof(types) / sizeof(*types) || dims == 0 ||
        dims > MERAK_MAX_DIMS)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s begins as an idx file of type %d with %zu dims, "
                          "expected type 8, 9 or 11 to 14 and 1 to %d dims",
                          array->path, head[2], dims, MERAK_MAX_DIMS);
    if (n < 4 + 4 * dims)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s ends within its header of %zu bytes", array->path,
                          4 + 4 * dims);
    array->type = types[k].type;
    array->big_endian = true;
    array->shape.ndim = (int)dims;
    for (size_t d = 0; d < dims; d++)
        array->shape.dim[d] = big_32(head + 4 + 4 * d);
    array->begin = 4 + 4 * dims;
    return MERAK_OK;
}

/* --- npy ------------------------------------------------------------------
 */

/* What follows 'key': in the text of a dictionary, or NULL. */
static const char *find_key(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    if (at == NULL)
        return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at != ':')
        return NULL;
    return at + 1 + strspn(at + 1, " ");
}

static bool parse_descr(struct merak_array *array, const char *descr)
{
    static const struct {
        const char *name;
        enum merak_element type;
    } types[] = {
        {"u1", MERAK_ELEMENT_U8},  {"b1", MERAK_ELEMENT_U8},
        {"i1", MERAK_ELEMENT_I8},  {"u2", MERAK_ELEMENT_U16},
        {"i2", MERAK_ELEMENT_I16}, {"u4", MERAK_ELEMENT_U32},
        {"i4", MERAK_ELEMENT_I32}, {"u8", MERAK_ELEMENT_U64},
        {"i8", MERAK_ELEMENT_I64}, {"f2", MERAK_ELEMENT_F16},
        {"f4", MERAK_ELEMENT_F32}, {"f8", MERAK_ELEMENT_F64},
    };

    if (descr == NULL || descr[0] != '\'' || descr[1] == '\0' ||
        strchr("<>|", descr[1]) == NULL)
        return false;
    array->big_endian = descr[1] == '>';
    for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++) {
        if (strncmp(descr + 2, types[k].name, 2) == 0 && descr[4] == '\'') {
            array->type = types[k].type;
            return true;
        }
    }
    return false;
}

/* "(3, 4)", "(3,)" */
static bool parse_shape(struct merak_array *array, const char *text)
{
    struct merak_shape *shape = &array->shape;
    char *end;

    shape->ndim = 0;
    if (text == NULL || *text++ != '(')
        return false;
    while (*text != ')') {
        text += strspn(text, " ");
        if (*text < '0' || *text > '9' || shape->ndim == MERAK_MAX_DIMS)
            return false;
        shape->dim[shape->ndim++] = strtoull(text, &end, 10);
        text = end + strspn(end, " ");
        if (*text == ',')
            text += 1 + strspn(text + 1, " ");
        else if (*text != ')')
            return false;
    }
    return shape->ndim > 0;
}

static enum merak_status parse_npy(struct merak_array *array, const char *text,
                                   struct merak_error *err)
{
    const char *order = find_key(text, "'fortran_order'");

    if (!parse_descr(array, find_key(text, "'descr'")) ||
        !parse_shape(array, find_key(text, "'shape'")))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: header \"%.120s\": expected integers or floats "
                          "of up to 8 bytes, with 1 to %d dims",
                          array->path, text, MERAK_MAX_DIMS);
    if (order == NULL || strncmp(order, "False", 5) != 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s is in Fortran's order: save "
                          "numpy.ascontiguousarray() of it",
                          array->path);
    return MERAK_OK;
}

enum merak_status merak_array_npy(struct merak_array *array,
                                  const unsigned char *head, size_t n,
                                  struct merak_error *err)
{
    size_t at = head[6] < 2 ? 10 : 12, bytes;
    enum merak_status rc;
    char *text;

    if (n < at)
        return merak_fail(err, MERAK_ERR_CORRUPT, "%s ends within its header",
                          array->path);
    bytes = head[8] | (size_t)head[9] << 8;
    if (at == 12)
        bytes |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    if (bytes > n - at)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s ends within its header of %zu bytes", array->path,
                          bytes);
    text = strndup((const char *)head + at, bytes);
    if (text == NULL)
        return merak_fail_nomem(err, bytes);
    rc = parse_npy(array, text, err);
    array->begin = at + bytes;
    free(text);
    return rc;
}
