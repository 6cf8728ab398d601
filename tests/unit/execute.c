/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c - run the programs of all ranks in one process, for tests */
#include "config.h"

#include "unit/execute.h"

#include "base/rng.h"
#include "partitioner/graph/letters.h"
#include "partitioner/simulate/meet.h"
#include "unit/execute_load.h"
#include "unit/test_box.h"

#include <stdlib.h>
#include <string.h>

enum progress { NOT_YET, STARTED, DONE };

struct run {
    struct executed *ex;
    const struct merak_backend *backend;
    enum progress **state; /* by rank and instruction */
    int (*next)[MERAK_QUEUE_COUNT];
    struct merak_meet *meet;
    uint64_t seed, draws;
    long left;
};

static const struct merak_program *program(const struct run *r, int rank)
{
    return r->ex->planned->program[rank];
}

static void *slot_data(const struct executed *ex, int rank, int slot)
{
    const struct merak_slot *s = &ex->planned->program[rank]->slot[slot];

    return (s->host ? ex->host[rank] : ex->arena[rank]) + s->offset;
}

static size_t draw(struct run *r, size_t n)
{
    return (size_t)(merak_rng_mix(r->seed, r->draws++) % n);
}

/* --- boxes ---------------------------------------------------------------- */

static void combine_bf16(enum merak_combine how, uint16_t *out, uint16_t in)
{
    float a = merak_bf16_to_f32(*out), b = merak_bf16_to_f32(in);

    *out = merak_f32_to_bf16(how == MERAK_SUM ? a + b : a > b ? a : b);
}

static void combine(enum merak_dtype dtype, enum merak_combine how, void *out,
                    const void *in)
{
    if (how == MERAK_STORE)
        memcpy(out, in, merak_dtype_bytes(dtype));
    else if (dtype == MERAK_F64)
        *(double *)out += *(const double *)in;
    else if (dtype == MERAK_BF16)
        combine_bf16(how, out, *(const uint16_t *)in);
    else if (how == MERAK_SUM)
        *(float *)out += *(const float *)in;
    else if (*(const float *)in > *(float *)out)
        *(float *)out = *(const float *)in;
}

static void move_box(const struct merak_exchange *ex, unsigned char *out,
                     const struct merak_box *to, const unsigned char *in,
                     const struct merak_box *from, bool first)
{
    size_t n = merak_box_count(from), item = merak_dtype_bytes(ex->dtype);
    size_t row = box_common_row(to, from);

    assert_int_equal(n, merak_box_count(to));
    for (size_t i = 0; i < n; i += row) {
        unsigned char *at = out + item * box_place(to, i);
        const unsigned char *what = in + item * box_place(from, i);

        for (size_t k = 0; k < row; k++)
            combine(ex->dtype, first ? MERAK_STORE : ex->combine, at + item * k,
                    what + item * k);
    }
}

/* --- events --------------------------------------------------------------- */

static void run_kernel(struct run *r, int rank, const struct merak_instr *in)
{
    const struct merak_program *prog = program(r, rank);
    const struct merak_kernel *kernel = NULL;
    struct merak_kernel_call call;
    struct merak_step step = r->ex->step;
    struct merak_error err = {0};
    void *scratch = NULL;

    merak_program_call(prog, in, &call);
    if (in->microbatch >= 0)
        step.sample +=
            merak_stage_sample(&prog->mesh, in->microbatch, prog->dp_index);
    step.pass = in->pass;
    step.token_share = (float)prog->mesh.batch /
                       (float)merak_plan_loss_mesh(&prog->plan).batch;
    call.step = &step;
    for (int i = 0; i < in->n_in + in->n_out; i++)
        call.operand[i].data = slot_data(r->ex, rank, in->slot[i]);
    call.device = r->ex->device;
    assert_int_equal(merak_kernel_find(r->backend, in->op->name, &kernel, &err),
                     MERAK_OK);
    call.scratch_bytes = merak_kernel_call_scratch(kernel, &call);
    if (call.scratch_bytes > 0) {
        scratch = aligned_alloc(64, (call.scratch_bytes + 64) / 64 * 64);
        call.scratch = scratch;
    }
    if (merak_kernel_run(r->backend, kernel, &call, &err) != MERAK_OK)
        fail_msg("%s: %s", in->name, err.text);
    free(scratch);
}

/* The box of a slot, out of what all ranks would have whole. */
static void keep_box(const struct merak_slot *slot, const unsigned char *whole,
                     unsigned char *data)
{
    size_t item = merak_dtype_bytes(slot->dtype);

    for (size_t i = 0; i < merak_box_count(&slot->box); i++)
        memcpy(data + i * item, whole + box_place(&slot->box, i) * item, item);
}

static void load_whole(struct run *r, int rank, const struct merak_instr *in,
                       void *data)
{
    const struct merak_program *prog = program(r, rank);
    const struct merak_graph *graph = prog->sharded->graph;
    struct loaded to = {.data = data,
                        .step = r->ex->step.step,
                        .samples = prog->mesh.batch,
                        .first = merak_stage_sample(&prog->mesh, in->microbatch,
                                                    prog->dp_index)};

    if (in->input == MERAK_NO_INPUT) {
        memset(data, 0, prog->slot[in->slot[0]].bytes);
        return;
    }
    to.vocab = graph->value[prog->param[0].value]->shape.dim[0];
    if (graph->input[in->input].class == MERAK_INPUT_TARGETS)
        to.vocab = program(r, 0)->param[0].shape.dim[0]; /* wte's rows */
    if (r->ex->named != NULL &&
        graph->input[in->input].class == MERAK_INPUT_NAMED)
        r->ex->named(graph->input[in->input].name, to.first, to.samples,
                     to.data);
    else
        load_input(graph, in->input, &to);
}

static void load(struct run *r, int rank, const struct merak_instr *in)
{
    const struct merak_slot *slot = &program(r, rank)->slot[in->slot[0]];
    struct merak_shape full = merak_box_full_shape(&slot->box);
    size_t count = merak_shape_count(&full);
    void *data = slot_data(r->ex, rank, in->slot[0]), *whole;

    if (count == merak_box_count(&slot->box)) {
        load_whole(r, rank, in, data);
        return;
    }
    whole = calloc(count, merak_dtype_bytes(slot->dtype));
    assert_non_null(whole);
    load_whole(r, rank, in, whole);
    keep_box(slot, whole, data);
    free(whole);
}

static void run_load(struct run *r, int rank, const struct merak_instr *in)
{
    const struct merak_program *prog = program(r, rank);
    int32_t *ids = slot_data(r->ex, rank, in->slot[0]), row[TOKENS];

    load(r, rank, in);
    if (in->input == MERAK_NO_INPUT || prog->pieces == 0 ||
        prog->sharded->graph->input[in->input].letter[1] !=
            MERAK_LETTER_POSITIONS)
        return;
    for (size_t b = 0; b < prog->mesh.batch; b++, ids += TOKENS) {
        memcpy(row, ids, sizeof(row));
        for (size_t i = 0; i < TOKENS; i++)
            ids[i] = row[merak_position(prog->pieces, TOKENS, i)];
    }
}

static void run_local(struct run *r, int rank, const struct merak_instr *in)
{
    if (in->kind == MERAK_INSTR_LOAD)
        run_load(r, rank, in);
    if (in->kind == MERAK_INSTR_KERNEL)
        run_kernel(r, rank, in);
    if (in->kind == MERAK_INSTR_SLICE)
        move_box(in->exchange, slot_data(r->ex, rank, in->slot[1]),
                 &in->exchange->recv[0], slot_data(r->ex, rank, in->slot[0]),
                 &in->exchange->send[0], true);
}

static const struct merak_instr *member(const struct run *r,
                                        const struct merak_match *met, int p)
{
    return &program(r, met->at[p].program)->instr[met->at[p].instr];
}

/* Everybody's input is read before anybody's output is written, which is zeros
 * where the word is 0 on which the exchange depends. */
static void run_exchange(struct run *r, const struct merak_match *met)
{
    unsigned char *copy[16]; /* by member's number, as its instruction is */
    const struct merak_instr *peer[16];
    int empty = 0;

    for (int p = 0; p < met->n_all; p++) {
        int rank = met->at[p].program;
        const struct merak_instr *in = member(r, met, p);
        size_t bytes = program(r, rank)->slot[in->slot[0]].bytes;
        int me = in->exchange->me;

        peer[me] = in;
        copy[me] = malloc(bytes + 1);
        memcpy(copy[me], slot_data(r->ex, rank, in->slot[0]), bytes);
    }
    for (int p = 0; p < met->n_all; p++) {
        int rank = met->at[p].program;
        const struct merak_instr *in = member(r, met, p);
        const struct merak_exchange *ex = in->exchange;
        unsigned char *out = slot_data(r->ex, rank, in->slot[in->n_in]);
        bool reduce = ex->kind == MERAK_CONVERT_ALL_REDUCE;
        size_t n = merak_shape_count(&ex->in);
        struct merak_box all = {.ndim = 1, .full = {n}, .len = {n}};
        bool skips = merak_instr_needs_rows(in) &&
                     *(double *)slot_data(r->ex, rank, in->slot[1]) == 0;

        empty += skips;
        if (skips)
            memset(out, 0, program(r, rank)->slot[in->slot[2]].bytes);
        for (int q = 0; q < ex->n && !skips; q++)
            move_box(ex, out, reduce ? &all : &ex->recv[q], copy[q],
                     reduce ? &all : &peer[q]->exchange->send[ex->me], q == 0);
    }
    assert_true(empty == 0 || empty == met->n_all);
    for (int p = 0; p < met->n_all; p++)
        free(copy[p]);
}

static void run_transfer(struct run *r, const struct merak_match *met)
{
    int from = member(r, met, 0)->kind == MERAK_INSTR_RECV, to = 1 - from;
    const struct merak_instr *a = member(r, met, from);
    const struct merak_instr *b = member(r, met, to);

    memcpy(slot_data(r->ex, met->at[to].program, b->slot[0]),
           slot_data(r->ex, met->at[from].program, a->slot[0]),
           program(r, met->at[from].program)->slot[a->slot[0]].bytes);
}

/* --- the loop ------------------------------------------------------------- */

static bool is_ready(const struct run *r, int rank,
                     const struct merak_instr *in)
{
    for (int w = 0; w < in->n_wait; w++) {
        if (r->state[rank][program(r, rank)->wait[in->first_wait + w]] != DONE)
            return false;
    }
    return true;
}

/* Start the head of a queue, if it may; compute is then over at once. */
static bool start_head(struct run *r, int rank, int queue)
{
    const struct merak_program *prog = program(r, rank);
    int *at = &r->next[rank][queue];
    const struct merak_instr *in;

    while (*at < prog->n_instrs && (int)prog->instr[*at].queue != queue)
        ++*at;
    if (*at == prog->n_instrs || !is_ready(r, rank, &prog->instr[*at]))
        return false;
    in = &prog->instr[(*at)++];
    r->state[rank][in->id] = STARTED;
    if (queue == MERAK_QUEUE_COMPUTE) {
        run_local(r, rank, in);
        r->state[rank][in->id] = DONE;
        r->left--;
    } else {
        assert_true((merak_meet_arrive(r->meet, rank, in, 0) == NULL) ==
                    (in->kind == MERAK_INSTR_COPY));
    }
    return true;
}

static void finish_copy(struct run *r, int rank, const struct merak_instr *in)
{
    memcpy(slot_data(r->ex, rank, in->slot[1]),
           slot_data(r->ex, rank, in->slot[0]),
           program(r, rank)->slot[in->slot[0]].bytes);
    r->state[rank][in->id] = DONE;
    r->left--;
}

/* Finish one started copy, or transfer or exchange that has all its members. */
static bool finish_one(struct run *r, int rank)
{
    const struct merak_program *prog = program(r, rank);
    size_t from = draw(r, (size_t)prog->n_instrs);

    for (int k = 0; k < prog->n_instrs; k++) {
        int i = (int)((from + (size_t)k) % (size_t)prog->n_instrs);
        const struct merak_match *met;

        if (r->state[rank][i] != STARTED)
            continue;
        if (prog->instr[i].kind == MERAK_INSTR_COPY) {
            finish_copy(r, rank, &prog->instr[i]);
            return true;
        }
        met = merak_meet_find(r->meet, rank, &prog->instr[i]);
        if (met->n_here < met->n_all)
            continue;
        if (prog->instr[i].kind == MERAK_INSTR_EXCHANGE)
            run_exchange(r, met);
        else
            run_transfer(r, met);
        for (int p = 0; p < met->n_all; p++)
            r->state[met->at[p].program][met->at[p].instr] = DONE;
        r->left -= met->n_all;
        return true;
    }
    return false;
}

/* Late transfers: one is finished only when nothing else can start, or
 * rarely by chance. */
static bool advance(struct run *r)
{
    size_t ranks = (size_t)r->ex->planned->n_programs;
    size_t first = draw(r, ranks), queue = draw(r, MERAK_QUEUE_COUNT);
    bool early = draw(r, 16) == 0;

    for (int pass = early ? 1 : 0; pass < (early ? 3 : 2); pass++) {
        for (size_t k = 0; k < ranks; k++) {
            int rank = (int)((first + k) % ranks);

            for (size_t q = 0; pass != 1 && q < MERAK_QUEUE_COUNT; q++) {
                if (start_head(r, rank, (int)((queue + q) % MERAK_QUEUE_COUNT)))
                    return true;
            }
            if (pass == 1 && finish_one(r, rank))
                return true;
        }
    }
    return false;
}

void executed_step(struct executed *ex, uint64_t seed)
{
    struct merak_planned *p = ex->planned;
    struct run r = {.ex = ex, .backend = ex->backend, .seed = seed};
    struct merak_error err = {0};

    if (r.backend == NULL)
        assert_int_equal(merak_backend_find("ref", &r.backend, &err), MERAK_OK);
    assert_int_equal(
        merak_meet_create(p->program, p->n_programs, &r.meet, &err), MERAK_OK);
    r.state = calloc((size_t)p->n_programs, sizeof(*r.state));
    r.next = calloc((size_t)p->n_programs, sizeof(*r.next));
    for (int i = 0; i < p->n_programs; i++) {
        const struct merak_program *prog = p->program[i];

        r.left += prog->n_instrs;
        r.state[i] = calloc((size_t)prog->n_instrs, sizeof(**r.state));
        /* Nothing that is not kept may be read before it is written. */
        for (int s = 0; s < prog->n_slots; s++) {
            if ((!prog->slot[s].host &&
                 prog->slot[s].offset >= prog->persistent_bytes) ||
                prog->slot[s].category == MERAK_CAT_GRAD)
                memset(slot_data(ex, i, s), 0xff, prog->slot[s].bytes);
        }
    }
    while (r.left > 0) {
        if (!advance(&r))
            fail_msg("stuck with %ld instructions left", r.left);
    }
    for (int i = 0; i < p->n_programs; i++)
        free(r.state[i]);
    free(r.state);
    free(r.next);
    merak_meet_destroy(r.meet);
    ex->step.step++;
}

/* --- state ---------------------------------------------------------------- */

void executed_param(const struct executed *ex, int rank,
                    const struct merak_param_slots *p, element_fn fn, void *arg)
{
    const struct merak_program *program = ex->planned->program[rank];
    const struct merak_slot *slot = &program->slot[p->home];
    const struct merak_slot *own = &program->slot[p->master];
    float *data = slot_data(ex, rank, p->master);

    for (size_t i = own->flat_lo; i < own->flat_hi; i++)
        fn(arg, box_place(&slot->box, i), &data[i - own->flat_lo]);
}

void executed_init_element(void *arg, size_t global, float *element)
{
    const struct merak_param_slots *p = arg;

    *element = 1.0f;
    if (p->init.kind != MERAK_INIT_ONES) /* zeros too: let biases matter */
        *element = 0.2f * merak_rng_normal(merak_rng_key(7, p->name), global);
}

struct executed *executed_create(struct merak_planned *planned)
{
    struct executed *ex = calloc(1, sizeof(*ex));
    const struct merak_plan *plan = &planned->plan;
    const struct merak_stage_mesh last = merak_plan_loss_mesh(plan);

    assert_non_null(ex);
    ex->planned = planned;
    ex->step = (struct merak_step){
        .seed = 7,
        .lr = 0.01f,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .eps = 1e-8f,
        .weight_decay = 0.1f,
        .clip = 0.1f,
        .train = true,
        .grad_scale = 1.0f / (float)(plan->microbatches * last.dp)};
    ex->arena = calloc((size_t)planned->n_programs, sizeof(*ex->arena));
    ex->host = calloc((size_t)planned->n_programs, sizeof(*ex->host));
    assert_non_null(ex->arena);
    assert_non_null(ex->host);
    for (int r = 0; r < planned->n_programs; r++) {
        const struct merak_program *prog = planned->program[r];

        ex->arena[r] = aligned_alloc(64, prog->arena_bytes);
        ex->host[r] = calloc(prog->host_bytes + 1, 1);
        assert_non_null(ex->arena[r]);
        assert_non_null(ex->host[r]);
        memset(ex->arena[r], 0, prog->arena_bytes);
        for (int i = 0; i < prog->n_params; i++)
            executed_param(ex, r, &prog->param[i], executed_init_element,
                           (void *)(uintptr_t)&prog->param[i]);
    }
    return ex;
}

void executed_destroy(struct executed *ex)
{
    for (int r = 0; r < ex->planned->n_programs; r++) {
        free(ex->arena[r]);
        free(ex->host[r]);
    }
    free(ex->arena);
    free(ex->host);
    merak_planned_destroy(ex->planned);
    free(ex);
}

double executed_loss_part(const struct executed *ex, int part)
{
    double sum = 0;

    for (int r = 0; r < ex->planned->n_programs; r++) {
        const struct merak_program *prog = ex->planned->program[r];
        int m = prog->plan.microbatches, parts;
        const double *loss;

        if (prog->loss < 0 || prog->tp_index > 0)
            continue;
        loss = slot_data(ex, r, prog->loss);
        parts = (int)merak_box_count(&prog->slot[prog->loss].box) / m;
        for (int i = part; i < m * parts; i += parts)
            sum += loss[i];
    }
    return sum;
}

double executed_loss(const struct executed *ex)
{
    return executed_loss_part(ex, MERAK_LOSS);
}

static size_t reported_size(const struct merak_value *value)
{
    return value->reported ? merak_shape_count(&value->shape) : 0;
}

/* Add this rank's part of a value to sum[0 .. n). */
static void add_report(const struct executed *ex, int r,
                       const struct merak_report *report, double *sum)
{
    const struct merak_program *prog = ex->planned->program[r];
    const double *part = slot_data(ex, r, prog->reports);
    size_t n = report->n * (size_t)prog->plan.microbatches;

    for (size_t k = 0; k < n && report->counts; k++)
        sum[k % report->n] += part[report->at + k];
}

/* Where in the sums a value of the sharded graph begins. */
static size_t report_at(const struct merak_graph *graph, int value)
{
    size_t at = 0;

    for (int v = 0; v < value; v++)
        at += reported_size(graph->value[v]) > 1
                  ? reported_size(graph->value[v])
                  : 0;
    return at;
}

size_t executed_reports(const struct executed *ex, double sum[EXECUTED_REPORTS])
{
    size_t n = 0;

    memset(sum, 0, EXECUTED_REPORTS * sizeof(*sum));
    for (int r = 0; r < ex->planned->n_programs; r++) {
        const struct merak_program *prog = ex->planned->program[r];
        const struct merak_graph *graph = prog->sharded->graph;

        n = report_at(graph, graph->n_values);
        assert_true(n <= EXECUTED_REPORTS);
        for (int i = 0; i < prog->n_reports; i++) {
            if (prog->report[i].n > 1)
                add_report(ex, r, &prog->report[i],
                           sum + report_at(graph, prog->report[i].value));
        }
    }
    return n;
}

double executed_overflow(const struct executed *ex)
{
    double sum = 0;

    for (int r = 0; r < ex->planned->n_programs; r++) {
        const struct merak_program *prog = ex->planned->program[r];

        for (int i = 0; i < prog->n_reports; i++) {
            if (prog->report[i].n == 1)
                add_report(ex, r, &prog->report[i], &sum);
        }
    }
    return sum;
}

float executed_norm(const struct executed *ex, int rank)
{
    const float *norm = slot_data(ex, rank, ex->planned->program[rank]->norm);

    return norm[1];
}
