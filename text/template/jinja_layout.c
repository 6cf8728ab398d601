/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_layout.c - filters of templates that lay out texts */
#include "config.h"

#include "text/template/jinja_filter.h"

#include <ctype.h>

/* As jinja2 has it: a word begins after a blank, a hyphen or a bracket. */
struct jinja_value merak_jinja_title(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    struct jinja_text text = merak_jinja_str(r->a, v);
    char *to = merak_jinja_alloc(r->a, text.n + 1);
    bool begins = true;

    (void)args;
    for (size_t i = 0; i < text.n && r->a->rc == MERAK_OK; i++) {
        unsigned char c = (unsigned char)text.at[i];

        if (c >= 0x80)
            merak_jinja_fail(r->a, "upper or lower case beyond ASCII");
        to[i] = (char)(begins ? toupper(c) : tolower(c));
        begins = isspace(c) || (c != 0 && strchr("-({[<", c) != NULL);
    }
    text.at = to;
    return merak_jinja_of_text(text);
}

static void put_plain(struct jinja_run *r, struct jinja_out *out,
                      const char *text, size_t n)
{
    merak_jinja_put(r->a, out, merak_jinja_text(text, n).text);
}

/* What an indent is: so many blanks, or a text. */
static struct jinja_text read_width(struct jinja_run *r,
                                    const struct jinja_args *args)
{
    struct jinja_value width = merak_jinja_arg(args, 0, "width");
    int64_t n = 4;
    char *blanks;

    if (width.kind == JINJA_TEXT)
        return width.text;
    n = merak_jinja_int_arg(r, args, 0, "width", 4);
    if (n < 0 || n > 1000)
        merak_jinja_fail(r->a, "an indent of more than 1000 characters");
    if (r->a->rc != MERAK_OK)
        n = 0;
    blanks = merak_jinja_alloc(r->a, (size_t)n + 1);
    if (r->a->rc == MERAK_OK)
        memset(blanks, ' ', (size_t)n);
    return merak_jinja_text(blanks, (size_t)n).text;
}

/* Lines but the first; empty ones only if asked for. */
struct jinja_value merak_jinja_indent(struct jinja_run *r, struct jinja_value v,
                                      const struct jinja_args *args)
{
    struct jinja_text text = merak_jinja_str(r->a, v);
    struct jinja_text by = read_width(r, args);
    bool first = merak_jinja_truth(merak_jinja_arg(args, 1, "first"));
    bool blank = merak_jinja_truth(merak_jinja_arg(args, 2, "blank"));
    struct jinja_out out = {.n = 0};
    size_t from = 0, end;

    if (v.kind != JINJA_TEXT)
        merak_jinja_fail(r->a, "indent of a value that is not a string");
    for (size_t line = 0; from <= text.n && merak_jinja_step(r->a, 1); line++) {
        const char *at = memchr(text.at + from, '\n', text.n - from);

        end = at != NULL ? (size_t)(at - text.at) : text.n;
        if (end > from && text.at[end - 1] == '\r')
            merak_jinja_fail(r->a, "indent of lines with carriage returns");
        if (line > 0)
            put_plain(r, &out, "\n", 1);
        /* jinja2's lines end with one more newline. */
        if (line == 0 ? first : blank || end > from)
            merak_jinja_put(r->a, &out, by);
        merak_jinja_put(r->a, &out, merak_jinja_cut(r->a, text, from, end));
        from = end + 1;
    }
    return merak_jinja_out_text(&out);
}

static size_t bytes_of(struct jinja_text text, int64_t characters)
{
    size_t n = 0;

    for (; n < text.n && characters > 0; characters--)
        n += merak_jinja_char_bytes(text.at + n, text.n - n);
    return n;
}

static int64_t characters_of(struct jinja_text text)
{
    int64_t n = 0;

    for (size_t i = 0; i < text.n; n++)
        i += merak_jinja_char_bytes(text.at + i, text.n - i);
    return n;
}

struct jinja_value merak_jinja_truncate(struct jinja_run *r,
                                        struct jinja_value v,
                                        const struct jinja_args *args)
{
    static const char dots[] = "...";
    struct jinja_text text = merak_jinja_str(r->a, v);
    struct jinja_value end = merak_jinja_arg(args, 2, "end");
    int64_t most = merak_jinja_int_arg(r, args, 0, "length", 255);
    int64_t leeway = merak_jinja_int_arg(r, args, 3, "leeway", 5);
    bool cuts = merak_jinja_truth(merak_jinja_arg(args, 1, "killwords"));
    struct jinja_out out = {.n = 0};
    size_t n;

    if (end.kind != JINJA_TEXT)
        end = merak_jinja_text(dots, sizeof(dots) - 1);
    if (most < characters_of(end.text) || leeway < 0)
        merak_jinja_fail(r->a, "truncate to less than what ends it");
    if (!merak_jinja_step_bytes(r->a, text.n) ||
        characters_of(text) <= most + leeway)
        return merak_jinja_of_text(text);
    n = bytes_of(text, most - characters_of(end.text));
    for (size_t k = n; !cuts && k > 0; k--) {
        if (text.at[k - 1] == ' ') {
            n = k - 1;
            break;
        }
    }
    merak_jinja_put(r->a, &out, merak_jinja_cut(r->a, text, 0, n));
    merak_jinja_put(r->a, &out, end.text);
    return merak_jinja_out_text(&out);
}

/* As str.center(): the odd blank is before, where the width is odd. */
struct jinja_value merak_jinja_center(struct jinja_run *r, struct jinja_value v,
                                      const struct jinja_args *args)
{
    struct jinja_text text = merak_jinja_str(r->a, v);
    int64_t width = merak_jinja_int_arg(r, args, 0, "width", 80);
    int64_t more = width - characters_of(text), left;
    struct jinja_out out = {.n = 0};

    if (width > 10000)
        merak_jinja_fail(r->a, "a width of more than 10000");
    more = more > 0 && r->a->rc == MERAK_OK ? more : 0;
    left = more / 2 + (more & width & 1);
    for (int64_t i = 0; i < left; i++)
        put_plain(r, &out, " ", 1);
    merak_jinja_put(r->a, &out, text);
    for (int64_t i = left; i < more; i++)
        put_plain(r, &out, " ", 1);
    return merak_jinja_out_text(&out);
}

/* Runs of letters, digits and underscores. */
struct jinja_value merak_jinja_wordcount(struct jinja_run *r,
                                         struct jinja_value v,
                                         const struct jinja_args *args)
{
    struct jinja_text text = merak_jinja_str(r->a, v);
    bool in_word = false;
    int64_t n = 0;

    (void)args;
    if (!merak_jinja_step_bytes(r->a, text.n))
        return v;
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.at[i];
        bool is = isalnum(c) || c == '_';

        if (c >= 0x80)
            merak_jinja_fail(r->a, "words beyond ASCII");
        n += is && !in_word;
        in_word = is;
    }
    return merak_jinja_int(n);
}
