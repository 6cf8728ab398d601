/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c - matrices that are whole only while they are used
 *
 * With ZeRO-2 the gradient of a matrix is whole from its first kernel until it
 * is summed over replicas, which then keep parts of the sum: once each
 * micro-batch, unless sums are to be those of a step, as with ZeRO-1.  With
 * ZeRO-3 so is the matrix: replicas keep parts of it, and gather it before an
 * action reads it: those of all blocks, or of the first ones of each part.
 *
 * A visit is a run of an action's nodes that read matrices of one block.  What
 * a visit reads is gathered one visit ahead, also into the next action, and
 * given up when the next visit begins, unless that one, or one that is gathered
 * then, reads it, too.  So there is memory for the matrices of two blocks, and
 * a gather overlaps with the kernels of the visit before.  Where an action
 * turns back, as a backward does behind its forward, the last block and the one
 * before it are still there.
 *
 * What is gathered for a visit is a bundle: exchanges that start together, with
 * the rounds of one.
 *
 * What is not a matrix (norms, biases) is small: its gather would take longer
 * to begin than to run.  It stays as with ZeRO-1.  So do matrices that several
 * stages read, and gradients of matrices with several uses: these are summed
 * over uses first, which other pipelines have on several stages.
 */
#include "config.h"

#include "partitioner/program/step.h"
#include "partitioner/program/visits.h"

#include "base/error.h"

#include <stdlib.h>

/* --- which --------------------------------------------------------------- */

/* Of a parameter: the stage that reads it; no stage; several, or a vocabulary-
 * parallel layer, which is all stages'. */
enum { NO_STAGE = -1, STAGES = -2 };

/* By part: the first of its blocks, of those counted over the model. */
static int *first_blocks(struct merak_build *b)
{
    int *first = merak_build_alloc(b, (size_t)b->stages->n * sizeof(*first));

    for (int p = 1; p < b->stages->n && first != NULL; p++)
        first[p] = first[p - 1] + b->stages->n_blocks[p - 1];
    return first;
}

static void find_grads(struct merak_build *b)
{
    int *n =
        merak_build_alloc(b, ((size_t)b->graph->n_values + 1) * sizeof(*n));

    for (int v = 0; v < b->graph->n_values && b->rc == MERAK_OK; v++) {
        int of = b->graph->value[v]->of;

        if (b->graph->value[v]->kind == MERAK_VALUE_PARAM_GRAD)
            b->fetch.only_grad[of] = n[of]++ == 0 ? v : -1;
    }
}

void merak_build_readers(struct merak_build *b)
{
    int values = b->graph->n_values, *first = first_blocks(b);

    b->fetch.reader = merak_build_alloc(b, ((size_t)values + 1) * sizeof(int));
    b->fetch.unit = merak_build_alloc(b, ((size_t)values + 1) * sizeof(int));
    b->fetch.place = merak_build_alloc(b, ((size_t)values + 1) * sizeof(int));
    b->fetch.only_grad =
        merak_build_alloc(b, ((size_t)values + 1) * sizeof(int));
    b->fetch.inner_sum =
        merak_build_alloc(b, ((size_t)values + 1) * sizeof(int));
    for (int v = 0; v < values && b->rc == MERAK_OK; v++) {
        b->fetch.reader[v] = b->fetch.unit[v] = NO_STAGE;
        b->fetch.inner_sum[v] = b->fetch.only_grad[v] = -1;
    }
    find_grads(b);
    for (int n = 0; n < b->graph->n_nodes && b->rc == MERAK_OK; n++) {
        const struct merak_node *node = b->graph->node[n];
        int part = b->stages->of_node[n], stage = b->stage_of_part[part];

        for (int k = 0; k < node->n_in; k++) {
            int v = node->in[k]->id, *reader = &b->fetch.reader[v];

            if (node->in[k]->kind != MERAK_VALUE_PARAM)
                continue;
            if (*reader == NO_STAGE) {
                b->fetch.unit[v] = b->stages->block[n];
                b->fetch.place[v] = b->fetch.unit[v] - first[part];
            }
            if (part >= b->n_chain)
                stage = STAGES;
            *reader = *reader == NO_STAGE || *reader == stage ? stage : STAGES;
        }
    }
}

static bool is_matrix_here(const struct merak_build *b, int param)
{
    return (b->n_dp_axes > 0 || merak_build_last_replicated(b, param) >= 0) &&
           b->graph->value[param]->shape.ndim > 1 &&
           b->fetch.reader[param] >= 0;
}

/* Does a sum bring a gradient from where it is made to the part that is kept?
 * Tensor ranks that all make all of it only keep theirs. */
static bool ends_in_sum(const struct merak_build *b, int param)
{
    int grad = b->fetch.only_grad[param],
        axis = merak_build_last_replicated(b, param);

    return grad >= 0 &&
           (b->n_dp_axes > 0 ||
            b->sharded->layout[grad].at[axis].kind == MERAK_PARTIAL_SUM);
}

/* May it be whole in visits alone?  A matrix that one stage reads. */
static bool may_lend(const struct merak_build *b, int param,
                     enum merak_held_kind kind)
{
    const struct merak_value *value = b->graph->value[param];
    int most = b->prog->plan.fetch;

    if (!is_matrix_here(b, param))
        return false;
    if (kind == MERAK_HELD_GRAD || kind == MERAK_HELD_SUM)
        return !value->frozen && ends_in_sum(b, param);
    return most == 0 || b->fetch.place[param] < most;
}

struct merak_held merak_build_held(const struct merak_build *b, int param,
                                   enum merak_held_kind kind)
{
    return merak_plan_held(&b->prog->plan, kind, b->n_dp_axes > 0,
                           may_lend(b, param, kind));
}

bool merak_build_sums_each(const struct merak_build *b, int param)
{
    return merak_build_held(b, param, MERAK_HELD_GRAD).used > 0;
}

bool merak_build_is_fetched(const struct merak_build *b, int param)
{
    return merak_build_held(b, param, MERAK_HELD_PARAM).used > 0;
}

void merak_build_count_fetched(struct merak_build *b)
{
    size_t *bytes =
        merak_build_alloc(b, ((size_t)b->graph->n_nodes + 1) * sizeof(*bytes));

    b->fetch.unit_bytes = bytes;
    for (int i = 0; i < b->prog->n_params && b->rc == MERAK_OK; i++) {
        const struct merak_param_slots *p = &b->prog->param[i];
        int unit = b->fetch.unit[p->value];

        if (p->home == p->param)
            continue;
        b->prog->fetched_blocks += bytes[unit] == 0;
        bytes[unit] += b->prog->slot[p->param].bytes;
    }
}

/* --- visits -------------------------------------------------------------- */

static bool has_param(const struct merak_visit *visit, int param)
{
    for (int i = 0; i < visit->n; i++) {
        if (visit->param[i] == param)
            return true;
    }
    return false;
}

/* If only the first blocks are fetched, a visit of another reads nothing. */
static bool is_visited(const struct merak_build *b, int param)
{
    return merak_build_is_fetched(b, param) ||
           (b->prog->plan.fetch > 0 && is_matrix_here(b, param));
}

static void add_read(struct merak_build *b, struct merak_visits *visits,
                     int item, int param)
{
    struct merak_visit *visit =
        visits->n > 0 ? &visits->visit[visits->n - 1] : NULL;

    if (visit == NULL || visit->unit != b->fetch.unit[param]) {
        int at = visits->n_params;

        if (!merak_build_grow(b, &visits->visit, &visits->cap, visits->n,
                              sizeof(*visits->visit)))
            return;
        visit = &visits->visit[visits->n++];
        *visit = (struct merak_visit){
            .unit = b->fetch.unit[param], .item = item, .first = at};
    }
    if (!merak_build_grow(b, &visits->param, &visits->cap_params,
                          visits->n_params, sizeof(*visits->param)))
        return;
    visit->param = visits->param + visit->first;
    if (merak_build_is_fetched(b, param) && !has_param(visit, param)) {
        visits->param[visits->n_params++] = param;
        visit->n++;
    }
}

void merak_build_visits(struct merak_build *b, const struct merak_items *items,
                        struct merak_visits *visits)
{
    visits->n = visits->n_params = 0;
    if (b->prog->plan.zero < MERAK_ZERO_PARAMS)
        return;
    for (int at = 0; at < items->n; at++) {
        const struct merak_node *node = b->graph->node[items->item[at].node];

        if (!merak_build_runs_now(b, node->id))
            continue;
        for (int k = 0; k < node->n_in && b->rc == MERAK_OK; k++) {
            const struct merak_value *value = node->in[k];

            if (value->kind == MERAK_VALUE_PARAM && is_visited(b, value->id))
                add_read(b, visits, at, value->id);
        }
    }
    /* The list of parameters may have moved while it grew. */
    for (int i = 0; i < visits->n; i++)
        visits->visit[i].param = visits->param + visits->visit[i].first;
}

void merak_visits_fini(struct merak_visits *visits)
{
    free(visits->visit);
    free(visits->param);
}

/* --- parameters ---------------------------------------------------------- */

/* What this rank and those of other inner sums updated of a matrix goes to its
 * home before the first fetch from there. */
static void gather_homes(struct merak_build *b, const struct merak_visit *visit)
{
    b->fetch.bundle = b->prog->n_instrs;
    for (int i = 0; i < visit->n && b->rc == MERAK_OK; i++) {
        struct merak_uses *uses = b->params.uses_of[visit->param[i]];

        if (uses->n_fetches == 0 && !uses->is_here && uses->n > 0)
            merak_build_gather_home(b, uses->param);
    }
    b->fetch.bundle = -1;
}

static void fetch(struct merak_build *b, const struct merak_visit *visit,
                  int microbatch)
{
    if (merak_plan_is_home_in(&b->prog->plan))
        gather_homes(b, visit);
    b->fetch.microbatch = microbatch;
    b->fetch.bundle = b->prog->n_instrs;
    for (int i = 0; i < visit->n && b->rc == MERAK_OK; i++) {
        struct merak_uses *uses = b->params.uses_of[visit->param[i]];

        if (uses->is_here)
            continue;
        uses->is_here = true;
        merak_build_begin(b, uses->param->param);
        b->fetch.turn = uses->n_fetches++;
        merak_build_gather_param(b, uses->param);
        b->fetch.turn = -1;
    }
    b->fetch.microbatch = b->fetch.bundle = -1;
}

/* Visits to come, whose matrices are there at one time: those of two blocks,
 * and of others if they add little, as an embedding of positions does. */
enum { WINDOW = 8, LITTLE = 8 /* less than 1 / LITTLE of the two */ };

struct window {
    const struct merak_visit *visit[WINDOW];
    int microbatch[WINDOW];
    int n;
    size_t bytes;
};

static bool is_in_window(const struct window *w, int param)
{
    for (int i = 0; i < w->n; i++) {
        if (has_param(w->visit[i], param))
            return true;
    }
    return false;
}

/* What a visit reads that the window does not have. */
static size_t more_bytes(const struct merak_build *b, const struct window *w,
                         const struct merak_visit *visit)
{
    size_t bytes = 0;

    for (int i = 0; i < visit->n; i++) {
        int slot = b->params.slot[visit->param[i]];

        if (!is_in_window(w, visit->param[i]))
            bytes += b->prog->slot[slot].bytes;
    }
    return bytes;
}

/* Of a window and a visit: the most that may be there at one time. */
static size_t most_bytes(const struct merak_build *b, const struct window *w,
                         const struct merak_visit *visit)
{
    size_t largest = b->fetch.unit_bytes[visit->unit], second = 0;
    int unit = visit->unit;

    for (int i = 0; i < w->n; i++) {
        size_t bytes = b->fetch.unit_bytes[w->visit[i]->unit];

        if (w->visit[i]->unit == unit)
            continue;
        if (bytes > largest) {
            second = largest;
            largest = bytes;
            unit = w->visit[i]->unit;
        } else if (bytes > second) {
            second = bytes;
        }
    }
    second += (largest + second) / LITTLE;
    return largest + (second < largest ? second : largest);
}

/* Is one of its visits, or this one, of a block that is not fetched?  Such a
 * block takes its turn, so that what comes after it is not gathered early. */
static bool has_whole(const struct window *w, const struct merak_visit *visit)
{
    bool has = visit->n == 0;

    for (int i = 0; i < w->n; i++)
        has = has || w->visit[i]->n == 0;
    return has;
}

/* From the next visit of an action on: at least that one. */
static struct window look_from(const struct merak_build *b,
                               const struct merak_visits *visits,
                               const struct merak_visits *next)
{
    int here = visits->n - visits->at;
    struct window w = {.n = 0};

    while (w.n < WINDOW && w.n < here + next->n) {
        bool later = w.n >= here;
        const struct merak_visit *visit =
            later ? &next->visit[w.n - here] : &visits->visit[visits->at + w.n];
        size_t more = more_bytes(b, &w, visit);

        if (w.bytes + more > most_bytes(b, &w, visit) ||
            (w.n > 1 && has_whole(&w, visit)))
            break;
        w.bytes += more;
        w.microbatch[w.n] = later ? next->microbatch : visits->microbatch;
        w.visit[w.n++] = visit;
    }
    return w;
}

static void give_up(struct merak_build *b, const struct merak_visit *visit,
                    const struct window *w)
{
    for (int i = 0; i < visit->n; i++) {
        if (!is_in_window(w, visit->param[i]))
            b->params.uses_of[visit->param[i]]->is_here = false;
    }
}

void merak_build_visit(struct merak_build *b, struct merak_visits *visits,
                       int item, const struct merak_visits *next)
{
    struct window w;

    if (visits->n == 0 && item == 0 && next->n > 0)
        fetch(b, &next->visit[0], next->microbatch);
    if (visits->at == visits->n || visits->visit[visits->at].item != item)
        return;
    w = look_from(b, visits, next);
    fetch(b, w.visit[0], w.microbatch[0]);
    if (visits->at > 0)
        give_up(b, w.visit[0] - 1, &w);
    else if (b->fetch.visited.n > 0)
        give_up(b, &b->fetch.visited, &w);
    for (int i = 1; i < w.n; i++)
        fetch(b, w.visit[i], w.microbatch[i]);
    visits->at++;
}

/* The last visit is the one that the next action's first may go on with. */
void merak_build_visits_end(struct merak_build *b,
                            const struct merak_visits *visits)
{
    const struct merak_visit *last;
    int *param;

    if (visits->n == 0)
        return;
    last = &visits->visit[visits->n - 1];
    param = merak_build_alloc(b, ((size_t)last->n + 1) * sizeof(*param));
    if (param == NULL)
        return;
    for (int i = 0; i < last->n; i++)
        param[i] = last->param[i];
    b->fetch.visited = *last;
    b->fetch.visited.param = param;
}

/* --- gradients ----------------------------------------------------------- */

/* A sum over replicas that is under way: its input is whole memory, and its
 * output, but for the first micro-batch's, is still to be added. */
struct merak_summed {
    const struct merak_uses *uses;
    int slot, part; /* part -1: it is where it is added up already */
    bool higher;    /* of a pair */
    bool is_last;   /* of the step */
    int turn;
};

static void settle_one(struct merak_build *b, const struct merak_summed *s)
{
    const struct merak_param_slots *p = s->uses->param;

    int sum = merak_build_sum_slot(b, p);

    merak_build_extend(b, s->slot);
    if (s->part >= 0)
        merak_step_add_grad(b, p->name, s->part, sum);
    if (s->is_last && sum != p->grad)
        merak_build_reduce_outer(b, p);
}

/* The first n. */
static void settle(struct merak_build *b, int n)
{
    for (int i = 0; i < n && b->rc == MERAK_OK; i++)
        settle_one(b, &b->fetch.summed[i]);
    for (int i = n; i < b->fetch.n_summed; i++)
        b->fetch.summed[i - n] = b->fetch.summed[i];
    b->fetch.n_summed -= n;
}

void merak_build_settle_sums(struct merak_build *b)
{
    settle(b, b->fetch.n_summed);
}

/* Kernels of the next block run while a block's gradients are summed.  The
 * lower of a pair is ahead. */
void merak_build_begin_sum(struct merak_build *b, const struct merak_uses *uses,
                           int microbatch)
{
    int unit = b->fetch.unit[uses->param->value], due = 0;
    bool higher = merak_build_is_higher(b, microbatch);

    if (!higher && unit != b->fetch.sum_unit) {
        b->fetch.sum_turn++;
        b->fetch.sum_unit = unit;
    }
    while (due < b->fetch.n_summed &&
           b->fetch.summed[due].turn + 1 < b->fetch.sum_turn)
        due++;
    for (int i = due; i < b->fetch.n_summed; i++) {
        if (b->fetch.summed[i].uses == uses &&
            b->fetch.summed[i].higher == higher)
            due = i + 1;
    }
    settle(b, due);
}

void merak_build_note_sum(struct merak_build *b, const struct merak_uses *uses,
                          int slot, int part)
{
    if (merak_build_grow(b, &b->fetch.summed, &b->fetch.cap_summed,
                         b->fetch.n_summed, sizeof(*b->fetch.summed)))
        b->fetch.summed[b->fetch.n_summed++] = (struct merak_summed){
            .uses = uses,
            .slot = b->prog->slot[slot].whole,
            .part = part,
            .higher = merak_build_is_higher(b, b->fetch.microbatch),
            .is_last = b->fetch.microbatch == b->prog->plan.microbatches - 1,
            .turn = b->fetch.sum_turn};
}
