/* SPDX-License-Identifier: Apache-2.0 */
/* hostlist.c - Slurm's hostlist expressions
 *
 *   list   = item *("," item)
 *   item   = literal *( "[" range *("," range) "]" literal )
 *   range  = low [ "-" high ]      decimal, padded to low's width
 *
 * Several brackets in one item form all combinations, the last varies fastest.
 */
#include "config.h"

#include "placement/hostlist.h"

#include "base/error.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BRACKETS = 4,
    MAX_DIGITS = 9 /* of a number in a range: fits an int */
};

struct expansion {
    struct merak_hostlist list;
    int room, max;
    char name[MERAK_NAME_MAX + 1]; /* the one being built */
    struct merak_error *err;
};

static enum merak_status malformed(struct expansion *x, const char *why)
{
    return merak_fail(x->err, MERAK_ERR_FORMAT, "host list: %s", why);
}

void merak_hostlist_fini(struct merak_hostlist *list)
{
    if (list == NULL)
        return;
    for (int i = 0; i < list->n; i++)
        free(list->name[i]);
    free(list->name);
    list->name = NULL;
    list->n = 0;
}

static enum merak_status add_name(struct expansion *x, size_t len)
{
    struct merak_hostlist *list = &x->list;
    char **grown;

    if (len == 0)
        return malformed(x, "an empty name");
    if (list->n == x->max)
        return malformed(x, "too many names");
    if (list->n == x->room) {
        x->room = x->room == 0 ? 16 : 2 * x->room;
        grown = realloc(list->name, (size_t)x->room * sizeof(*grown));
        if (grown == NULL)
            return merak_fail_nomem(x->err, (size_t)x->room * sizeof(*grown));
        list->name = grown;
    }
    list->name[list->n] = strndup(x->name, len);
    if (list->name[list->n] == NULL)
        return merak_fail_nomem(x->err, len + 1);
    list->n++;
    return MERAK_OK;
}

/* Digits at *p (before end) as a number; -1 if there are none or too many. */
static int parse_number(const char **p, const char *end, int *width)
{
    int value = 0;

    *width = 0;
    while (*p < end && isdigit((unsigned char)**p)) {
        if (++*width > MAX_DIGITS)
            return -1;
        value = value * 10 + (**p - '0');
        (*p)++;
    }
    return *width == 0 ? -1 : value;
}

static enum merak_status expand_item(struct expansion *x, size_t len,
                                     const char *p, const char *end,
                                     int brackets);

/* Expand one range of a bracket and move *p_p past it.  rest is what follows
 * the bracket. */
static enum merak_status expand_range(struct expansion *x, size_t len,
                                      const char **p_p, const char *close,
                                      const char *rest, const char *end,
                                      int brackets)
{
    int width, width_high;
    int low = parse_number(p_p, close, &width);
    int high = low;

    if (*p_p < close && **p_p == '-') {
        (*p_p)++;
        high = parse_number(p_p, close, &width_high);
    }
    if (low < 0 || high < low)
        return malformed(x, "a range that is not number-number");
    for (int i = low; i <= high; i++) {
        size_t room = sizeof(x->name) - len;
        int n = snprintf(x->name + len, room, "%0*d", width, i);
        enum merak_status rc;

        if ((size_t)n >= room)
            return malformed(x, "a name that is too long");
        rc = expand_item(x, len + (size_t)n, rest, end, brackets + 1);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* Expand the rest [p, end) of an item; x->name has its first len characters. */
static enum merak_status expand_item(struct expansion *x, size_t len,
                                     const char *p, const char *end,
                                     int brackets)
{
    const char *open = memchr(p, '[', (size_t)(end - p));
    size_t literal = (size_t)((open != NULL ? open : end) - p);
    const char *close;
    enum merak_status rc;

    if (len + literal >= sizeof(x->name))
        return malformed(x, "a name that is too long");
    if (memchr(p, ']', literal) != NULL)
        return malformed(x, "\"]\" without \"[\"");
    memcpy(x->name + len, p, literal);
    len += literal;
    if (open == NULL)
        return add_name(x, len);
    close = memchr(open, ']', (size_t)(end - open));
    if (close == NULL || brackets == MAX_BRACKETS)
        return malformed(x, close == NULL ? "\"[\" without \"]\""
                                          : "too many brackets");
    p = open;
    do {
        p++; /* "[" or "," */
        rc = expand_range(x, len, &p, close, close + 1, end, brackets);
        if (rc != MERAK_OK)
            return rc;
    } while (*p == ',');
    return p == close ? MERAK_OK : malformed(x, "a character in a range");
}

/* The end of the item at p: a comma outside brackets, or the text's end. */
static const char *item_end(const char *p)
{
    bool inside = false;

    for (; *p != '\0' && (inside || *p != ','); p++) {
        if (*p == '[' || *p == ']')
            inside = *p == '[';
    }
    return p;
}

enum merak_status merak_hostlist_expand(const char *text, int max,
                                        struct merak_hostlist *list,
                                        struct merak_error *err)
{
    struct expansion x = {.max = max, .err = err};
    const char *p = text;

    for (;;) {
        const char *end = item_end(p);
        enum merak_status rc = expand_item(&x, 0, p, end, 0);

        if (rc != MERAK_OK) {
            merak_hostlist_fini(&x.list);
            return rc;
        }
        if (*end == '\0')
            break;
        p = end + 1;
    }
    *list = x.list;
    return MERAK_OK;
}

/* Length of name before its trailing number; *value gets the number, or -1 if
 * it has none that a range can hold. */
static size_t split_number(const char *name, int *value, int *width)
{
    size_t len = strlen(name), prefix = len;
    const char *digits;

    while (prefix > 0 && isdigit((unsigned char)name[prefix - 1]))
        prefix--;
    digits = name + prefix;
    *value = parse_number(&digits, name + len, width);
    return prefix;
}

/* Does b continue a: same prefix, same number of digits, number one higher?  A
 * number that grows by a digit (9, 10) has no padding and continues, too; one
 * with fewer digits (01, 2) does not. */
static bool follows(const char *a, const char *b)
{
    int value_a, value_b, width_a, width_b;
    size_t prefix = split_number(a, &value_a, &width_a);

    if (split_number(b, &value_b, &width_b) != prefix ||
        memcmp(a, b, prefix) != 0 || value_a < 0 || value_b != value_a + 1)
        return false;
    return strlen(b) == strlen(a) ||
           (strlen(b) > strlen(a) && b[prefix] != '0');
}

/* May b be in the same bracket as a? */
static bool shares_prefix(const char *a, const char *b)
{
    int value_a, value_b, width;
    size_t prefix = split_number(a, &value_a, &width);

    return split_number(b, &value_b, &width) == prefix &&
           memcmp(a, b, prefix) == 0 && value_a >= 0 && value_b >= 0;
}

/* The last name of the range that starts with name[i]. */
static int range_end(char *const *name, int n, int i)
{
    while (i + 1 < n && follows(name[i], name[i + 1]))
        i++;
    return i;
}

void merak_hostlist_fold(FILE *out, char *const *name, int n)
{
    for (int i = 0; i < n; i++) {
        int value, width;
        size_t prefix = split_number(name[i], &value, &width);
        const char *separator = "[";

        if (i > 0)
            fputc(',', out);
        if (i + 1 == n || !shares_prefix(name[i], name[i + 1])) {
            fputs(name[i], out);
            continue;
        }
        fwrite(name[i], 1, prefix, out);
        for (;;) {
            int last = range_end(name, n, i);

            fprintf(out, "%s%s", separator, name[i] + prefix);
            if (last > i)
                fprintf(out, "-%s", name[last] + prefix);
            i = last;
            if (i + 1 == n || !shares_prefix(name[i], name[i + 1]))
                break;
            i++;
            separator = ",";
        }
        fputc(']', out);
    }
}

/* Compare the numbers at *a and *b by their digits, whatever their length. */
static int compare_digits(const char **a, const char **b)
{
    size_t len_a, len_b;
    int order;

    while (**a == '0' && isdigit((unsigned char)(*a)[1]))
        (*a)++;
    while (**b == '0' && isdigit((unsigned char)(*b)[1]))
        (*b)++;
    len_a = strspn(*a, "0123456789");
    len_b = strspn(*b, "0123456789");
    if (len_a != len_b)
        return len_a < len_b ? -1 : 1;
    order = strncmp(*a, *b, len_a);
    *a += len_a;
    *b += len_b;
    return order;
}

int merak_name_compare(const char *a, const char *b)
{
    const char *p = a, *q = b;

    while (*p != '\0' && *q != '\0') {
        if (isdigit((unsigned char)*p) && isdigit((unsigned char)*q)) {
            int order = compare_digits(&p, &q);

            if (order != 0)
                return order;
            continue;
        }
        if (*p != *q)
            return (unsigned char)*p < (unsigned char)*q ? -1 : 1;
        p++;
        q++;
    }
    if (*p != *q)
        return *p == '\0' ? -1 : 1;
    return strcmp(a, b); /* n1 and n01 are two names */
}
