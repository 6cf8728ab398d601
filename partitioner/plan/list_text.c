/* SPDX-License-Identifier: Apache-2.0 */
/* list_text.c - a plan's lists as text */
#include "config.h"

#include "partitioner/plan/list_text.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

int merak_plan_own_parts(const struct merak_plan *plan)
{
    return merak_plan_parts(plan) - merak_plan_shared(plan);
}

/* Append an item; one that has no room ends the list with "..". */
static void append(const char *item, char *text, size_t bytes)
{
    size_t at = strlen(text), n = strlen(item) + (at > 0);

    if (at >= 2 && strcmp(text + at - 2, "..") == 0)
        return;
    if (at + n + sizeof("..") > bytes)
        item = "..";
    snprintf(text + at, bytes - at, "%s%s", at > 0 && item[0] != '.' ? "-" : "",
             item);
}

void merak_cut_text(const int *cut, int n, char *text, size_t bytes)
{
    char item[12];

    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        snprintf(item, sizeof(item), "%d", cut[i]);
        append(item, text, bytes);
    }
}

void merak_stages_text(const struct merak_stage_degrees *stage, int n,
                       char *text, size_t bytes)
{
    char item[24];

    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        snprintf(item, sizeof(item), "%dx%d", stage[i].dp, stage[i].tp);
        append(item, text, bytes);
    }
}

void merak_drop_text(const struct merak_drop *drop, int n, char *text,
                     size_t bytes)
{
    char item[24];

    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const struct merak_drop *d = &drop[i];

        if (d->attention)
            snprintf(item, sizeof(item), "a%s", d->again > 0 ? "/a" : "");
        else if (d->again > 0)
            snprintf(item, sizeof(item), "%d/%d", d->blocks, d->again);
        else
            snprintf(item, sizeof(item), "%d", d->blocks);
        append(item, text, bytes);
    }
}

bool merak_drops_any(const struct merak_drop *drop, int n)
{
    bool any = false;

    for (int i = 0; i < n; i++)
        any = any || drop[i].attention || drop[i].blocks > 0;
    return any;
}

enum merak_offload merak_drops_offload(const struct merak_plan *plan,
                                       const struct merak_drop *drop)
{
    bool away = false;

    for (int i = 0; i < merak_plan_parts(plan); i++)
        away = away || (drop[i].attention ? drop[i].again == 0
                                          : drop[i].blocks > drop[i].again);
    return merak_plan_seeks_acts(plan)
               ? merak_offload_settled(plan->offload, away)
               : plan->offload;
}

int merak_given_parts(const struct merak_given_lists *lists)
{
    if (lists->cut != NULL)
        return lists->n_cut + 1;
    return lists->drop != NULL ? lists->n_drop : 0;
}

/* "pp 2 of 3 chunks has 6" */
static void has_text(const struct merak_plan *plan, char *text, size_t bytes)
{
    int chunks = merak_plan_chunks(plan);
    char of[48] = "";

    if (merak_plan_shared(plan) > 0)
        snprintf(of, sizeof(of), " under %.24s", plan->schedule);
    else if (chunks > 1)
        snprintf(of, sizeof(of), " of %d chunks", chunks);
    snprintf(text, bytes, "pp %d%s has %d", plan->pp, of,
             merak_plan_own_parts(plan));
}

enum merak_status merak_given_check(const struct merak_given_lists *lists,
                                    const struct merak_plan *plan,
                                    struct merak_error *err)
{
    int has = merak_plan_own_parts(plan);
    char list[64], text[96], places[24] = "no cut";

    has_text(plan, text, sizeof(text));
    if (lists->cut != NULL && lists->n_cut + 1 != has) {
        merak_cut_text(lists->cut, lists->n_cut, list, sizeof(list));
        if (has > 1)
            snprintf(places, sizeof(places), "%d cut point%s", has - 1,
                     has == 2 ? "" : "s");
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "cut %s makes %d parts, and %s: give %s, or pp x "
                          "chunks = %d",
                          list, lists->n_cut + 1, text, places,
                          lists->n_cut + 1);
    }
    if (lists->drop != NULL && lists->n_drop != has) {
        merak_drop_text(lists->drop, lists->n_drop, list, sizeof(list));
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "recompute %s lists %d part%s, and %s: give a list "
                          "of %d",
                          list, lists->n_drop, lists->n_drop == 1 ? "" : "s",
                          text, has);
    }
    for (int i = 0; lists->drop != NULL && i < lists->n_drop; i++) {
        if (lists->drop[i].again == 0 || merak_plan_offloads_acts(plan))
            continue;
        merak_drop_text(lists->drop, lists->n_drop, list, sizeof(list));
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "recompute %s: what follows / is recomputed where "
                          "the rest is offloaded; add --offload acts, or "
                          "leave it out",
                          list);
    }
    return MERAK_OK;
}
