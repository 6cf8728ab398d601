/* SPDX-License-Identifier: Apache-2.0 */
/* inflow.c - the bytes of an input, decompressed if they are compressed */
#include "config.h"

#include "io/tokens/inflow.h"

#include "base/error.h"
#include "io/file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

enum { RAW_BYTES = 1 << 17 };

struct kind;

struct merak_inflow {
    int fd;
    const char *path;
    const struct kind *kind; /* NULL: not compressed */
    /* What was read and is not yet used, and where it ends in the input. */
    unsigned char *raw;
    size_t used, have;
    uint64_t end;
    bool ended;
    /* A gzip member or Zstandard frame that has begun, and where. */
    bool inside;
    uint64_t member;
#ifdef HAVE_ZLIB
    z_stream z;
#endif
#ifdef HAVE_ZSTD
    ZSTD_DStream *zstd;
    size_t hint; /* bytes that it would like next: to the end of a block */
#endif
};

/* How one kind of compression is read. */
struct kind {
    const char *name, *tester;
    bool (*is)(const unsigned char *begin, size_t n);
    enum merak_status (*open)(struct merak_inflow *in, struct merak_error *err);
    void (*close)(struct merak_inflow *in);
    /* Where a member may begin: skip what may lie between two. */
    enum merak_status (*begin)(struct merak_inflow *in,
                               struct merak_error *err);
    /* Use raw bytes, and put up to n bytes out; `inside` says whether the
     * member goes on. */
    enum merak_status (*step)(struct merak_inflow *in, void *to, size_t n,
                              size_t *got_p, struct merak_error *err);
};

/* Read more if nothing is left. */
static enum merak_status fill(struct merak_inflow *in, struct merak_error *err)
{
    ssize_t got;

    if (in->ended || in->used < in->have)
        return MERAK_OK;
    got = read(in->fd, in->raw, RAW_BYTES);
    if (got < 0)
        return merak_file_fail(err, "read", in->path);
    in->used = 0;
    in->have = (size_t)got;
    in->end += (size_t)got;
    in->ended = got == 0;
    return MERAK_OK;
}

static uint64_t place(const struct merak_inflow *in)
{
    return in->end - (in->have - in->used);
}

#if defined(HAVE_ZLIB) || defined(HAVE_ZSTD)
static enum merak_status damaged(const struct merak_inflow *in, const char *why,
                                 struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "%s: its %s data are damaged near byte %llu (%s): copy "
                      "the file again; %s tests it",
                      in->path, in->kind->name, (unsigned long long)place(in),
                      why, in->kind->tester);
}
#endif

static enum merak_status cut_off(const struct merak_inflow *in,
                                 struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "%s ends at byte %llu, inside the %s data that begin at "
                      "byte %llu: it was cut off, copy the file again",
                      in->path, (unsigned long long)in->end, in->kind->name,
                      (unsigned long long)in->member);
}

/* --- gzip ------------------------------------------------------------------
 */

#ifdef HAVE_ZLIB
static bool is_gzip(const unsigned char *begin, size_t n)
{
    return n >= 2 && begin[0] == 0x1f && begin[1] == 0x8b;
}

static enum merak_status open_gzip(struct merak_inflow *in,
                                   struct merak_error *err)
{
    return inflateInit2(&in->z, 16 + MAX_WBITS) == Z_OK
               ? MERAK_OK
               : merak_fail_nomem(err, sizeof(in->z));
}

static void close_gzip(struct merak_inflow *in)
{
    inflateEnd(&in->z);
}

/* Zeros may pad the last member, as on tapes. */
static enum merak_status begin_gzip(struct merak_inflow *in,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    bool padded = false;

    if (place(in) > 0) {
        while (rc == MERAK_OK && in->used < in->have &&
               in->raw[in->used] == 0) {
            padded = true;
            in->used++;
            rc = fill(in, err);
        }
    }
    if (rc == MERAK_OK && padded && in->used < in->have)
        rc = damaged(in, "zeros, and something behind them", err);
    if (rc == MERAK_OK)
        inflateReset(&in->z);
    return rc;
}

static enum merak_status step_gzip(struct merak_inflow *in, void *to, size_t n,
                                   size_t *got_p, struct merak_error *err)
{
    z_stream *z = &in->z;
    uInt room = n < UINT32_MAX ? (uInt)n : UINT32_MAX;
    int code;

    z->next_in = in->raw + in->used;
    z->avail_in = (uInt)(in->have - in->used);
    z->next_out = to;
    z->avail_out = room;
    code = inflate(z, Z_NO_FLUSH);
    in->used = in->have - z->avail_in;
    *got_p = room - z->avail_out;
    in->inside = code != Z_STREAM_END;
    if (code == Z_MEM_ERROR)
        return merak_fail_nomem(err, (size_t)1 << MAX_WBITS);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        return damaged(in, z->msg != NULL ? z->msg : "no gzip", err);
    return MERAK_OK;
}
#endif

/* --- Zstandard ---------------------------------------------------------- */

#ifdef HAVE_ZSTD
/* Its frames, and those that are to be skipped: pzstd begins with one. */
static bool is_zstd(const unsigned char *begin, size_t n)
{
    return n >= 4 && (memcmp(begin, "\x28\xb5\x2f\xfd", 4) == 0 ||
                      ((begin[0] & 0xf0) == 0x50 &&
                       memcmp(begin + 1, "\x2a\x4d\x18", 3) == 0));
}

/* Large windows (zstd --long=31) are common in published archives. */
static enum merak_status open_zstd(struct merak_inflow *in,
                                   struct merak_error *err)
{
    in->zstd = ZSTD_createDStream();
    if (in->zstd == NULL)
        return merak_fail_nomem(err, sizeof(*in));
    (void)ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax,
                                 sizeof(size_t) > 4 ? 31 : 30);
    in->hint = ZSTD_initDStream(in->zstd);
    return MERAK_OK;
}

static void close_zstd(struct merak_inflow *in)
{
    ZSTD_freeDStream(in->zstd);
}

static enum merak_status begin_zstd(struct merak_inflow *in,
                                    struct merak_error *err)
{
    (void)err;
    in->hint = ZSTD_initDStream(in->zstd);
    return MERAK_OK;
}

/* Block by block, so that the place of an error is known. */
static enum merak_status step_zstd(struct merak_inflow *in, void *to, size_t n,
                                   size_t *got_p, struct merak_error *err)
{
    size_t left = in->have - in->used;
    ZSTD_inBuffer from = {in->raw + in->used, left < in->hint ? left : in->hint,
                          0};
    ZSTD_outBuffer out = {to, n, 0};
    size_t code = ZSTD_decompressStream(in->zstd, &out, &from);

    if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
        return merak_fail(err, MERAK_ERR_NOMEM,
                          "%s: no memory for the window of its Zstandard data",
                          in->path);
    if (ZSTD_isError(code))
        return damaged(in, ZSTD_getErrorName(code), err);
    in->used += from.pos;
    *got_p = out.pos;
    in->inside = code > 0;
    in->hint = code;
    return MERAK_OK;
}
#endif

/* --- any ------------------------------------------------------------------ */

static const struct kind kinds[] = {
#ifdef HAVE_ZLIB
    {"gzip", "gzip -t", is_gzip, open_gzip, close_gzip, begin_gzip, step_gzip},
#endif
#ifdef HAVE_ZSTD
    {"Zstandard", "zstd -t", is_zstd, open_zstd, close_zstd, begin_zstd,
     step_zstd},
#endif
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};

/* As much as the longest magic number: pipes may give less at a time. */
static enum merak_status look(struct merak_inflow *in, struct merak_error *err)
{
    ssize_t got = 1;

    while (got > 0 && in->have < 4) {
        got = read(in->fd, in->raw + in->have, RAW_BYTES - in->have);
        if (got < 0)
            return merak_file_fail(err, "read", in->path);
        in->have += (size_t)got;
    }
    in->end = in->have;
    return MERAK_OK;
}

enum merak_status merak_inflow_open(int fd, const char *path,
                                    struct merak_inflow **in_p,
                                    struct merak_error *err)
{
    struct merak_inflow *in = calloc(1, sizeof(*in));
    enum merak_status rc = MERAK_OK;
    const struct kind *k = kinds;

    if (in != NULL)
        in->raw = malloc(RAW_BYTES);
    if (in == NULL || in->raw == NULL) {
        rc = merak_fail_nomem(err, RAW_BYTES);
        goto out;
    }
    in->fd = fd;
    in->path = path;
    rc = look(in, err);
    if (rc != MERAK_OK)
        goto out;
    while (k->name != NULL && !k->is(in->raw, in->have))
        k++;
    if (k->name != NULL) {
        rc = k->open(in, err);
        in->kind = rc == MERAK_OK ? k : NULL;
    }
out:
    if (rc == MERAK_OK)
        *in_p = in;
    else
        merak_inflow_close(in);
    return rc;
}

void merak_inflow_close(struct merak_inflow *in)
{
    if (in == NULL)
        return;
    if (in->kind != NULL)
        in->kind->close(in);
    free(in->raw);
    free(in);
}

bool merak_inflow_is_compressed(const struct merak_inflow *in)
{
    return in->kind != NULL;
}

static enum merak_status decompress(struct merak_inflow *in, void *to, size_t n,
                                    size_t *got_p, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    *got_p = 0;
    while (rc == MERAK_OK && *got_p == 0) {
        rc = fill(in, err);
        if (rc == MERAK_OK && !in->inside) {
            rc = in->kind->begin(in, err);
            in->member = place(in);
            if (rc != MERAK_OK || in->used == in->have)
                break; /* the end, where all is whole */
        }
        if (rc == MERAK_OK)
            rc = in->kind->step(in, to, n, got_p, err);
        if (rc == MERAK_OK && *got_p == 0 && in->inside && in->ended)
            rc = cut_off(in, err);
    }
    return rc;
}

enum merak_status merak_inflow_read(struct merak_inflow *in, void *to, size_t n,
                                    size_t *got_p, struct merak_error *err)
{
    enum merak_status rc;

    if (in->kind != NULL)
        return decompress(in, to, n, got_p, err);
    rc = fill(in, err);
    if (rc != MERAK_OK)
        return rc;
    *got_p = n < in->have - in->used ? n : in->have - in->used;
    memcpy(to, in->raw + in->used, *got_p);
    in->used += *got_p;
    return MERAK_OK;
}
