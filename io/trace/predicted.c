/* SPDX-License-Identifier: Apache-2.0 */
/* predicted.c - the predicted step as if it had been traced */
#include "config.h"

#include "io/trace/view.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* One block, as in load.c: the pointers, then the text. */
static char **copy_names(char *const *names, int n)
{
    size_t bytes = 1;
    char **copy, *text;

    for (int i = 0; i < n; i++)
        bytes += strlen(names[i]) + 1;
    copy = malloc(((size_t)n + 1) * sizeof(*copy) + bytes);
    if (copy == NULL)
        return NULL;
    text = (char *)(copy + n + 1);
    for (int i = 0; i < n; i++) {
        copy[i] = text;
        text = stpcpy(text, names[i]) + 1;
    }
    return copy;
}

/* Take from any record of an instruction all except times and step. */
static void fill_records(const struct merak_trace_rank *from,
                         struct merak_trace_rank *to)
{
    size_t n = 0;

    for (size_t i = 0; i < from->n; i++) {
        const struct merak_trace_record *rec = &from->records[i];
        const struct merak_trace_planned *planned = &from->planned[rec->instr];

        if (rec->step != from->records[0].step)
            break;
        if (planned->start_ns < 0)
            continue;
        to->records[n] = *rec;
        to->records[n].step = 0;
        to->records[n].start_ns = planned->start_ns;
        to->records[n++].end_ns = planned->end_ns;
    }
    to->n = n;
}

static enum merak_status predict_rank(const struct merak_trace_rank *from,
                                      struct merak_trace_rank *to,
                                      struct merak_error *err)
{
    size_t n = (size_t)from->info.n_instrs + 1;

    to->info = from->info;
    to->names = copy_names(from->names, from->info.n_instrs);
    to->planned = calloc(n, sizeof(*to->planned));
    to->records = calloc(from->n + 1, sizeof(*to->records));
    if (to->names == NULL || to->planned == NULL || to->records == NULL)
        return merak_fail_nomem(err, n * sizeof(*to->planned));
    memcpy(to->planned, from->planned, (n - 1) * sizeof(*to->planned));
    to->info.instr_name = (const char *const *)to->names;
    to->info.planned = to->planned;
    fill_records(from, to);
    return MERAK_OK;
}

enum merak_status merak_trace_predicted(const struct merak_trace_rank *ranks,
                                        int n,
                                        struct merak_trace_rank **predicted_p,
                                        struct merak_error *err)
{
    struct merak_trace_rank *predicted = calloc((size_t)n, sizeof(*predicted));
    enum merak_status rc = MERAK_OK;

    if (predicted == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*predicted));
    for (int r = 0; r < n && rc == MERAK_OK; r++) {
        if (ranks[r].planned != NULL)
            rc = predict_rank(&ranks[r], &predicted[r], err);
        if (rc == MERAK_OK && predicted[r].n == 0)
            rc = merak_fail(err, MERAK_ERR_NOT_FOUND,
                            "the trace of rank %d has no prediction: the run "
                            "used an older merak, or made no plan",
                            ranks[r].info.rank);
    }
    if (rc == MERAK_OK)
        *predicted_p = predicted;
    else
        merak_trace_unload(predicted, n);
    return rc;
}
