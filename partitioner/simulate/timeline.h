/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/timeline.h - pictures of a pipeline's step, from a
 * simulation or from a trace
 */
#ifndef MERAK_PARTITIONER_SIMULATE_TIMELINE_H
#define MERAK_PARTITIONER_SIMULATE_TIMELINE_H

#include "partitioner/program/program.h"
#include "partitioner/simulate/simulate.h"

enum merak_bar_kind {
    MERAK_BAR_FORWARD,
    MERAK_BAR_RECOMPUTE, /* recomputation */
    MERAK_BAR_BACKWARD,  /* includes weight gradients unless these are separate
                            actions */
    MERAK_BAR_WEIGHT,    /* weight gradients */
    MERAK_BAR_STEP,      /* last gradient sums, norm, optimizer */
    MERAK_BAR_EXCHANGE,  /* collectives with tensor ranks and other stages */
    MERAK_BAR_REPLICAS,  /* collectives over replicas */
    MERAK_BAR_TRANSFER,  /* point to point */
    MERAK_BAR_COPY,      /* to the host's memory, or back */
    MERAK_BAR_COUNT
};

struct merak_bar {
    int row;
    enum merak_bar_kind kind;
    int microbatch; /* -1: none, or several */
    double start_s, end_s;
    int part; /* identifies its chunk and pass, any numbers */
};

/* Fractions of a step, for a row or the mean of all rows. */
struct merak_bar_share {
    double idle; /* nothing is computed: the pipeline's bubble, and all waits */
    double waiting; /* of that, nothing is sent or received, either */
};

/* Pictures have at most this many columns. */
#define MERAK_BARS_FINEST 4000

/* Are weight gradients separate actions?  False for unknown schedules. */
bool merak_bars_splits_w(const char *schedule);
/* The kind of bar of an instruction; splits_w is merak_bars_splits_w(). */
enum merak_bar_kind merak_bar_kind(enum merak_queue queue,
                                   enum merak_phase phase, int microbatch,
                                   bool splits_w);
/* Compute, both kinds of exchanges, and transfers run at the same time: the
 * track of a bar, from 0. */
#define MERAK_BAR_TRACKS 4
int merak_bar_track(const struct merak_bar *bar);
/*
 * Sort bars by row, track and start, and join those of one action and messages
 * at most gap_s apart.  Returns how many are left.
 */
int merak_bars_join(struct merak_bar *bars, int n, double gap_s);
/* Merge adjacent joined bars that are shorter than least_s into one of the kind
 * of the longest.  Returns how many are left. */
int merak_bars_merge(struct merak_bar *bars, int n, double least_s);
/*
 * The time that bars leave idle; call it before they are joined.
 *   share  out  [n_rows + 1], the mean row's last
 */
enum merak_status merak_bars_share(const struct merak_bar *bars, int n,
                                   int n_rows, double end_s,
                                   struct merak_bar_share *share,
                                   struct merak_error *err) MERAK_CHECKED;
/* The bars of a simulated step, joined, one row for each program; freed by
 * free().  share as above. */
enum merak_status merak_timeline_bars(struct merak_program *const *programs,
                                      const struct merak_timeline *timeline,
                                      bool splits_w, struct merak_bar **bars_p,
                                      int *n_p, struct merak_bar_share *share,
                                      struct merak_error *err) MERAK_CHECKED;

struct merak_picture {
    const char *title;
    const char *note;                    /* a second line; NULL: none */
    const struct merak_bar_share *share; /* [n_rows + 1], or NULL: not shown */
    int n_rows;
    const char *const *row_name;  /* [n_rows], "stage 0" */
    const struct merak_bar *bars; /* joined */
    int n_bars;
    double end_s; /* of the picture; starts at 0 */
};

/*
 * One line per row, `width` columns: digits are forwards of that micro-batch
 * (mod 10), letters backwards (a is 0, mod 26), '=' the step's end, '-'
 * communication alone, '.' idle.  A column shows what fills most of it.
 * Freed by free().
 */
enum merak_status merak_picture_text(const struct merak_picture *picture,
                                     int width, char **text_p,
                                     struct merak_error *err) MERAK_CHECKED;
/*
 * A self-contained SVG document, freed by free().  It has at most
 * MERAK_PICTURE_BYTES, unless names of rows alone take more: if there are too
 * many bars, the thinnest are merged.
 */
#define MERAK_PICTURE_BYTES 480000
enum merak_status merak_picture_svg(const struct merak_picture *picture,
                                    char **text_p,
                                    struct merak_error *err) MERAK_CHECKED;

/* Bytes a rank of each stage takes, by category. */
struct merak_memory_picture {
    const char *title;
    int n_rows;
    const char *const *row_name;            /* [n_rows] */
    const size_t (*bytes)[MERAK_CAT_COUNT]; /* [n_rows] */
    size_t limit_bytes;                     /* limit of a rank; 0: none */
};

enum merak_status merak_memory_svg(const struct merak_memory_picture *picture,
                                   char **text_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* Stack two of the documents above into one. */
enum merak_status merak_svg_stack(const char *above, const char *below,
                                  char **text_p,
                                  struct merak_error *err) MERAK_CHECKED;

#endif
