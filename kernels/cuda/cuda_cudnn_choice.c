/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_cudnn_choice.c - which calls of attention cuDNN runs
 *
 * There is no graph here for f32, documents, masks that are not causal,
 * counter-based dropout, capped scores, slices of a sequence, and accumulated
 * gradients.
 */
#include "config.h"

#include "kernels/cuda/cuda_cudnn.h"

#include "base/error.h"
#include "kernels/geometry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_BYTES ((int64_t)512 << 20) /* workspace, if none was chosen */
#define WORD "attention " /* of a choice's line */
#define MOST_CHANNELS 256

/* Choices are global since planners ask for scratch without a device or
 * context.  Set between plans, by one thread. */
static struct merak_cudnn_choice *choices;
static int n_choices;

/* --- modes ------------------------------------------------------------------
 */

enum merak_status merak_cudnn_mode(enum merak_cudnn_mode *mode_p,
                                   struct merak_error *err)
{
    const char *text = getenv(MERAK_CUDNN_VARIABLE);

    *mode_p = MERAK_CUDNN_MODE_AUTO;
    if (text == NULL || *text == '\0' || strcmp(text, MERAK_CUDNN_DEFAULT) == 0)
        return MERAK_OK;
    if (strcmp(text, "own") == 0)
        *mode_p = MERAK_CUDNN_MODE_OWN;
    else if (strcmp(text, "cudnn") == 0)
        *mode_p = MERAK_CUDNN_MODE_CUDNN;
    else
        return merak_fail(
            err, MERAK_ERR_PARAM,
            MERAK_CUDNN_VARIABLE "=%.40s: expected own, cudnn or auto", text);
    return MERAK_OK;
}

/* --- shapes -----------------------------------------------------------------
 */

typedef void (*view_fn)(const struct merak_kernel_call *call,
                        struct merak_attention *at);

static view_fn view_of(const char *op)
{
    static const struct {
        const char *op;
        view_fn view;
    } row[] = {
        {"attention", merak_attention_view},
        {"attention_packed", merak_attention_packed_view},
        {"attention_dx", merak_attention_dx_view},
        {"attention_packed_dx", merak_attention_packed_dx_view},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (strcmp(row[i].op, op) == 0)
            return row[i].view;
    }
    return NULL;
}

bool merak_cudnn_is_op(const char *op)
{
    return view_of(op) != NULL;
}

/* What cuDNN does not support of a call, or NULL.  Dropout is read from
 * attrs->f[0], not the step, so that training and evaluation of a model use the
 * same kernel and scratch. */
static const char *lacks(const struct merak_kernel_call *call,
                         const struct merak_attention *at)
{
    if (call->operand[0].dtype != MERAK_BF16)
        return "in f32";
    if (at->starts != NULL)
        return "with documents";
    if (!merak_attention_is_causal(at))
        return "that is not causal";
    if (call->attrs->f[0] > 0)
        return "with dropout";
    if (at->cap > 0)
        return "with capped scores";
    if (at->sinks != NULL)
        return "with sinks";
    if (at->pieces > 0)
        return "of a sequence in pieces";
    if (at->first > 0 || at->end < at->T ||
        (at->d_o.op != NULL && at->accumulate))
        return "of a slice of the sequence";
    if (at->E != at->D)
        return "with values of another width than keys";
    if (at->D % 8 != 0 || at->D > MOST_CHANNELS)
        return "with such heads";
    if (at->T < 2)
        return "of one position";
    return NULL;
}

bool merak_cudnn_shape_of(const char *op, const struct merak_kernel_call *call,
                          struct merak_cudnn_shape *shape, const char **why)
{
    view_fn view = view_of(op);
    struct merak_attention at;
    const char *reason = "of no such op";

    if (view != NULL) {
        view(call, &at);
        reason = lacks(call, &at);
    }
    if (why != NULL)
        *why = reason;
    if (reason != NULL)
        return false;
    memset(shape, 0, sizeof(*shape));
    shape->B = (int64_t)at.B;
    shape->T = (int64_t)at.T;
    shape->H = (int64_t)(at.G * at.R);
    shape->G = (int64_t)at.G;
    shape->D = (int64_t)at.D;
    shape->window = at.window < at.T ? (int64_t)at.window : 0;
    shape->q_row = (int64_t)at.q.row;
    shape->k_row = (int64_t)at.k.row;
    shape->v_row = (int64_t)at.v.row;
    shape->o_row = (int64_t)at.o.row;
    shape->d_o_row = (int64_t)at.d_o.row;
    shape->dq_row = (int64_t)at.dq.row;
    shape->dk_row = (int64_t)at.dk.row;
    shape->dv_row = (int64_t)at.dv.row;
    shape->scale = at.scale;
    shape->backward = at.d_o.op != NULL;
    return true;
}

void merak_cudnn_name_shape(const struct merak_cudnn_shape *s, char *text,
                            size_t bytes)
{
    char window[40] = "";

    if (s->window > 0)
        snprintf(window, sizeof(window), " in a window of %" PRId64, s->window);
    snprintf(text, bytes,
             "attention%s of %" PRId64 " x %" PRId64 " positions, %" PRId64
             " query and %" PRId64 " kv heads of %" PRId64 "%s",
             s->backward != 0 ? "'s gradient" : "", s->B, s->T, s->H, s->G,
             s->D, window);
}

/* --- addresses --------------------------------------------------------------
 */

static void *element(const struct merak_heads *x)
{
    return (char *)x->op->data + x->offset * sizeof(uint16_t);
}

void merak_cudnn_memory_of(const char *op, const struct merak_kernel_call *call,
                           const struct merak_cudnn_shape *shape,
                           const struct merak_cudnn_way *way,
                           struct merak_cudnn_memory *memory)
{
    struct merak_attention at;
    uintptr_t scratch = (uintptr_t)call->scratch;

    memset(memory, 0, sizeof(*memory));
    view_of(op)(call, &at);
    memory->at[MERAK_CUDNN_UID_Q] = element(&at.q);
    memory->at[MERAK_CUDNN_UID_K] = element(&at.k);
    memory->at[MERAK_CUDNN_UID_V] = element(&at.v);
    memory->at[MERAK_CUDNN_UID_O] = element(&at.o);
    memory->at[MERAK_CUDNN_UID_LSE] = at.lse->data;
    scratch = (scratch + MERAK_CUDNN_ALIGN - 1) / MERAK_CUDNN_ALIGN *
              MERAK_CUDNN_ALIGN;
    if (shape->backward != 0) {
        memory->at[MERAK_CUDNN_UID_DO] = element(&at.d_o);
        memory->at[MERAK_CUDNN_UID_DQ] = element(&at.dq);
        memory->at[MERAK_CUDNN_UID_DK] = element(&at.dk);
        memory->at[MERAK_CUDNN_UID_DV] = element(&at.dv);
        memory->at[MERAK_CUDNN_UID_DELTA] = (void *)scratch;
    }
    memory->workspace = (void *)(scratch + merak_cudnn_delta_bytes(shape, way));
}

/* Delta and the workspace are used by each part in turn. */
void merak_cudnn_memory_from(const struct merak_cudnn_shape *s,
                             const struct merak_cudnn_memory *whole,
                             int64_t first, struct merak_cudnn_memory *part)
{
    const struct {
        int uid;
        int64_t bytes; /* per position */
    } row[] = {
        {MERAK_CUDNN_UID_Q, 2 * s->q_row},
        {MERAK_CUDNN_UID_K, 2 * s->k_row},
        {MERAK_CUDNN_UID_V, 2 * s->v_row},
        {MERAK_CUDNN_UID_O, 2 * s->o_row},
        {MERAK_CUDNN_UID_LSE, (int64_t)sizeof(float) * s->H},
        {MERAK_CUDNN_UID_DO, 2 * s->d_o_row},
        {MERAK_CUDNN_UID_DQ, 2 * s->dq_row},
        {MERAK_CUDNN_UID_DK, 2 * s->dk_row},
        {MERAK_CUDNN_UID_DV, 2 * s->dv_row},
    };

    *part = *whole;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        char *at = whole->at[row[i].uid];

        if (at != NULL)
            part->at[row[i].uid] = at + first * s->T * row[i].bytes;
    }
}

/* --- scratch ----------------------------------------------------------------
 */

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* The backward pass stores the gradients of all probabilities in bf16 (tiles of
 * 64 queries and 128 keys), and the gradients of keys and values for each query
 * head if several share them.  This is true of 9.19 and 9.26 on Hopper
 * (tests/unit/kernels/test_cudnn.c). */
int64_t merak_cudnn_most_bytes(const struct merak_cudnn_shape *s,
                               int64_t samples)
{
    const int64_t little = 4096;
    int64_t bytes = little;

    if (s->backward == 0)
        return bytes;
    bytes += 2 * samples * s->H * round_up(s->T, 64) * round_up(s->T, 128);
    if (s->G != s->H)
        bytes += 2 * 2 * samples * s->H * s->T * s->D;
    return bytes;
}

size_t merak_cudnn_delta_bytes(const struct merak_cudnn_shape *s,
                               const struct merak_cudnn_way *way)
{
    if (s->backward == 0)
        return 0;
    return (size_t)round_up((int64_t)sizeof(float) * way->samples * s->H * s->T,
                            MERAK_CUDNN_ALIGN);
}

/* Scratch itself has a smaller alignment. */
size_t merak_cudnn_way_bytes(const struct merak_cudnn_shape *shape,
                             const struct merak_cudnn_way *way)
{
    return MERAK_CUDNN_ALIGN + merak_cudnn_delta_bytes(shape, way) +
           (size_t)way->workspace_bytes;
}

/* The memory of the backward pass grows with the samples of one execution: use
 * enough to fill the device, in equal parts of the micro-batch. */
static int64_t usual_samples(const struct merak_cudnn_shape *s)
{
    int64_t n = s->B;

    while (n > 1 &&
           (s->B % n != 0 || merak_cudnn_most_bytes(s, n) > USUAL_BYTES))
        n--;
    return n;
}

bool merak_cudnn_wants(const struct merak_cudnn_shape *shape,
                       struct merak_cudnn_way *way)
{
    enum merak_cudnn_mode mode;

    if (merak_cudnn_mode(&mode, NULL) != MERAK_OK ||
        mode == MERAK_CUDNN_MODE_OWN)
        return false;
    for (int i = 0; i < n_choices; i++) {
        const struct merak_cudnn_choice *c = &choices[i];

        if (memcmp(&c->shape, shape, sizeof(*shape)) != 0)
            continue;
        if (c->own && mode == MERAK_CUDNN_MODE_AUTO)
            return false;
        if (c->own)
            break;
        *way = c->way;
        return true;
    }
    if (mode == MERAK_CUDNN_MODE_AUTO)
        return false;
    *way = (struct merak_cudnn_way){.samples = usual_samples(shape),
                                    .engine = -1};
    way->workspace_bytes = merak_cudnn_most_bytes(shape, way->samples);
    return true;
}

size_t merak_cudnn_scratch(const char *op, const struct merak_kernel_call *call,
                           size_t own)
{
    struct merak_cudnn_shape shape;
    struct merak_cudnn_way way;
    size_t bytes;

    if (!merak_cudnn_shape_of(op, call, &shape, NULL) ||
        !merak_cudnn_wants(&shape, &way))
        return own;
    bytes = merak_cudnn_way_bytes(&shape, &way);
    return bytes > own ? bytes : own;
}

/* --- choices ----------------------------------------------------------------
 */

bool merak_cudnn_is_line(const char *line)
{
    return strncmp(line, WORD, strlen(WORD)) == 0;
}

/* A line: attention KERNEL, the shape, and cuDNN's version, samples, workspace,
 * engine and knobs. */
void merak_cudnn_write(const struct merak_cudnn_choice *choice, char *line,
                       size_t bytes)
{
    const struct merak_cudnn_shape *s = &choice->shape;
    const struct merak_cudnn_way *w = &choice->way;
    size_t n;

    snprintf(line, bytes,
             WORD "%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                  " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                  " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %.17g "
                  "%" PRId64,
             choice->own ? "own" : "cudnn", s->B, s->T, s->H, s->G, s->D,
             s->window, s->q_row, s->k_row, s->v_row, s->o_row, s->d_o_row,
             s->dq_row, s->dk_row, s->dv_row, s->scale, s->backward);
    if (choice->own)
        return;
    n = strlen(line);
    snprintf(line + n, bytes - n,
             " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, w->version,
             w->samples, w->workspace_bytes, w->engine);
    for (int64_t i = 0; i < w->n_knobs; i++) {
        n = strlen(line);
        snprintf(line + n, bytes - n, " %" PRId64 "=%" PRId64, w->knob[i].type,
                 w->knob[i].value);
    }
}

static bool read_way(const char *text, const struct merak_cudnn_shape *shape,
                     struct merak_cudnn_way *w)
{
    int n = 0;

    if (sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 "%n",
               &w->version, &w->samples, &w->workspace_bytes, &w->engine,
               &n) != 4 ||
        w->samples < 1 || shape->B % w->samples != 0 ||
        w->workspace_bytes < 0 || w->engine < 0)
        return false;
    for (text += n; *text != '\0'; text += n) {
        if (w->n_knobs == MERAK_CUDNN_KNOBS ||
            sscanf(text, " %" SCNd64 "=%" SCNd64 "%n",
                   &w->knob[w->n_knobs].type, &w->knob[w->n_knobs].value,
                   &n) != 2)
            return false;
        w->n_knobs++;
    }
    return true;
}

bool merak_cudnn_read(const char *line, struct merak_cudnn_choice *choice)
{
    struct merak_cudnn_shape *s = &choice->shape;
    char kernel[8];
    int n = 0;

    memset(choice, 0, sizeof(*choice));
    if (!merak_cudnn_is_line(line) ||
        sscanf(line + strlen(WORD),
               "%7s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
               " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
               " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %lf "
               "%" SCNd64 "%n",
               kernel, &s->B, &s->T, &s->H, &s->G, &s->D, &s->window, &s->q_row,
               &s->k_row, &s->v_row, &s->o_row, &s->d_o_row, &s->dq_row,
               &s->dk_row, &s->dv_row, &s->scale, &s->backward, &n) != 17)
        return false;
    line += strlen(WORD) + (size_t)n;
    choice->own = strcmp(kernel, "own") == 0;
    if (choice->own)
        return *line == '\0';
    return strcmp(kernel, "cudnn") == 0 && read_way(line, s, &choice->way);
}

enum merak_status merak_cudnn_add(const struct merak_cudnn_choice *choice,
                                  struct merak_error *err)
{
    struct merak_cudnn_choice *more;
    int i = 0;

    while (i < n_choices && memcmp(&choices[i].shape, &choice->shape,
                                   sizeof(choice->shape)) != 0)
        i++;
    if (i == n_choices) {
        more = realloc(choices, ((size_t)i + 1) * sizeof(*more));
        if (more == NULL)
            return merak_fail_nomem(err, ((size_t)i + 1) * sizeof(*more));
        choices = more;
        n_choices++;
    }
    choices[i] = *choice;
    return MERAK_OK;
}

enum merak_status merak_cudnn_use(const char *const *line, int n,
                                  struct merak_error *err)
{
    struct merak_cudnn_choice *all =
        calloc((size_t)n + 1, sizeof(struct merak_cudnn_choice));
    int used = 0;

    if (all == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*all));
    for (int i = 0; i < n; i++) {
        if (!merak_cudnn_is_line(line[i]))
            continue;
        if (!merak_cudnn_read(line[i], &all[used++])) {
            free(all);
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "\"%.60s..\" is not a choice of a kernel for "
                              "attention: calibrate again",
                              line[i]);
        }
    }
    free(choices);
    choices = all;
    n_choices = used;
    return MERAK_OK;
}
