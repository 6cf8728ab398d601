/* SPDX-License-Identifier: Apache-2.0 */
/* engine_setup.c - setting up an engine */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/cores.h"
#include "base/error.h"
#include "base/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DEFAULT_DEADLINE_S 300.0
#define SLACK_NS 1000

static enum merak_status find_kernels(struct merak_engine *e,
                                      struct merak_error *err)
{
    const struct merak_program *p = e->program;

    for (int i = 0; i < p->n_instrs; i++) {
        enum merak_status rc;

        if (p->instr[i].kind != MERAK_INSTR_KERNEL || e->opt.backend->emulated)
            continue;
        rc = merak_kernel_find(e->opt.backend, p->instr[i].op->name,
                               &e->kernel[i], err);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* Has each thread a core?  Assumed if unknown. */
static void find_cores(struct merak_engine *e)
{
    int cores = merak_cores_allowed();

    e->compute_spin_ns = e->comm.spin_ns = MERAK_SPIN_NS;
    if (e->opt.backend->emulated || e->opt.accel != NULL || cores == 0)
        return; /* such kernels use no core */
    e->crowded = cores <= e->program->plan.threads;
    e->compute_spin_ns = merak_spin_ns(cores, 2);
    if (e->opt.tr->spin_ns == 0) {
        e->crowded = true;
        e->compute_spin_ns = e->comm.spin_ns = 0;
    }
}

enum merak_status merak_engine_switch(const char *name, bool *on_p,
                                      struct merak_error *err)
{
    const char *text = getenv(name);

    if (text == NULL || *text == '\0')
        return MERAK_OK;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s is \"%.60s\": set it to 0 or 1, or unset it",
                          name, text);
    *on_p = *text == '1';
    return MERAK_OK;
}

/* Waits for an accelerator or a device link end in naps of some 20 us, to which
 * Linux adds up to 50 us by default.  For this thread, which computes, and for
 * the communication thread, which it starts. */
static void shorten_naps(const struct merak_engine *e)
{
    if (e->opt.accel != NULL)
        (void)prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
}

static void fill_queues(struct merak_engine *e)
{
    const struct merak_program *p = e->program;
    int *at = e->order;

    for (int q = 0; q < MERAK_QUEUE_COUNT; q++) {
        e->queue[q].instr = at;
        for (int i = 0; i < p->n_instrs; i++) {
            if ((int)p->instr[i].queue == q)
                *at++ = i;
        }
        e->queue[q].n = (int)(at - e->queue[q].instr);
    }
    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *instr = &p->instr[i];

        if (instr->queue == MERAK_QUEUE_COMPUTE)
            continue;
        for (int w = 0; w < instr->n_wait; w++)
            e->wakes_comm[p->wait[instr->first_wait + w]] = true;
    }
}

/* A team is a program's group, in transport ranks. */
static void fill_teams(struct merak_engine *e)
{
    const struct merak_program *p = e->program;
    int *at = e->team_rank;

    for (int g = 0; g < p->n_groups; g++) {
        e->team[g].n = p->group[g].n;
        e->team[g].me = p->group[g].me;
        e->team[g].rank = at;
        for (int i = 0; i < p->group[g].n; i++)
            *at++ = e->opt.transport_rank[p->group[g].rank[i]];
    }
}

static void fill_records(struct merak_engine *e)
{
    const struct merak_program *p = e->program;

    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *instr = &p->instr[i];
        struct merak_trace_record *r = &e->record[i];
        bool is_p2p =
            instr->kind == MERAK_INSTR_SEND || instr->kind == MERAK_INSTR_RECV;

        r->bytes = instr->bytes;
        r->instr = i;
        r->microbatch = (int16_t)instr->microbatch;
        r->peer = (int16_t)(is_p2p ? instr->peer : -1);
        r->kind = (uint8_t)instr->kind;
        r->queue = (uint8_t)instr->queue;
        r->phase = (uint8_t)instr->phase;
        r->chunk = (uint8_t)instr->chunk;
    }
}

/* Reserve for all that can be in flight, so that a step allocates nothing. */
static enum merak_status reserve_transfers(struct merak_engine *e,
                                           struct merak_error *err)
{
    const struct merak_program *p = e->program;
    int messages = 0, exchanges = 0, members = 1;
    int most[MERAK_QUEUE_COUNT] = {0};

    for (int i = 0; i < p->n_instrs; i++) {
        int *of_queue = &most[p->instr[i].queue];

        if (p->instr[i].kind == MERAK_INSTR_EXCHANGE &&
            *of_queue < MERAK_MAX_EXCHANGES) {
            (*of_queue)++;
            exchanges++;
        }
        messages += p->instr[i].kind == MERAK_INSTR_SEND ||
                    p->instr[i].kind == MERAK_INSTR_RECV;
    }
    for (int g = 0; g < p->n_groups; g++)
        members = p->group[g].n > members ? p->group[g].n : members;
    return merak_transport_reserve(e->opt.tr, messages, exchanges, members,
                                   err);
}

static size_t team_members(const struct merak_program *p)
{
    size_t n = 0;

    for (int g = 0; g < p->n_groups; g++)
        n += (size_t)p->group[g].n;
    return n;
}

static enum merak_status allocate(struct merak_engine *e,
                                  struct merak_error *err)
{
    const struct merak_program *p = e->program;
    size_t n = (size_t)p->n_instrs + 1;

    e->kernel = calloc(n, sizeof(*e->kernel));
    e->team = calloc((size_t)p->n_groups + 1, sizeof(*e->team));
    e->team_rank = calloc(team_members(p) + 1, sizeof(*e->team_rank));
    e->order = calloc(n, sizeof(*e->order));
    e->wakes_comm = calloc(n, sizeof(*e->wakes_comm));
    e->record = calloc(n, sizeof(*e->record));
    e->done = calloc(n, sizeof(*e->done));
    e->comm.started = calloc(n, sizeof(*e->comm.started));
    if (e->kernel == NULL || e->team == NULL || e->team_rank == NULL ||
        e->order == NULL || e->wakes_comm == NULL || e->record == NULL ||
        e->done == NULL || e->comm.started == NULL)
        return merak_fail_nomem(err, n * sizeof(*e->record));
#ifdef MERAK_DEBUG
    e->users = calloc((size_t)p->n_slots + 1, sizeof(*e->users));
    e->users_left = calloc((size_t)p->n_slots + 1, sizeof(*e->users_left));
    if (e->users == NULL || e->users_left == NULL)
        return merak_fail_nomem(err, (size_t)p->n_slots * sizeof(int));
    for (int i = 0; i < p->n_instrs; i++) {
        for (int k = 0; k < p->instr[i].n_in + p->instr[i].n_out; k++)
            e->users[p->slot[p->instr[i].slot[k]].whole]++;
    }
    /* What no instruction still uses of a slot may already be another one's
     * while an instruction still uses a part of it: these are not filled. */
    for (int s = 0; s < p->n_slots; s++) {
        if (p->slot[s].bytes < p->slot[p->slot[s].whole].bytes)
            e->users[p->slot[s].whole] = 0;
    }
#endif
    return MERAK_OK;
}

enum merak_status merak_engine_create(const struct merak_program *program,
                                      const struct merak_engine_options *opt,
                                      struct merak_engine **engine_p,
                                      struct merak_error *err)
{
    struct merak_engine *e = calloc(1, sizeof(*e));
    enum merak_status rc;

    if (e == NULL)
        return merak_fail_nomem(err, sizeof(*e));
    e->program = program;
    e->opt = *opt;
    e->comm.wake_fd = -1;
    if (e->opt.deadline_s <= 0)
        e->opt.deadline_s = DEFAULT_DEADLINE_S;
    rc = allocate(e, err);
    if (rc != MERAK_OK)
        goto out;
    find_cores(e);
    fill_queues(e);
    fill_teams(e);
    fill_records(e);
    rc = find_kernels(e, err);
    if (rc != MERAK_OK)
        goto out;
    rc = merak_engine_accel_init(e, err);
    if (rc != MERAK_OK)
        goto out;
    rc = reserve_transfers(e, err);
    if (rc != MERAK_OK)
        goto out;
    shorten_naps(e);
    rc = merak_comm_start(e, err);
    if (rc != MERAK_OK)
        goto out;
    *engine_p = e;
    e = NULL;
out:
    merak_engine_destroy(e);
    return rc;
}

void merak_engine_destroy(struct merak_engine *e)
{
    int saved = errno;

    if (e == NULL)
        return;
    merak_comm_stop(e);
    merak_engine_accel_fini(e);
    if (e->comm.wake_fd >= 0)
        close(e->comm.wake_fd);
#ifdef MERAK_DEBUG
    free(e->users);
    free(e->users_left);
#endif
    free(e->kernel);
    free(e->team);
    free(e->team_rank);
    free(e->order);
    free(e->wakes_comm);
    free(e->record);
    free(e->done);
    free(e->comm.started);
    free(e);
    errno = saved;
}
