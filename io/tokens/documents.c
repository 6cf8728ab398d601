/* SPDX-License-Identifier: Apache-2.0 */
/* documents.c - the documents in a file of text */
#include "config.h"

#include "io/tokens/documents.h"

#include "base/error.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- lines of JSON ----------------------------------------------------- */

struct lines {
    const char *path, *key;
    merak_document_fn fn;
    void *arg;
    unsigned long long number; /* of the line at hand, from 1 */
};

static enum merak_status read_line(const struct lines *l, const char *line,
                                   size_t n, struct merak_error *err)
{
    json_error_t bad;
    json_t *object = json_loadb(line, n, JSON_ALLOW_NUL, &bad), *text;
    enum merak_status rc;

    if (object == NULL)
        return merak_fail(err, MERAK_ERR_FORMAT, "%s line %llu: not JSON: %s",
                          l->path, l->number, bad.text);
    text = json_object_get(object, l->key);
    if (!json_is_string(text))
        rc = merak_fail(err, MERAK_ERR_FORMAT,
                        "%s line %llu: %s \"%s\"; choose with --json-key",
                        l->path, l->number,
                        text == NULL ? "no" : "no text under", l->key);
    else
        rc = l->fn(l->arg, json_string_value(text), json_string_length(text),
                   err);
    json_decref(object);
    return rc;
}

static bool is_blank(const char *line)
{
    return line[strspn(line, " \t\r\n")] == '\0';
}

static enum merak_status read_lines(struct lines *l, FILE *f,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    errno = 0;
    while (rc == MERAK_OK && (n = getline(&line, &room, f)) >= 0) {
        l->number++;
        if (!is_blank(line))
            rc = read_line(l, line, (size_t)n, err);
        errno = 0;
    }
    if (rc == MERAK_OK && (ferror(f) || errno != 0))
        rc = merak_file_fail(err, "read", l->path);
    free(line);
    return rc;
}

static enum merak_status open_lines(struct lines *l, bool is_stdin,
                                    struct merak_error *err)
{
    FILE *f = is_stdin ? stdin : fopen(l->path, "re");
    enum merak_status rc;

    if (f == NULL)
        return merak_file_fail(err, "open", l->path);
    rc = read_lines(l, f, err);
    if (!is_stdin)
        fclose(f);
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

/* A pipe, or a file that does not tell its size: until it ends. */
static enum merak_status read_stream(int fd, const char *path,
                                     merak_document_fn fn, void *arg,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    size_t n = 0, room = 0;
    ssize_t got = 1;
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
        got = read(fd, text + n, room - n);
        if (got > 0)
            n += (size_t)got;
        else if (got < 0) /* EINTR too: the program is told to stop */
            rc = merak_file_fail(err, "read", path);
    }
    if (rc == MERAK_OK)
        rc = fn(arg, text, n, err);
    free(text);
    return rc;
}

static enum merak_status read_whole(int fd, const char *path,
                                    merak_document_fn fn, void *arg,
                                    struct merak_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return merak_file_fail(err, "examine", path);
    if (S_ISREG(st.st_mode) && st.st_size > 0)
        return read_mapped(fd, path, (size_t)st.st_size, fn, arg, err);
    return read_stream(fd, path, fn, arg, err);
}

static bool is_jsonl(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL && strcmp(dot, ".jsonl") == 0;
}

enum merak_status merak_documents_read(const char *path, const char *key,
                                       merak_document_fn fn, void *arg,
                                       struct merak_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct lines l = {.path = is_stdin ? "standard input" : path,
                      .key = key == NULL ? "text" : key,
                      .fn = fn,
                      .arg = arg};
    enum merak_status rc;
    int fd;

    if (is_stdin ? key != NULL : is_jsonl(path))
        return open_lines(&l, is_stdin, err);
    if (is_stdin)
        return read_whole(STDIN_FILENO, l.path, fn, arg, err);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return merak_file_fail(err, "open", path);
    rc = read_whole(fd, path, fn, arg, err);
    close(fd);
    return rc;
}
