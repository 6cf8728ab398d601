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
    const char *path, *key; /* key NULL: none was given */
    const struct merak_document_reader *reader;
    unsigned long long number; /* of the current line, from 1 */
    struct merak_chat_turn *turn;
    size_t room;
};

static const char *type_of(const json_t *value)
{
    static const char *const name[] = {"an object", "a list",   "a text",
                                       "a number",  "a number", "true",
                                       "false",     "null"};

    return value == NULL ? "nothing" : name[json_typeof(value)];
}

static enum merak_status take_text(const struct lines *l, const json_t *object,
                                   struct merak_error *err)
{
    const char *key = l->key == NULL ? "text" : l->key;
    const json_t *text = json_object_get(object, key);

    if (!json_is_object(object))
        return merak_fail(err, MERAK_ERR_FORMAT, "%s, expected an object",
                          type_of(object));
    if (!json_is_string(text))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s \"%s\"; choose with --json-key",
                          text == NULL ? "no" : "no text under", key);
    return l->reader->document(l->reader->arg, json_string_value(text),
                               json_string_length(text), err);
}

/* --- with answers --------------------------------------------------------- */

static enum merak_status take_string(const json_t *from, const char *key,
                                     struct merak_chat_turn *turn,
                                     struct merak_error *err)
{
    const json_t *text = json_object_get(from, key);

    if (!json_is_string(text))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"%s\" is %s, expected a text", key, type_of(text));
    turn->text = json_string_value(text);
    turn->n = json_string_length(text);
    return MERAK_OK;
}

static enum merak_status take_pair(const struct lines *l, const json_t *object,
                                   struct merak_error *err)
{
    struct merak_chat_turn turn[2] = {{.role = MERAK_CHAT_USER},
                                      {.role = MERAK_CHAT_ANSWER}};
    enum merak_status rc = take_string(object, "prompt", &turn[0], err);

    if (rc == MERAK_OK)
        rc = take_string(object, "completion", &turn[1], err);
    return rc == MERAK_OK
               ? l->reader->turns(l->reader->arg, false, turn, 2, err)
               : rc;
}

static enum merak_status read_role(const json_t *message,
                                   enum merak_chat_role *role_p,
                                   struct merak_error *err)
{
    static const char *const name[] = {"system", "user", "assistant"};
    const json_t *role = json_object_get(message, "role");
    const char *text = json_string_value(role);

    for (int i = 0; text != NULL && i < 3; i++) {
        if (strcmp(text, name[i]) == 0) {
            *role_p = (enum merak_chat_role)i;
            return MERAK_OK;
        }
    }
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "\"role\" is %s%.40s%s, expected system, user or "
                      "assistant",
                      text == NULL ? type_of(role) : "\"",
                      text == NULL ? "" : text, text == NULL ? "" : "\"");
}

static enum merak_status read_message(const json_t *message,
                                      struct merak_chat_turn *turn,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (!json_is_object(message))
        return merak_fail(err, MERAK_ERR_FORMAT, "%s, expected an object",
                          type_of(message));
    rc = read_role(message, &turn->role, err);
    return rc == MERAK_OK ? take_string(message, "content", turn, err) : rc;
}

static enum merak_status read_messages(struct lines *l, const json_t *messages,
                                       struct merak_error *err)
{
    size_t n = json_array_size(messages);
    bool answered = false;

    if (n > l->room) {
        void *more = realloc(l->turn, 2 * n * sizeof(*l->turn));

        if (more == NULL)
            return merak_fail_nomem(err, 2 * n * sizeof(*l->turn));
        l->turn = more;
        l->room = 2 * n;
    }
    for (size_t i = 0; i < n; i++) {
        enum merak_status rc =
            read_message(json_array_get(messages, i), &l->turn[i], err);

        if (rc != MERAK_OK) {
            merak_error_wrap(err, "message %zu", i + 1);
            return rc;
        }
        answered = answered || l->turn[i].role == MERAK_CHAT_ANSWER;
    }
    return answered ? MERAK_OK
                    : merak_fail(err, MERAK_ERR_FORMAT,
                                 "%zu messages and none of the assistant: "
                                 "there is nothing to learn",
                                 n);
}

static enum merak_status take_messages(struct lines *l, const json_t *messages,
                                       struct merak_error *err)
{
    enum merak_status rc;

    if (!json_is_array(messages))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"messages\" is %s, expected a list",
                          type_of(messages));
    rc = read_messages(l, messages, err);
    return rc == MERAK_OK ? l->reader->turns(l->reader->arg, true, l->turn,
                                             json_array_size(messages), err)
                          : rc;
}

/* --- lines ---------------------------------------------------------------- */

static enum merak_status take_object(struct lines *l, const json_t *object,
                                     struct merak_error *err)
{
    const json_t *messages = json_object_get(object, "messages");
    bool is_text = l->key != NULL || json_object_get(object, "text") != NULL;

    if (is_text)
        return take_text(l, object, err);
    if (messages != NULL)
        return take_messages(l, messages, err);
    if (json_object_get(object, "prompt") != NULL ||
        json_object_get(object, "completion") != NULL)
        return take_pair(l, object, err);
    return take_text(l, object, err);
}

static enum merak_status read_line(struct lines *l, const char *line, size_t n,
                                   struct merak_error *err)
{
    json_error_t bad;
    json_t *object = json_loadb(line, n, JSON_ALLOW_NUL, &bad);
    enum merak_status rc;

    if (object == NULL)
        return merak_fail(err, MERAK_ERR_FORMAT, "%s line %llu: not JSON: %s",
                          l->path, l->number, bad.text);
    rc = take_object(l, object, err);
    if (rc == MERAK_ERR_FORMAT || rc == MERAK_ERR_UNSUPPORTED)
        merak_error_wrap(err, "%s line %llu", l->path, l->number);
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
    free(l->turn);
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

/* Read a pipe, or a file without a size, to its end. */
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
        else if (got < 0) /* also EINTR: the program was asked to stop */
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

enum merak_status
merak_documents_read(const char *path, const char *key,
                     const struct merak_document_reader *reader,
                     struct merak_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct lines l = {.path = is_stdin ? "standard input" : path,
                      .key = key,
                      .reader = reader};
    enum merak_status rc;
    int fd;

    if (is_stdin ? key != NULL : is_jsonl(path))
        return open_lines(&l, is_stdin, err);
    if (is_stdin)
        return read_whole(STDIN_FILENO, l.path, reader->document, reader->arg,
                          err);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return merak_file_fail(err, "open", path);
    rc = read_whole(fd, path, reader->document, reader->arg, err);
    close(fd);
    return rc;
}
