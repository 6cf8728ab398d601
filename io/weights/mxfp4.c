/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.c - tensors in MXFP4 as those of numbers that they stand for
 *
 * Files of gpt-oss have a tensor NAME [.., N] as two, of bytes:
 *
 *   NAME_blocks  [.., N / 32, 16]  32 numbers of 4 bits each, the first of a
 *                                  byte in its lower half: a sign, two bits of
 *                                  exponent and one of mantissa
 *   NAME_scales  [.., N / 32]      s: they are multiplied by 2^(s - 127)
 *
 * (Rouhani et al. 2023, arXiv:2310.10537, sec. 3.)  Here they are one tensor,
 * NAME, in the place of the first, as if it were in bf16, which holds these
 * numbers exactly but for the least scales.
 */
#include "config.h"

#include "io/weights/safetensors_impl.h"

#include "base/error.h"
#include "io/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)32)
#define BLOCK_BYTES ((size_t)16)
#define AT_ONCE ((size_t)512) /* blocks */
#define BIAS 127

static const char blocks_end[] = "_blocks", scales_end[] = "_scales";

/* --- names and shapes ------------------------------------------------------
 */

static bool ends_with(const char *name, const char *end, size_t *n_p)
{
    size_t n = strlen(name), m = strlen(end);

    *n_p = n > m ? n - m : 0;
    return n > m && strcmp(name + n - m, end) == 0;
}

static bool is_bytes(const struct merak_safetensor *t)
{
    return strcmp(t->dtype, "U8") == 0;
}

/* The scales of a tensor of blocks, or NULL. */
static struct merak_safetensor *find_scales(const struct merak_safetensors *st,
                                            const struct merak_safetensor *t)
{
    size_t n, m;

    if (!is_bytes(t) || !ends_with(t->name, blocks_end, &n))
        return NULL;
    for (int i = 0; i < st->n; i++) {
        struct merak_safetensor *s = &st->tensor[i];

        if (s->name != NULL && is_bytes(s) &&
            ends_with(s->name, scales_end, &m) && m == n &&
            strncmp(s->name, t->name, n) == 0)
            return s;
    }
    return NULL;
}

static enum merak_status check_shapes(const struct merak_safetensors *st,
                                      const struct merak_safetensor *t,
                                      const struct merak_safetensor *scales,
                                      struct merak_error *err)
{
    if (t->ndim >= 2 && t->dim[t->ndim - 1] == BLOCK_BYTES &&
        scales->ndim == t->ndim - 1 &&
        memcmp(t->dim, scales->dim, sizeof(*t->dim) * (size_t)scales->ndim) ==
            0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "%.80s: tensors %.60s and _scales: expected 16 bytes of "
                      "numbers for each byte of scales",
                      st->file[t->file].path, t->name);
}

/* Make t the tensor of numbers. */
static enum merak_status join(struct merak_safetensors *st,
                              struct merak_safetensor *t,
                              const struct merak_safetensor *scales,
                              struct merak_error *err)
{
    size_t n = strlen(t->name) - strlen(blocks_end);
    char **made =
        realloc(st->made, ((size_t)st->n_made + 1) * sizeof(*st->made));

    if (made == NULL)
        return merak_fail_nomem(err, n);
    st->made = made;
    made[st->n_made] = strndup(t->name, n);
    if (made[st->n_made] == NULL)
        return merak_fail_nomem(err, n);
    t->name = made[st->n_made++];
    t->packed = true;
    t->scales_file = scales->file;
    t->scales_offset = scales->offset;
    t->type = MERAK_SAFETENSORS_BF16;
    t->dtype = merak_safetensors_type_name(t->type);
    t->bytes += scales->bytes;
    t->ndim--;
    t->dim[t->ndim - 1] *= BLOCK;
    t->count *= BLOCK / BLOCK_BYTES;
    return MERAK_OK;
}

/* Take out tensors without a name. */
static void close_gaps(struct merak_safetensors *st)
{
    int n = 0;

    for (int i = 0; i < st->n; i++) {
        if (st->tensor[i].name != NULL)
            st->tensor[n++] = st->tensor[i];
    }
    st->n = n;
}

enum merak_status merak_safetensors_unpack(struct merak_safetensors *st,
                                           bool *any_p, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    *any_p = false;
    for (int i = 0; i < st->n && rc == MERAK_OK; i++) {
        struct merak_safetensor *t = &st->tensor[i], *scales;

        scales = t->name == NULL ? NULL : find_scales(st, t);
        if (scales == NULL)
            continue;
        rc = check_shapes(st, t, scales, err);
        if (rc == MERAK_OK)
            rc = join(st, t, scales, err);
        scales->name = NULL;
        *any_p = true;
    }
    close_gaps(st);
    return rc;
}

/* --- numbers ---------------------------------------------------------------
 */

/* Numbers [from, to) of some blocks. */
static void unpack(const unsigned char *block, const unsigned char *scale,
                   size_t from, size_t to, float *out)
{
    static const float value[] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                  4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                  -2.0f, -3.0f, -4.0f, -6.0f};

    for (size_t i = from; i < to; i++) {
        unsigned both = block[i / 2], half = i % 2 == 0 ? both : both >> 4;

        *out++ =
            value[half & 15] * ldexpf(1.0f, (int)scale[i / BLOCK] - BIAS);
    }
}

enum merak_status merak_safetensors_read_packed(
    const struct merak_safetensors *st, const struct merak_safetensor *t,
    size_t first, size_t n, float *out, struct merak_error *err)
{
    const struct merak_safetensors_file *f = &st->file[t->file];
    const struct merak_safetensors_file *g = &st->file[t->scales_file];
    unsigned char block[AT_ONCE * BLOCK_BYTES], scale[AT_ONCE];
    enum merak_status rc = MERAK_OK;

    while (n > 0 && rc == MERAK_OK) {
        size_t at = first / BLOCK, from = first % BLOCK;
        size_t to = from + n < AT_ONCE * BLOCK ? from + n : AT_ONCE * BLOCK;
        size_t blocks = (to + BLOCK - 1) / BLOCK;

        rc = merak_file_read(f->fd, f->path, block, blocks * BLOCK_BYTES,
                             t->offset + at * BLOCK_BYTES, err);
        if (rc == MERAK_OK)
            rc = merak_file_read(g->fd, g->path, scale, blocks,
                                 t->scales_offset + at, err);
        if (rc == MERAK_OK)
            unpack(block, scale, from, to, out);
        out += to - from;
        first += to - from;
        n -= to - from;
    }
    return rc;
}
