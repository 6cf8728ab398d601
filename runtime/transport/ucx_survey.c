/* SPDX-License-Identifier: Apache-2.0 */
/* ucx_survey.c - asking all ranks what they do, once one has waited too long
 *
 * A question is an active message with the asker's rank; the answer has the
 * answering rank in its header and a text as data.  The thread that advances
 * the transport answers: an engine's communication thread does even while a
 * kernel computes.  A rank that gives no answer is stopped, gone, unreachable,
 * or busy outside of any wait.
 */
#include "config.h"

#include "runtime/transport/ucx.h"

#include "base/clock.h"
#include "base/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SURVEY_NS INT64_C(3000000000)
/* How much longer a rank that was asked stays to answer. */
#define SLACK_NS INT64_C(500000000)
/* What a rank adds to its answer for each node peer that something is wrong
 * with, before what that is. */
#define SEEN "; on its node the process of rank %d "

/* What is wrong with a node peer's process; NULL: nothing known. */
static const char *process_problem(const struct ucx *tr, int rank)
{
    if (merak_watch_has_ended(tr->watch, rank))
        return "has ended";
    switch (merak_process_state(merak_watch_pid(tr->watch, rank))) {
    case 'T':
        return "is stopped";
    case 't':
        return "is stopped by a debugger";
    case 'D':
        return "waits in the kernel, for a disk or a file system";
    case 'Z':
    case 'X':
        return "has ended";
    default:
        return NULL;
    }
}

static void append(char *text, size_t size, const char *more)
{
    size_t n = strlen(text);

    snprintf(text + n, size - n, "%s", more);
}

/* What this rank does, and what it sees of its node peers' processes. */
static void describe_self(struct ucx *tr, char *text, size_t size)
{
    const int *node_of = tr->boot->node_of;
    char more[128];

    text[0] = '\0';
    if (tr->base.tell != NULL)
        tr->base.tell(tr->base.tell_arg, text, size);
    for (int r = 0; r < tr->base.size; r++) {
        const char *problem =
            r != tr->base.rank && node_of[r] == node_of[tr->base.rank]
                ? process_problem(tr, r)
                : NULL;

        if (problem == NULL)
            continue;
        snprintf(more, sizeof(more), SEEN "%s",
                 merak_transport_rank_name(&tr->base, r), problem);
        append(text, size, more);
    }
}

/* What peers on its node have seen of the process of a rank that gave no
 * answer; false: nothing. */
static bool find_seen(const struct ucx *tr, const struct merak_told *told,
                      int rank, char *text, size_t size)
{
    char seen[64];

    snprintf(seen, sizeof(seen), SEEN,
             merak_transport_rank_name(&tr->base, rank));
    for (int r = 0; r < tr->base.size; r++) {
        const char *at = told[r].heard ? strstr(told[r].text, seen) : NULL;

        if (at == NULL)
            continue;
        at += strlen(seen);
        snprintf(text, size, "its process %.*s", (int)strcspn(at, ";"), at);
        return true;
    }
    return false;
}

ucs_status_t merak_ucx_on_ask(void *arg, const void *header,
                              size_t header_bytes, void *data, size_t bytes,
                              const ucp_am_recv_param_t *param)
{
    struct ucx *tr = arg;
    int32_t rank;

    (void)data;
    (void)bytes;
    (void)param;
    if (header_bytes != sizeof(rank))
        return UCS_OK;
    memcpy(&rank, header, sizeof(rank));
    if (rank < 0 || rank >= tr->base.size)
        return UCS_OK;
    if (tr->first_asker < 0 || rank < tr->first_asker)
        tr->first_asker = rank;
    tr->answers_until_ns = merak_clock_ns() + SURVEY_NS + SLACK_NS;
    if (!tr->asked[rank])
        tr->n_asked++;
    tr->asked[rank] = true; /* answered later, where sends may be posted */
    return UCS_OK;
}

ucs_status_t merak_ucx_on_tell(void *arg, const void *header,
                               size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param)
{
    struct ucx *tr = arg;
    int32_t rank;

    if (header_bytes != sizeof(rank) || tr->survey == NULL ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
        return UCS_OK;
    memcpy(&rank, header, sizeof(rank));
    if (rank < 0 || rank >= tr->base.size || bytes > MERAK_TELL_BYTES)
        return UCS_OK;
    memcpy(tr->survey[rank].text, data, bytes);
    tr->survey[rank].text[MERAK_TELL_BYTES - 1] = '\0';
    tr->survey[rank].heard = true;
    return UCS_OK;
}

/* Send it; buffers belong to the transport and outlive the send. */
static void post_message(struct ucx *tr, int to, unsigned id, const void *data,
                         size_t bytes)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_EAGER};
    ucs_status_ptr_t p;
    ucp_ep_h ep;

    if (merak_watch_has_ended(tr->watch, to) ||
        merak_ucx_ep(tr, to, &ep, NULL) != MERAK_OK)
        return;
    tr->own_rank = (int32_t)tr->base.rank;
    p = ucp_am_send_nbx(ep, id, &tr->own_rank, sizeof(tr->own_rank), data,
                        bytes, &param);
    if (p != NULL && !UCS_PTR_IS_ERR(p))
        ucp_request_free(p); /* the send still completes */
}

void merak_ucx_answer(struct ucx *tr)
{
    describe_self(tr, tr->answer_text, sizeof(tr->answer_text));
    for (int r = 0; r < tr->base.size; r++) {
        if (tr->asked[r])
            post_message(tr, r, UCX_AM_TELL, tr->answer_text,
                         strlen(tr->answer_text) + 1);
        tr->asked[r] = false;
    }
    tr->n_asked = 0;
}

static bool all_heard(const struct ucx *tr, const struct merak_told *told)
{
    for (int r = 0; r < tr->base.size; r++) {
        if (!told[r].heard && !merak_watch_has_ended(tr->watch, r))
            return false;
    }
    return true;
}

static void progress_or_nap(struct merak_transport *base)
{
    if (base->ops->progress(base) == 0)
        merak_nap(MERAK_BACKOFF_MAX_NS);
    merak_transport_find_lost(base);
}

/* True if no lower rank asked meanwhile: of two that begin together the higher
 * one gives way. */
static bool ask_all(struct ucx *tr, struct merak_told *told)
{
    int64_t limit = merak_clock_ns() + SURVEY_NS;
    int me = tr->base.rank;

    tr->survey = told;
    for (int r = 0; r < tr->base.size; r++) {
        if (r != me)
            post_message(tr, r, UCX_AM_ASK, NULL, 0);
    }
    while (!all_heard(tr, told) && merak_clock_ns() < limit)
        progress_or_nap(&tr->base);
    tr->survey = NULL;
    return tr->first_asker < 0 || tr->first_asker > me;
}

/*
 * Deadlines of several ranks pass within seconds of each other.  The first to
 * ask writes the report; the others stay and answer until it is done, since
 * one that left early would be reported as the culprit.
 */
bool merak_ucx_survey(struct merak_transport *base, struct merak_told *told)
{
    struct ucx *tr = (struct ucx *)base;
    int me = base->rank;
    bool ours;

    memset(told, 0, (size_t)base->size * sizeof(*told));
    describe_self(tr, told[me].text, sizeof(told[me].text));
    told[me].heard = true;
    base->ops->progress(base); /* a question may have just arrived */
    ours = tr->first_asker < 0 && ask_all(tr, told);
    if (!ours) {
        while (merak_clock_ns() < tr->answers_until_ns)
            progress_or_nap(base);
        return false;
    }
    for (int r = 0; r < base->size; r++) {
        const char *problem;

        if (told[r].heard ||
            find_seen(tr, told, r, told[r].text, sizeof(told[r].text)) ||
            tr->boot->node_of[r] != tr->boot->node_of[me])
            continue;
        problem = process_problem(tr, r);
        if (problem != NULL)
            snprintf(told[r].text, sizeof(told[r].text), "its process %s",
                     problem);
    }
    return true;
}
