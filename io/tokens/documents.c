/* SPDX-License-Identifier: Apache-2.0 */
/* documents.c - the documents in a file of text */
#include "config.h"

#include "io/tokens/documents.h"

#include "base/error.h"
#include "io/file.h"
#include "io/tokens/inflow.h"
#include "io/tokens/json_cut.h"
#include "io/tokens/json_lines.h"
#include "io/tokens/json_list.h"
#include "io/tokens/parquet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the bytes of an input -------------------------------------------------
 */

/* Its beginning is looked at before it is read: pipes do not go back. */
struct input {
    int fd;
    struct merak_inflow *flow;
    struct merak_parquet *parquet; /* what prints these lines, or NULL */
    size_t n, given;
    enum merak_status rc; /* why reading it failed, and the text */
    struct merak_error bad;
    char begin[65536 + 1];
};

static ssize_t give(void *arg, char *to, size_t n)
{
    struct input *in = arg;

    if (in->given == in->n) {
        in->rc = merak_inflow_read(in->flow, to, n, &n, &in->bad);
        if (in->rc == MERAK_OK && n == 0 && in->parquet != NULL)
            in->rc = merak_parquet_end(in->parquet, &in->bad);
        errno = in->rc == MERAK_OK ? errno : EIO;
        return in->rc == MERAK_OK ? (ssize_t)n : -1;
    }
    n = n < in->n - in->given ? n : in->n - in->given;
    memcpy(to, in->begin + in->given, n);
    in->given += n;
    return (ssize_t)n;
}

static enum merak_status look(struct input *in, const char *path,
                              struct merak_error *err)
{
    size_t got = 1;
    enum merak_status rc = merak_inflow_open(in->fd, path, &in->flow, err);

    while (rc == MERAK_OK && got > 0 && in->n < sizeof(in->begin) - 1) {
        rc = merak_inflow_read(in->flow, in->begin + in->n,
                               sizeof(in->begin) - 1 - in->n, &got, err);
        in->n += rc == MERAK_OK ? got : 0;
    }
    in->begin[in->n] = '\0';
    return rc;
}

/* Go on with the rows of a Parquet file, as lines.  It has an index at its end:
 * there are no parts of it, and none from a pipe. */
static enum merak_status open_rows(struct input *in, const char *path,
                                   const char *key, struct merak_error *err)
{
    size_t n = 1;
    const char *const *column = key != NULL ? &key : merak_json_line_keys(&n);
    enum merak_status rc =
        merak_parquet_open(path, n, column, &in->parquet, err);

    if (rc != MERAK_OK)
        return rc;
    merak_inflow_close(in->flow);
    close(in->fd);
    in->flow = NULL;
    in->fd = merak_parquet_fd(in->parquet);
    in->n = 0;
    rc = look(in, path, err);
    return rc == MERAK_OK && in->n == 0 ? merak_parquet_end(in->parquet, err)
                                        : rc;
}

static bool is_parquet(const struct input *in)
{
    return in->parquet == NULL && merak_parquet_is(in->begin, in->n) &&
           !merak_inflow_is_compressed(in->flow);
}

static void close_input(struct input *in, bool is_stdin)
{
    merak_inflow_close(in->flow);
    if (in->parquet != NULL)
        merak_parquet_close(in->parquet);
    else if (in->fd >= 0 && !is_stdin)
        close(in->fd);
    free(in);
}

/* Why the stream that give() feeds has failed. */
static enum merak_status fail_input(const struct input *in, const char *path,
                                    struct merak_error *err)
{
    if (in->rc == MERAK_OK)
        return merak_file_fail(err, "read", path);
    if (err != NULL)
        *err = in->bad;
    return in->rc;
}

/* --- lines of JSON ---------------------------------------------------------
 */

/* Lines before the part that is read: only what is bad needs its number. */
static void count_lines(struct merak_json_lines *l)
{
    char block[65536];
    uint64_t at = 0;
    ssize_t got = 1;

    while (at < l->from && got > 0) {
        size_t n = l->from - at < sizeof(block) ? (size_t)(l->from - at)
                                                : sizeof(block);

        got = pread(l->fd, block, n, (off_t)at);
        for (ssize_t i = 0; i < got; i++)
            l->number += block[i] == '\n';
        at += got > 0 ? (uint64_t)got : 0;
    }
    l->from = 0;
}

/* A bad line is left out and counted if that is asked for. */
static enum merak_status read_line(struct merak_json_lines *l, const char *line,
                                   size_t n, struct merak_error *err)
{
    struct merak_bad_lines *bad = l->reader->bad;
    struct merak_error own = {.text = ""};
    enum merak_status rc;

    err = err == NULL ? &own : err;
    rc = merak_json_line_take(l, line, n, err);
    if (rc != MERAK_OK && l->from > 0)
        count_lines(l);
    if (rc == MERAK_ERR_FORMAT || rc == MERAK_ERR_UNSUPPORTED ||
        rc == MERAK_ERR_MISMATCH)
        merak_error_wrap(err, "%s %s %llu", l->path, l->unit, l->number);
    if (rc != MERAK_ERR_FORMAT || bad == NULL)
        return rc;
    if (bad->n++ == 0)
        snprintf(bad->first, sizeof(bad->first), "%.200s", err->text);
    return MERAK_OK;
}

static bool is_blank(const char *line)
{
    return line[strspn(line, " \t\r\n")] == '\0';
}

/* A failure may leave a part of a line, which is none. */
static enum merak_status read_lines(struct merak_json_lines *l,
                                    const struct input *in, FILE *f,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    errno = 0;
    while (rc == MERAK_OK && (n = getline(&line, &room, f)) >= 0 &&
           !ferror(f)) {
        l->number++;
        if (!is_blank(line))
            rc = read_line(l, line, (size_t)n, err);
        errno = 0;
    }
    if (rc == MERAK_OK && (ferror(f) || errno != 0))
        rc = fail_input(in, l->path, err);
    free(line);
    return rc;
}

/* The lines that begin in a part of a file.  What begins before is of another
 * part. */
static enum merak_status read_part(struct merak_json_lines *l, uint64_t mark,
                                   uint64_t begin, uint64_t end,
                                   struct merak_error *err)
{
    int fd = dup(l->fd);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    enum merak_status rc = MERAK_OK;
    uint64_t at = begin > 0 ? begin - 1 : mark;
    char *line = NULL;
    size_t room = 0;
    ssize_t n = 0;

    if (f == NULL || fseeko(f, (off_t)at, SEEK_SET) != 0)
        rc = merak_file_fail(err, "read", l->path);
    if (rc == MERAK_OK && begin > 0)
        n = getline(&line, &room, f);
    at += n > 0 ? (uint64_t)n : 0;
    l->from = begin > 0 ? at : 0;
    while (rc == MERAK_OK && n >= 0 && at < end) {
        n = getline(&line, &room, f);
        if (n < 0)
            break;
        at += (uint64_t)n;
        l->number++;
        if (!is_blank(line))
            rc = read_line(l, line, (size_t)n, err);
    }
    if (rc == MERAK_OK && (ferror(f) || (n < 0 && at < end)))
        rc = merak_file_fail(err, "read", l->path);
    if (f != NULL)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    free(line);
    return rc;
}

/* The objects of a list are as lines. */
static enum merak_status read_list(struct merak_json_lines *l,
                                   const struct input *in, FILE *f,
                                   struct merak_error *err)
{
    struct merak_json_list list = {.f = f};
    enum merak_status rc = MERAK_OK;

    l->unit = "object";
    while (rc == MERAK_OK) {
        rc = merak_json_list_next(&list, err);
        if (ferror(f))
            rc = fail_input(in, l->path, err);
        else if (rc != MERAK_OK)
            merak_error_wrap(err, "%s behind object %llu", l->path, l->number);
        if (rc != MERAK_OK || list.ended)
            break;
        l->number++;
        rc = read_line(l, list.n > 0 ? list.text : "", list.n, err);
    }
    free(list.text);
    return rc;
}

/* --- one document ------------------------------------------------------ */

static enum merak_status read_mapped(int fd, const char *path, size_t n,
                                     merak_document_fn fn, void *arg,
                                     struct merak_error *err)
{
    char *text = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    enum merak_status rc;

    if (text == MAP_FAILED)
        return merak_file_fail(err, "map", path);
    (void)madvise(text, n, MADV_SEQUENTIAL);
    rc = fn(arg, text, n, err);
    munmap(text, n);
    return rc;
}

/* Read a pipe, or what has no size or another one, to its end. */
static enum merak_status read_stream(const struct input *in, FILE *f,
                                     const char *path, merak_document_fn fn,
                                     void *arg, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    size_t n = 0, room = 0, got = 1;
    char *text = NULL;

    while (rc == MERAK_OK && got > 0) {
        if (n == room) {
            char *grown = realloc(text, room = room > 0 ? 2 * room : 65536);

            if (grown == NULL) {
                rc = merak_fail_nomem(err, room);
                break;
            }
            text = grown;
        }
        got = fread(text + n, 1, room - n, f);
        n += got;
        if (got == 0 && ferror(f)) /* also EINTR: it was asked to stop */
            rc = fail_input(in, path, err);
    }
    if (rc == MERAK_OK)
        rc = fn(arg, text, n, err);
    free(text);
    return rc;
}

/* --- what a file holds ------------------------------------------------- */

/* What is surely no text, by its first bytes.  Of gzip and Zstandard those
 * come here that Merak was built without, or that were compressed twice. */
static enum merak_status refuse_binary(const struct input *in, const char *path,
                                       struct merak_error *err)
{
    static const struct {
        const char *magic;
        size_t n;
        const char *what, *fix;
        size_t at;
    } row[] = {
        {"\x1f\x8b", 2, "gzip", "give zcat's output as \"-\"", 0},
        {"\x28\xb5\x2f\xfd", 4, "Zstandard", "give zstdcat's output as \"-\"",
         0},
        {"BZh", 3, "bzip2", "give bzcat's output as \"-\"", 0},
        {"\xfd"
         "7zXZ\0",
         6, "xz", "give xzcat's output as \"-\"", 0},
        {"PK\3\4", 4, "ZIP", "unpack it", 0},
        {"PAR1", 4, "Parquet", "give the name of a file of it", 0},
        {"ARROW1", 6, "Arrow", "convert it to lines of JSON", 0},
        {"\x89HDF", 4, "HDF5", "convert it to lines of JSON", 0},
        {"%PDF-", 5, "PDF", "convert it to text", 0},
        {"\x7f"
         "ELF",
         4, "program", "give a file of text", 0},
        {"MMIDIDX\0", 8, "packed token", "it needs no packing", 0},
        {"ustar", 5, "tar", "unpack it", 257},
        {"\xff\xfe", 2, "UTF-16", "convert it with iconv -t UTF-8", 0},
        {"\xfe\xff", 2, "UTF-16", "convert it with iconv -t UTF-8", 0},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (in->n >= row[i].at + row[i].n &&
            memcmp(in->begin + row[i].at, row[i].magic, row[i].n) == 0)
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "%s holds %s data, expected text or lines of "
                              "JSON: %s",
                              path, row[i].what, row[i].fix);
    }
    return MERAK_OK;
}

/* Ends the name so, also in front of what compression adds to it? */
static bool is_named(const char *path, const char *ending)
{
    static const char *const more[] = {"", ".gz", ".zst", ".zstd"};
    size_t n = strlen(path), m = strlen(ending);

    for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
        size_t k = strlen(more[i]);

        if (n >= m + k && strcasecmp(path + n - k, more[i]) == 0 &&
            strncasecmp(path + n - k - m, ending, m) == 0)
            return true;
    }
    return false;
}

/* Where the text begins, behind a byte order mark. */
static size_t mark_bytes(const struct input *in)
{
    return in->n >= 3 && memcmp(in->begin, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* The first line that is not blank. */
static const char *first_line(const struct input *in, size_t *n_p)
{
    const char *at = in->begin + mark_bytes(in);
    const char *end = in->begin + in->n, *line;

    at += strspn(at, " \t\r\n");
    line = memchr(at, '\n', (size_t)(end - at));
    *n_p = (size_t)((line != NULL ? line : end) - at);
    return at;
}

/* Lines of JSON are asked for, or named so, or look so: the first is an object
 * with a key that is read, or in a .json a whole object before another one. */
static bool has_lines(const struct input *in, const char *path, const char *key)
{
    size_t n;
    const char *at = first_line(in, &n);

    return key != NULL || is_named(path, ".jsonl") ||
           is_named(path, ".ndjson") || merak_json_line_is(at, n, true) ||
           (is_named(path, ".json") && merak_json_line_is(at, n, false) &&
            at[n + strspn(at + n, " \t\r\n")] == '{');
}

/* JSON that is laid out over several lines. */
static enum merak_status refuse_object(const struct input *in, const char *path,
                                       struct merak_error *err)
{
    size_t n;
    const char *at = first_line(in, &n);
    size_t all = in->n - (size_t)(at - in->begin);

    if (n == all || !merak_json_line_is(at, all, true))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "%s is an object of JSON on several lines, expected one "
                      "on each line: jq -c . %s makes them",
                      path, path);
}

/* A list of objects, where lines of JSON are expected or in a .json, or whose
 * first has a key that is read. */
static bool has_list(const struct input *in, const char *path, bool lines)
{
    const char *at = in->begin + mark_bytes(in), *end = in->begin + in->n;
    struct merak_json_member first;

    at += strspn(at, " \t\r\n");
    if (*at != '[' || at[1 + strspn(at + 1, " \t\r\n")] != '{')
        return false;
    at++;
    return lines || is_named(path, ".json") ||
           (merak_json_next(&at, end, ']', true, &first) > 0 &&
            merak_json_line_is(first.value.at, first.value.n, true));
}

static enum merak_status read_input(struct merak_json_lines *l,
                                    struct input *in, off_t bytes,
                                    struct merak_error *err)
{
    const struct merak_document_reader *reader = l->reader;
    bool rows = in->parquet != NULL;
    bool lines = rows || has_lines(in, l->path, l->key);
    bool list = !rows && has_list(in, l->path, lines);
    enum merak_status rc = refuse_binary(in, l->path, err);
    FILE *f;

    lines = lines || list;
    if (rc == MERAK_OK && !lines && is_named(l->path, ".json"))
        rc = refuse_object(in, l->path, err);
    if (rc != MERAK_OK)
        return rc;
    if (!lines && bytes > 0 && !merak_inflow_is_compressed(in->flow))
        return read_mapped(in->fd, l->path, (size_t)bytes, reader->document,
                           reader->arg, err);
    f = fopencookie(in, "r", (cookie_io_functions_t){.read = give});
    if (f == NULL)
        return merak_fail_nomem(err, sizeof(*f));
    in->given = lines ? mark_bytes(in) : 0;
    if (list)
        rc = read_list(l, in, f, err);
    else if (lines)
        rc = read_lines(l, in, f, err);
    else
        rc = read_stream(in, f, l->path, reader->document, reader->arg, err);
    fclose(f);
    return rc;
}

/* Devices do not end, or have no text; a terminal's end is typed. */
static enum merak_status open_input(const char *path, bool is_stdin, int *fd_p,
                                    off_t *bytes_p, struct merak_error *err)
{
    struct stat st;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return merak_file_fail(err, "open", path);
    *fd_p = fd;
    if (fstat(fd, &st) != 0)
        return merak_file_fail(err, "examine", path);
    if (!is_stdin && (S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode)))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s is a device, expected a file", path);
    *bytes_p = S_ISREG(st.st_mode) && !is_stdin ? st.st_size : 0;
    return MERAK_OK;
}

/* What is read of an input: all, or the lines of a part. */
static enum merak_status read_bytes(struct merak_json_lines *l,
                                    struct input *in, off_t bytes,
                                    uint64_t begin, uint64_t end,
                                    struct merak_error *err)
{
    if (end == 0)
        return read_input(l, in, bytes, err);
    l->fd = in->fd;
    return read_part(l, mark_bytes(in), begin, end, err);
}

enum merak_status merak_documents_read_part(
    const char *path, const char *key, uint64_t begin, uint64_t end,
    const struct merak_document_reader *reader, struct merak_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct merak_json_lines l = {.path = is_stdin ? "standard input" : path,
                                 .key = key,
                                 .unit = "line",
                                 .reader = reader};
    struct input *in = calloc(1, sizeof(*in));
    off_t bytes = 0;
    enum merak_status rc;

    if (in == NULL)
        return merak_fail_nomem(err, sizeof(*in));
    in->fd = -1;
    rc = open_input(path, is_stdin, &in->fd, &bytes, err);
    if (rc == MERAK_OK)
        rc = look(in, l.path, err);
    if (rc == MERAK_OK && bytes > 0 && is_parquet(in)) {
        l.unit = "row";
        rc = open_rows(in, path, key, err);
    }
    if (rc == MERAK_OK)
        rc = read_bytes(&l, in, bytes, begin, end, err);
    close_input(in, is_stdin);
    free(l.turn);
    return rc;
}

enum merak_status
merak_documents_read(const char *path, const char *key,
                     const struct merak_document_reader *reader,
                     struct merak_error *err)
{
    return merak_documents_read_part(path, key, 0, 0, reader, err);
}

uint64_t merak_documents_cut_bytes(const char *path, const char *key)
{
    struct input *in = calloc(1, sizeof(*in));
    off_t bytes = 0;
    bool lines;

    if (in == NULL)
        return 0;
    in->fd = -1;
    if (strcmp(path, "-") == 0 ||
        open_input(path, false, &in->fd, &bytes, NULL) != MERAK_OK ||
        look(in, path, NULL) != MERAK_OK)
        bytes = 0;
    lines = bytes > 0 && !merak_inflow_is_compressed(in->flow) &&
            has_lines(in, path, key);
    lines = lines && !has_list(in, path, lines) &&
            refuse_binary(in, path, NULL) == MERAK_OK;
    close_input(in, false);
    return lines ? (uint64_t)bytes : 0;
}

double merak_documents_bytes(const char *path)
{
    struct merak_inflow *flow = NULL;
    double bytes = 0;
    struct stat st;
    char begin[4];
    int fd;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (merak_inflow_open(fd, path, &flow, NULL) == MERAK_OK &&
        !merak_inflow_is_compressed(flow) &&
        !(pread(fd, begin, sizeof(begin), 0) == sizeof(begin) &&
          merak_parquet_is(begin, sizeof(begin))))
        bytes = (double)st.st_size;
    merak_inflow_close(flow);
    close(fd);
    return bytes;
}
