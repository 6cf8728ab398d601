/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_format.c - "%s" % values and "{}".format(values), as in Python */
#include "config.h"

#include "text/template/jinja_filter.h"

#include <ctype.h>
#include <stdio.h>

/* [[fill]align][sign][0][width][.precision][type] */
struct spec {
    char fill[5];
    size_t n_fill;
    char align, sign, type;
    int64_t width, precision; /* -1: none */
};

struct formatter {
    struct jinja_run *r;
    struct jinja_out out;
    const struct jinja_args *args;
    size_t next;   /* argument without a number */
    bool numbered; /* a field had a number */
};

enum { MOST_WIDTH = 10000 };

static bool among(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static int64_t read_int(const char **at, const char *end)
{
    int64_t x = 0;

    if (*at == end || !isdigit((unsigned char)**at))
        return -1;
    for (; *at < end && isdigit((unsigned char)**at); ++*at)
        x = x > MOST_WIDTH ? x : 10 * x + (**at - '0');
    return x;
}

static void pad(struct formatter *f, const struct spec *spec, int64_t n)
{
    for (; n > 0; n--)
        merak_jinja_put(f->r->a, &f->out,
                        merak_jinja_text(spec->fill, spec->n_fill).text);
}

static int64_t characters(struct jinja_text text)
{
    int64_t n = 0;

    for (size_t i = 0; i < text.n; n++)
        i += merak_jinja_char_bytes(text.at + i, text.n - i);
    return n;
}

/* With what the width asks for; a number's zeros are behind its sign. */
static void put_padded(struct formatter *f, const struct spec *spec,
                       struct jinja_text text, char align)
{
    int64_t more = spec->width - characters(text), before;
    size_t sign =
        align == '=' && text.n > 0 && (text.at[0] == '-' || text.at[0] == '+');

    more = more > 0 ? more : 0;
    before = align == '<' ? 0 : align == '^' ? more / 2 : more;
    merak_jinja_put(f->r->a, &f->out, merak_jinja_cut(f->r->a, text, 0, sign));
    pad(f, spec, before);
    merak_jinja_put(f->r->a, &f->out,
                    merak_jinja_cut(f->r->a, text, sign, text.n));
    pad(f, spec, more - before);
}

static struct jinja_text
number_text(struct formatter *f, const struct spec *spec, struct jinja_value v)
{
    char *text = merak_jinja_alloc(f->r->a, 512), form[16];
    int64_t whole;
    double x = 0;
    int n = 0;

    if (among(spec->type, "dixX") && merak_jinja_is_whole(v, &whole)) {
        snprintf(form, sizeof(form), "%%%sll%c", spec->sign == '+' ? "+" : "",
                 spec->type == 'i' ? 'd' : spec->type);
        if (whole < 0 && tolower(spec->type) == 'x')
            merak_jinja_fail(f->r->a, "a negative number in hexadecimal");
        n = snprintf(text, 512, form, (long long)whole);
    } else if (among(spec->type, "feEgG") && merak_jinja_is_number(v, &x) &&
               x < 1e300 && x > -1e300) {
        snprintf(form, sizeof(form), "%%%s.*%c", spec->sign == '+' ? "+" : "",
                 spec->type);
        n = snprintf(text, 512, form,
                     spec->precision < 0 ? 6 : (int)spec->precision, x);
    } else {
        merak_jinja_fail(f->r->a, "a format of type %c of such a value",
                         spec->type);
        return merak_jinja_text("", 0).text;
    }
    return merak_jinja_text(text, (size_t)n).text;
}

static void put_value(struct formatter *f, struct spec spec,
                      struct jinja_value v, bool is_safe)
{
    struct jinja_text text;
    double x;

    if (spec.precision > 60 || spec.width > MOST_WIDTH)
        merak_jinja_fail(f->r->a, "a format of more than %d characters",
                         MOST_WIDTH);
    if (spec.type != 's') {
        put_padded(f, &spec, number_text(f, &spec, v),
                   spec.align != 0 ? spec.align : '>');
        return;
    }
    text = merak_jinja_str(f->r->a, v);
    if (is_safe)
        text = merak_jinja_escape(f->r, v);
    if (spec.precision >= 0) {
        size_t end = 0;

        for (; end < text.n && spec.precision > 0; spec.precision--)
            end += merak_jinja_char_bytes(text.at + end, text.n - end);
        text = merak_jinja_cut(f->r->a, text, 0, end);
    }
    if (spec.align == 0)
        spec.align = merak_jinja_is_number(v, &x) ? '>' : '<';
    put_padded(f, &spec, text, spec.align);
}

static struct jinja_value finish(struct formatter *f, bool is_safe)
{
    struct jinja_value v = merak_jinja_out_text(&f->out);

    v.text.is_safe = is_safe;
    return v;
}

/* --- % ---------------------------------------------------------------------
 */

static const char *read_flags(const char *at, const char *end,
                              struct spec *spec)
{
    *spec = (struct spec){
        .fill = " ", .n_fill = 1, .align = '>', .width = -1, .precision = -1};
    for (; at < end && among(*at, "-+0"); at++) {
        if (*at == '-')
            spec->align = '<';
        else if (*at == '+')
            spec->sign = '+';
        else if (spec->align != '<')
            spec->fill[0] = '0', spec->align = '=';
    }
    spec->width = read_int(&at, end);
    if (at < end && *at == '.') {
        at++;
        spec->precision = read_int(&at, end);
        spec->precision = spec->precision < 0 ? 0 : spec->precision;
    }
    return at;
}

/* "(name)" behind a "%", or the next value. */
static struct jinja_value percent_value(struct formatter *f, const char **at,
                                        const char *end)
{
    const char *close;
    struct jinja_value v = merak_jinja_undefined(NULL);

    if (*at < end && **at == '(') {
        close = memchr(*at, ')', (size_t)(end - *at));
        if (close != NULL)
            v = merak_jinja_arg(
                f->args, SIZE_MAX,
                merak_jinja_c_text(
                    f->r,
                    merak_jinja_text(*at + 1, (size_t)(close - *at - 1)).text));
        *at = close != NULL ? close + 1 : end;
    } else if (f->next < f->args->n && f->args->name[f->next] == NULL) {
        return f->args->value[f->next++];
    }
    if (v.kind == JINJA_UNDEFINED)
        merak_jinja_fail(f->r->a, "fewer values than the format has");
    return v;
}

struct jinja_value merak_jinja_percent(struct jinja_run *r,
                                       struct jinja_text format,
                                       const struct jinja_args *args)
{
    struct formatter f = {.r = r, .args = args};
    const char *at = format.at, *end = at + format.n, *sign;
    struct jinja_value v;
    struct spec spec;

    while (at < end && r->a->rc == MERAK_OK) {
        sign = memchr(at, '%', (size_t)(end - at));
        sign = sign != NULL ? sign : end;
        merak_jinja_put(r->a, &f.out,
                        merak_jinja_cut(r->a, format, (size_t)(at - format.at),
                                        (size_t)(sign - format.at)));
        at = sign < end ? sign + 1 : end;
        if (sign == end)
            break;
        if (at < end && *at == '%') {
            merak_jinja_put(r->a, &f.out, merak_jinja_text("%", 1).text);
            at++;
            continue;
        }
        v = percent_value(&f, &at, end);
        at = read_flags(at, end, &spec);
        spec.type = at < end ? *at++ : '?';
        if (!among(spec.type, "dixXfeEgGs"))
            merak_jinja_fail(r->a, "%%%c in a format", spec.type);
        if (among(spec.type, "di") && v.kind == JINJA_REAL)
            v = merak_jinja_to_int(r, v, &(struct jinja_args){.n = 0});
        if (spec.type == 's' && spec.align == '=')
            spec.align = '>', spec.fill[0] = ' ';
        put_value(&f, spec, v, format.is_safe);
    }
    if (f.next < args->n && args->name[f.next] == NULL)
        merak_jinja_fail(r->a, "more values than the format has");
    return finish(&f, format.is_safe);
}

/* --- {} --------------------------------------------------------------------
 */

static void read_spec(struct formatter *f, const char *at, const char *end,
                      struct spec *spec)
{
    size_t n = at < end ? merak_jinja_char_bytes(at, (size_t)(end - at)) : 0;

    *spec = (struct spec){
        .fill = " ", .n_fill = 1, .type = 's', .width = -1, .precision = -1};
    if (n > 0 && at + n < end && among(at[n], "<>^=")) {
        memcpy(spec->fill, at, n);
        spec->n_fill = n;
        at += n;
    }
    if (at < end && among(*at, "<>^="))
        spec->align = *at++;
    if (at < end && *at == '+')
        spec->sign = *at++;
    if (at < end && *at == '0' && spec->align == 0)
        spec->fill[0] = '0', spec->align = '=';
    spec->width = read_int(&at, end);
    if (at < end && *at == '.') {
        at++;
        spec->precision = read_int(&at, end);
    }
    if (at < end && among(*at, "sdxXfeEgG"))
        spec->type = *at++;
    if (at != end)
        merak_jinja_fail(f->r->a, "the format {:%.*s}", (int)(end - at), at);
}

/* The value that a field names: by number, by name, or the next. */
static struct jinja_value field_value(struct formatter *f, const char *at,
                                      const char *end)
{
    const char *from = at;
    int64_t i = read_int(&at, end);

    f->numbered |= i >= 0;
    if (from == end)
        i = (int64_t)f->next++;
    if (f->numbered && f->next > 0)
        merak_jinja_fail(f->r->a, "a format with and without numbers");
    if (i < 0 && memchr(from, '.', (size_t)(end - from)) == NULL &&
        memchr(from, '[', (size_t)(end - from)) == NULL &&
        merak_jinja_has_arg(
            f->args, SIZE_MAX,
            merak_jinja_c_text(
                f->r, merak_jinja_text(from, (size_t)(end - from)).text)))
        return merak_jinja_arg(
            f->args, SIZE_MAX,
            merak_jinja_c_text(
                f->r, merak_jinja_text(from, (size_t)(end - from)).text));
    if (i >= 0 && at == end && (size_t)i < f->args->n &&
        f->args->name[i] == NULL)
        return f->args->value[i];
    merak_jinja_fail(f->r->a, "the field {%.*s} of a format", (int)(end - from),
                     from);
    return merak_jinja_undefined(NULL);
}

static void put_field(struct formatter *f, const char *at, const char *end,
                      bool is_safe)
{
    const char *colon = memchr(at, ':', (size_t)(end - at));
    struct jinja_value v = field_value(f, at, colon != NULL ? colon : end);
    struct spec spec;
    double x;

    read_spec(f, colon != NULL ? colon + 1 : end, end, &spec);
    if (spec.type == 's' && merak_jinja_is_number(v, &x) &&
        v.kind != JINJA_BOOL && (spec.precision >= 0 || spec.sign != 0))
        merak_jinja_fail(f->r->a, "a precision without a type");
    if (spec.type == 's' && v.kind == JINJA_BOOL && spec.width >= 0)
        merak_jinja_fail(f->r->a, "a width of true or false");
    if (spec.type == 's' && colon != NULL && end - colon > 1 &&
        v.kind != JINJA_TEXT && !merak_jinja_is_number(v, &x))
        merak_jinja_fail(f->r->a, "a format of a value that has none");
    put_value(f, spec, v, is_safe);
}

struct jinja_value merak_jinja_braces(struct jinja_run *r, struct jinja_value v,
                                      const struct jinja_args *args)
{
    struct formatter f = {.r = r, .args = args};
    const char *at = v.text.at, *end = at + v.text.n, *from, *close;

    while (at < end && r->a->rc == MERAK_OK) {
        for (from = at; at < end && *at != '{' && *at != '}';)
            at++;
        merak_jinja_put(r->a, &f.out,
                        merak_jinja_cut(r->a, v.text,
                                        (size_t)(from - v.text.at),
                                        (size_t)(at - v.text.at)));
        if (at == end)
            break;
        if (end - at > 1 && at[1] == at[0]) {
            merak_jinja_put(r->a, &f.out, merak_jinja_text(at, 1).text);
            at += 2;
            continue;
        }
        close = *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;
        if (close == NULL || memchr(at + 1, '{', (size_t)(close - at)) != NULL)
            merak_jinja_fail(r->a, "a brace alone, or in another, in a format");
        else
            put_field(&f, at + 1, close, v.text.is_safe);
        at = close != NULL ? close + 1 : end;
    }
    return finish(&f, v.text.is_safe);
}
