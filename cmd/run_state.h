/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/run_state.h - what `merak top` and `merak report` say of a run */
#ifndef MERAK_CMD_RUN_STATE_H
#define MERAK_CMD_RUN_STATE_H

#include "io/run_log.h"

#include <stdbool.h>

enum merak_run_phase {
    MERAK_RUN_STARTING, /* no step yet */
    MERAK_RUN_GOING,
    MERAK_RUN_SILENT,  /* for longer than steps take */
    MERAK_RUN_STOPPED, /* its owner is gone, steps are left */
    MERAK_RUN_DONE,
};

struct merak_run_state {
    enum merak_run_phase phase;
    double now, silent_s; /* since the last step, or the start */
    uint64_t step, steps; /* steps 0: not known */
    double step_s;        /* median of the last */
    double flops_per_s;   /* of the model; 0: not known */
    double eta_s;         /* -1: not known */
    char checkpoint[64];  /* the newest; "" */
    double checkpoint_s;  /* its age */
    char **hang;          /* [n_hangs] names of hang reports */
    int n_hangs;
};

extern const char *const merak_run_phases[];

/* Look at a run's directory; `now` in seconds since 1970. */
void merak_run_state_find(const char *dir, const struct merak_run_log *log,
                          double now, struct merak_run_state *state);
void merak_run_state_fini(struct merak_run_state *state);
/* "1:02:03"; returns text. */
const char *merak_run_time_text(double seconds, char text[32]);
/* The directory that a word means: itself, or for a job's number the directory
 * below the job's own in which it saves; false: there is none, said in err. */
bool merak_run_find(const char *word, char *dir, size_t size,
                    struct merak_error *err);

#endif
