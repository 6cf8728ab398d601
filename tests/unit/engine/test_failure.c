/* SPDX-License-Identifier: Apache-2.0 */
/* test_failure.c - a rank that is killed, stopped or hangs in the middle of a
 * step
 *
 * What the others return tells how they heard of it: MERAK_ERR_LOST, that a
 * process is gone; MERAK_ERR_TIMEOUT, at their deadline; MERAK_ERR_PEER, from
 * one of these two.  No clock is looked at: where a killed rank is expected to
 * be noticed the deadline is longer than the test may take.
 */
#include "config.h"

#include "unit/small_plans.h"
#include "unit/test_ranks.h"

#include "kernels/kernels.h"
#include "runtime/engine/engine.h"

#include <signal.h>
#include <sys/mman.h>

enum fate { KILLED, STOPPED, HANGS };

struct row {
    const char *name;
    struct merak_plan plan;
    enum fate fate;
    int victim;
    const char *tls;
    bool apart;       /* every rank on a node of its own */
    const char *text; /* what one of the others says */
};

#define ROW(name, t, p, d, fate, victim, tls, apart, text)                \
    {                                                                     \
        name, {.tp = t, .pp = p, .dp = d}, fate, victim, tls, apart, text \
    }
/* Two replicas that fetch parameters. */
#define FETCHING(name, ranks, fate, victim, text)                           \
    {                                                                       \
        name, {.tp = 1, .pp = ranks / 2, .dp = 2, .zero = 3}, fate, victim, \
            NULL, false, text                                               \
    }
#define TCP "tcp,self"

static const struct row rows[] = {
    ROW("killed, tensor parallel", 2, 1, 1, KILLED, 1, NULL, false, NULL),
    ROW("killed, first stage", 1, 2, 1, KILLED, 0, NULL, false, NULL),
    ROW("killed, last stage", 1, 2, 1, KILLED, 1, NULL, false, NULL),
    ROW("killed, data parallel", 1, 1, 2, KILLED, 0, NULL, false, NULL),
    ROW("killed, of four", 2, 2, 1, KILLED, 3, NULL, false, NULL),
    ROW("killed, over TCP", 1, 2, 1, KILLED, 0, TCP, false, NULL),
    ROW("killed, on another node", 1, 2, 1, KILLED, 0, TCP, true, NULL),
    ROW("stopped, tensor parallel", 2, 1, 1, STOPPED, 1, NULL, false,
        "group tp of 2 ranks"),
    ROW("stopped, first stage", 1, 2, 1, STOPPED, 0, NULL, false,
        "peer rank 0"),
    ROW("stopped, data parallel", 1, 1, 2, STOPPED, 0, NULL, false,
        "group dp of 2 ranks"),
    ROW("hangs, last stage", 1, 2, 1, HANGS, 1, NULL, false, "peer rank 1"),
    FETCHING("killed, while others fetch", 2, KILLED, 1, NULL),
    FETCHING("killed, while others fetch for two stages", 4, KILLED, 2, NULL),
    FETCHING("stopped, while others fetch", 2, STOPPED, 0,
             "group dp of 2 ranks"),
    FETCHING("hangs, while others fetch", 2, HANGS, 1, "group dp of 2 ranks"),
};

#define FATAL_STEP 2
#define DEADLINE_S 2.0  /* of a step that takes a millisecond */
#define N_STEPS 1000000 /* nobody comes so far */

struct shared {
    pid_t victim;
};

struct job {
    const struct row *row;
    struct shared *shared;
};

/* The step of the victim, which alone looks at it. */
static uint64_t step_of_load;
static const struct job *fatal;

static void meet_fate(void)
{
    if (fatal->row->fate == KILLED)
        raise(SIGKILL);
    if (fatal->row->fate == STOPPED)
        raise(SIGSTOP);
    for (;;)
        pause();
}

static enum merak_status load_input(void *arg, const struct merak_load *load,
                                    void *out, struct merak_error *err)
{
    (void)arg;
    (void)err;
    if (fatal != NULL && step_of_load == FATAL_STEP && load->microbatch == 1)
        meet_fate();
    planned_ids(load->microbatch, out);
    return MERAK_OK;
}

static enum merak_status run_steps(struct merak_engine *engine)
{
    struct merak_step step = planned_step;
    enum merak_status rc = MERAK_OK;

    for (; step.step < N_STEPS && rc == MERAK_OK; step.step++) {
        step_of_load = step.step;
        rc = merak_engine_run(engine, &step, ERR);
    }
    return rc;
}

static void check_end(const struct row *row, enum merak_status rc)
{
    char gone[64];

    snprintf(gone, sizeof(gone), "rank %d on node%d is gone", row->victim,
             row->apart ? row->victim : 0);
    if (row->fate == KILLED) {
        CHECK(rc == MERAK_ERR_LOST || rc == MERAK_ERR_PEER);
        CHECK(strstr(test_error.text, gone) != NULL);
        return;
    }
    CHECK(rc == MERAK_ERR_TIMEOUT || rc == MERAK_ERR_PEER);
    CHECK(strstr(test_error.text, row->text) != NULL);
}

/* On each rank; the arena has room for any of the plans. */
static void run_row(struct rank *me, const void *arg)
{
    const struct job *job = arg;
    const struct row *row = job->row;
    const struct small_model model = {
        .layers = 2, .vocab = 61, .hidden = 32, .heads = 4};
    struct merak_program_options po = {.unit_s = 0};
    struct merak_engine_options eo = {.tr = me->tr,
                                      .transport_rank = me->rank_of,
                                      .arena = me->arena.base,
                                      .load = load_input,
                                      .deadline_s = 3600};
    struct merak_plan plan = row->plan;
    struct merak_planned *planned;
    struct merak_engine *engine;

    if (me->all.me == row->victim) {
        job->shared->victim = getpid();
        fatal = job;
    } else if (row->fate != KILLED) {
        eo.deadline_s = DEADLINE_S; /* before the victim's own */
    }
    CHECK_OK(merak_backend_find("cpu", &eo.backend, ERR));
    CHECK_OK(eo.backend->open(1, ERR));
    po.memory = merak_backend_memory(eo.backend);
    plan.threads = 1;
    plan.microbatches = 4;
    strcpy(plan.schedule, "1f1b");
    planned = planned_build(&model, &plan, &po);
    CHECK(planned->program[me->all.me]->arena_bytes <= me->arena.bytes);
    CHECK_OK(
        merak_engine_create(planned->program[me->all.me], &eo, &engine, ERR));
    check_end(row, run_steps(engine));
    merak_engine_destroy(engine);
    merak_planned_destroy(planned);
    kill(job->shared->victim, SIGKILL); /* it may be stopped */
}

static void the_others_end(void **state)
{
    static const int own_nodes[] = {0, 1, 2, 3};
    struct job job = {.row = *state};
    const struct merak_plan *p = &job.row->plan;
    struct setup setup = {.n = p->tp * p->pp * p->dp,
                          .arena = true,
                          .tls = job.row->tls,
                          .node_of = job.row->apart ? own_nodes : NULL,
                          .deadline_s = 3600};

    job.shared = mmap(NULL, sizeof(*job.shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(job.shared != MAP_FAILED);
    assert_int_equal(run_ranks(&setup, run_row, &job), 1); /* the victim */
    munmap(job.shared, sizeof(*job.shared));
}

int main(void)
{
    struct CMUnitTest tests[sizeof(rows) / sizeof(rows[0])];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        tests[i] = (struct CMUnitTest){rows[i].name, the_others_end, NULL, NULL,
                                       (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests_name("failure", tests, NULL, NULL);
}
