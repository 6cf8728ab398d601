/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_lex.c - tokens of templates
 *
 * Between tags is data.  A "-" at a tag's inner side removes the white space
 * on its outer side.  Without one, a statement or comment removes the blanks
 * before it on its line, and the newline after it: trim_blocks and
 * lstrip_blocks, as set by transformers.
 */
#include "config.h"

#include "text/template/jinja_impl.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

struct lexer {
    struct jinja_arena *a;
    const char *at, *end;
    int line;
    bool line_starts; /* the last token ended with a newline */
    struct jinja_token *token;
    size_t n, room;
};

static void add_token(struct lexer *l, struct jinja_token token)
{
    if (l->n == l->room) {
        size_t room = 2 * l->room + 256;
        struct jinja_token *wide =
            merak_jinja_alloc(l->a, room * sizeof(*wide));

        if (l->a->rc != MERAK_OK)
            return;
        if (l->n > 0)
            memcpy(wide, l->token, l->n * sizeof(*wide));
        l->token = wide;
        l->room = room;
    }
    token.line = l->line;
    l->token[l->n++] = token;
}

static void skip(struct lexer *l, size_t n)
{
    for (; n > 0 && l->at < l->end; n--)
        l->line += *l->at++ == '\n';
}

static char *copy(struct lexer *l, const char *from, size_t n)
{
    char *to = merak_jinja_alloc(l->a, n + 1);

    if (l->a->rc == MERAK_OK)
        memcpy(to, from, n);
    return to;
}

/* --- tags ------------------------------------------------------------------
 */

static void skip_space(struct lexer *l)
{
    size_t n = 1;

    while (n > 0) {
        n = merak_jinja_space(l->at, (size_t)(l->end - l->at));
        skip(l, n);
    }
}

/* Skip white space after a tag's end. */
static void end_tag(struct lexer *l, char sign, bool trims)
{
    const char *from = l->at;

    if (sign == '-')
        skip_space(l);
    else if (sign != '+' && trims && l->at < l->end && *l->at == '\n')
        skip(l, 1);
    l->line_starts = l->at > from && l->at[-1] == '\n';
}

/* The data before a tag that begins at `tag`, or the program's end. */
static void add_data(struct lexer *l, const char *tag)
{
    const char *from = l->at, *end = tag, *blank;
    char kind = tag < l->end ? tag[1] : 0;
    char sign = l->end - tag > 2 ? tag[2] : 0;

    if (kind != 0 && sign == '-') {
        struct jinja_text text = merak_jinja_strip(
            l->a, merak_jinja_text(from, (size_t)(tag - from)).text, NULL, 0,
            false, true);

        end = from + text.n;
    } else if (kind != 0 && kind != '{' && sign != '+') {
        for (blank = tag; blank > from && blank[-1] != '\n' &&
                          isspace((unsigned char)blank[-1]);)
            blank--;
        if (blank == from ? l->line_starts : blank[-1] == '\n')
            end = blank;
    }
    if (end > from)
        add_token(
            l, (struct jinja_token){.kind = JINJA_T_DATA,
                                    .at = copy(l, from, (size_t)(end - from)),
                                    .n = (size_t)(end - from)});
    skip(l, (size_t)(tag - from));
}

/* The bytes of a tag that has one word, such as {%- raw %}, or 0; and the sign
 * at its end. */
static size_t is_word_tag(const char *at, const char *end, const char *word,
                          char *sign)
{
    const char *from = at;
    size_t n = strlen(word);

    if (end - at < 4 || memcmp(at, "{%", 2) != 0)
        return 0;
    at += at[2] == '-' || at[2] == '+' ? 3 : 2;
    while (at < end && isspace((unsigned char)*at))
        at++;
    if ((size_t)(end - at) < n || memcmp(at, word, n) != 0)
        return 0;
    for (at += n; at < end && isspace((unsigned char)*at);)
        at++;
    *sign = at < end && (*at == '-' || *at == '+') ? *at++ : '\0';
    return end - at >= 2 && memcmp(at, "%}", 2) == 0 ? (size_t)(at + 2 - from)
                                                     : 0;
}

/* Data up to {% endraw %}; false if this is not a {% raw %}. */
static bool lex_raw(struct lexer *l)
{
    char sign;
    size_t n = is_word_tag(l->at, l->end, "raw", &sign);
    const char *at;

    if (n == 0)
        return false;
    skip(l, n);
    end_tag(l, sign, false);
    for (at = l->at, n = 0; at < l->end && n == 0; at += n == 0)
        n = is_word_tag(at, l->end, "endraw", &sign);
    if (n == 0)
        merak_jinja_fail(l->a, "a raw block that is not ended");
    add_data(l, at);
    skip(l, n);
    end_tag(l, sign, true);
    return true;
}

static void skip_comment(struct lexer *l)
{
    const char *end = memmem(l->at, (size_t)(l->end - l->at), "#}", 2);
    char sign;

    if (end == NULL || end < l->at + 2) {
        merak_jinja_fail(l->a, "a comment that is not ended");
        return;
    }
    sign = end[-1];
    skip(l, (size_t)(end + 2 - l->at));
    end_tag(l, sign, true);
}

/* --- what is in tags -------------------------------------------------------
 */

static size_t put_utf8(char *to, unsigned long c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* \xHH, \uHHHH, \UHHHHHHHH at a backslash: bytes read, or 0. */
static size_t read_code(const char *at, const char *end, unsigned long *code)
{
    size_t digits = at[1] == 'x' ? 2 : at[1] == 'u' ? 4 : 8;
    char text[9] = "";

    if ((size_t)(end - at) < digits + 2)
        return 0;
    for (size_t i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)at[2 + i]))
            return 0;
        text[i] = at[2 + i];
    }
    *code = strtoul(text, NULL, 16);
    return *code < 0x110000 ? digits + 2 : 0;
}

/* One Python escape; an unknown one is taken literally. */
static size_t read_escape(struct lexer *l, const char *at, const char *end,
                          char *to, size_t *n)
{
    static const char from[] = "ntrbfva\\'\"";
    static const char is[] = "\n\t\r\b\f\v\a\\'\"";
    const char *found = at[1] != '\0' ? strchr(from, at[1]) : NULL;
    unsigned long code = 0;
    size_t bytes;

    if (found != NULL) {
        to[(*n)++] = is[found - from];
        return 2;
    }
    if (at[1] == '\n')
        return 2;
    if (strchr("xuU", at[1]) != NULL && at[1] != '\0') {
        bytes = read_code(at, end, &code);
        if (bytes == 0)
            merak_jinja_fail(l->a, "\\%c without its digits", at[1]);
        *n += put_utf8(to + *n, code);
        return bytes > 0 ? bytes : 2;
    }
    if (at[1] >= '0' && at[1] <= '7') {
        for (bytes = 1; bytes < 4 && at + bytes < end && at[bytes] >= '0' &&
                        at[bytes] <= '7';)
            code = 8 * code + (unsigned long)(at[bytes++] - '0');
        *n += put_utf8(to + *n, code);
        return bytes;
    }
    if (at[1] == 'N')
        merak_jinja_fail(l->a, "a character by its name");
    to[(*n)++] = '\\';
    return 1;
}

static void lex_text(struct lexer *l)
{
    const char quote = *l->at, *from = l->at + 1, *end = from;
    char *text;
    size_t n = 0;

    while (end < l->end && *end != quote)
        end += *end == '\\' && end + 1 < l->end ? 2 : 1;
    if (end >= l->end) {
        merak_jinja_fail(l->a, "a string that is not ended");
        return;
    }
    text = copy(l, from, (size_t)(end - from));
    for (const char *at = from; at < end && l->a->rc == MERAK_OK;) {
        if (*at == '\\' && at + 1 < end)
            at += read_escape(l, at, end, text, &n);
        else
            text[n++] = *at++;
    }
    if (l->a->rc == MERAK_OK)
        text[n] = '\0';
    add_token(l,
              (struct jinja_token){.kind = JINJA_T_TEXT, .at = text, .n = n});
    skip(l, (size_t)(end + 1 - l->at));
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && isdigit((unsigned char)*at))
        at++;
    return at;
}

/* Digits with "_", and prefixes such as "0x", are refused. */
static void lex_number(struct lexer *l)
{
    const char *at = skip_digits(l->at, l->end), *e;
    struct jinja_token token = {.kind = JINJA_T_INT};
    char *text;

    if (at < l->end && memchr("_xXoObB", *at, 7) != NULL)
        merak_jinja_fail(l->a, "a number with %c", *at);
    if (l->end - at > 1 && *at == '.' && isdigit((unsigned char)at[1])) {
        token.kind = JINJA_T_REAL;
        at = skip_digits(at + 1, l->end);
    }
    e = at + 1 + (l->end - at > 1 && (at[1] == '-' || at[1] == '+'));
    if (at < l->end && (*at == 'e' || *at == 'E') && e < l->end &&
        isdigit((unsigned char)*e)) {
        token.kind = JINJA_T_REAL;
        at = skip_digits(e, l->end);
    }
    token.at = text = copy(l, l->at, (size_t)(at - l->at));
    token.n = (size_t)(at - l->at);
    errno = 0;
    token.real = strtod(text, NULL);
    token.integer = strtoll(text, NULL, 10);
    if (errno != 0)
        merak_jinja_fail(l->a, "the number %.40s", text);
    add_token(l, token);
    skip(l, token.n);
}

static void lex_name(struct lexer *l)
{
    const char *at = l->at;

    while (at < l->end && (isalnum((unsigned char)*at) || *at == '_'))
        at++;
    add_token(l,
              (struct jinja_token){.kind = JINJA_T_NAME,
                                   .at = copy(l, l->at, (size_t)(at - l->at)),
                                   .n = (size_t)(at - l->at)});
    skip(l, (size_t)(at - l->at));
}

static void lex_sign(struct lexer *l)
{
    static const char *const signs[] = {
        "==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "(",
        ")",  "[",  "]",  "{",  "}",  ",",  ":", ".", "|", "=", "<", ">"};

    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
        size_t n = strlen(signs[i]);

        if ((size_t)(l->end - l->at) < n || memcmp(l->at, signs[i], n) != 0)
            continue;
        add_token(l, (struct jinja_token){
                         .kind = JINJA_T_SIGN, .at = signs[i], .n = n});
        skip(l, n);
        return;
    }
    merak_jinja_fail(l->a, "unexpected %.1s in a tag", l->at);
}

/* Is this the end of the tag, with its sign? A "}" may end a dict first. */
static bool ends_here(struct lexer *l, const char *close, int open, char *sign)
{
    const char *at = l->at;
    size_t left = (size_t)(l->end - at);

    *sign = 0;
    if (left > 2 && (*at == '-' || *at == '+') && memcmp(at + 1, close, 2) == 0)
        *sign = *at;
    else if (left < 2 || memcmp(at, close, 2) != 0 ||
             (open > 0 && close[0] == '}'))
        return false;
    skip(l, *sign != 0 ? 3 : 2);
    return true;
}

static void lex_tag(struct lexer *l, bool statement)
{
    const char *close = statement ? "%}" : "}}";
    int open = 0; /* braces */
    char sign = 0;

    add_token(l, (struct jinja_token){.kind = statement ? JINJA_T_OPEN
                                                        : JINJA_T_PRINT});
    skip(l, 2);
    if (l->at < l->end && (*l->at == '-' || *l->at == '+'))
        skip(l, 1);
    for (skip_space(l); l->a->rc == MERAK_OK; skip_space(l)) {
        l->a->line = l->line;
        if (l->at >= l->end) {
            merak_jinja_fail(l->a, "a tag that is not ended");
            return;
        }
        if (ends_here(l, close, open, &sign))
            break;
        open += *l->at == '{' ? 1 : *l->at == '}' ? -1 : 0;
        if (*l->at == '\'' || *l->at == '"')
            lex_text(l);
        else if (isdigit((unsigned char)*l->at))
            lex_number(l);
        else if (isalpha((unsigned char)*l->at) || *l->at == '_')
            lex_name(l);
        else
            lex_sign(l);
    }
    add_token(l, (struct jinja_token){.kind = JINJA_T_CLOSE});
    end_tag(l, sign, statement);
}

static const char *find_tag(const char *at, const char *end)
{
    for (; end - at >= 2; at++) {
        if (at[0] == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#'))
            return at;
    }
    return end;
}

/* Make newlines a single character, and remove one at the end. */
static char *normalize(struct jinja_arena *a, const char *text, size_t *n_p)
{
    char *to = merak_jinja_alloc(a, *n_p + 1);
    size_t n = 0;

    for (size_t i = 0; i < *n_p && a->rc == MERAK_OK; i++) {
        if (text[i] == '\r' && i + 1 < *n_p && text[i + 1] == '\n')
            continue;
        to[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    *n_p = n > 0 && to[n - 1] == '\n' ? n - 1 : n;
    return to;
}

struct jinja_token *merak_jinja_lex(struct jinja_arena *a, const char *text,
                                    size_t n)
{
    struct lexer l = {.a = a, .line = 1, .line_starts = true};

    l.at = normalize(a, text, &n);
    l.end = l.at + n;
    while (a->rc == MERAK_OK && l.at < l.end) {
        const char *tag = find_tag(l.at, l.end);

        a->line = l.line;
        add_data(&l, tag);
        if (tag >= l.end)
            break;
        if (tag[1] == '#')
            skip_comment(&l);
        else if (!lex_raw(&l))
            lex_tag(&l, tag[1] == '%');
    }
    add_token(&l, (struct jinja_token){.kind = JINJA_T_END});
    return l.token;
}
