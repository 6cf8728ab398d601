/* SPDX-License-Identifier: Apache-2.0 */
/* choice_text.c - values of a plan's choices as text */
#include "config.h"

#include "partitioner/plan/choice.h"

#include "base/factors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The word's beginning among the words, and its length. */
static const char *word_at(const struct merak_choice *choice, long value,
                           size_t *n_p)
{
    const char *word = merak_choice_plain(choice)->words;

    for (long i = 0; i < value; i++)
        word += strcspn(word, "|") + 1;
    *n_p = strcspn(word, "|");
    return word;
}

int merak_choice_words(const struct merak_choice *choice)
{
    int n = 1;

    for (const char *at = merak_choice_plain(choice)->words; *at != '\0'; at++)
        n += *at == '|';
    return choice->n_words > 0 ? choice->n_words : n;
}

const char *merak_choice_word(const struct merak_choice *choice, long value,
                              char text[MERAK_CHOICE_WORD])
{
    size_t n;
    const char *word = word_at(choice, value, &n);

    snprintf(text, MERAK_CHOICE_WORD, "%.*s", (int)n, word);
    return text;
}

int merak_choice_find_word(const struct merak_choice *choice, const char *text)
{
    for (int i = 0; i < merak_choice_words(choice); i++) {
        char word[MERAK_CHOICE_WORD];

        if (strcmp(merak_choice_word(choice, i, word), text) == 0)
            return i;
    }
    return -1;
}

void merak_choice_text(const struct merak_choice *choice,
                       const struct merak_choices *choices, char *text,
                       size_t bytes)
{
    const struct merak_given_lists *list = &choices->list;
    long value = merak_choice_get(choice, choices);
    char word[MERAK_CHOICE_WORD], factors[MERAK_FACTORS_TEXT];

    if (choice == &merak_choice[MERAK_CHOICE_STAGES] && list->stage != NULL)
        merak_stages_text(list->stage, list->n_stages, text, bytes);
    else if (choice == &merak_choice[MERAK_CHOICE_STAGES])
        snprintf(text, bytes, "auto");
    else if (choice->is != NULL)
        choice->is->text((const char *)choices + choice->is->at,
                         choice->is->between, text, bytes);
    else if (choice == &merak_choice[MERAK_CHOICE_CUT] && list->cut != NULL)
        merak_cut_text(list->cut, list->n_cut, text, bytes);
    else if (choice == &merak_choice[MERAK_CHOICE_CUT])
        snprintf(text, bytes, "auto");
    else if (choice == &merak_choice[MERAK_CHOICE_RECOMPUTE] &&
             list->drop != NULL && merak_drops_any(list->drop, list->n_drop))
        merak_drop_text(list->drop, list->n_drop, text, bytes);
    else if (choice == &merak_choice[MERAK_CHOICE_RECOMPUTE] &&
             list->drop != NULL)
        snprintf(text, bytes, "none");
    else if (choice->kind == MERAK_OPTION_TEXT)
        snprintf(text, bytes, "%s", choices->schedule);
    else if (choice->kind == MERAK_OPTION_GRID)
        snprintf(text, bytes, "%s",
                 value > 0 ? merak_factors_text(value, "x", factors) : "auto");
    else if (choice->kind == MERAK_OPTION_BOOL ||
             choice->kind == MERAK_OPTION_WORD)
        snprintf(text, bytes, "%s", merak_choice_word(choice, value, word));
    else if (merak_choice_plain(choice)->words != NULL &&
             value < merak_choice_plain(choice)->least)
        snprintf(text, bytes, "%s", merak_choice_plain(choice)->words);
    else
        snprintf(text, bytes, "%ld", value);
}

char *merak_choices_line(const struct merak_plan *plan)
{
    size_t bytes = MERAK_CHOICE_TEXT(merak_plan_parts(plan)), size;
    char *value = malloc(bytes), *text = NULL;
    FILE *out = open_memstream(&text, &size);
    struct merak_choices choices;
    bool ok = value != NULL && out != NULL, first = true;

    merak_choices_of(plan, &choices);
    for (int i = 0; ok && i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        if (!choices.given[i] ||
            (c->is_settled && merak_choice_get(c, &choices) == c->usual))
            continue;
        merak_choice_text(c, &choices, value, bytes);
        fprintf(out, "%s%s=%s", first ? "" : ",", c->option.name, value);
        first = false;
    }
    if (out != NULL && fclose(out) != 0)
        ok = false;
    free(value);
    if (ok)
        return text;
    free(text);
    return NULL;
}
