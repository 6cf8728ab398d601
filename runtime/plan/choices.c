/* SPDX-License-Identifier: Apache-2.0 */
/* choices.c - a plan as --what-if takes it */
#include "config.h"

#include "runtime/plan/auto.h"

#include <stdlib.h>

/* As options and as plan files name what is the same in both. */
static const struct {
    const char *name, *key;
} rows[] = {
    {"tp", "tp"},
    {"pp", "pp"},
    {"dp", "dp"},
    {"micro-batch", "micro_batch"},
    {"schedule", "schedule"},
    {"chunks", "chunks"},
    {"sub-pipeline", "sub_pipeline"},
    {"zero1", "zero1"},
    {"order", "order"},
    {"sp", "sp"},
};

static void put_value(FILE *out, const char *name, const json_t *value)
{
    if (json_is_boolean(value))
        fprintf(out, "%s=%s,", name, json_is_true(value) ? "yes" : "no");
    else if (json_is_integer(value))
        fprintf(out, "%s=%" JSON_INTEGER_FORMAT ",", name,
                json_integer_value(value));
    else
        fprintf(out, "%s=%s,", name, json_string_value(value));
}

/* What is in parts between nodes alone is what auto comes to. */
static const char *boundary_word(const struct merak_plan *p)
{
    return p->scatter == 0 ? "whole" : p->scatter == 1 ? "scatter" : "auto";
}

static const char *branches_word(const json_t *plan)
{
    const json_t *word = json_object_get(plan, "branches");

    return word != NULL ? json_string_value(word) : "described";
}

/* Both are short where there are few parts, and none of one part is cut. */
static void put_lists(FILE *out, const struct merak_plan *p, char *text,
                      size_t bytes)
{
    int parts = merak_plan_own_parts(p);

    if (p->drop != NULL && merak_drops_any(p->drop, parts))
        merak_drop_text(p->drop, parts, text, bytes);
    else
        snprintf(text, bytes, "none");
    fprintf(out, "recompute=%s,", text);
    if (p->cut == NULL || parts < 2)
        return;
    merak_cut_text(p->cut, parts - 1, text, bytes);
    fprintf(out, "cut=%s,", text);
}

char *plan_choices_text(const struct merak_plan *p)
{
    size_t bytes = MERAK_LIST_TEXT(merak_plan_parts(p)), size;
    char *list = malloc(bytes), *text = NULL;
    json_t *plan = merak_plan_object(p);
    FILE *out = open_memstream(&text, &size);
    bool ok = list != NULL && plan != NULL && out != NULL;

    for (size_t i = 0; ok && i < sizeof(rows) / sizeof(*rows); i++)
        put_value(out, rows[i].name, json_object_get(plan, rows[i].key));
    if (ok) {
        put_lists(out, p, list, bytes);
        fprintf(out, "tp-batch=%d,boundary=%s,branches=%s", p->tp_batch_percent,
                boundary_word(p), branches_word(plan));
    }
    if (out != NULL && fclose(out) != 0)
        ok = false;
    free(list);
    json_decref(plan);
    if (ok)
        return text;
    free(text);
    return NULL;
}
