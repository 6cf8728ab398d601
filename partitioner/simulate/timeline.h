/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/timeline.h - pictures of a pipeline's step, from a
 * simulation
 * or from a trace
 */
#ifndef MERAK_PARTITIONER_SIMULATE_TIMELINE_H
#define MERAK_PARTITIONER_SIMULATE_TIMELINE_H

#include "partitioner/program/program.h"
#include "partitioner/simulate/simulate.h"

enum merak_bar_kind {
    MERAK_BAR_FORWARD,
    MERAK_BAR_RECOMPUTE, /* recomputation */
    MERAK_BAR_BACKWARD,  /* weight gradients included */
    MERAK_BAR_STEP,      /* gradients' end, norm, optimizer */
    MERAK_BAR_EXCHANGE,  /* collectives */
    MERAK_BAR_TRANSFER,  /* point to point */
    MERAK_BAR_COUNT
};

struct merak_bar {
    int row;
    enum merak_bar_kind kind;
    int microbatch; /* -1: none */
    double start_s, end_s;
};

/* What an instruction shows up as. */
enum merak_bar_kind merak_bar_kind(enum merak_queue queue,
                                   enum merak_phase phase, int microbatch);
/*
 * Sort bars by row, kind of lane and start, and join neighbours of the same
 * kind and micro-batch that are less than gap_s apart.  Returns how many are
 * left.
 */
int merak_bars_join(struct merak_bar *bars, int n, double gap_s);
/* The bars of a simulated step, a row for each program; freed by free(). */
enum merak_status merak_timeline_bars(struct merak_program *const *programs,
                                      const struct merak_timeline *timeline,
                                      struct merak_bar **bars_p, int *n_p,
                                      struct merak_error *err) MERAK_CHECKED;

struct merak_picture {
    const char *title;
    int n_rows;
    const char *const *row_name;  /* [n_rows], "stage 0" */
    const struct merak_bar *bars; /* joined */
    int n_bars;
    double end_s; /* of the picture; starts at 0 */
};

/*
 * One line a row, `width` columns: digits are forwards of that micro-batch
 * (mod 10), letters backwards (a is 0, mod 26), '=' the step's end, '-'
 * communication alone, '.' idle.  What fills most of a column is shown.
 * Freed by free().
 */
enum merak_status merak_picture_text(const struct merak_picture *picture,
                                     int width, char **text_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* A self-contained SVG document, freed by free(). */
enum merak_status merak_picture_svg(const struct merak_picture *picture,
                                    char **text_p,
                                    struct merak_error *err) MERAK_CHECKED;

/* Bytes a rank of each stage takes, by category. */
struct merak_memory_picture {
    const char *title;
    int n_rows;
    const char *const *row_name;            /* [n_rows] */
    const size_t (*bytes)[MERAK_CAT_COUNT]; /* [n_rows] */
    size_t limit_bytes;                     /* that a rank may take; 0: none */
};

enum merak_status merak_memory_svg(const struct merak_memory_picture *picture,
                                   char **text_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* One document of two, of those above. */
enum merak_status merak_svg_stack(const char *above, const char *below,
                                  char **text_p,
                                  struct merak_error *err) MERAK_CHECKED;

#endif
