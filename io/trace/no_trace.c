/* SPDX-License-Identifier: Apache-2.0 */
/* no_trace.c - a build without HDF5 writes no traces
 *
 * Options that ask for them fail early (train_options.c); these functions are
 * for callers of the library and for `merak trace`.
 */
#include "config.h"

#include "io/trace/trace.h"

#include "base/error.h"

static enum merak_status refuse(struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "there are no traces: this Merak was built without HDF5");
}

enum merak_status merak_trace_create(const char *dir,
                                     const struct merak_trace_info *info,
                                     int keep_every,
                                     struct merak_trace **trace_p,
                                     struct merak_error *err)
{
    (void)dir;
    (void)info;
    (void)keep_every;
    (void)trace_p;
    return refuse(err);
}

enum merak_status merak_trace_step(struct merak_trace *trace,
                                   const struct merak_trace_record *records,
                                   int n, struct merak_error *err)
{
    (void)trace;
    (void)records;
    (void)n;
    return refuse(err);
}

enum merak_status merak_trace_save(struct merak_trace *trace,
                                   const struct merak_trace_save *save,
                                   struct merak_error *err)
{
    (void)trace;
    (void)save;
    return refuse(err);
}

enum merak_status merak_trace_close(struct merak_trace *trace,
                                    struct merak_error *err)
{
    (void)trace;
    (void)err;
    return MERAK_OK; /* none was opened */
}

enum merak_status merak_trace_load(const char *dir,
                                   struct merak_trace_rank **ranks_p, int *n_p,
                                   struct merak_error *err)
{
    (void)dir;
    (void)ranks_p;
    (void)n_p;
    return refuse(err);
}
