/* SPDX-License-Identifier: Apache-2.0 */
/* dims.c - shapes and signatures from one line of text */
#include "config.h"

#include "partitioner/graph/dims.h"

#include "base/error.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* --- reading a pattern --------------------------------------------------- */

static const char *parse_operand(const char *s, struct merak_dims_operand *o)
{
    size_t name = strcspn(s, "="), dims;

    assert(name < sizeof(o->name) && s[name] == '=' && s[name + 2] == ':');
    memcpy(o->name, s, name);
    o->name[name] = '\0';
    o->dtype = s[name + 1];
    s += name + 3;
    dims = strcspn(s, " ");
    assert(dims < sizeof(o->letter));
    memcpy(o->letter, s, dims);
    o->letter[dims] = '\0';
    return s + dims;
}

static void parse_pattern(struct merak_dims *dims, const char *s)
{
    int *count = &dims->n_in, n = 0;

    while (*s != '\0') {
        if (*s == ' ') {
            s++;
        } else if (*s == '>') {
            count = &dims->n_out;
            s++;
        } else {
            s = parse_operand(s, &dims->operand[n++]);
            ++*count;
        }
    }
}

static bool uses_letter(const struct merak_dims *dims, char letter)
{
    for (int o = 0; o < dims->n_in + dims->n_out; o++) {
        for (const char *l = dims->operand[o].letter; *l != '\0'; l++) {
            if (tolower((unsigned char)*l) == letter)
                return true;
        }
    }
    return false;
}

/* Names for the `n` dims a star stands for, distinct from the pattern's own. */
static void star_letters(const struct merak_dims *dims, int n, char *star)
{
    for (const char *l = "btefhlmnpq"; n > 0 && *l != '\0'; l++) {
        if (uses_letter(dims, *l))
            continue;
        *star++ = *l;
        n--;
    }
    *star = '\0';
}

static void expand(struct merak_dims_operand *o, const char *star)
{
    char *at = strchr(o->letter, '*');
    char tail[sizeof(o->letter)];
    size_t n = strlen(star);

    if (at == NULL)
        return;
    strcpy(tail, at + 1);
    memcpy(at, star, n);
    strcpy(at + n, tail);
}

static enum merak_status fail_rank(const struct merak_dims *dims, int o,
                                   const struct merak_shape *shape,
                                   struct merak_error *err)
{
    char text[MERAK_SHAPE_TEXT];

    return merak_fail(err, MERAK_ERR_PARAM,
                      "%s: %s is %s, expected dims \"%s\"", dims->op,
                      dims->operand[o].name, merak_shape_print(shape, text),
                      dims->operand[o].letter);
}

enum merak_status merak_dims_parse(struct merak_dims *dims, const char *op,
                                   const char *pattern,
                                   const struct merak_infer *inf,
                                   struct merak_error *err)
{
    char star[MERAK_MAX_DIMS + 1];
    int n;

    memset(dims, 0, sizeof(*dims));
    dims->op = op;
    parse_pattern(dims, pattern);
    for (int o = 0; o < inf->n_in; o++) {
        if (strchr(dims->operand[o].letter, '*') == NULL)
            continue;
        n = inf->shape[o].ndim - (int)strlen(dims->operand[o].letter) + 1;
        if (n < 0)
            return fail_rank(dims, o, &inf->shape[o], err);
        star_letters(dims, n, star);
        /* An operand of more dims than this one must not overflow. */
        for (int i = 0; i < dims->n_in + dims->n_out; i++) {
            if (strlen(dims->operand[i].letter) - 1 + (size_t)n >
                    MERAK_MAX_DIMS &&
                strchr(dims->operand[i].letter, '*') != NULL)
                return fail_rank(dims, o, &inf->shape[o], err);
            expand(&dims->operand[i], star);
        }
        break;
    }
    return MERAK_OK;
}

/* --- shapes --------------------------------------------------------------- */

static enum merak_status fail_extent(const struct merak_dims *dims,
                                     const struct merak_infer *inf, int o,
                                     int d, struct merak_error *err)
{
    const struct merak_dims_operand *op = &dims->operand[o];
    char a[MERAK_SHAPE_TEXT], b[MERAK_SHAPE_TEXT];
    unsigned char letter = (unsigned char)op->letter[d];
    int from = dims->from[letter];

    merak_shape_print(&inf->shape[o], a);
    if (isdigit(letter))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: %s is %s, but dim %d must be %d", dims->op,
                          op->name, a, d, letter - '0');
    if (from < 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: %s is %s, but dim %d must be %zu", dims->op,
                          op->name, a, d, dims->extent[letter]);
    return merak_fail(err, MERAK_ERR_PARAM,
                      "%s: %s %s does not fit %s %s: dim %d is %zu, "
                      "expected %zu",
                      dims->op, op->name, a, dims->operand[from].name,
                      merak_shape_print(&inf->shape[from], b), d,
                      inf->shape[o].dim[d], dims->extent[letter]);
}

static enum merak_status check_shape(struct merak_dims *dims,
                                     const struct merak_infer *inf, int o,
                                     struct merak_error *err)
{
    const struct merak_shape *shape = &inf->shape[o];
    const char *letters = dims->operand[o].letter;

    if (shape->ndim != (int)strlen(letters))
        return fail_rank(dims, o, shape, err);
    for (int d = 0; d < shape->ndim; d++) {
        unsigned char l = (unsigned char)letters[d];

        if (isdigit(l)) {
            dims->extent[l] = (size_t)(l - '0');
        } else if (dims->extent[l] == 0) {
            dims->extent[l] = shape->dim[d];
            dims->from[l] = (int8_t)o;
        }
        if (dims->extent[l] != shape->dim[d])
            return fail_extent(dims, inf, o, d, err);
    }
    return MERAK_OK;
}

static void fill_shape(const struct merak_dims *dims, struct merak_infer *inf,
                       int o)
{
    const char *letters = dims->operand[o].letter;
    struct merak_shape *shape = &inf->shape[o];

    shape->ndim = (int)strlen(letters);
    for (int d = 0; d < shape->ndim; d++) {
        unsigned char l = (unsigned char)letters[d];

        shape->dim[d] = isdigit(l) ? (size_t)(l - '0') : dims->extent[l];
    }
}

/* --- element types ---------------------------------------------------------
 */

/* The first input of type letter `code`, or -1. */
static int find_dtype(const struct merak_dims *dims,
                      const struct merak_infer *inf, char code)
{
    for (int o = 0; o < inf->n_in; o++) {
        if (dims->operand[o].dtype == code)
            return o;
    }
    return -1;
}

/* What a type letter stands for, given the inputs. */
static enum merak_dtype resolve_dtype(const struct merak_dims *dims,
                                      const struct merak_infer *inf, char code)
{
    int c = find_dtype(dims, inf, 'c');

    switch (code) {
    case 'i':
        return MERAK_I32;
    case 'd':
        return MERAK_F64;
    case 'h':
        return MERAK_BF16;
    case 'f':
        if (c < 0)
            c = find_dtype(dims, inf, 'f');
        return c >= 0 && inf->dtype[c] == MERAK_F64 ? MERAK_F64 : MERAK_F32;
    case 'a':
        return inf->dtype[find_dtype(dims, inf, 'a')];
    default:
        return inf->dtype[c] == MERAK_I32 ? MERAK_F32 : inf->dtype[c];
    }
}

static enum merak_status check_dtype(const struct merak_dims *dims,
                                     const struct merak_infer *inf, int o,
                                     struct merak_error *err)
{
    enum merak_dtype want = resolve_dtype(dims, inf, dims->operand[o].dtype);
    char text[MERAK_SHAPE_TEXT];

    if (inf->dtype[o] == want)
        return MERAK_OK;
    return merak_fail(
        err, MERAK_ERR_PARAM, "%s: %s %s is of type %s, expected %s", dims->op,
        dims->operand[o].name, merak_shape_print(&inf->shape[o], text),
        merak_dtype_name(inf->dtype[o]), merak_dtype_name(want));
}

enum merak_status merak_dims_solve(struct merak_dims *dims,
                                   struct merak_infer *inf,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    /* Extents that the caller set come from an attribute. */
    memset(dims->from, -1, sizeof(dims->from));
    for (int o = 0; o < inf->n_in && rc == MERAK_OK; o++) {
        rc = check_shape(dims, inf, o, err);
        if (rc == MERAK_OK)
            rc = check_dtype(dims, inf, o, err);
    }
    for (int i = 0; i < inf->n_out && rc == MERAK_OK; i++) {
        int o = inf->n_in + i;

        fill_shape(dims, inf, o);
        inf->dtype[o] = resolve_dtype(dims, inf, dims->operand[o].dtype);
    }
    return rc;
}

/* --- signatures ------------------------------------------------------------
 */

static int find_index(struct merak_signature *sig, unsigned char letter,
                      size_t extent)
{
    char name = (char)tolower(letter);
    struct merak_index *index;

    for (int i = 0; i < sig->n_index; i++) {
        if (sig->index[i].name == name)
            return i;
    }
    assert(sig->n_index < MERAK_MAX_INDICES);
    index = &sig->index[sig->n_index];
    index->name = name;
    index->extent = extent;
    index->uneven = index->vocabulary = letter == 'v';
    index->kind = islower(letter) ? MERAK_INDEX_SUM : MERAK_INDEX_WHOLE;
    return sig->n_index++;
}

void merak_dims_indices(const struct merak_dims *dims,
                        const struct merak_infer *inf,
                        struct merak_signature *sig)
{
    memset(sig, 0, sizeof(*sig));
    memset(sig->operand_dim, -1, sizeof(sig->operand_dim));
    for (int o = 0; o < inf->n_in + inf->n_out; o++) {
        for (int d = 0; d < inf->shape[o].ndim; d++)
            sig->operand_dim[o][d] = (int8_t)find_index(
                sig, (unsigned char)dims->operand[o].letter[d],
                inf->shape[o].dim[d]);
    }
}

enum merak_status merak_dims_infer(const char *op, const char *pattern,
                                   struct merak_infer *inf,
                                   struct merak_error *err)
{
    struct merak_dims dims;
    enum merak_status rc = merak_dims_parse(&dims, op, pattern, inf, err);

    return rc != MERAK_OK ? rc : merak_dims_solve(&dims, inf, err);
}

void merak_dims_signature(const char *op, const char *pattern,
                          const struct merak_infer *inf,
                          struct merak_signature *sig)
{
    struct merak_dims dims;

    /* The operands have passed infer, so the pattern fits. */
    (void)!merak_dims_parse(&dims, op, pattern, inf, NULL);
    merak_dims_indices(&dims, inf, sig);
}

/* --- printing and cost ------------------------------------------------------
 */

const char *merak_shape_print(const struct merak_shape *shape, char *buf)
{
    size_t at = 0;

    buf[at++] = '[';
    for (int d = 0; d < shape->ndim; d++)
        at += (size_t)snprintf(buf + at, MERAK_SHAPE_TEXT - at, "%s%zu",
                               d > 0 ? "," : "", shape->dim[d]);
    snprintf(buf + at, MERAK_SHAPE_TEXT - at, "]");
    return buf;
}

bool merak_shape_equal(const struct merak_shape *a, const struct merak_shape *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof(*a->dim)) == 0;
}

double merak_cost_bytes(const struct merak_infer *inf)
{
    double bytes = 0;

    for (int o = 0; o < inf->n_in + inf->n_out; o++)
        bytes += (double)merak_shape_count(&inf->shape[o]) *
                 (double)merak_dtype_bytes(inf->dtype[o]);
    return bytes;
}

void merak_cost_elementwise(const struct merak_infer *inf, double flops,
                            struct merak_cost *cost)
{
    cost->flops = flops * (double)merak_shape_count(&inf->shape[0]);
    cost->bytes = merak_cost_bytes(inf);
}
