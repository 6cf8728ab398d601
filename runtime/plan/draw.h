/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/draw.h - pictures of a plan, and the page around them */
#ifndef MERAK_RUNTIME_PLAN_DRAW_H
#define MERAK_RUNTIME_PLAN_DRAW_H

#include "partitioner/assembly/assembly.h"
#include "partitioner/search/search.h"
#include "partitioner/simulate/timeline.h"
#include "partitioner/simulate/simulate.h"

/* What a run's rate counts: tokens, or, of a model without sequences, samples. */
struct plan_rate {
    const char *what;  /* "tokens" */
    const char *key;   /* "tokens_per_s" */
    const char *batch; /* what a batch counts: "sequences" */
    double per_s;
};
/* letter: merak_graph_sequence_letter() */
struct plan_rate plan_rate_of(char letter, size_t batch, size_t seq,
                              double step_s);

struct plan_drawing {
    const char *heading; /* what is planned: one line */
    const struct merak_plan *plan;
    /* What is drawn: the plan, possibly with fewer micro-batches. */
    const struct merak_planned *planned; /* one program per stage */
    const struct merak_timeline *timeline;
    const struct merak_search_stage *stage; /* [plan->pp], of the plan */
    const struct merak_search_kind *kind;   /* that stages are on; NULL: one */
    const char *near; /* what fast links join: merak_search_near_word() */
    size_t limit_bytes;                     /* of a rank; 0: none */
    double step_s;                          /* of the plan */
    struct plan_rate rate;
    double utilisation;                     /* of peak FLOP/s; 0: unknown */
    double fetch_s;   /* of the step, waiting for fetched parameters */
    double offload_s; /* and for what is the host's */
    const struct merak_search_result *result; /* of a search, or NULL */
    const struct plan_advice *advice;         /* likewise */
    const char *islands; /* lines on islands of nodes; "": there are none */
};

/* Fill a stage's row from the program of one of its ranks in the whole plan. */
void plan_stage_fill(const struct merak_program *program,
                     const struct merak_links *links,
                     struct merak_search_stage *stage);
/* Is a category of memory shown?  One that few plans have is where it is used.
 */
bool plan_shows_category(const struct merak_search_stage *stage, int pp,
                         enum merak_category category);
/* A line on what is fetched for its use, or "". */
enum { PLAN_FETCH_TEXT = 160 };
const char *plan_fetch_text(const struct merak_search_stage *stage, int pp,
                            double fetch_s, char text[PLAN_FETCH_TEXT]);
/* Does the host's memory keep anything? */
bool plan_uses_host(const struct merak_search_stage *stage, int pp);
/* The same on what is offloaded, or was to be. */
const char *plan_offload_text(const struct merak_plan *plan,
                              const struct merak_search_stage *stage,
                              double offload_s, char text[PLAN_FETCH_TEXT]);
/* The timeline, as wide as a terminal, on standard output. */
enum merak_status plan_draw_text(const struct plan_drawing *drawing,
                                 struct merak_error *err) MERAK_CHECKED;
/* Timeline and memory bars; path "-" is standard output. */
enum merak_status plan_draw_svg(const struct plan_drawing *drawing,
                                const char *path,
                                struct merak_error *err) MERAK_CHECKED;
/* The same with all numbers, as a self-contained page. */
enum merak_status plan_draw_html(const struct plan_drawing *drawing,
                                 const char *path,
                                 struct merak_error *err) MERAK_CHECKED;

/* page.c: the page; `svg` goes into it. */
enum merak_status plan_page_write(const struct plan_drawing *drawing,
                                  const char *svg, char **text_p,
                                  struct merak_error *err) MERAK_CHECKED;

/* Unlike stages are simulated with all ranks; reports and pictures show the
 * first of each: keep its program and its row. */
enum merak_status plan_keep_firsts(struct merak_planned *planned,
                                   struct merak_timeline *timeline,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
