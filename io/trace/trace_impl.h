/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/trace_impl.h - shared by the files of the trace module */
#ifndef MERAK_IO_TRACE_IMPL_H
#define MERAK_IO_TRACE_IMPL_H

#include "io/h5.h"
#include "io/trace/trace.h"

#define MERAK_TRACE_FORMAT "merak-trace"
#define MERAK_TRACE_VERSION 1
#define MERAK_TRACE_MASTER "trace.h5"
#define MERAK_TRACE_RECORDS "records"
#define MERAK_TRACE_NAMES "names"
#define MERAK_TRACE_PLANNED "planned"
#define MERAK_TRACE_SAVES "saves"
#define MERAK_TRACE_DEGREES_OF "degrees"

/* "trace-00003.h5"; buf of 32.  Returns buf. */
char *merak_trace_file(char *buf, int rank);
/* The compound type of a record, the same in memory and on disk; < 0 on
 * failure. */
hid_t merak_trace_type(void);
/* Write the planned instructions, if there are any; read them, if the file has
 * them. */
bool merak_trace_put_planned(hid_t file, const struct merak_trace_info *info);
bool merak_trace_get_planned(hid_t file, struct merak_trace_rank *rank);
/* The same for costs, plan and attributes of the run. */
bool merak_trace_put_costs(hid_t file, const struct merak_trace_info *info);
bool merak_trace_get_costs(hid_t file, struct merak_trace_rank *rank);
/* Saves: make an empty list, < 0 on failure; append one after n; read all. */
hid_t merak_trace_make_saves(hid_t file);
bool merak_trace_put_save(hid_t set, hsize_t n,
                          const struct merak_trace_save *save);
bool merak_trace_get_saves(hid_t file, struct merak_trace_rank *rank);
/* Write dir/trace.h5 over the current files of ranks 0..ranks-1. */
enum merak_status
merak_trace_write_master(const char *dir, int ranks,
                         struct merak_error *err) MERAK_CHECKED;

#endif
