/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_value.c - values of templates, and their memory */
#include "config.h"

#include "text/template/jinja_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- memory ----------------------------------------------------------------
 */

/* No published template comes near it, even with a book in a message. */
#define MOST_BYTES ((size_t)512 << 20)
#define BLOCK_BYTES ((size_t)64 << 10)
/* A second or two, and a part of the usual stack of 8 MiB. */
#define MOST_STEPS ((uint64_t)50 * 1000 * 1000)
enum { MOST_DEPTH = 1000, STEP_BYTES = 64 };

struct jinja_block {
    struct jinja_block *next;
    size_t n, room;
    _Alignas(16) char at[];
};

static struct jinja_block *add_block(struct jinja_arena *a, size_t bytes)
{
    size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct jinja_block *b = NULL;

    if (a->bytes + room <= MOST_BYTES)
        b = malloc(sizeof(*b) + room);
    else
        merak_jinja_fail(a, "the template takes more than %zu MiB",
                         MOST_BYTES >> 20);
    if (b == NULL) {
        if (a->rc == MERAK_OK)
            a->rc = merak_fail_nomem(a->err, room);
        return NULL;
    }
    b->next = a->block;
    b->n = 0;
    b->room = room;
    a->block = b;
    a->bytes += room;
    return b;
}

void *merak_jinja_alloc(struct jinja_arena *a, size_t bytes)
{
    /* Large enough for any single struct that is requested. */
    static _Thread_local _Alignas(16) char nowhere[512];
    struct jinja_block *b = a->block;
    size_t n = (bytes + 15) & ~(size_t)15;
    void *at;

    if (n < bytes || b == NULL || n > b->room - b->n)
        b = n < bytes ? NULL : add_block(a, n);
    if (b == NULL)
        return memset(nowhere, 0, sizeof(nowhere));
    at = b->at + b->n;
    b->n += n;
    return memset(at, 0, n);
}

/* Make room for n + 1 elements; false without memory: the old array is
 * kept. */
static bool grow(struct jinja_arena *a, void **at, size_t n, size_t *room,
                 size_t bytes)
{
    size_t more = 2 * n + 8;
    void *wide;

    if (n < *room)
        return true;
    wide = merak_jinja_alloc(a, more * bytes);
    if (a->rc != MERAK_OK)
        return false;
    if (n > 0)
        memcpy(wide, *at, n * bytes);
    *at = wide;
    *room = more;
    return true;
}

void merak_jinja_arena_free(struct jinja_arena *a)
{
    while (a->block != NULL) {
        struct jinja_block *next = a->block->next;

        free(a->block);
        a->block = next;
    }
    a->bytes = 0;
}

/* A template's output is not trusted, since it may be shown on terminals. */
void merak_jinja_one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = ' ';
    }
}

void merak_jinja_fail(struct jinja_arena *a, const char *fmt, ...)
{
    char text[200];
    va_list args;

    if (a->rc != MERAK_OK)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    a->rc =
        merak_fail(a->err, MERAK_ERR_UNSUPPORTED, "line %d: %s", a->line, text);
}

bool merak_jinja_step(struct jinja_arena *a, size_t n)
{
    a->steps += n;
    if (a->steps > MOST_STEPS)
        merak_jinja_fail(a, "the template does not end");
    return a->rc == MERAK_OK;
}

bool merak_jinja_step_bytes(struct jinja_arena *a, size_t n)
{
    return merak_jinja_step(a, 1 + n / STEP_BYTES);
}

bool merak_jinja_descend(struct jinja_arena *a)
{
    if (a->depth++ >= MOST_DEPTH)
        merak_jinja_fail(a, "more than %d levels of calls, operators and lists",
                         MOST_DEPTH);
    return a->rc == MERAK_OK;
}

void merak_jinja_ascend(struct jinja_arena *a)
{
    a->depth--;
}

/* --- making values ---------------------------------------------------------
 */

struct jinja_value merak_jinja_undefined(const char *name)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .name = name};
}

struct jinja_value merak_jinja_bool(bool truth)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .truth = truth};
}

struct jinja_value merak_jinja_int(int64_t integer)
{
    return (struct jinja_value){.kind = JINJA_INT, .integer = integer};
}

struct jinja_value merak_jinja_text(const char *at, size_t n)
{
    return (struct jinja_value){.kind = JINJA_TEXT, .text = {at, n, NULL, 0}};
}

struct jinja_value merak_jinja_of_text(struct jinja_text text)
{
    return (struct jinja_value){.kind = JINJA_TEXT, .text = text};
}

struct jinja_value merak_jinja_list(struct jinja_arena *a)
{
    return (struct jinja_value){
        .kind = JINJA_LIST,
        .list = merak_jinja_alloc(a, sizeof(struct jinja_list))};
}

struct jinja_value merak_jinja_formed(struct jinja_arena *a,
                                      enum jinja_form form)
{
    struct jinja_value v = merak_jinja_list(a);

    v.list->form = form;
    return v;
}

struct jinja_value merak_jinja_dict(struct jinja_arena *a)
{
    return (struct jinja_value){
        .kind = JINJA_DICT,
        .dict = merak_jinja_alloc(a, sizeof(struct jinja_dict))};
}

void merak_jinja_append(struct jinja_arena *a, struct jinja_list *list,
                        struct jinja_value item)
{
    void *at = list->item;

    if (a->rc != MERAK_OK || !grow(a, &at, list->n, &list->room, sizeof(item)))
        return;
    list->item = at;
    list->item[list->n++] = item;
}

struct jinja_value *merak_jinja_find(struct jinja_arena *a,
                                     const struct jinja_dict *dict,
                                     const char *key, size_t n)
{
    for (size_t i = 0; i < dict->n; i++) {
        const struct jinja_value *k = &dict->pair[i].key;
        bool fits = k->kind == JINJA_TEXT && k->text.n == n;

        if (!merak_jinja_step_bytes(a, fits ? n : 0))
            return NULL;
        if (!fits || (n > 0 && memcmp(k->text.at, key, n) != 0))
            continue;
        dict->pair[i].read = true;
        return &dict->pair[i].value;
    }
    return NULL;
}

struct jinja_value *merak_jinja_find_key(struct jinja_arena *a,
                                         const struct jinja_dict *dict,
                                         struct jinja_value key)
{
    if (key.kind == JINJA_TEXT)
        return merak_jinja_find(a, dict, key.text.at, key.text.n);
    for (size_t i = 0; i < dict->n; i++) {
        if (!merak_jinja_same(a, dict->pair[i].key, key))
            continue;
        dict->pair[i].read = true;
        return &dict->pair[i].value;
    }
    return NULL;
}

void merak_jinja_set(struct jinja_arena *a, struct jinja_dict *dict,
                     struct jinja_value key, struct jinja_value value)
{
    struct jinja_value *old = merak_jinja_find_key(a, dict, key);
    void *at = dict->pair;

    if (old != NULL) {
        *old = value;
        return;
    }
    if (a->rc != MERAK_OK ||
        !grow(a, &at, dict->n, &dict->room, sizeof(*dict->pair)))
        return;
    dict->pair = at;
    dict->pair[dict->n++] = (struct jinja_pair){key, value, false};
}

/* --- properties --------------------------------------------------------
 */

bool merak_jinja_truth(struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.truth;
    case JINJA_INT:
        return v.integer != 0;
    case JINJA_REAL:
        return v.real != 0;
    case JINJA_TEXT:
        return v.text.n > 0;
    case JINJA_LIST:
        return v.list->n > 0 || v.list->form == JINJA_STREAM;
    case JINJA_DICT:
        return v.dict->is_namespace || v.dict->n > 0;
    default:
        return true;
    }
}

static bool number(struct jinja_value v, double *x)
{
    *x = v.kind == JINJA_BOOL  ? (double)v.truth
         : v.kind == JINJA_INT ? (double)v.integer
                               : v.real;
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_REAL;
}

static bool same_lists(struct jinja_arena *arena, const struct jinja_list *a,
                       const struct jinja_list *b)
{
    bool same = a->n == b->n && a->form == b->form && a->form <= JINJA_TUPLE;

    for (size_t i = 0; same && i < a->n; i++)
        same = merak_jinja_same(arena, a->item[i], b->item[i]);
    return same;
}

static bool same_dicts(struct jinja_arena *arena, const struct jinja_dict *a,
                       const struct jinja_dict *b)
{
    bool same = a->n == b->n;

    for (size_t i = 0; same && i < a->n; i++) {
        const struct jinja_value *other =
            merak_jinja_find_key(arena, b, a->pair[i].key);

        same =
            other != NULL && merak_jinja_same(arena, a->pair[i].value, *other);
    }
    return same;
}

static bool same_texts(struct jinja_arena *arena, struct jinja_text a,
                       struct jinja_text b)
{
    return a.n == b.n && merak_jinja_step_bytes(arena, a.n) &&
           (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

static bool same_kinds(struct jinja_arena *arena, struct jinja_value a,
                       struct jinja_value b)
{
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_TEXT:
        return same_texts(arena, a.text, b.text);
    case JINJA_LIST:
        return a.list == b.list || same_lists(arena, a.list, b.list);
    case JINJA_DICT:
        return a.dict == b.dict || same_dicts(arena, a.dict, b.dict);
    default:
        return false;
    }
}

bool merak_jinja_same(struct jinja_arena *arena, struct jinja_value a,
                      struct jinja_value b)
{
    bool same = false;
    double x, y;

    if (!merak_jinja_step(arena, 1))
        return false;
    if (number(a, &x) && number(b, &y))
        return x == y;
    if (a.kind != b.kind)
        return false;
    if (merak_jinja_descend(arena))
        same = same_kinds(arena, a, b);
    merak_jinja_ascend(arena);
    return same;
}

bool merak_jinja_is(struct jinja_value v, const char *text)
{
    size_t n = strlen(text);

    return v.kind == JINJA_TEXT && v.text.n == n &&
           memcmp(v.text.at, text, n) == 0;
}

bool merak_jinja_has_form(struct jinja_value v, enum jinja_form form)
{
    return v.kind == JINJA_LIST && v.list->form == form;
}

struct jinja_list *merak_jinja_items(struct jinja_arena *a,
                                     struct jinja_value v)
{
    struct jinja_value list = merak_jinja_list(a);

    if (merak_jinja_has_form(v, JINJA_STREAM)) {
        *list.list = *v.list;
        list.list->form = JINJA_ROW;
        *v.list = (struct jinja_list){.form = JINJA_STREAM};
        return list.list;
    }
    if (v.kind == JINJA_LIST)
        return v.list;
    if (v.kind == JINJA_DICT && !v.dict->is_namespace) {
        for (size_t i = 0; i < v.dict->n; i++)
            merak_jinja_append(a, list.list, v.dict->pair[i].key);
    } else if (v.kind == JINJA_TEXT) {
        for (size_t i = 0, n; i < v.text.n && a->rc == MERAK_OK; i += n) {
            n = merak_jinja_char_bytes(v.text.at + i, v.text.n - i);
            merak_jinja_append(a, list.list,
                               (struct jinja_value){.kind = JINJA_TEXT,
                                                    .text = merak_jinja_cut(
                                                        a, v.text, i, i + n)});
        }
    } else if (v.kind != JINJA_UNDEFINED) {
        merak_jinja_fail(a, "a loop over a value that is not a list");
    }
    return list.list;
}

/* --- texts -----------------------------------------------------------------
 */

void merak_jinja_mark_put(struct jinja_arena *a, struct jinja_out *out,
                          struct merak_jinja_mark mark)
{
    void *at = out->mark;

    if (a->rc != MERAK_OK ||
        !grow(a, &at, out->n_marks, &out->mark_room, sizeof(mark)))
        return;
    out->mark = at;
    out->mark[out->n_marks++] = mark;
}

void merak_jinja_put(struct jinja_arena *a, struct jinja_out *out,
                     struct jinja_text text)
{
    if (text.n > out->room - out->n) {
        size_t room = 2 * (out->n + text.n) + 64;
        char *wide = merak_jinja_alloc(a, room);

        if (a->rc != MERAK_OK)
            return;
        if (out->n > 0)
            memcpy(wide, out->at, out->n);
        out->at = wide;
        out->room = room;
    }
    for (size_t i = 0; i < text.n_marks; i++)
        merak_jinja_mark_put(a, out,
                             (struct merak_jinja_mark){
                                 out->n + text.mark[i].begin,
                                 out->n + text.mark[i].end,
                                 text.mark[i].message, text.mark[i].source});
    if (text.n > 0)
        memcpy(out->at + out->n, text.at, text.n);
    out->n += text.n;
}

struct jinja_value merak_jinja_out_text(const struct jinja_out *out)
{
    return (struct jinja_value){.kind = JINJA_TEXT,
                                .text = {out->at != NULL ? out->at : "", out->n,
                                         out->mark, out->n_marks}};
}

/* An empty mark, as of an empty answer, is kept if it touches the range. */
struct jinja_text merak_jinja_cut(struct jinja_arena *a, struct jinja_text text,
                                  size_t begin, size_t end)
{
    struct jinja_text part = {text.at + begin, end - begin, NULL, 0,
                              text.is_safe};
    struct merak_jinja_mark *mark;

    if (text.n_marks == 0 || !merak_jinja_step(a, text.n_marks))
        return part;
    mark = merak_jinja_alloc(a, text.n_marks * sizeof(*mark));
    if (a->rc != MERAK_OK)
        return part;
    for (size_t i = 0; i < text.n_marks; i++) {
        size_t b = text.mark[i].begin, e = text.mark[i].end;

        if (e < begin || b > end)
            continue;
        mark[part.n_marks++] = (struct merak_jinja_mark){
            b > begin ? b - begin : 0, (e < end ? e : end) - begin,
            text.mark[i].message,
            text.mark[i].source != NULL && b < begin
                ? text.mark[i].source + (begin - b)
                : text.mark[i].source};
    }
    part.mark = mark;
    return part;
}

size_t merak_jinja_char_bytes(const char *text, size_t n)
{
    unsigned char c = (unsigned char)text[0];
    size_t bytes = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    return bytes <= n ? bytes : 1;
}

size_t merak_jinja_space(const char *text, size_t n)
{
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80",
        "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84",
        "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
        "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9",
        "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

    if (n == 0)
        return 0;
    if (text[0] == ' ' || (text[0] >= 9 && text[0] <= 13) ||
        (text[0] >= 0x1c && text[0] <= 0x1f))
        return 1;
    for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++) {
        size_t bytes = strlen(wide[i]);

        if (n >= bytes && memcmp(text, wide[i], bytes) == 0)
            return bytes;
    }
    return 0;
}

/* Bytes of the character that begins a text if it is in the set, else 0. */
static size_t of_set(struct jinja_arena *a, const char *text, size_t n,
                     const char *set, size_t n_set)
{
    size_t bytes;

    if (!merak_jinja_step_bytes(a, n_set))
        return 0;
    if (set == NULL || n == 0)
        return merak_jinja_space(text, n);
    bytes = merak_jinja_char_bytes(text, n);
    return memmem(set, n_set, text, bytes) != NULL ? bytes : 0;
}

struct jinja_text merak_jinja_strip(struct jinja_arena *a,
                                    struct jinja_text text, const char *set,
                                    size_t n_set, bool left, bool right)
{
    size_t begin = 0, end = text.n, n = left;

    while (begin < end && n > 0) {
        n = of_set(a, text.at + begin, end - begin, set, n_set);
        begin += n;
    }
    for (n = right; begin < end && n > 0;) {
        size_t last = end - 1;

        while (last > begin && ((unsigned char)text.at[last] & 0xc0) == 0x80)
            last--;
        n = of_set(a, text.at + last, end - last, set, n_set);
        end = n > 0 ? last : end;
    }
    return merak_jinja_cut(a, text, begin, end);
}
