/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/run_state.h - the state of a run for `merak top` and `merak report` */
#ifndef MERAK_CMD_RUN_STATE_H
#define MERAK_CMD_RUN_STATE_H

#include "base/degree_text.h"
#include "io/run_log.h"
#include "io/trace/bound.h"

#include <stdbool.h>

enum merak_run_phase {
    MERAK_RUN_STARTING, /* no step yet */
    MERAK_RUN_GOING,
    MERAK_RUN_SILENT,  /* for longer than a step takes */
    MERAK_RUN_STOPPED, /* its owner is gone, steps remain */
    MERAK_RUN_DONE,
};

struct merak_run_state {
    enum merak_run_phase phase;
    double now, silent_s; /* since the last step, or the start */
    uint64_t step, steps; /* steps 0: not known */
    double step_s;        /* median of the last steps */
    double flops_per_s;   /* of the model; 0: not known */
    double eta_s;         /* -1: not known */
    char checkpoint[64];  /* the newest; "" */
    double checkpoint_s;  /* its age */
    char hangs_in[4096];  /* the directory of hang reports */
    char **hang;          /* [n_hangs] their names */
    int n_hangs;
    double idle; /* the share of a step in which ranks do not compute; -1: not
                    known */
};

extern const char *const merak_run_phases[];

/* What is known about a rank; -1: not known. */
struct merak_run_rank {
    const char *host; /* "?" */
    int stage, tp, dp;
    double compute_s, memory_bytes;
    double percent; /* by which it takes longer than its peers */
    bool slow;
};

/* A stage of the last start, and what its ranks did; -1: not known. */
struct merak_run_stage {
    int ranks, dp, tp;   /* 0: the record names none */
    char which[64];      /* "0-3,8-11", cut off with ".." */
    double compute_s;    /* of the mean rank */
    double memory_bytes; /* of the largest */
};

/* All stages, by number, *n_p of them; free() it.  NULL: there are none. */
struct merak_run_stage *merak_run_stages(const struct merak_run_log *log,
                                         int *n_p);
/* Have stages of the last start unlike ranks? */
bool merak_run_is_unlike(const struct merak_run_log *log);

/* Of a start, as merak_degrees_text(); or "stages 2x4-8x1". */
const char *merak_run_degrees(const json_t *start,
                              char text[MERAK_DEGREES_TEXT]);
/* The number of ranks in the run's last start. */
size_t merak_run_ranks(const struct merak_run_log *log);
struct merak_run_rank merak_run_rank(const struct merak_run_log *log, size_t r);

/* What bounds a step of the run's last start; "" if its ranks have not said how
 * long they compute. */
void merak_run_bound(const struct merak_run_log *log,
                     char text[MERAK_BOUND_BYTES]);

enum { MERAK_RUN_LOADS = 128 };

/* How unevenly a step loaded the experts; "" without them. */
void merak_run_loads(const struct merak_run_step *step,
                     char text[MERAK_RUN_LOADS]);

/* Examine a run's directory; `now` in seconds since 1970. */
void merak_run_state_find(const char *dir, const struct merak_run_log *log,
                          double now, struct merak_run_state *state);
void merak_run_state_fini(struct merak_run_state *state);
/* "1:02:03"; returns text. */
const char *merak_run_time_text(double seconds, char text[32]);
/* The run's directory for a word: the word itself, or for a job number the
 * directory in which the job saves, below the one it was started in.  False,
 * with err, if there is none. */
bool merak_run_find(const char *word, char *dir, size_t size,
                    struct merak_error *err);

#endif
