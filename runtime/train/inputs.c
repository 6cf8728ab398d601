/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c - the samples of a step, read before it begins
 *
 * With an accelerator a thread reads what this rank loads in the next training
 * step while the present one computes: the device would otherwise wait for the
 * first samples at the beginning of each.  They are those that the step would
 * read; what was not read in advance is read when it is loaded: at the first
 * step, in validation, after an error, which then ends the step as it would
 * have.
 *
 * Tokens and targets of a micro-batch are read at once.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/thread.h"
#include "partitioner/graph/letters.h"

#include <pthread.h>
#include <stdlib.h>

/* Samples of some micro-batches: tokens, then targets, of each. */
struct batch {
    int32_t *ids;
    uint64_t base; /* the step's first sample, of all ranks */
    int n;         /* micro-batches that are there */
};

struct merak_inputs {
    struct merak_trainer *t;
    pthread_mutex_t data; /* one thread at a time reads (io/tokens) */
    unsigned char *row;   /* of a sample, to bring it into pieces */
    int32_t *pairs;       /* of a sample, for a loss of pairs */
    float *reference;

    /* The micro-batch that was loaded last. */
    int32_t *last;
    enum merak_split last_split;
    uint64_t last_first;
    bool has_last;

    struct batch now; /* of the present step; n = 0: nothing was read ahead */

    /* The thread's, if there is one. */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t changed;
    struct batch next;
    bool asked, quit; /* asked: next belongs to the thread */
};

static size_t microbatch_ids(const struct merak_trainer *t)
{
    return 2 * t->program->mesh.batch * t->opt.seq;
}

static uint64_t first_sample(const struct merak_trainer *t, uint64_t base,
                             int microbatch)
{
    return base + merak_stage_sample(&t->program->mesh, microbatch,
                                     t->program->dp_index);
}

/* Read the samples of a micro-batch, of which `first` is the first. */
static enum merak_status read_microbatch(struct merak_inputs *in,
                                         enum merak_split split, uint64_t first,
                                         int32_t *ids, struct merak_error *err)
{
    const struct merak_trainer *t = in->t;
    size_t T = t->opt.seq, B = t->program->mesh.batch;
    enum merak_status rc = MERAK_OK;

    for (size_t b = 0; b < B && rc == MERAK_OK; b++) {
        pthread_mutex_lock(&in->data);
        rc = merak_data_sample(t->data, split, first + b, ids + b * T,
                               ids + (B + b) * T, err);
        pthread_mutex_unlock(&in->data);
    }
    return rc;
}

static enum merak_status load_starts(struct merak_inputs *in, uint64_t first,
                                     int32_t *ids, struct merak_error *err)
{
    const struct merak_trainer *t = in->t;
    enum merak_status rc = MERAK_OK;

    for (size_t b = 0; b < t->program->mesh.batch && rc == MERAK_OK; b++) {
        pthread_mutex_lock(&in->data);
        rc = merak_data_starts(t->data, t->load.split, first + b,
                               ids + b * t->opt.seq, err);
        pthread_mutex_unlock(&in->data);
    }
    return rc;
}

/* Tokens and targets of a micro-batch, from where they are. */
static enum merak_status find_microbatch(struct merak_inputs *in,
                                         int microbatch, uint64_t first,
                                         const int32_t **ids_p,
                                         struct merak_error *err)
{
    const struct merak_trainer *t = in->t;
    enum merak_status rc = MERAK_OK;

    *ids_p = in->last;
    if (t->load.split == MERAK_TRAIN && t->load.base == in->now.base &&
        microbatch < in->now.n) {
        *ids_p = in->now.ids + (size_t)microbatch * microbatch_ids(t);
        return MERAK_OK;
    }
    if (in->has_last && in->last_split == t->load.split &&
        in->last_first == first)
        return MERAK_OK;
    rc = read_microbatch(in, t->load.split, first, in->last, err);
    in->has_last = rc == MERAK_OK;
    in->last_split = t->load.split;
    in->last_first = first;
    return rc;
}

/* Where pairs of answers are, or their losses under the reference model. */
static enum merak_status load_pairs(struct merak_inputs *in,
                                    enum merak_input_class class,
                                    uint64_t first, int32_t *out,
                                    struct merak_error *err)
{
    const struct merak_trainer *t = in->t;
    const void *wanted =
        class == MERAK_INPUT_PAIRS ? (void *)in->pairs : in->reference;
    size_t T = t->opt.seq;
    enum merak_status rc = MERAK_OK;

    for (size_t b = 0; b < t->program->mesh.batch && rc == MERAK_OK; b++) {
        pthread_mutex_lock(&in->data);
        rc = merak_data_pairs(t->data, t->load.split, first + b, in->pairs,
                              in->reference, err);
        if (rc == MERAK_OK)
            memcpy(out + b * T, wanted, T * sizeof(*out));
        pthread_mutex_unlock(&in->data);
    }
    return rc;
}

/* Samples of arrays, one after the other. */
static enum merak_status load_named(struct merak_inputs *in,
                                    const struct merak_load *load,
                                    uint64_t first, unsigned char *out,
                                    struct merak_error *err)
{
    const struct merak_trainer *t = in->t;
    const struct merak_box *box = load->box;
    size_t bytes =
        merak_box_count(box) / box->len[0] * merak_dtype_bytes(load->of->dtype);
    enum merak_status rc = MERAK_OK;

    for (size_t b = 0; b < box->len[0] && rc == MERAK_OK; b++) {
        pthread_mutex_lock(&in->data);
        rc = merak_samples_read(t->load.samples, load->input, t->load.split,
                                first + box->lo[0] + b, box->lo + 1,
                                box->len + 1, out + b * bytes, err);
        pthread_mutex_unlock(&in->data);
    }
    return rc;
}

/* Bytes of what an input has at a position. */
static size_t position_bytes(const struct merak_input *input)
{
    size_t bytes = merak_dtype_bytes(input->dtype);

    for (int d = 2; d < input->shape.ndim; d++)
        bytes *= input->shape.dim[d];
    return bytes;
}

/* From the order of positions into that of the program's sequences. */
static void bring_into_pieces(const struct merak_inputs *in,
                              const struct merak_input *input,
                              unsigned char *data)
{
    const struct merak_program *p = in->t->program;
    size_t T = in->t->opt.seq, n = position_bytes(input);

    if (p->pieces == 0 || input->letter[1] != MERAK_LETTER_POSITIONS)
        return;
    for (size_t b = 0; b < p->mesh.batch; b++, data += n * T) {
        memcpy(in->row, data, n * T);
        for (size_t i = 0; i < T; i++)
            memcpy(data + n * i, in->row + n * merak_position(p->pieces, T, i),
                   n);
    }
}

static enum merak_status load_input(struct merak_trainer *t,
                                    const struct merak_load *load, void *ids,
                                    struct merak_error *err)
{
    size_t n = t->program->mesh.batch * t->opt.seq;
    uint64_t first = first_sample(t, t->load.base, load->microbatch);
    enum merak_input_class class = load->of->class;
    const int32_t *from;
    enum merak_status rc;

    if (class == MERAK_INPUT_NAMED)
        return load_named(t->inputs, load, first, ids, err);
    if (class == MERAK_INPUT_STARTS)
        return load_starts(t->inputs, first, ids, err);
    if (class == MERAK_INPUT_PAIRS || class == MERAK_INPUT_REFERENCE)
        return load_pairs(t->inputs, class, first, ids, err);
    rc = find_microbatch(t->inputs, load->microbatch, first, &from, err);
    if (rc == MERAK_OK)
        memcpy(ids, class == MERAK_INPUT_TOKENS ? from : from + n,
               n * sizeof(*from));
    return rc;
}

enum merak_status merak_trainer_load(void *arg, const struct merak_load *load,
                                     void *out, struct merak_error *err)
{
    struct merak_trainer *t = arg;
    enum merak_status rc = load_input(t, load, out, err);

    if (rc == MERAK_OK)
        bring_into_pieces(t->inputs, load->of, out);
    return rc;
}

uint64_t merak_inputs_counted(const struct merak_trainer *t, int loss,
                              enum merak_split split, uint64_t base, uint64_t n)
{
    int input = t->sharded->graph->losses[loss].input;
    uint64_t counted;

    pthread_mutex_lock(&t->inputs->data);
    counted = merak_samples_counted(t->load.samples, input, split, base, n);
    pthread_mutex_unlock(&t->inputs->data);
    return counted;
}

/* --- ahead ------------------------------------------------------------------
 */

/* Does this rank load tokens or targets? */
static bool loads_samples(const struct merak_program *p)
{
    const struct merak_input *input = p->sharded->graph->input;

    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *in = &p->instr[i];

        if (in->kind == MERAK_INSTR_LOAD && in->input != MERAK_NO_INPUT &&
            (input[in->input].class == MERAK_INPUT_TOKENS ||
             input[in->input].class == MERAK_INPUT_TARGETS))
            return true;
    }
    return false;
}

static void read_step(struct merak_inputs *in, struct batch *b)
{
    const struct merak_trainer *t = in->t;

    for (b->n = 0; b->n < t->plan.microbatches; b->n++) {
        if (read_microbatch(in, MERAK_TRAIN, first_sample(t, b->base, b->n),
                            b->ids + (size_t)b->n * microbatch_ids(t),
                            NULL) != MERAK_OK)
            return;
    }
}

static void *read_ahead(void *arg)
{
    struct merak_inputs *in = arg;

    pthread_mutex_lock(&in->lock);
    for (;;) {
        while (!in->asked && !in->quit)
            pthread_cond_wait(&in->changed, &in->lock);
        if (in->quit)
            break;
        pthread_mutex_unlock(&in->lock);
        read_step(in, &in->next);
        pthread_mutex_lock(&in->lock);
        in->asked = false;
        pthread_cond_broadcast(&in->changed);
    }
    pthread_mutex_unlock(&in->lock);
    return NULL;
}

void merak_inputs_begin(struct merak_trainer *t, bool last)
{
    struct merak_inputs *in = t->inputs;
    struct batch read;

    if (!in->has_thread)
        return;
    pthread_mutex_lock(&in->lock);
    while (in->asked) /* to read it anew would take as long */
        pthread_cond_wait(&in->changed, &in->lock);
    read = in->next;
    in->next = in->now;
    in->now = read;
    in->next.base = t->consumed + t->opt.global_batch;
    in->next.n = 0;
    in->asked = !last;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
}

/* --- open, close ------------------------------------------------------------
 */

/* Signals are for other threads (loop.c). */
static enum merak_status start_thread(struct merak_inputs *in,
                                      struct merak_error *err)
{
    size_t bytes = (size_t)in->t->plan.microbatches * microbatch_ids(in->t) *
                   sizeof(int32_t);
    int code;

    in->now.ids = malloc(bytes);
    in->next.ids = malloc(bytes);
    if (in->now.ids == NULL || in->next.ids == NULL)
        return merak_fail_nomem(err, 2 * bytes);
    code = merak_thread_create(&in->thread, NULL, read_ahead, in);
    if (code != 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "cannot start a thread: %s",
                          strerror(code));
    in->has_thread = true;
    return MERAK_OK;
}

/* The most that an input has at a position. */
static size_t most_bytes(const struct merak_graph *graph)
{
    size_t most = 1;

    for (int i = 0; i < graph->n_inputs; i++) {
        size_t n = position_bytes(&graph->input[i]);

        if (graph->input[i].letter[1] == MERAK_LETTER_POSITIONS && n > most)
            most = n;
    }
    return most;
}

enum merak_status merak_inputs_open(struct merak_trainer *t,
                                    struct merak_error *err)
{
    struct merak_inputs *in = calloc(1, sizeof(*in));
    size_t bytes = microbatch_ids(t) * sizeof(*in->last);

    if (in == NULL)
        return merak_fail_nomem(err, sizeof(*in));
    t->inputs = in;
    in->t = t;
    pthread_mutex_init(&in->data, NULL);
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->changed, NULL);
    in->last = malloc(bytes);
    in->row = calloc(t->opt.seq, most_bytes(t->program->sharded->graph));
    if (in->last == NULL || in->row == NULL)
        return merak_fail_nomem(err, bytes);
    memset(in->last, 0, bytes); /* for the memory baseline */
    if (t->opt.optimizer.objective.kind == MERAK_DPO) {
        in->pairs = calloc(t->opt.seq, sizeof(*in->pairs));
        in->reference = calloc(t->opt.seq, sizeof(*in->reference));
        if (in->pairs == NULL || in->reference == NULL)
            return merak_fail_nomem(err, t->opt.seq * sizeof(*in->pairs));
    }
    return t->compute.accel != NULL && loads_samples(t->program)
               ? start_thread(in, err)
               : MERAK_OK;
}

void merak_inputs_close(struct merak_trainer *t)
{
    struct merak_inputs *in = t->inputs;

    if (in == NULL)
        return;
    if (in->has_thread) {
        pthread_mutex_lock(&in->lock);
        in->quit = true;
        pthread_cond_broadcast(&in->changed);
        pthread_mutex_unlock(&in->lock);
        pthread_join(in->thread, NULL);
    }
    pthread_cond_destroy(&in->changed);
    pthread_mutex_destroy(&in->lock);
    pthread_mutex_destroy(&in->data);
    free(in->now.ids);
    free(in->next.ids);
    free(in->last);
    free(in->row);
    free(in->pairs);
    free(in->reference);
    free(in);
    t->inputs = NULL;
}
