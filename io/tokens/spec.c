/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c - how users write a data set */
#include "config.h"

#include "io/tokens/spec.h"

#include "base/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_number(const char *word, double *value_p)
{
    char *end;

    *value_p = strtod(word, &end);
    return end != word && *end == '\0';
}

/* The next word, which quotes of either kind hold together; NULL: no more.  The
 * text is cut in place. */
static char *next_word(char **at)
{
    char *from = *at + strspn(*at, " \t\n"), *end;

    if (*from == '\0')
        return NULL;
    if ((*from == '\'' || *from == '"') && strchr(from + 1, *from) != NULL) {
        end = strchr(from + 1, *from);
        from++;
    } else {
        end = from + strcspn(from, " \t\n");
    }
    *at = *end == '\0' ? end : end + 1;
    *end = '\0';
    return from;
}

/* Put the words of spec->text into path, at first both weights and paths. */
static enum merak_status split_words(const char *text,
                                     struct merak_data_spec *spec,
                                     struct merak_error *err)
{
    size_t most = strlen(text) / 2 + 1;
    char *at;

    spec->text = strdup(text);
    spec->path = calloc(most, sizeof(*spec->path));
    spec->weight = calloc(most, sizeof(*spec->weight));
    if (spec->text == NULL || spec->path == NULL || spec->weight == NULL)
        return merak_fail_nomem(err, most * sizeof(*spec->path));
    at = spec->text;
    for (char *w = next_word(&at); w != NULL; w = next_word(&at))
        spec->path[spec->n++] = w;
    return MERAK_OK;
}

static enum merak_status bad_syntax(const char *text, const char *what,
                                    struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "data \"%s\": %s; a blend is \"WEIGHT1 PATH1 WEIGHT2 "
                      "PATH2 ..\", a path with blanks in quotes",
                      text, what);
}

static enum merak_status parse_words(const char *text,
                                     struct merak_data_spec *spec,
                                     struct merak_error *err)
{
    double first;

    if (spec->n == 0)
        return bad_syntax(text, "no path", err);
    if (spec->n == 1 || !is_number(spec->path[0], &first)) {
        strcpy(spec->text, text); /* undo the splits at blanks */
        spec->path[0] = spec->text;
        spec->weight[0] = 1.0;
        spec->n = 1;
        return MERAK_OK;
    }
    if (spec->n % 2 != 0)
        return bad_syntax(text, "a weight or a path is missing", err);
    spec->n /= 2;
    for (size_t k = 0; k < spec->n; k++) {
        if (!is_number(spec->path[2 * k], &spec->weight[k]))
            return bad_syntax(text, "a weight is not a number", err);
        spec->path[k] = spec->path[2 * k + 1];
    }
    return MERAK_OK;
}

enum merak_status merak_data_spec_parse(const char *text,
                                        struct merak_data_spec *spec,
                                        struct merak_error *err)
{
    struct merak_data_spec s = {0};
    enum merak_status rc = split_words(text, &s, err);

    if (rc == MERAK_OK)
        rc = parse_words(text, &s, err);
    if (rc == MERAK_OK)
        *spec = s;
    else
        merak_data_spec_fini(&s);
    return rc;
}

void merak_data_spec_fini(struct merak_data_spec *spec)
{
    free(spec->text);
    free(spec->path);
    free(spec->weight);
    *spec = (struct merak_data_spec){0};
}
