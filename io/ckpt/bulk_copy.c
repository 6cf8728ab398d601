/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_copy.c - copy pieces to the memory they are saved from
 *
 * A save stalls training for this.  libc uses non-temporal stores only for
 * copies of at least three quarters of the cache.  Tensors are shorter, and
 * with normal stores each line of the destination is read before it is
 * written, half again as much traffic.  So the stores are made here, and two
 * threads may share the work.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

/* Four pages are copied at a time: the processor prefetches only within a
 * page, so with a single stream it would stall at each page's start. */
enum { PAGE = 4096, PAGES = 4, LINE = 64, AHEAD = 256 };

static void stream_line(char *to, const char *from)
{
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));

    _mm_stream_si128((__m128i *)(void *)to, a);
    _mm_stream_si128((__m128i *)(void *)(to + 16), b);
    _mm_stream_si128((__m128i *)(void *)(to + 32), c);
    _mm_stream_si128((__m128i *)(void *)(to + 48), d);
}

/* `to` is aligned to a line; returns how many bytes were copied. */
static size_t stream(char *to, const char *from, size_t n)
{
    const size_t group = (size_t)PAGES * PAGE;
    size_t done = 0;

    for (; n - done >= group; done += group) {
        for (size_t at = done; at < done + PAGE; at += LINE) {
            for (size_t page = 0; page < group; page += PAGE) {
                _mm_prefetch(from + at + page + AHEAD, _MM_HINT_T0);
                stream_line(to + at + page, from + at + page);
            }
        }
    }
    _mm_sfence(); /* before others learn that it is copied */
    return done;
}

void merak_bulk_copy(void *to, const void *from, size_t n)
{
    size_t head = -(uintptr_t)to % LINE, done;

    if (n < (size_t)2 * PAGES * PAGE) {
        memcpy(to, from, n);
        return;
    }
    memcpy(to, from, head);
    done =
        head + stream((char *)to + head, (const char *)from + head, n - head);
    memcpy((char *)to + done, (const char *)from + done, n - done);
}
#else
void merak_bulk_copy(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
}
#endif

/* --- pieces -----------------------------------------------------------------
 */

/* Bytes that a thread takes at a time. */
#define SHARE ((size_t)2 << 20)

void merak_ckpt_copying_begin(struct merak_ckpt_copying *c,
                              const struct merak_ckpt_piece *from,
                              const struct merak_ckpt_piece *to, int n)
{
    c->from = from;
    c->to = to;
    c->n = n;
    atomic_store(&c->next, 0);
}

/* The offset of piece i from the first one; i == n: the end of the last. */
static size_t place(const struct merak_ckpt_copying *c, int i)
{
    if (i < c->n)
        return (size_t)(c->to[i].data - c->to[0].data) * sizeof(float);
    return place(c, i - 1) + merak_ckpt_piece_bytes(&c->to[i - 1]);
}

void merak_ckpt_copying_share(struct merak_ckpt_copying *c)
{
    size_t end = c->n > 0 ? place(c, c->n) : 0, at;
    int i = 0; /* shares are taken in order, also by each thread */

    for (;;) {
        size_t to;

        at = atomic_fetch_add(&c->next, SHARE);
        if (at >= end)
            return;
        to = end - at < SHARE ? end : at + SHARE;
        while (at < to) {
            size_t lo = place(c, i), hi = place(c, i + 1);
            size_t n = (hi < to ? hi : to) - at;

            if (hi <= at) {
                i++;
                continue;
            }
            merak_bulk_copy((char *)c->to[i].data + (at - lo),
                            (const char *)c->from[i].data + (at - lo), n);
            at += n;
        }
    }
}
