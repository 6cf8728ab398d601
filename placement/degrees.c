/* SPDX-License-Identifier: Apache-2.0 */
/* degrees.c - the words of options, and the check that degrees fit the tasks */
#include "config.h"

#include "placement/placement_impl.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const order_names[] = {"tp-dp-pp", "tp-pp-dp", "auto"};
static const char *const domain_names[] = {"node", "leaf", "any"};

const char *merak_order_name(enum merak_order order)
{
    return order_names[order];
}

static const char *domain_name(enum merak_domain domain)
{
    return domain_names[domain];
}

enum merak_status merak_order_parse(const char *word, enum merak_order *order)
{
    for (int i = 0; i <= MERAK_ORDER_AUTO; i++) {
        if (strcmp(word, order_names[i]) == 0) {
            *order = (enum merak_order)i;
            return MERAK_OK;
        }
    }
    return MERAK_ERR_PARAM;
}

enum merak_status merak_domain_parse(const char *word,
                                     enum merak_domain *domain)
{
    for (int i = 0; i <= MERAK_DOMAIN_ANY; i++) {
        if (strcmp(word, domain_names[i]) == 0) {
            *domain = (enum merak_domain)i;
            return MERAK_OK;
        }
    }
    return MERAK_ERR_PARAM;
}

/* Fail since n_tasks is not a multiple of unit; names the nearest multiples. */
static enum merak_status fail_split(int n_tasks, const char *degrees,
                                    uint64_t unit, struct merak_error *err)
{
    uint64_t below = (uint64_t)n_tasks / unit * unit;

    if (below == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d task%s cannot be split into %s; nearest: %" PRIu64
                          " tasks",
                          n_tasks, n_tasks == 1 ? "" : "s", degrees, unit);
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%d tasks cannot be split into %s; nearest: %" PRIu64
                      " or %" PRIu64 " tasks",
                      n_tasks, degrees, below, below + unit);
}

static bool is_degree(int degree)
{
    return degree >= 1 && degree <= MERAK_MAX_DEGREE;
}

const char *merak_tensor_group_word(int cp, int ep)
{
    static const char *const word[2][2] = {{"tp", "tp x ep"},
                                           {"tp x cp", "tp x cp x ep"}};

    return word[cp > 1][ep > 1];
}

bool merak_tensor_group_is_nodes(int group, int cp, int ep, int per_node)
{
    return cp > 1 && ep <= 1 && per_node > 0 && group > per_node &&
           group % per_node == 0 && per_node % (group / cp) == 0;
}

bool merak_tensor_groups_are_nodes(const struct merak_placement *p,
                                   const int *tasks)
{
    bool are = true;

    for (int i = 0; i < p->n_nodes; i++)
        are = are && tasks[i] == tasks[0] &&
              merak_tensor_group_is_nodes(p->degree[MERAK_AXIS_TP], p->cp,
                                          p->ep, tasks[i]);
    return are;
}

#define DEGREE_TEXT 12

/* As users give it. */
static const char *degree_text(int degree, char room[DEGREE_TEXT])
{
    if (degree == 0)
        return "auto";
    snprintf(room, DEGREE_TEXT, "%d", degree);
    return room;
}

void merak_group_text(int tp, int cp, int ep, int pp,
                      char text[MERAK_GROUP_TEXT])
{
    char more[2][24] = {"", ""}, room[2][DEGREE_TEXT];

    if (cp > 1)
        snprintf(more[0], sizeof(more[0]), "cp=%d x ", cp);
    if (ep > 1)
        snprintf(more[1], sizeof(more[1]), "ep=%d x ", ep);
    snprintf(text, MERAK_GROUP_TEXT, "tp=%s x %s%spp=%s",
             degree_text(tp, room[0]), more[0], more[1],
             degree_text(pp, room[1]));
}

enum merak_status
merak_degrees_check_auto(const struct merak_placement_input *input, int n_tasks,
                         struct merak_error *err)
{
    const struct merak_placement_input *in = input;
    const int degree[] = {in->tp, in->cp, in->ep, in->pp, in->dp};
    uint64_t unit = 1, tasks = (uint64_t)n_tasks;
    char degrees[MERAK_GROUP_TEXT], dp[DEGREE_TEXT];

    for (size_t i = 0; i < sizeof(degree) / sizeof(*degree); i++) {
        uint64_t n = degree[i] > 0 ? (uint64_t)degree[i] : 1;

        unit = unit <= UINT32_MAX ? unit * n : unit; /* enough to refuse */
    }
    if (tasks % unit == 0)
        return MERAK_OK;
    merak_group_text(in->tp, in->cp, in->ep, in->pp, degrees);
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%d tasks are not a multiple of the %" PRIu64
                      " of %s x dp=%s; nearest: %" PRIu64 " tasks",
                      n_tasks, unit, degrees, degree_text(in->dp, dp),
                      (tasks + unit - 1) / unit * unit);
}

enum merak_status merak_degrees_resolve(int n_tasks, int cp, int ep, int *tp,
                                        int *pp, int *dp,
                                        struct merak_error *err)
{
    int t = *tp == 0 ? 1 : *tp, p = *pp == 0 ? 1 : *pp;
    int c = cp == 0 ? 1 : cp, e = ep == 0 ? 1 : ep;
    char degrees[MERAK_GROUP_TEXT];
    uint64_t unit, tasks = (uint64_t)n_tasks;

    if (n_tasks < 1 || n_tasks > MERAK_MAX_TASKS)
        return merak_fail(err, MERAK_ERR_PARAM, "%d tasks: expected 1..%d",
                          n_tasks, MERAK_MAX_TASKS);
    merak_group_text(t, c, e, p, degrees);
    if (!is_degree(t) || !is_degree(c) || !is_degree(e) || !is_degree(p) ||
        *dp < 0 || *dp > MERAK_MAX_TASKS)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s x dp=%d: a degree is out of range", degrees, *dp);
    /* below 2^64 */
    unit = (uint64_t)t * (uint64_t)c * (uint64_t)e * (uint64_t)p;
    if (tasks % unit != 0)
        return fail_split(n_tasks, degrees, unit, err);
    if (*dp != 0 && unit * (uint64_t)*dp != tasks)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s x dp=%d makes %" PRIu64 ", not the %d tasks of "
                          "the step; nearest: dp=%" PRIu64 ", or %" PRIu64
                          " tasks",
                          degrees, *dp, unit * (uint64_t)*dp, n_tasks,
                          tasks / unit, unit * (uint64_t)*dp);
    *tp = t;
    *pp = p;
    *dp = (int)(tasks / unit);
    return MERAK_OK;
}

bool merak_degrees_auto(const struct merak_placement_input *input)
{
    return input->tp == 0 || input->pp == 0 || input->cp == MERAK_CP_CHOSEN ||
           input->ep == MERAK_EP_CHOSEN;
}

void merak_input_write(FILE *out, const struct merak_placement_input *input)
{
    fprintf(out, "%d", input->tp);
    if (input->cp > 1 || input->cp == MERAK_CP_CHOSEN)
        fprintf(out, "c%d", input->cp > 1 ? input->cp : 0);
    if (input->ep == MERAK_EP_CHOSEN)
        fputs("e0", out);
    else if (input->ep > 1 || (input->ep == 1 && merak_degrees_auto(input)))
        fprintf(out, "e%d", input->ep);
    fprintf(out, "x%dx%d/%s", input->pp, input->dp,
            merak_order_name(input->order));
    if (input->pp_bytes > 0 || input->dp_bytes > 0)
        fprintf(out, ":%" PRIu64 ":%" PRIu64, input->pp_bytes, input->dp_bytes);
    fprintf(out, "/%s/", domain_name(input->tp_domain));
}
