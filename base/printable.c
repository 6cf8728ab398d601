/* SPDX-License-Identifier: Apache-2.0 */
/* printable.c - text from files, without what a terminal would obey */
#include "config.h"

#include "base/printable.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Bytes that a character with this first byte has, 0 if none begins with it;
 * *least_p is set to the lowest code point that needs as many. */
static size_t length_of(unsigned char first, uint32_t *least_p)
{
    *least_p = 0;
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first < 0xe0) {
        *least_p = 0x80;
        return 2;
    }
    if (first >= 0xe0 && first < 0xf0) {
        *least_p = 0x800;
        return 3;
    }
    *least_p = 0x10000;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

/* The code point of `bytes` bytes; UINT32_MAX if they are not one. */
static uint32_t decode(const char *text, size_t bytes, uint32_t least)
{
    uint32_t code = (unsigned char)text[0];

    if (bytes > 1)
        code &= 0x7fu >> bytes;
    for (size_t i = 1; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];

        if ((c & 0xc0) != 0x80)
            return UINT32_MAX;
        code = code << 6 | (c & 0x3f);
    }
    return code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)
               ? UINT32_MAX
               : code;
}

size_t merak_printable(const char *text, size_t n)
{
    uint32_t least, code;
    size_t bytes = length_of((unsigned char)text[0], &least);

    if (bytes == 0 || bytes > n)
        return 0;
    code = decode(text, bytes, least);
    return code == UINT32_MAX || code < 0x20 || (code >= 0x7f && code < 0xa0)
               ? 0
               : bytes;
}

void merak_keep_to_a_line(char *text)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n;) {
        size_t bytes = merak_printable(text + i, n - i);

        if (bytes == 0)
            text[i] = text[i] == '\n' || text[i] == '\t' ? ' ' : '?';
        i += bytes == 0 ? 1 : bytes;
    }
}

/* --- the stream -------------------------------------------------------------
 */

struct screen {
    int fd;
    char start[4]; /* of a character that the next write may complete */
    size_t n_start;
};

static bool write_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t put = write(fd, text, n);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        text += put;
        n -= (size_t)put;
    }
    return true;
}

/* Could these n bytes, the last ones, be the start of a character? */
static bool is_start(const char *text, size_t n)
{
    uint32_t least;

    if (n >= length_of((unsigned char)text[0], &least))
        return false;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return false;
    }
    return true;
}

/* Copy one character or its replacement to `to`, at most 6 bytes; returns the
 * number of bytes, and of those read in *read_p. */
static size_t take_one(const char *text, size_t n, char *to, size_t *read_p)
{
    unsigned char c = (unsigned char)text[0];
    size_t bytes = merak_printable(text, n);
    char form[8];

    if (bytes == 0 && (c == '\n' || c == '\t'))
        bytes = 1;
    *read_p = bytes;
    if (bytes > 0) {
        memcpy(to, text, bytes);
        return bytes;
    }
    /* C1 is the one kind of control character with two bytes */
    *read_p =
        c == 0xc2 && n > 1 && ((unsigned char)text[1] & 0xe0) == 0x80 ? 2 : 1;
    if (*read_p == 2)
        c = (unsigned char)text[1];
    snprintf(form, sizeof(form),
             *read_p == 2 || c < 0x80 ? "\\u%04x" : "\\x%02x", c);
    bytes = strlen(form);
    memcpy(to, form, bytes);
    return bytes;
}

static bool write_clean(struct screen *screen, const char *text, size_t n)
{
    char out[4096];
    size_t used = 0, read;

    screen->n_start = 0;
    for (size_t i = 0; i < n; i += read) {
        if (is_start(text + i, n - i)) {
            screen->n_start = n - i;
            memcpy(screen->start, text + i, n - i);
            break;
        }
        used += take_one(text + i, n - i, out + used, &read);
        if (used + sizeof("\\u001b") > sizeof(out) || i + read == n) {
            if (!write_all(screen->fd, out, used))
                return false;
            used = 0;
        }
    }
    return write_all(screen->fd, out, used);
}

static ssize_t write_screen(void *cookie, const char *text, size_t n)
{
    struct screen *screen = cookie;
    size_t done = 0;
    char more[8];

    /* the rest of a character that the last write began */
    while (screen->n_start > 0 && done < n) {
        size_t have = screen->n_start;

        memcpy(more, screen->start, have);
        more[have] = text[done++];
        if (!write_clean(screen, more, have + 1))
            return 0;
    }
    return done == n || write_clean(screen, text + done, n - done)
               ? (ssize_t)n
               : 0;
}

static int close_screen(void *cookie)
{
    struct screen *screen = cookie;
    char form[8];
    bool fine = true;

    for (size_t i = 0; i < screen->n_start; i++) {
        snprintf(form, sizeof(form), "\\x%02x",
                 (unsigned char)screen->start[i]);
        fine = fine && write_all(screen->fd, form, strlen(form));
    }
    free(screen);
    return fine ? 0 : EOF;
}

FILE *merak_screen_open(int fd)
{
    const cookie_io_functions_t calls = {.write = write_screen,
                                         .close = close_screen};
    struct screen *screen = calloc(1, sizeof(*screen));
    FILE *file;

    if (screen == NULL)
        return NULL;
    screen->fd = fd;
    file = fopencookie(screen, "w", calls);
    if (file == NULL)
        free(screen);
    else if (isatty(fd))
        setvbuf(file, NULL, _IOLBF, BUFSIZ);
    return file;
}
