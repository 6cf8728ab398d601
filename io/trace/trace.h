/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/trace.h - per-rank HDF5 traces of every instruction */
#ifndef MERAK_IO_TRACE_TRACE_H
#define MERAK_IO_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"
#include "partitioner/plan/mesh.h"

/* One instruction as it ran; 48 bytes on disk. */
struct merak_trace_record {
    int64_t start_ns, end_ns; /* by one clock for all ranks: ns since the run's
                                 epoch, corrected for clock offsets */
    uint64_t bytes;           /* moved, or 0 */
    int32_t instr;            /* id in the program */
    int32_t step;
    int16_t microbatch; /* -1: step instruction */
    int16_t peer;       /* logical rank or -1 */
    uint8_t kind;       /* enum merak_instr_kind */
    uint8_t queue;      /* enum merak_queue */
    uint8_t phase;      /* enum merak_phase */
    uint8_t chunk;
    uint32_t reserved;
};

/* What the plan has for an instruction; 72 bytes on disk. */
struct merak_trace_planned {
    char op[32]; /* "linear_dx", "all-reduce", "send"; or "" */
    /* Instructions of several ranks with equal tag, first and second are one
     * event: a transfer from first to second, or a collective of -second
     * ranks, the first of which is `first`. 0, -1, -1: no communication. */
    uint64_t tag;
    int32_t first, second;
    /* Predicted, since the step's start; both -1: not predicted. */
    int64_t start_ns, end_ns;
    uint8_t again; /* 1: recomputation */
    uint8_t reserved[7];
};

/* The cost model's input for an instruction; 40 bytes on disk.  costs.c
 * describes the fields. */
struct merak_trace_cost {
    double flops, bytes, width, reuse;
    int32_t inside, tp;
};

/* A checkpoint that was saved, on one rank; 48 bytes on disk.  Times as in
 * records. */
struct merak_trace_save {
    int64_t step;
    uint64_t bytes;       /* of this rank's tensors */
    int64_t start_ns;     /* training waits for it .. */
    int64_t resumed_ns;   /* .. until then */
    int64_t written_ns;   /* this rank's file was on disk */
    int64_t committed_ns; /* rank 0: committed on disk; others: -1 */
};

/* Written with the records, once per rank. */
struct merak_trace_info {
    int rank, ranks, stage, stages;
    int tp, dp, tp_index, dp_index;            /* of the rank's own stage */
    int cp, ep; /* factors of tp: ranks that sequences, and experts, are cut
                   over; 0: none, as 1 */
    const struct merak_stage_degrees *degrees; /* [stages] of each stage; NULL:
                                                  all are alike */
    int microbatches;
    char schedule[32];
    char transport[64];
    int n_instrs;
    const char *const *instr_name;             /* [n_instrs] */
    const struct merak_trace_planned *planned; /* [n_instrs], or NULL */
    const struct merak_trace_cost *cost;       /* [n_instrs], or NULL */
    char backend[32];                          /* "": not known, nor the */
    char dtype[8];                             /* next two */
    int threads;
    int ranks_per_node; /* logical ranks fill nodes in order; 0: not known */
    const char *plan;   /* as text (io/plan_file.h), of rank 0; or NULL */
};

struct merak_trace;

/* Create dir/trace-RANK.h5.  keep_every: the interval of steps kept besides
 * first and last; 0: 100. */
enum merak_status merak_trace_create(const char *dir,
                                     const struct merak_trace_info *info,
                                     int keep_every,
                                     struct merak_trace **trace_p,
                                     struct merak_error *err) MERAK_CHECKED;
/*
 * Append one step's records, in order of steps, outside of the step's critical
 * path.  Call it for every step: the last one is kept whatever its number.
 *
 *   records  borrowed until the next call or the close: records of a step that
 *            is not kept are only written if no other step follows
 */
enum merak_status merak_trace_step(struct merak_trace *trace,
                                   const struct merak_trace_record *records,
                                   int n,
                                   struct merak_error *err) MERAK_CHECKED;
/* Append one save, once it is complete. */
enum merak_status merak_trace_save(struct merak_trace *trace,
                                   const struct merak_trace_save *save,
                                   struct merak_error *err) MERAK_CHECKED;
/* Close; NULL is fine.  Rank 0 also writes dir/trace.h5, virtual datasets over
 * all ranks: it should close last (after a barrier), else it contains only
 * what was written so far. */
enum merak_status merak_trace_close(struct merak_trace *trace,
                                    struct merak_error *err) MERAK_CHECKED;

/* "kernel", "p2p", "F": names of a record's fields; "?" if unknown. */
const char *merak_trace_kind_name(uint8_t kind);
const char *merak_trace_queue_name(uint8_t queue);
const char *merak_trace_phase_name(uint8_t phase);

enum { MERAK_TRACE_DEGREES = 160 };
/* "tp 1, pp 2, dp 2", with cp and ep where they are more than 1; "stages
 * 2x4-8x1" if they are unlike.  Returns text. */
const char *merak_trace_degrees(const struct merak_trace_info *info,
                                char text[MERAK_TRACE_DEGREES]);

/* Reading, for `merak trace`. */
struct merak_trace_rank {
    struct merak_trace_info info;
    char **names;
    struct merak_trace_record *records;
    size_t n;
    struct merak_trace_planned *planned; /* [info.n_instrs]; NULL: not in the
                                            trace */
    struct merak_trace_cost *cost;       /* likewise */
    char *plan;                          /* likewise */
    struct merak_stage_degrees *degrees; /* [info.stages], or NULL */
    struct merak_trace_save *saves;      /* [n_saves]; NULL: likewise */
    size_t n_saves;
};
enum merak_status merak_trace_load(const char *dir,
                                   struct merak_trace_rank **ranks_p, int *n_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_trace_unload(struct merak_trace_rank *ranks, int n);

#endif
