/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_number.c - numbers of templates, as Python has them
 *
 * Integers beyond 64 bits are refused.
 */
#include "config.h"

#include "text/template/jinja_filter.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool merak_jinja_is_whole(struct jinja_value v, int64_t *x)
{
    *x = v.kind == JINJA_BOOL ? v.truth : v.kind == JINJA_INT ? v.integer : 0;
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT;
}

bool merak_jinja_is_number(struct jinja_value v, double *x)
{
    *x = v.kind == JINJA_BOOL   ? (double)v.truth
         : v.kind == JINJA_INT  ? (double)v.integer
         : v.kind == JINJA_REAL ? v.real
                                : 0;
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_REAL;
}

struct jinja_value merak_jinja_real(double real)
{
    return (struct jinja_value){.kind = JINJA_REAL, .real = real};
}

static bool power(int64_t x, int64_t y, int64_t *z)
{
    bool over = false;

    for (*z = 1; y > 0 && !over && (*z != 0 && x != 1); y--)
        over = __builtin_mul_overflow(*z, x, z);
    return over;
}

/* Rounded down, as in Python. */
static struct jinja_value wholes(struct jinja_run *r, const char *sign,
                                 int64_t x, int64_t y)
{
    int64_t z = 0;
    bool over = false;

    if (sign[0] == '+')
        over = __builtin_add_overflow(x, y, &z);
    else if (sign[0] == '-')
        over = __builtin_sub_overflow(x, y, &z);
    else if (strcmp(sign, "*") == 0)
        over = __builtin_mul_overflow(x, y, &z);
    else if (sign[0] == '*')
        over = power(x, y, &z);
    else if (y == 0)
        merak_jinja_fail(r->a, "a division by 0");
    else if (y == -1)
        over = sign[0] == '/' && __builtin_sub_overflow(0, x, &z);
    else if (sign[0] == '/')
        z = x / y - (x % y != 0 && (x < 0) != (y < 0));
    else
        z = x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0);
    if (over)
        merak_jinja_fail(r->a, "a number above 2^63");
    return merak_jinja_int(z);
}

static double reals(struct jinja_run *r, const char *sign, double x, double y)
{
    double rest;

    switch (sign[0]) {
    case '+':
        return x + y;
    case '-':
        return x - y;
    case '*':
        return sign[1] == '*' ? pow(x, y) : x * y;
    default:
        break;
    }
    if (y == 0)
        merak_jinja_fail(r->a, "a division by 0");
    if (strcmp(sign, "/") == 0)
        return x / y;
    rest = fmod(x, y);
    if (rest != 0 && (rest < 0) != (y < 0))
        rest += y;
    return sign[0] == '%' ? rest : floor((x - rest) / y + 0.5);
}

bool merak_jinja_arithmetic(struct jinja_run *r, const char *sign,
                            struct jinja_value x, struct jinja_value y,
                            struct jinja_value *z)
{
    int64_t i = 0, k = 0;
    double a, b;

    if (!merak_jinja_is_number(x, &a) || !merak_jinja_is_number(y, &b))
        return false;
    if (merak_jinja_is_whole(x, &i) && merak_jinja_is_whole(y, &k) &&
        strcmp(sign, "/") != 0 && (strcmp(sign, "**") != 0 || k >= 0))
        *z = wholes(r, sign, i, k);
    else
        *z = merak_jinja_real(reals(r, sign, a, b));
    return true;
}

/* --- filters ---------------------------------------------------------------
 */

/* A number that is all of a text but for blanks. */
static bool read_number(struct jinja_run *r, struct jinja_text text, int base,
                        int64_t *whole, double *real)
{
    struct jinja_text t = merak_jinja_strip(r->a, text, NULL, 0, true, true);
    char at[64], *end = at;

    *real = 0;
    if (t.n == 0 || t.n >= sizeof(at) || memchr(t.at, '_', t.n) != NULL ||
        isspace((unsigned char)t.at[0]))
        return false;
    memcpy(at, t.at, t.n);
    at[t.n] = '\0';
    errno = 0;
    if (whole != NULL)
        *whole = strtoll(at, &end, base);
    else if (strpbrk(at, "xXpP(") == NULL)
        *real = strtod(at, &end);
    return *end == '\0' && end > at && (whole == NULL || errno == 0);
}

/* A text that is a real is cut to an integer, too. */
struct jinja_value merak_jinja_to_int(struct jinja_run *r, struct jinja_value v,
                                      const struct jinja_args *args)
{
    struct jinja_value other = merak_jinja_arg(args, 0, "default");
    struct jinja_value base = merak_jinja_arg(args, 1, "base");
    int64_t whole;
    double x;

    if (merak_jinja_is_whole(v, &whole))
        return merak_jinja_int(whole);
    if (v.kind == JINJA_TEXT &&
        read_number(r, v.text, base.kind == JINJA_INT ? (int)base.integer : 10,
                    &whole, &x))
        return merak_jinja_int(whole);
    if ((v.kind == JINJA_TEXT && read_number(r, v.text, 0, NULL, &x)) ||
        merak_jinja_is_number(v, &x)) {
        if (isfinite(x) && fabs(x) < 0x1p63)
            return merak_jinja_int((int64_t)x);
        if (isfinite(x))
            merak_jinja_fail(r->a, "a number above 2^63");
    }
    return other.kind != JINJA_UNDEFINED ? other : merak_jinja_int(0);
}

struct jinja_value merak_jinja_to_float(struct jinja_run *r,
                                        struct jinja_value v,
                                        const struct jinja_args *args)
{
    struct jinja_value other = merak_jinja_arg(args, 0, "default");
    double x;

    if (merak_jinja_is_number(v, &x) ||
        (v.kind == JINJA_TEXT && read_number(r, v.text, 0, NULL, &x)))
        return merak_jinja_real(x);
    return other.kind != JINJA_UNDEFINED ? other : merak_jinja_real(0);
}

struct jinja_value merak_jinja_abs(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_args *args)
{
    int64_t whole;
    double x;

    (void)args;
    if (merak_jinja_is_whole(v, &whole))
        return whole < 0 ? wholes(r, "-", 0, whole) : merak_jinja_int(whole);
    if (!merak_jinja_is_number(v, &x))
        merak_jinja_fail(r->a, "abs of a value that is not a number");
    return merak_jinja_real(fabs(x));
}

/* To decimals, half to even; an integer stays one, unless it is rounded up or
 * down. */
struct jinja_value merak_jinja_round(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_args *args)
{
    struct jinja_value digits = merak_jinja_arg(args, 0, "precision");
    struct jinja_value how = merak_jinja_arg(args, 1, "method");
    int64_t n = digits.kind == JINJA_INT ? digits.integer : 0, whole;
    bool up = merak_jinja_is(how, "ceil"), down = merak_jinja_is(how, "floor");
    char text[400];
    double x;

    if (!merak_jinja_is_number(v, &x) || n < 0 || n > 30 ||
        (how.kind != JINJA_UNDEFINED && !up && !down &&
         !merak_jinja_is(how, "common")))
        merak_jinja_fail(r->a, "round of a value that is not a number, or to "
                               "other than 0 to 30 decimals");
    if (up || down)
        return merak_jinja_real((up ? ceil(x * pow(10, (double)n))
                                    : floor(x * pow(10, (double)n))) /
                                pow(10, (double)n));
    if (merak_jinja_is_whole(v, &whole))
        return merak_jinja_int(whole);
    snprintf(text, sizeof(text), "%.*f", (int)n, x);
    return merak_jinja_real(strtod(text, NULL));
}
