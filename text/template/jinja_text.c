/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_text.c - methods of texts */
#include "config.h"

#include "text/template/jinja_filter.h"

#include <ctype.h>

static struct jinja_text text_of(struct jinja_run *r, struct jinja_value v)
{
    return merak_jinja_str(r->a, v);
}

/* A text of an output that keeps being safe. */
static struct jinja_value made(const struct jinja_out *out, bool is_safe)
{
    struct jinja_value v = merak_jinja_out_text(out);

    v.text.is_safe = is_safe;
    return v;
}

struct jinja_text merak_jinja_escape(struct jinja_run *r, struct jinja_value v)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct jinja_text text = text_of(r, v);
    struct jinja_out out = {.n = 0};
    size_t done = 0;

    if (text.is_safe)
        return text;
    for (size_t i = 0; i < text.n && r->a->rc == MERAK_OK; i++) {
        const char *found = memchr(from, text.at[i], sizeof(from) - 1);

        if (found == NULL)
            continue;
        merak_jinja_put(r->a, &out, merak_jinja_cut(r->a, text, done, i));
        merak_jinja_put(
            r->a, &out,
            merak_jinja_text(to[found - from], strlen(to[found - from])).text);
        done = i + 1;
    }
    merak_jinja_put(r->a, &out, merak_jinja_cut(r->a, text, done, text.n));
    return made(&out, true).text;
}

/* What is put into a safe text is escaped. */
static struct jinja_text fit(struct jinja_run *r, struct jinja_text into,
                             struct jinja_text text)
{
    return into.is_safe ? merak_jinja_escape(r, merak_jinja_of_text(text))
                        : text;
}

/* --- ends ------------------------------------------------------------------
 */

static struct jinja_value strip(struct jinja_run *r, struct jinja_value v,
                                const struct jinja_args *args, bool left,
                                bool right)
{
    struct jinja_value set = merak_jinja_arg(args, 0, "chars");

    return merak_jinja_of_text(merak_jinja_strip(
        r->a, text_of(r, v), set.kind == JINJA_TEXT ? set.text.at : NULL,
        set.kind == JINJA_TEXT ? set.text.n : 0, left, right));
}

struct jinja_value merak_jinja_strip_both(struct jinja_run *r,
                                          struct jinja_value v,
                                          const struct jinja_args *args)
{
    return strip(r, v, args, true, true);
}

static struct jinja_value lstrip(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args)
{
    return strip(r, v, args, true, false);
}

static struct jinja_value rstrip(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args)
{
    return strip(r, v, args, false, true);
}

static bool ends_with(struct jinja_run *r, struct jinja_text text,
                      struct jinja_text with, bool at_begin)
{
    return with.n <= text.n && merak_jinja_step_bytes(r->a, with.n) &&
           (with.n == 0 ||
            memcmp(at_begin ? text.at : text.at + text.n - with.n, with.at,
                   with.n) == 0);
}

/* Does a text begin, or end, with another, or with one of a tuple? */
static bool has_end(struct jinja_run *r, struct jinja_text text,
                    const struct jinja_args *args, bool at_begin)
{
    struct jinja_value with = merak_jinja_arg(args, 0, "prefix");

    if (with.kind == JINJA_TEXT)
        return ends_with(r, text, with.text, at_begin);
    if (!merak_jinja_has_form(with, JINJA_TUPLE)) {
        merak_jinja_fail(r->a, "%s without a string or a tuple of them",
                         at_begin ? "startswith" : "endswith");
        return false;
    }
    for (size_t i = 0; i < with.list->n && merak_jinja_step(r->a, 1); i++) {
        if (with.list->item[i].kind == JINJA_TEXT &&
            ends_with(r, text, with.list->item[i].text, at_begin))
            return true;
    }
    return false;
}

static struct jinja_value startswith(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    return merak_jinja_bool(has_end(r, v.text, args, true));
}

static struct jinja_value endswith(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_args *args)
{
    return merak_jinja_bool(has_end(r, v.text, args, false));
}

static struct jinja_value removeprefix(struct jinja_run *r,
                                       struct jinja_value v,
                                       const struct jinja_args *args)
{
    struct jinja_text with = merak_jinja_text_arg(r, args, 0, "removeprefix");

    if (ends_with(r, v.text, with, true))
        v.text = merak_jinja_cut(r->a, v.text, with.n, v.text.n);
    return v;
}

static struct jinja_value removesuffix(struct jinja_run *r,
                                       struct jinja_value v,
                                       const struct jinja_args *args)
{
    struct jinja_text with = merak_jinja_text_arg(r, args, 0, "removesuffix");

    if (ends_with(r, v.text, with, false))
        v.text = merak_jinja_cut(r->a, v.text, 0, v.text.n - with.n);
    return v;
}

/* --- parts -----------------------------------------------------------------
 */

size_t merak_jinja_text_find(struct jinja_arena *a, struct jinja_text text,
                             size_t from, struct jinja_text part)
{
    const char *at = memmem(text.at + from, text.n - from, part.at, part.n);
    size_t found =
        at != NULL && part.n > 0 ? (size_t)(at - text.at) : text.n + 1;

    /* A search reads what it passes over, and first what it looks for. */
    return merak_jinja_step_bytes(a, found - from + part.n) ? found
                                                            : text.n + 1;
}

/* The last `part` that ends at `end` or before, or beyond the text's end. */
static size_t find_last(struct jinja_arena *a, struct jinja_text text,
                        size_t end, struct jinja_text part)
{
    for (size_t at = end; part.n > 0 && at >= part.n; at--) {
        if (!merak_jinja_step(a, 1))
            break;
        if (memcmp(text.at + at - part.n, part.at, part.n) == 0)
            return at - part.n;
    }
    return text.n + 1;
}

static void add_part(struct jinja_run *r, struct jinja_value list,
                     struct jinja_text text, size_t begin, size_t end)
{
    merak_jinja_append(
        r->a, list.list,
        merak_jinja_of_text(merak_jinja_cut(r->a, text, begin, end)));
}

/* At white space: none of the parts is empty. */
static struct jinja_value split_words(struct jinja_run *r,
                                      struct jinja_text text, int64_t left)
{
    struct jinja_value list = merak_jinja_list(r->a);
    size_t at = 0, from, n;

    while (r->a->rc == MERAK_OK) {
        while ((n = merak_jinja_space(text.at + at, text.n - at)) > 0)
            at += n;
        if (at == text.n)
            break;
        if (left-- == 0) {
            text = merak_jinja_strip(r->a, text, NULL, 0, false, true);
            add_part(r, list, text, at, text.n);
            break;
        }
        for (from = at; at < text.n && merak_jinja_step(r->a, 1) &&
                        merak_jinja_space(text.at + at, text.n - at) == 0;)
            at += merak_jinja_char_bytes(text.at + at, text.n - at);
        add_part(r, list, text, from, at);
    }
    return list;
}

static struct jinja_value split(struct jinja_run *r, struct jinja_value v,
                                const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_list(r->a);
    struct jinja_value sep = merak_jinja_arg(args, 0, "sep");
    int64_t left = merak_jinja_int_arg(r, args, 1, "maxsplit", -1);
    size_t from = 0, at;

    if (sep.kind == JINJA_UNDEFINED || sep.kind == JINJA_NONE)
        return split_words(r, v.text, left);
    if (sep.kind != JINJA_TEXT || sep.text.n == 0)
        merak_jinja_fail(r->a, "split at a value that is not a string, or at "
                               "an empty one");
    while (left-- != 0 && r->a->rc == MERAK_OK) {
        at = merak_jinja_text_find(r->a, v.text, from, sep.text);
        if (at > v.text.n)
            break;
        add_part(r, list, v.text, from, at);
        from = at + sep.text.n;
    }
    if (r->a->rc == MERAK_OK)
        add_part(r, list, v.text, from, v.text.n);
    return list;
}

static struct jinja_value rsplit(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args)
{
    struct jinja_value back = merak_jinja_list(r->a),
                       list = merak_jinja_list(r->a);
    struct jinja_text sep = merak_jinja_text_arg(r, args, 0, "rsplit");
    int64_t left = merak_jinja_int_arg(r, args, 1, "maxsplit", -1);
    size_t end = v.text.n, at;

    while (left-- != 0 && r->a->rc == MERAK_OK) {
        at = find_last(r->a, v.text, end, sep);
        if (at > v.text.n)
            break;
        add_part(r, back, v.text, at + sep.n, end);
        end = at;
    }
    if (r->a->rc == MERAK_OK)
        add_part(r, back, v.text, 0, end);
    for (size_t i = back.list->n; i > 0; i--)
        merak_jinja_append(r->a, list.list, back.list->item[i - 1]);
    return list;
}

static struct jinja_value splitlines(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_list(r->a);
    size_t from = 0;

    if (args->n > 0)
        merak_jinja_fail(r->a, "splitlines with an argument");
    for (size_t i = 0; i < v.text.n && merak_jinja_step(r->a, 1); i++) {
        unsigned char c = (unsigned char)v.text.at[i];

        if (c == '\v' || c == '\f' || (c >= 0x1c && c <= 0x1e) || c == 0x85)
            merak_jinja_fail(r->a, "splitlines at other than newlines");
        if (c != '\n' && c != '\r')
            continue;
        add_part(r, list, v.text, from, i);
        i += c == '\r' && i + 1 < v.text.n && v.text.at[i + 1] == '\n';
        from = i + 1;
    }
    if (from < v.text.n && r->a->rc == MERAK_OK)
        add_part(r, list, v.text, from, v.text.n);
    return list;
}

/* Before, itself, behind; `none`: where it is, if it is nowhere. */
static struct jinja_value in_three(struct jinja_run *r, struct jinja_text text,
                                   struct jinja_text sep, size_t at,
                                   size_t none)
{
    struct jinja_value list = merak_jinja_formed(r->a, JINJA_TUPLE);
    size_t n = at <= text.n ? sep.n : 0;

    if (r->a->rc != MERAK_OK)
        return list;
    at = at <= text.n ? at : none;
    add_part(r, list, text, 0, at);
    add_part(r, list, text, at, at + n);
    add_part(r, list, text, at + n, text.n);
    return list;
}

static struct jinja_value partition(struct jinja_run *r, struct jinja_value v,
                                    const struct jinja_args *args)
{
    struct jinja_text sep = merak_jinja_text_arg(r, args, 0, "partition");

    return in_three(r, v.text, sep, merak_jinja_text_find(r->a, v.text, 0, sep),
                    v.text.n);
}

static struct jinja_value rpartition(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    struct jinja_text sep = merak_jinja_text_arg(r, args, 0, "rpartition");

    return in_three(r, v.text, sep, find_last(r->a, v.text, v.text.n, sep), 0);
}

static int64_t characters(struct jinja_text text, size_t n)
{
    int64_t count = 0;

    for (size_t i = 0; i < n; count++)
        i += merak_jinja_char_bytes(text.at + i, text.n - i);
    return count;
}

static struct jinja_value index_of(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_args *args, bool last,
                                   bool needed)
{
    struct jinja_text part = merak_jinja_text_arg(r, args, 0, "find");
    size_t at = last ? find_last(r->a, v.text, v.text.n, part)
                     : merak_jinja_text_find(r->a, v.text, 0, part);

    if (args->n > 1 || (part.n == 0 && r->a->rc == MERAK_OK))
        merak_jinja_fail(r->a, "find of an empty string, or with a range");
    if (at > v.text.n && needed)
        merak_jinja_fail(r->a, "index of a string that is not there");
    return merak_jinja_int(at > v.text.n ? -1 : characters(v.text, at));
}

static struct jinja_value find(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_args *args)
{
    return index_of(r, v, args, false, false);
}

static struct jinja_value rfind(struct jinja_run *r, struct jinja_value v,
                                const struct jinja_args *args)
{
    return index_of(r, v, args, true, false);
}

static struct jinja_value index_in(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_args *args)
{
    return index_of(r, v, args, false, true);
}

static struct jinja_value count(struct jinja_run *r, struct jinja_value v,
                                const struct jinja_args *args)
{
    struct jinja_text part = merak_jinja_text_arg(r, args, 0, "count");
    int64_t n = 0;

    if (part.n == 0)
        merak_jinja_fail(r->a, "count of an empty string");
    for (size_t at = merak_jinja_text_find(r->a, v.text, 0, part);
         at <= v.text.n && r->a->rc == MERAK_OK;
         at = merak_jinja_text_find(r->a, v.text, at + part.n, part))
        n++;
    return merak_jinja_int(n);
}

/* --- making texts ----------------------------------------------------------
 */

struct jinja_value merak_jinja_replace(struct jinja_run *r,
                                       struct jinja_value v,
                                       const struct jinja_args *args)
{
    struct jinja_text text = text_of(r, v);
    struct jinja_text old = merak_jinja_text_arg(r, args, 0, "replace");
    struct jinja_text by =
        fit(r, text, merak_jinja_text_arg(r, args, 1, "replace"));
    int64_t left = merak_jinja_int_arg(r, args, 2, "count", -1);
    struct jinja_out out = {.n = 0};
    size_t from = 0, at;

    if (old.n == 0)
        merak_jinja_fail(r->a, "replace of an empty string");
    for (at = merak_jinja_text_find(r->a, text, 0, old);
         at <= text.n && left-- != 0 && r->a->rc == MERAK_OK;
         at = merak_jinja_text_find(r->a, text, from, old)) {
        merak_jinja_put(r->a, &out, merak_jinja_cut(r->a, text, from, at));
        merak_jinja_put(r->a, &out, by);
        from = at + old.n;
    }
    merak_jinja_put(r->a, &out, merak_jinja_cut(r->a, text, from, text.n));
    return made(&out, text.is_safe);
}

struct jinja_value merak_jinja_join_with(struct jinja_run *r,
                                         struct jinja_value list,
                                         struct jinja_text between)
{
    const struct jinja_list *items = merak_jinja_items(r->a, list);
    struct jinja_out out = {.n = 0};

    for (size_t i = 0; i < items->n && r->a->rc == MERAK_OK; i++) {
        if (i > 0)
            merak_jinja_put(r->a, &out, between);
        merak_jinja_put(r->a, &out,
                        fit(r, between, text_of(r, items->item[i])));
    }
    return made(&out, between.is_safe);
}

/* Unlike the filter, of texts only. */
static struct jinja_value join(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_args *args)
{
    struct jinja_value list = merak_jinja_formed(r->a, JINJA_ROW);

    *list.list = *merak_jinja_items(r->a, merak_jinja_arg(args, 0, ""));
    for (size_t i = 0; i < list.list->n; i++) {
        if (list.list->item[i].kind != JINJA_TEXT)
            merak_jinja_fail(r->a, "join() of a value that is not a string");
    }
    return merak_jinja_join_with(r, list, v.text);
}

/* --- upper and lower case --------------------------------------------------
 */

static struct jinja_value change_case(struct jinja_run *r, struct jinja_value v,
                                      char how)
{
    struct jinja_text text = text_of(r, v);
    char *to = merak_jinja_alloc(r->a, text.n + 1);
    bool in_word = false;

    for (size_t i = 0; i < text.n && r->a->rc == MERAK_OK; i++) {
        unsigned char c = (unsigned char)text.at[i];

        if (c >= 0x80)
            merak_jinja_fail(r->a, "upper or lower case beyond ASCII");
        else
            to[i] = (char)(how == 'u' || (how != 'l' && !in_word) ? toupper(c)
                                                                  : tolower(c));
        in_word = how == 'c' || isalpha(c);
    }
    text.at = to;
    return merak_jinja_of_text(text);
}

struct jinja_value merak_jinja_upper(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    (void)args;
    return change_case(r, v, 'u');
}

struct jinja_value merak_jinja_lower(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    (void)args;
    return change_case(r, v, 'l');
}

struct jinja_value merak_jinja_capitalize(struct jinja_run *r,
                                          struct jinja_value v,
                                          const struct jinja_args *args)
{
    (void)args;
    return change_case(r, v, 'c');
}

static struct jinja_value title(struct jinja_run *r, struct jinja_value v,
                                const struct jinja_args *args)
{
    (void)args;
    return change_case(r, v, 't');
}

/* Are all characters of a class, and is there one? */
static struct jinja_value all_are(struct jinja_run *r, struct jinja_value v,
                                  int (*is)(int))
{
    bool all = v.text.n > 0;

    if (!merak_jinja_step_bytes(r->a, v.text.n))
        return v;
    for (size_t i = 0; i < v.text.n; i++) {
        if ((unsigned char)v.text.at[i] >= 0x80)
            merak_jinja_fail(r->a, "the class of characters beyond ASCII");
        all = all && is((unsigned char)v.text.at[i]);
    }
    return merak_jinja_bool(all);
}

static struct jinja_value isdigit_of(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    (void)args;
    return all_are(r, v, isdigit);
}

static struct jinja_value isalpha_of(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    (void)args;
    return all_are(r, v, isalpha);
}

static struct jinja_value isalnum_of(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    (void)args;
    return all_are(r, v, isalnum);
}

static struct jinja_value isspace_of(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    (void)args;
    return merak_jinja_bool(
        v.text.n > 0 &&
        merak_jinja_strip(r->a, v.text, NULL, 0, true, true).n == 0);
}

const struct jinja_row merak_jinja_text_methods[] = {
    {"strip", merak_jinja_strip_both},
    {"lstrip", lstrip},
    {"rstrip", rstrip},
    {"startswith", startswith},
    {"endswith", endswith},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"partition", partition},
    {"rpartition", rpartition},
    {"find", find},
    {"rfind", rfind},
    {"index", index_in},
    {"count", count},
    {"replace", merak_jinja_replace},
    {"join", join},
    {"format", merak_jinja_braces},
    {"upper", merak_jinja_upper},
    {"lower", merak_jinja_lower},
    {"capitalize", merak_jinja_capitalize},
    {"title", title},
    {"isdigit", isdigit_of},
    {"isalpha", isalpha_of},
    {"isalnum", isalnum_of},
    {"isspace", isspace_of},
    {NULL, NULL},
};
