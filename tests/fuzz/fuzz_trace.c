/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_trace.c - traces of runs: what the records say, and the files
 *
 * RECORDS are numbers that a file of a sound form may have; FILES are HDF5
 * files as they are. */
#include "config.h"

#include "fuzz/fuzz.h"

#include "io/trace/diff.h"
#include "io/trace/perfetto.h"
#include "io/trace/samples.h"
#include "io/trace/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS, FILES, RANKS = 2, INSTRS = 4, STEPS = 5 };

/* What an input of RECORDS is; bytes it does not have are 0. */
struct numbers {
    int32_t info[RANKS][9];
    struct merak_trace_planned planned[RANKS][INSTRS];
    struct merak_trace_cost cost[RANKS][INSTRS];
    struct merak_trace_record record[RANKS][STEPS][INSTRS];
};

static const char *const names[INSTRS] = {"linear.1", "send x", "recv y", ""};

static void write_rank(const struct numbers *in, int rank)
{
    const int32_t *at = in->info[rank];
    const struct merak_trace_info info = {.rank = rank,
                                          .ranks = RANKS,
                                          .stage = at[0],
                                          .stages = at[1],
                                          .tp = at[2],
                                          .dp = at[3],
                                          .tp_index = at[4],
                                          .dp_index = at[5],
                                          .microbatches = at[6],
                                          .schedule = "1f1b",
                                          .transport = "ucx",
                                          .n_instrs = INSTRS,
                                          .instr_name = names,
                                          .planned = in->planned[rank],
                                          .cost = in->cost[rank],
                                          .backend = "cpu",
                                          .dtype = "fp32",
                                          .threads = at[7],
                                          .ranks_per_node = at[8]};
    struct merak_trace *trace = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc =
        merak_trace_create(fuzz_dir(), &info, 1, &trace, &err);

    for (int s = 0; s < STEPS && rc == MERAK_OK; s++)
        rc = merak_trace_step(trace, in->record[rank][s], INSTRS, &err);
    if (rc == MERAK_OK)
        rc = merak_trace_close(trace, &err);
    if (rc != MERAK_OK)
        fprintf(stderr, "%s\n", err.text);
    fuzz_must(rc == MERAK_OK, "a trace is written");
}

static void write_ranks(const struct numbers *in)
{
    for (int rank = RANKS - 1; rank >= 0; rank--)
        write_rank(in, rank);
}

/* Five steps of two stages: a kernel, a transfer from 0 to 1, a collective. */
static void add_sound(void)
{
    static struct numbers in;
    static const int32_t info[9] = {0, 2, 1, 1, 0, 0, 4, 1, 2};

    for (int r = 0; r < RANKS; r++) {
        memcpy(in.info[r], info, sizeof(info));
        in.info[r][0] = r;
        for (int i = 0; i < INSTRS; i++) {
            struct merak_trace_planned *p = &in.planned[r][i];

            snprintf(p->op, sizeof(p->op), "%s",
                     i == 0   ? "linear"
                     : i == 3 ? "all-reduce"
                     : r == 0 ? "send"
                              : "recv");
            p->tag = i == 0 ? 0 : (uint64_t)i;
            p->first = i == 0 ? -1 : 0;
            p->second = i == 0 ? -1 : i == 3 ? -2 : 1;
            p->start_ns = 1000 * i;
            p->end_ns = 1000 * i + 900;
            in.cost[r][i] = (struct merak_trace_cost){
                .flops = 1e6, .bytes = 4096, .width = 8, .inside = 2, .tp = 1};
        }
        for (int s = 0; s < STEPS; s++) {
            for (int i = 0; i < INSTRS; i++)
                in.record[r][s][i] = (struct merak_trace_record){
                    .start_ns = 1000000 * s + 1000 * i,
                    .end_ns = 1000000 * s + 1000 * i + 800 + 10 * s,
                    .bytes = 4096,
                    .instr = i,
                    .step = s,
                    .microbatch = (int16_t)(i - 1),
                    .peer = (int16_t)(i == 1 || i == 2 ? 1 - r : -1),
                    .kind = (uint8_t)(i == 0   ? 0
                                      : i == 3 ? 3
                                               : 1 + r),
                    .queue = (uint8_t)(i == 0   ? 0
                                       : i == 3 ? 1
                                                : 2),
                    .phase = (uint8_t)(i % 2)};
        }
    }
    fuzz_add_kind(RECORDS, &in, sizeof(in));
    write_ranks(&in);
}

void fuzz_seeds(void)
{
    add_sound();
    fuzz_add_file(FILES, fuzz_path("trace-00000.h5"));
}

/* --- reading -------------------------------------------------------------- */

static void look_at_step(const struct merak_trace_rank *rank, int n,
                         int32_t step)
{
    struct merak_trace_view *view = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc = merak_trace_view_create(rank, n, step, &view, &err);

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return;
    }
    fuzz_must(view->end_ns >= view->start_ns, "a step ends after its start");
    merak_trace_view_destroy(view);
}

static void sum_up(const struct merak_trace_rank *rank, int n,
                   const int32_t *step, int n_steps)
{
    struct merak_trace_split *split = calloc((size_t)n, sizeof(*split));
    struct merak_trace_busy *busy = NULL;
    struct merak_trace_sum *sums = NULL;
    struct merak_trace_change *changes = NULL;
    struct merak_error err = {.text = ""};
    size_t n_busy, n_sums, n_changes;
    enum merak_status rc;

    rc = merak_trace_split(rank, n, step, n_steps, split, &err);
    if (rc == MERAK_OK)
        rc = merak_trace_busiest(rank, n, step, n_steps, &busy, &n_busy, &err);
    if (rc == MERAK_OK)
        rc = merak_trace_sums(rank, n, step, n_steps, &sums, &n_sums, &err);
    if (rc == MERAK_OK)
        rc = merak_trace_diff(sums, n_sums, sums, n_sums / 2, &changes,
                              &n_changes, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    free(changes);
    free(sums);
    free(busy);
    free(split);
}

static void export(const struct merak_trace_rank *rank, int n,
                   const int32_t *step, int n_steps)
{
    struct merak_trace_samples samples;
    struct merak_error err = {.text = ""};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    enum merak_status rc =
        merak_trace_perfetto(rank, n, step, n_steps, out, &err);

    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    fclose(out);
    free(text);
    rc = merak_trace_samples(rank, n, "x", "cpu", false, &samples, &err);
    if (rc == MERAK_OK)
        merak_refine_destroy(samples.refine);
    else
        fuzz_refused(rc, &err);
}

static void look_at(const struct merak_trace_rank *rank, int n)
{
    struct merak_trace_rank *predicted = NULL;
    struct merak_error err = {.text = ""};
    int32_t *step = NULL;
    int n_steps = 0;
    enum merak_status rc = merak_trace_steps(rank, n, &step, &n_steps, &err);

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return;
    }
    for (int i = 0; i < n_steps && i < STEPS; i++)
        look_at_step(rank, n, step[i]);
    if (n_steps > 0) {
        sum_up(rank, n, step, n_steps);
        export(rank, n, step, n_steps);
    }
    rc = merak_trace_predicted(rank, n, &predicted, &err);
    if (rc == MERAK_OK) {
        look_at_step(predicted, n, 0);
        merak_trace_unload(predicted, n);
    } else {
        fuzz_refused(rc, &err);
    }
    free(step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct numbers in;
    struct merak_trace_rank *rank = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc;
    int ranks;

    if (n == 0)
        return 0;
    if (data[0] % 2 == RECORDS) {
        memset(&in, 0, sizeof(in));
        memcpy(&in, data + 1, n - 1 < sizeof(in) ? n - 1 : sizeof(in));
        write_ranks(&in);
    } else {
        fuzz_file("trace-00000.h5", data + 1, n - 1);
    }
    rc = merak_trace_load(fuzz_dir(), &rank, &ranks, &err);
    if (rc == MERAK_OK) {
        look_at(rank, ranks);
        merak_trace_unload(rank, ranks);
    } else {
        fuzz_refused(rc, &err);
    }
    return 0;
}
