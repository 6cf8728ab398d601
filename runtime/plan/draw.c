/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - pictures of a plan: its step and its memory */
#include "config.h"

#include "runtime/plan/draw.h"

#include "base/error.h"
#include "base/output.h"
#include "base/size.h"
#include "partitioner/graph/letters.h"
#include "partitioner/simulate/fetches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_WIDTH 100

/* --- a stage from its program --------------------------------------------- */

static void add_time(const struct merak_instr *in,
                     struct merak_search_stage *stage)
{
    if (in->queue != MERAK_QUEUE_COMPUTE || in->microbatch != 0)
        return;
    if (in->recompute)
        stage->recompute_s += in->cost_s;
    else if (in->phase == MERAK_PHASE_F)
        stage->forward_s += in->cost_s;
    else
        stage->backward_s += in->cost_s;
}

/* Bytes that an instruction sends, by level: to one peer, or evenly to all
 * others of a group. */
static void add_sent(const struct merak_program *prog,
                     const struct merak_links *links,
                     const struct merak_instr *in,
                     struct merak_search_stage *stage)
{
    const struct merak_group *group;
    struct merak_spread spread;
    int others = 0;

    if (in->kind == MERAK_INSTR_SEND)
        stage->sent_bytes[merak_links_level(links, prog->rank, in->peer)] +=
            (double)in->bytes;
    if (in->kind != MERAK_INSTR_EXCHANGE)
        return;
    group = &prog->group[in->group];
    spread = merak_links_spread(links, prog->rank, group->rank, group->n);
    spread.n[0]--; /* itself */
    for (int l = 0; l < MERAK_LEVELS; l++)
        others += spread.n[l];
    for (int l = 0; l < MERAK_LEVELS && others > 0; l++)
        stage->sent_bytes[l] += (double)in->bytes * spread.n[l] / others;
}

void plan_stage_fill(const struct merak_program *prog,
                     const struct merak_links *links,
                     struct merak_search_stage *stage)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        add_time(in, stage);
        add_sent(prog, links, in, stage);
        if (merak_instr_fetches(prog, in))
            stage->fetched_bytes += (double)in->bytes;
    }
    merak_search_stage_fill(prog, stage);
}

bool plan_shows_category(const struct merak_search_stage *stage, int pp,
                         enum merak_category category)
{
    for (int s = 0; s < pp && category == MERAK_CAT_FETCHED; s++) {
        if (stage[s].category_bytes[category] > 0)
            return true;
    }
    return category != MERAK_CAT_FETCHED;
}

const char *plan_fetch_text(const struct merak_search_stage *stage, int pp,
                            double fetch_s, char text[PLAN_FETCH_TEXT])
{
    char bytes[MERAK_BYTES_TEXT], seconds[MERAK_SECONDS_TEXT];
    int blocks = 0, fetched = 0;
    double most = 0;

    for (int s = 0; s < pp; s++) {
        blocks += stage[s].n_blocks;
        fetched += stage[s].blocks_fetched;
        if (stage[s].fetched_bytes > most)
            most = stage[s].fetched_bytes;
    }
    text[0] = '\0';
    if (fetched == 0)
        return text;
    merak_bytes_text(most, bytes);
    snprintf(text, PLAN_FETCH_TEXT,
             "fetched for each use: %d of %d blocks; a rank sends %s a step "
             "for it, and waits %s",
             fetched, blocks, bytes, merak_seconds_text(fetch_s, seconds));
    return text;
}

struct plan_rate plan_rate_of(char letter, size_t batch, size_t seq,
                              double step_s)
{
    if (letter == MERAK_LETTER_POSITIONS)
        return (struct plan_rate){"tokens", "tokens_per_s", "sequences",
                                  (double)batch * (double)seq / step_s};
    return (struct plan_rate){"samples", "samples_per_s", "samples",
                              (double)batch / step_s};
}

bool plan_uses_host(const struct merak_search_stage *stage, int pp)
{
    bool uses = false;

    for (int s = 0; s < pp; s++)
        uses = uses || stage[s].host_bytes > 0;
    return uses;
}

/* ", with activations of 12 of 64 blocks" */
static const char *activations_text(const struct merak_plan *plan,
                                    const struct merak_search_stage *stage,
                                    char *text, size_t bytes)
{
    int away = 0, blocks = 0;
    bool attention = false;

    for (int s = 0; s < plan->pp; s++) {
        away += stage[s].blocks_away;
        blocks += stage[s].n_blocks;
        attention = attention || stage[s].attention_away;
    }
    text[0] = '\0';
    if (away > 0)
        snprintf(text, bytes, ", with activations of %d of %d blocks%s", away,
                 blocks, attention ? " and attention" : "");
    else if (attention)
        snprintf(text, bytes, ", with activations of attention");
    return text;
}

const char *plan_offload_text(const struct merak_plan *plan,
                              const struct merak_search_stage *stage,
                              double offload_s, char text[PLAN_FETCH_TEXT])
{
    char held[MERAK_BYTES_TEXT], copied[MERAK_BYTES_TEXT], acts[64];
    char seconds[MERAK_SECONDS_TEXT];
    int most = 0;

    for (int s = 1; s < plan->pp; s++) {
        if (stage[s].host_bytes > stage[most].host_bytes)
            most = s;
    }
    text[0] = '\0';
    activations_text(plan, stage, acts, sizeof(acts));
    if (stage[most].host_bytes == 0 && !merak_plan_offloads_acts(plan))
        return text;
    if (stage[most].host_bytes == 0) {
        snprintf(text, PLAN_FETCH_TEXT,
                 "in the host's memory: nothing, since no stage drops "
                 "activations that a backward reads; --recompute says what is "
                 "dropped");
        return text;
    }
    if (merak_plan_offloads_acts(plan) && acts[0] == '\0')
        snprintf(acts, sizeof(acts),
                 ", no activations, since no stage drops any");
    merak_bytes_text((double)stage[most].host_bytes, held);
    merak_bytes_text(stage[most].offloaded_bytes, copied);
    snprintf(text, PLAN_FETCH_TEXT,
             "in the host's memory: %s of a rank%s; it copies %s a step, and "
             "waits %s",
             held, acts, copied, merak_seconds_text(offload_s, seconds));
    return text;
}

enum merak_status plan_keep_firsts(struct merak_planned *planned,
                                   struct merak_timeline *timeline,
                                   struct merak_error *err)
{
    const struct merak_plan *plan = &planned->plan;
    int *first = calloc((size_t)plan->pp, sizeof(*first));

    if (first == NULL)
        return merak_fail_nomem(err, (size_t)plan->pp * sizeof(*first));
    for (int s = 0; s < plan->pp; s++)
        first[s] = merak_plan_mesh(plan, s).first;
    merak_planned_keep(planned, first, plan->pp);
    merak_timeline_keep(timeline, first, plan->pp);
    free(first);
    return MERAK_OK;
}

/* --- pictures ------------------------------------------------------------- */

/* Everything that pictures of a plan point to. */
struct pictures {
    int n;
    char (*label)[32];
    const char **name;
    size_t (*bytes)[MERAK_CAT_COUNT];
    struct merak_bar *bars;
    struct merak_bar_share *share; /* [n + 1] */
    char title[200], note[96];
    struct merak_picture step;
    struct merak_memory_picture memory;
};

static void pictures_fini(struct pictures *p)
{
    free(p->share);
    free(p->bars);
    free(p->bytes);
    free(p->name);
    free(p->label);
}

/* The title: the plan's step and, if only a part is drawn, which part. */
static void fill_title(const struct plan_drawing *d, struct pictures *p)
{
    int all = d->plan->microbatches, drawn = d->planned->plan.microbatches;
    char step[MERAK_SECONDS_TEXT], degrees[MERAK_DEGREES_TEXT];

    snprintf(p->title, sizeof(p->title),
             "predicted step: %s, %s, %s, %d micro-batch%s",
             merak_seconds_text(d->step_s, step), d->plan->schedule,
             merak_plan_degrees_text(d->plan, ", ", degrees), all,
             all == 1 ? "" : "es");
    if (drawn < all) {
        snprintf(p->note, sizeof(p->note),
                 "drawn: a step of %d micro-batches instead of %d", drawn, all);
        p->step.note = p->note;
    }
}

static void fill_rows(const struct plan_drawing *d, struct pictures *p)
{
    for (int s = 0; s < p->n; s++) {
        const struct merak_stage_mesh mesh = merak_plan_mesh(d->plan, s);
        int n = snprintf(p->label[s], sizeof(p->label[s]), "stage %d", s);

        if (d->plan->stage != NULL)
            snprintf(p->label[s] + n, sizeof(p->label[s]) - (size_t)n,
                     ", %d x %d", mesh.dp, mesh.tp);
        p->name[s] = p->label[s];
        memcpy(p->bytes[s], d->stage[s].category_bytes, sizeof(p->bytes[s]));
    }
}

static enum merak_status pictures_init(const struct plan_drawing *d,
                                       struct pictures *p,
                                       struct merak_error *err)
{
    size_t n = (size_t)d->plan->pp;
    enum merak_status rc;

    *p = (struct pictures){.n = d->plan->pp};
    p->label = calloc(n, sizeof(*p->label));
    p->name = calloc(n, sizeof(*p->name));
    p->bytes = calloc(n, sizeof(*p->bytes));
    p->share = calloc(n + 1, sizeof(*p->share));
    if (p->label == NULL || p->name == NULL || p->bytes == NULL ||
        p->share == NULL)
        return merak_fail_nomem(err, n * sizeof(*p->bytes));
    fill_rows(d, p);
    rc = merak_timeline_bars(d->planned->program, d->timeline,
                             merak_bars_splits_w(d->plan->schedule), &p->bars,
                             &p->step.n_bars, p->share, err);
    fill_title(d, p);
    p->step.share = p->share;
    p->step.title = p->title;
    p->step.n_rows = p->n;
    p->step.row_name = p->name;
    p->step.bars = p->bars;
    p->step.end_s = d->timeline->step_s;
    p->memory = (struct merak_memory_picture){
        .title = "memory of a rank of each stage",
        .n_rows = p->n,
        .row_name = p->name,
        .bytes = (const size_t(*)[MERAK_CAT_COUNT])p->bytes,
        .limit_bytes = d->limit_bytes};
    return rc;
}

enum merak_status plan_draw_text(const struct plan_drawing *d,
                                 struct merak_error *err)
{
    struct pictures p;
    char *text = NULL;
    enum merak_status rc = pictures_init(d, &p, err);

    if (rc == MERAK_OK)
        rc = merak_picture_text(&p.step, TEXT_WIDTH, &text, err);
    if (rc == MERAK_OK)
        printf("%s(digits: forward of that micro-batch; letters: backward; R: "
               "recomputed; =: end of step; -: communication)\n",
               text);
    free(text);
    pictures_fini(&p);
    return rc;
}

static enum merak_status make_svg(const struct plan_drawing *d, char **text_p,
                                  struct merak_error *err)
{
    struct pictures p;
    char *step = NULL, *memory = NULL;
    enum merak_status rc = pictures_init(d, &p, err);

    if (rc == MERAK_OK)
        rc = merak_picture_svg(&p.step, &step, err);
    if (rc == MERAK_OK)
        rc = merak_memory_svg(&p.memory, &memory, err);
    if (rc == MERAK_OK)
        rc = merak_svg_stack(step, memory, text_p, err);
    free(memory);
    free(step);
    pictures_fini(&p);
    return rc;
}

static enum merak_status write_text(const char *path, const char *text,
                                    struct merak_error *err)
{
    struct merak_output out;
    enum merak_status rc = merak_output_open(&out, path, err);

    return rc != MERAK_OK
               ? rc
               : merak_output_close(&out, fputs(text, out.file) >= 0, err);
}

enum merak_status plan_draw_svg(const struct plan_drawing *d, const char *path,
                                struct merak_error *err)
{
    char *text = NULL;
    enum merak_status rc = make_svg(d, &text, err);

    if (rc == MERAK_OK)
        rc = write_text(path, text, err);
    free(text);
    return rc;
}

enum merak_status plan_draw_html(const struct plan_drawing *d, const char *path,
                                 struct merak_error *err)
{
    char *svg = NULL, *text = NULL;
    enum merak_status rc = make_svg(d, &svg, err);

    if (rc == MERAK_OK)
        rc = plan_page_write(d, svg, &text, err);
    if (rc == MERAK_OK)
        rc = write_text(path, text, err);
    free(text);
    free(svg);
    return rc;
}
