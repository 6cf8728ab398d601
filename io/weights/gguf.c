/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c - the pieces of a GGUF file, version 3
 *
 * All numbers are little-endian.
 *
 *   "GGUF"  u32 version 3  u64 tensors  u64 pairs
 *   pairs:   string key, u32 type, value
 *            types: 4 u32, 5 i32, 6 f32, 7 bool (a byte), 8 string, 9 array:
 *            u32 type of the elements, u64 how many, the elements
 *   tensors: string name, u32 dims, u64 each dim, the fastest first, u32 type,
 *            u64 offset from the beginning of the data
 *   zeros up to a multiple of 32, then the data; so is each tensor padded
 *
 * A string is u64 bytes, and the bytes.  A block of q8_0 is an f16 scale d and
 * 32 bytes q, signed, for numbers d q; d is the largest magnitude / 127.
 */
#include "config.h"

#include "io/weights/gguf.h"

#include "base/error.h"
#include "base/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN ((size_t)32)

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, ARRAY = 9 };
static const uint32_t list_type[] = {[MERAK_GGUF_TEXTS] = TEXT,
                                     [MERAK_GGUF_INTS] = I32,
                                     [MERAK_GGUF_REALS] = F32};

static void add(struct merak_gguf *g, const void *data, size_t n)
{
    if (!g->failed && n > g->room - g->n) {
        size_t room = 2 * (g->n + n);
        unsigned char *more = realloc(g->bytes, room);

        g->failed = more == NULL;
        if (more != NULL) {
            g->bytes = more;
            g->room = room;
        }
    }
    if (g->failed)
        return;
    memcpy(g->bytes + g->n, data, n);
    g->n += n;
}

static void add_u64(struct merak_gguf *g, uint64_t x, int bytes)
{
    unsigned char raw[8];

    for (int i = 0; i < bytes; i++)
        raw[i] = (unsigned char)(x >> (8 * i));
    add(g, raw, (size_t)bytes);
}

static void add_f32(struct merak_gguf *g, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    add_u64(g, bits, 4);
}

static void add_key(struct merak_gguf *g, const char *key, uint32_t type)
{
    merak_gguf_add_text(g, key, strlen(key));
    add_u64(g, type, 4);
    g->n_pairs++;
}

void merak_gguf_number(struct merak_gguf *g, const char *key, uint64_t x)
{
    add_key(g, key, U32);
    add_u64(g, x, 4);
}

void merak_gguf_real(struct merak_gguf *g, const char *key, double x)
{
    add_key(g, key, F32);
    add_f32(g, (float)x);
}

void merak_gguf_yes(struct merak_gguf *g, const char *key, bool x)
{
    add_key(g, key, BOOL);
    add_u64(g, x, 1);
}

void merak_gguf_text(struct merak_gguf *g, const char *key, const char *text)
{
    add_key(g, key, TEXT);
    merak_gguf_add_text(g, text, strlen(text));
}

void merak_gguf_begin(struct merak_gguf *g, const char *key,
                      enum merak_gguf_list kind, size_t n)
{
    add_key(g, key, ARRAY);
    add_u64(g, list_type[kind], 4);
    add_u64(g, n, 8);
}

void merak_gguf_add_text(struct merak_gguf *g, const char *text, size_t bytes)
{
    add_u64(g, bytes, 8);
    add(g, text, bytes);
}

void merak_gguf_add_int(struct merak_gguf *g, int32_t x)
{
    add_u64(g, (uint32_t)x, 4);
}

void merak_gguf_add_real(struct merak_gguf *g, float x)
{
    add_f32(g, x);
}

/* --- tensors ----------------------------------------------------------------
 */

static size_t elements(const struct merak_gguf_tensor *t)
{
    return t->dim[0] * (t->ndim > 1 ? t->dim[1] : 1);
}

static size_t matrices(const struct merak_gguf_tensor *t)
{
    return t->ndim > 2 ? t->stacked : 1;
}

uint64_t merak_gguf_bytes(const struct merak_gguf_tensor *tensor)
{
    uint64_t n = elements(tensor) * matrices(tensor);

    if (tensor->type == MERAK_GGUF_Q8_0)
        return n / MERAK_GGUF_BLOCK * (MERAK_GGUF_BLOCK + 2);
    return n * (tensor->type == MERAK_GGUF_F32 ? 4 : 2);
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void add_tensors(struct merak_gguf *g,
                        const struct merak_gguf_tensor *tensor, int n)
{
    uint64_t offset = 0;

    for (int i = 0; i < n; i++) {
        const struct merak_gguf_tensor *t = &tensor[i];

        merak_gguf_add_text(g, t->name, strlen(t->name));
        add_u64(g, (uint64_t)t->ndim, 4);
        for (int d = (t->ndim > 1); d >= 0; d--)
            add_u64(g, t->dim[d], 8);
        if (t->ndim > 2)
            add_u64(g, t->stacked, 8);
        add_u64(g, t->type, 4);
        add_u64(g, offset, 8);
        offset += padded(merak_gguf_bytes(t));
    }
}

enum merak_status merak_gguf_write(struct merak_gguf *g,
                                   const struct merak_gguf_tensor *tensor,
                                   int n, struct merak_float_file *file,
                                   struct merak_error *err)
{
    static const unsigned char zeros[ALIGN];
    struct merak_gguf first = {.n = 0};
    enum merak_status rc;

    add(&first, "GGUF", 4);
    add_u64(&first, 3, 4);
    add_u64(&first, (uint64_t)n, 8);
    add_u64(&first, g->n_pairs, 8);
    add_tensors(g, tensor, n);
    add(g, zeros, padded(first.n + g->n) - first.n - g->n);
    rc = first.failed || g->failed ? merak_fail_nomem(err, g->n) : MERAK_OK;
    if (rc == MERAK_OK)
        rc = merak_float_file_bytes(file, first.bytes, first.n, err);
    if (rc == MERAK_OK)
        rc = merak_float_file_bytes(file, g->bytes, g->n, err);
    free(first.bytes);
    return rc;
}

static enum merak_status put_block(struct merak_float_file *file,
                                   const float *x, struct merak_error *err)
{
    unsigned char raw[2 + MERAK_GGUF_BLOCK];
    float most = 0, scale, inverse;
    uint16_t half;

    for (int i = 0; i < MERAK_GGUF_BLOCK; i++)
        most = fabsf(x[i]) > most || !isfinite(x[i]) ? fabsf(x[i]) : most;
    scale = most / 127;
    half = merak_f32_to_f16(scale);
    if (!isfinite(most) || !isfinite(merak_f16_to_f32(half)))
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%g is too large for a block of q8_0", (double)most);
    inverse = scale > 0 ? 1 / scale : 0;
    raw[0] = (unsigned char)half;
    raw[1] = (unsigned char)(half >> 8);
    for (int i = 0; i < MERAK_GGUF_BLOCK; i++)
        raw[2 + i] = (unsigned char)(int)roundf(x[i] * inverse);
    return merak_float_file_bytes(file, raw, sizeof(raw), err);
}

static enum merak_safetensors_type plain_type(enum merak_gguf_type type)
{
    return type == MERAK_GGUF_F32   ? MERAK_SAFETENSORS_F32
           : type == MERAK_GGUF_F16 ? MERAK_SAFETENSORS_F16
                                    : MERAK_SAFETENSORS_BF16;
}

enum merak_status merak_gguf_put(struct merak_float_file *file,
                                 const struct merak_gguf_tensor *tensor,
                                 size_t k, const float *x,
                                 struct merak_error *err)
{
    static const unsigned char zeros[ALIGN];
    uint64_t bytes = merak_gguf_bytes(tensor);
    size_t n = elements(tensor);
    enum merak_status rc = MERAK_OK;

    if (tensor->type != MERAK_GGUF_Q8_0)
        rc = merak_float_file_put(file, plain_type(tensor->type), x, n, err);
    for (size_t i = 0;
         tensor->type == MERAK_GGUF_Q8_0 && i < n && rc == MERAK_OK;
         i += MERAK_GGUF_BLOCK)
        rc = put_block(file, x + i, err);
    if (rc == MERAK_OK && k + 1 == matrices(tensor))
        rc = merak_float_file_bytes(file, zeros, padded(bytes) - bytes, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "tensor %.80s", tensor->name);
    return rc;
}
