/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cudnn.c - plays cuDNN, for tests
 *
 * It keeps cuDNN's rules: what each attribute's elements are and how many there
 * may be, that descriptors are whole before they are used and not changed
 * after, that tensors have ids of their own, that operations stand behind those
 * whose results they read, that a call has all tensors of memory and no others.
 * What breaks one is refused as cuDNN would, with a sentence.  A graph that is
 * executed runs on the host's memory (stand_in_cudnn_run.c).
 *
 * MERAK_STAND_IN_CUDNN, words separated by commas, what goes wrong:
 *   version=N   what cudnnGetVersion() says
 *   create      there is no handle
 *   nothing     heuristics have no answer
 *   plan        the first answer becomes no plan
 *   execute     plans do not run
 *   jitter      every second run gives other bits
 */
#include "config.h"

#include "unit/kernels/stand_in_cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cuDNN's own header need not be here to have them declared. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))
#define MAGIC 0x5d9a11feu
#define BAD_PARAM 2000
#define NOT_FINAL 2004
#define BAD_TYPE 2010
#define EXECUTION_FAILED 5000
#define REFUSED 3001

/* What the test looks at. */
EXPORT int merak_stand_in_descs; /* that live */
EXPORT int merak_stand_in_runs;
EXPORT void *merak_stand_in_stream; /* of the last run */

static char words[200]; /* of the last refusal */

static bool wrong(const char *what)
{
    const char *text = getenv("MERAK_STAND_IN_CUDNN");

    return text != NULL && strstr(text, what) != NULL;
}

static int refuse(int status, const char *what, int64_t number)
{
    snprintf(words, sizeof(words), "%s (%lld)\n", what, (long long)number);
    return status;
}

/* --- rules ------------------------------------------------------------------
 */

struct rule {
    int owner, name, type;
    int64_t least, most;
    bool required;
};

#define MANY(owner, name, type, most, needed)                                \
    {                                                                        \
        MERAK_CUDNN_##owner, MERAK_CUDNN_##name, MERAK_CUDNN_TYPE_##type, 1, \
            most, needed                                                     \
    }
#define NEEDS(owner, name, type) MANY(owner, name, type, 1, true)
#define MAY(owner, name, type) MANY(owner, name, type, 1, false)
static const struct rule rules[] = {
    NEEDS(TENSOR, TENSOR_TYPE, DATA_TYPE),
    MANY(TENSOR, TENSOR_DIMS, INT64, 8, true),
    MANY(TENSOR, TENSOR_STRIDES, INT64, 8, true),
    NEEDS(TENSOR, TENSOR_UID, INT64),
    NEEDS(TENSOR, TENSOR_ALIGNMENT, INT64),
    MAY(TENSOR, TENSOR_VIRTUAL, BOOLEAN),
    MAY(TENSOR, TENSOR_BY_VALUE, BOOLEAN),
    NEEDS(MATMUL, MATMUL_PREC, DATA_TYPE),
    NEEDS(OP_MATMUL, OP_MATMUL_A, DESCRIPTOR),
    NEEDS(OP_MATMUL, OP_MATMUL_B, DESCRIPTOR),
    NEEDS(OP_MATMUL, OP_MATMUL_C, DESCRIPTOR),
    NEEDS(OP_MATMUL, OP_MATMUL_DESC, DESCRIPTOR),
    NEEDS(POINTWISE, POINTWISE_MODE, POINTWISE_MODE),
    NEEDS(POINTWISE, POINTWISE_PREC, DATA_TYPE),
    MAY(POINTWISE, POINTWISE_AXIS, INT64),
    NEEDS(OP_POINTWISE, OP_POINTWISE_DESC, DESCRIPTOR),
    NEEDS(OP_POINTWISE, OP_POINTWISE_X, DESCRIPTOR),
    MAY(OP_POINTWISE, OP_POINTWISE_B, DESCRIPTOR),
    MAY(OP_POINTWISE, OP_POINTWISE_T, DESCRIPTOR),
    NEEDS(OP_POINTWISE, OP_POINTWISE_Y, DESCRIPTOR),
    NEEDS(REDUCTION, REDUCTION_OPERATOR, REDUCTION),
    NEEDS(REDUCTION, REDUCTION_PREC, DATA_TYPE),
    NEEDS(OP_REDUCTION, OP_REDUCTION_DESC, DESCRIPTOR),
    NEEDS(OP_REDUCTION, OP_REDUCTION_X, DESCRIPTOR),
    NEEDS(OP_REDUCTION, OP_REDUCTION_Y, DESCRIPTOR),
    NEEDS(OP_RESHAPE, OP_RESHAPE_X, DESCRIPTOR),
    NEEDS(OP_RESHAPE, OP_RESHAPE_Y, DESCRIPTOR),
    MAY(GRAPH, GRAPH_HANDLE, HANDLE),
    MANY(GRAPH, GRAPH_OPS, DESCRIPTOR, STAND_IN_OPS, true),
    NEEDS(ENGINEHEUR, HEUR_GRAPH, DESCRIPTOR),
    NEEDS(ENGINEHEUR, HEUR_MODE, HEUR_MODE),
    NEEDS(ENGINE, ENGINE_GRAPH, DESCRIPTOR),
    NEEDS(ENGINE, ENGINE_INDEX, INT64),
    NEEDS(KNOB_CHOICE, KNOB_TYPE, KNOB_TYPE),
    NEEDS(KNOB_CHOICE, KNOB_VALUE, INT64),
    NEEDS(ENGINECFG, CFG_ENGINE, DESCRIPTOR),
    MANY(ENGINECFG, CFG_KNOBS, DESCRIPTOR, MERAK_CUDNN_KNOBS, false),
    NEEDS(PLAN, PLAN_HANDLE, HANDLE),
    NEEDS(PLAN, PLAN_CFG, DESCRIPTOR),
    MANY(PACK, PACK_UIDS, INT64, STAND_IN_POINTERS, true),
    MANY(PACK, PACK_POINTERS, VOID_PTR, STAND_IN_POINTERS, true),
    MAY(PACK, PACK_WORKSPACE, VOID_PTR),
};
#define RULES (sizeof(rules) / sizeof(*rules))

/* --- whole descriptors ------------------------------------------------------
 */

static int check_tensor(const struct si_desc *t)
{
    int64_t n = si_count(t, MERAK_CUDNN_TENSOR_DIMS);

    if (n != si_count(t, MERAK_CUDNN_TENSOR_STRIDES) || n < 3)
        return refuse(BAD_PARAM, "a tensor's dims", n);
    for (int64_t d = 0; d < n; d++) {
        if (si_int64(t, MERAK_CUDNN_TENSOR_DIMS, d) < 1 ||
            si_int64(t, MERAK_CUDNN_TENSOR_STRIDES, d) < 1)
            return refuse(BAD_PARAM, "a tensor's dim", d);
    }
    if (si_bool(t, MERAK_CUDNN_TENSOR_VIRTUAL) &&
        si_bool(t, MERAK_CUDNN_TENSOR_BY_VALUE))
        return refuse(BAD_PARAM, "a value that is virtual", 0);
    return 0;
}

/* Has an operation before this one written the tensor? */
static bool was_written(const struct si_desc *graph, int64_t before,
                        const struct si_desc *tensor)
{
    for (int64_t i = 0; i < before; i++) {
        if (si_ends_of(si_desc(graph, MERAK_CUDNN_GRAPH_OPS, i)).out == tensor)
            return true;
    }
    return false;
}

/* One id, one tensor. */
static bool is_unique(const struct si_desc *graph, const struct si_desc *tensor)
{
    int64_t n = si_count(graph, MERAK_CUDNN_GRAPH_OPS);
    int64_t uid = si_int64(tensor, MERAK_CUDNN_TENSOR_UID, 0);

    for (int64_t i = 0; i < n; i++) {
        const struct si_ends e =
            si_ends_of(si_desc(graph, MERAK_CUDNN_GRAPH_OPS, i));
        const struct si_desc *t[] = {e.in[0], e.in[1], e.in[2], e.out};

        for (int k = 0; k < 4; k++) {
            if (t[k] != NULL && t[k] != tensor &&
                si_int64(t[k], MERAK_CUDNN_TENSOR_UID, 0) == uid)
                return false;
        }
    }
    return true;
}

static int check_graph_op(const struct si_desc *graph, int64_t i)
{
    const struct si_desc *op = si_desc(graph, MERAK_CUDNN_GRAPH_OPS, i);
    const struct si_ends e = si_ends_of(op);
    const char *what = si_check_op(op);

    if (what != NULL)
        return refuse(BAD_PARAM, what, i);
    for (int k = 0; k < 3 && e.in[k] != NULL; k++) {
        if (si_bool(e.in[k], MERAK_CUDNN_TENSOR_VIRTUAL) &&
            !was_written(graph, i, e.in[k]))
            return refuse(BAD_PARAM, "read before it is written, by op", i);
        if (!is_unique(graph, e.in[k]))
            return refuse(BAD_PARAM, "two tensors have an id, at op", i);
    }
    if (was_written(graph, i, e.out) ||
        si_bool(e.out, MERAK_CUDNN_TENSOR_BY_VALUE) || !is_unique(graph, e.out))
        return refuse(BAD_PARAM, "what is written by op", i);
    return 0;
}

static int check_graph(const struct si_desc *graph)
{
    int64_t n = si_count(graph, MERAK_CUDNN_GRAPH_OPS);
    int status = 0;

    for (int64_t i = 0; i < n && status == 0; i++)
        status = check_graph_op(graph, i);
    return status;
}

static int check_pack(const struct si_desc *pack)
{
    if (si_count(pack, MERAK_CUDNN_PACK_UIDS) !=
        si_count(pack, MERAK_CUDNN_PACK_POINTERS))
        return refuse(BAD_PARAM, "ids and pointers of a call", 0);
    return 0;
}

/* Gradients, which do not begin with a product, need a bf16 for each
 * probability; those are what the first product makes. */
static int64_t graph_bytes(const struct si_desc *graph)
{
    const struct si_desc *s;
    int64_t i = 0;

    while (si_desc(graph, MERAK_CUDNN_GRAPH_OPS, i)->type !=
           MERAK_CUDNN_OP_MATMUL)
        i++;
    s = si_ends_of(si_desc(graph, MERAK_CUDNN_GRAPH_OPS, i)).out;
    return i == 0 ? 256
                  : 2 * si_int64(s, MERAK_CUDNN_TENSOR_STRIDES, 0) *
                        si_int64(s, MERAK_CUDNN_TENSOR_DIMS, 0);
}

static int check_config(struct si_desc *config)
{
    const struct si_desc *engine = si_desc(config, MERAK_CUDNN_CFG_ENGINE, 0);

    if (si_count(config, MERAK_CUDNN_CFG_KNOBS) != 1 ||
        si_int(si_desc(config, MERAK_CUDNN_CFG_KNOBS, 0),
               MERAK_CUDNN_KNOB_TYPE) != 24)
        return refuse(BAD_PARAM, "knobs", 0);
    config->engine = si_int64(engine, MERAK_CUDNN_ENGINE_INDEX, 0);
    config->workspace =
        graph_bytes(si_desc(engine, MERAK_CUDNN_ENGINE_GRAPH, 0));
    return 0;
}

static int check_plan(struct si_desc *plan)
{
    const struct si_desc *config = si_desc(plan, MERAK_CUDNN_PLAN_CFG, 0);

    if (wrong("plan") && config->engine == 6)
        return refuse(REFUSED, "this plan", config->engine);
    plan->workspace = config->workspace;
    return 0;
}

static int check_whole(struct si_desc *d)
{
    switch (d->type) {
    case MERAK_CUDNN_TENSOR:
        return check_tensor(d);
    case MERAK_CUDNN_GRAPH:
        return check_graph(d);
    case MERAK_CUDNN_ENGINECFG:
        return check_config(d);
    case MERAK_CUDNN_PLAN:
        return check_plan(d);
    case MERAK_CUDNN_PACK:
        return check_pack(d);
    default:
        return 0;
    }
}

/* --- the interface: descriptors ---------------------------------------------
 */

EXPORT int cudnnBackendCreateDescriptor(int type, void **desc)
{
    struct si_desc *d;
    bool is_known = false;

    for (size_t i = 0; i < RULES; i++)
        is_known = is_known || rules[i].owner == type;
    if (!is_known)
        return refuse(REFUSED, "a descriptor's type", type);
    d = calloc(1, sizeof(*d));
    d->magic = MAGIC;
    d->type = type;
    *desc = d;
    merak_stand_in_descs++;
    return 0;
}

EXPORT int cudnnBackendDestroyDescriptor(void *desc)
{
    struct si_desc *d = desc;

    if (d == NULL || d->magic != MAGIC)
        return refuse(BAD_PARAM, "no descriptor is destroyed", 0);
    for (int i = 0; i < d->n; i++)
        free(d->attribute[i].element);
    memset(d, 0, sizeof(*d));
    free(d);
    merak_stand_in_descs--;
    return 0;
}

static int check_set(const struct si_desc *d, int name, int type, int64_t n,
                     const void *element)
{
    const struct rule *rule = rules;

    while (rule < rules + RULES &&
           (rule->owner != d->type || rule->name != name))
        rule++;
    if (rule == rules + RULES)
        return refuse(BAD_PARAM, "no attribute of this descriptor", name);
    if (rule->type != type)
        return refuse(BAD_TYPE, "an attribute's type", name);
    if (n < rule->least || n > rule->most || element == NULL)
        return refuse(BAD_PARAM, "an attribute's count", name);
    for (int64_t i = 0; i < n && type == MERAK_CUDNN_TYPE_DESCRIPTOR; i++) {
        const struct si_desc *other = ((void *const *)element)[i];

        if (other == NULL || other->magic != MAGIC || !other->is_final)
            return refuse(NOT_FINAL, "an attribute is not final", name);
    }
    return 0;
}

EXPORT int cudnnBackendSetAttribute(void *desc, int name, int type, int64_t n,
                                    const void *element)
{
    struct si_desc *d = desc;
    struct si_attribute *a;
    int status;

    if (d == NULL || d->magic != MAGIC || d->is_final)
        return refuse(BAD_PARAM, "nothing to set an attribute of", name);
    status = check_set(d, name, type, n, element);
    if (status != 0)
        return status;
    if (si_has(d, name) || d->n == STAND_IN_ATTRIBUTES)
        return refuse(BAD_PARAM, "an attribute is set twice", name);
    a = &d->attribute[d->n++];
    *a = (struct si_attribute){name, type, n, NULL};
    a->element = malloc((size_t)n * si_bytes_of(type));
    memcpy(a->element, element, (size_t)n * si_bytes_of(type));
    return 0;
}

EXPORT int cudnnBackendFinalize(void *desc)
{
    struct si_desc *d = desc;
    int status;

    if (d == NULL || d->magic != MAGIC || d->is_final)
        return refuse(BAD_PARAM, "nothing to finalize", 0);
    for (size_t i = 0; i < RULES; i++) {
        if (rules[i].owner == d->type && rules[i].required &&
            !si_has(d, rules[i].name))
            return refuse(BAD_PARAM, "an attribute is missing", rules[i].name);
    }
    status = check_whole(d);
    d->is_final = status == 0;
    return status;
}

/* --- the interface: answers -------------------------------------------------
 */

/* Of three: one that is not exact, and two that are. */
static int answer(const struct si_desc *heuristics, int64_t asked, int64_t *n,
                  void *const *config)
{
    int64_t bytes = graph_bytes(si_desc(heuristics, MERAK_CUDNN_HEUR_GRAPH, 0));

    *n = wrong("nothing") ? 0 : asked < 3 ? asked : 3;
    for (int64_t i = 0; i < *n; i++) {
        struct si_desc *c = config[i];

        if (c == NULL || c->type != MERAK_CUDNN_ENGINECFG || c->is_final)
            return refuse(BAD_PARAM, "no config to answer in", i);
        c->is_final = true;
        c->engine = 5 + i;
        c->is_inexact = i == 0;
        c->workspace = bytes;
        c->knob_type = 24;
        c->knob_value = 20 + i;
    }
    return 0;
}

static int get_number(void *to, int type, int64_t value, int64_t *n)
{
    *n = 1;
    if (type == MERAK_CUDNN_TYPE_INT64)
        *(int64_t *)to = value;
    else
        *(int *)to = (int)value;
    return 0;
}

static int get_engine(const struct si_desc *config, void *const *to, int64_t *n)
{
    struct si_desc *engine = to[0];

    if (engine->type != MERAK_CUDNN_ENGINE)
        return refuse(BAD_PARAM, "no engine to answer in", 0);
    engine->engine = config->engine;
    engine->is_inexact = config->is_inexact;
    engine->is_final = true;
    *n = 1;
    return 0;
}

static int get_knob(const struct si_desc *config, void *const *to, int64_t *n)
{
    struct si_desc *knob = to[0];

    if (knob->type != MERAK_CUDNN_KNOB_CHOICE)
        return refuse(BAD_PARAM, "no knob to answer in", 0);
    knob->knob_type = config->knob_type;
    knob->knob_value = config->knob_value;
    knob->is_final = true;
    *n = 1;
    return 0;
}

EXPORT int cudnnBackendGetAttribute(const void *desc, int name, int type,
                                    int64_t asked, int64_t *n, void *element)
{
    const struct si_desc *d = desc;

    if (d == NULL || d->magic != MAGIC || !d->is_final || asked < 1)
        return refuse(NOT_FINAL, "asked of what is not final", name);
    switch (name) {
    case MERAK_CUDNN_HEUR_RESULTS:
        return answer(d, asked, n, element);
    case MERAK_CUDNN_CFG_ENGINE:
        return get_engine(d, element, n);
    case MERAK_CUDNN_CFG_KNOBS:
        return get_knob(d, element, n);
    case MERAK_CUDNN_CFG_WORKSPACE:
    case MERAK_CUDNN_PLAN_WORKSPACE:
        return get_number(element, type, d->workspace, n);
    case MERAK_CUDNN_ENGINE_INDEX:
        return get_number(element, type, d->engine, n);
    case MERAK_CUDNN_KNOB_TYPE:
        return get_number(element, type, d->knob_type, n);
    case MERAK_CUDNN_KNOB_VALUE:
        return get_number(element, type, d->knob_value, n);
    case MERAK_CUDNN_ENGINE_NOTES:
        return get_number(element, type,
                          d->is_inexact ? MERAK_CUDNN_NOTE_NONDETERMINISTIC : 0,
                          n);
    default:
        return refuse(BAD_PARAM, "asked for no attribute", name);
    }
}

/* --- the interface: running -------------------------------------------------
 */

static void *stream_of_handle;

EXPORT int cudnnCreate(void **handle)
{
    *handle = &stream_of_handle;
    return wrong("create") ? refuse(1001, "no handle", 0) : 0;
}

EXPORT int cudnnDestroy(void *handle)
{
    return handle == &stream_of_handle ? 0 : BAD_PARAM;
}

EXPORT int cudnnSetStream(void *handle, void *stream)
{
    stream_of_handle = stream;
    return handle == &stream_of_handle ? 0 : BAD_PARAM;
}

static void *find_pointer(void *arg, int64_t uid)
{
    const struct si_desc *pack = arg;
    int64_t n = si_count(pack, MERAK_CUDNN_PACK_UIDS);

    for (int64_t i = 0; i < n; i++) {
        if (si_int64(pack, MERAK_CUDNN_PACK_UIDS, i) == uid)
            return *(void *const *)si_element(pack, MERAK_CUDNN_PACK_POINTERS,
                                              i);
    }
    return NULL;
}

/* All tensors of memory, where they may be, and as many ids. */
static int check_call(const struct si_desc *graph, const struct si_desc *pack)
{
    int64_t n = si_count(graph, MERAK_CUDNN_GRAPH_OPS);
    uint64_t seen = 0;

    for (int64_t i = 0; i < n; i++) {
        const struct si_ends e =
            si_ends_of(si_desc(graph, MERAK_CUDNN_GRAPH_OPS, i));
        const struct si_desc *t[] = {e.in[0], e.in[1], e.in[2], e.out};

        for (int k = 0; k < 4; k++) {
            uint64_t least;
            uintptr_t at;
            int64_t uid;

            if (t[k] == NULL || si_bool(t[k], MERAK_CUDNN_TENSOR_VIRTUAL))
                continue;
            uid = si_int64(t[k], MERAK_CUDNN_TENSOR_UID, 0);
            at = (uintptr_t)find_pointer((void *)(uintptr_t)pack, uid);
            least = (uint64_t)si_int64(t[k], MERAK_CUDNN_TENSOR_ALIGNMENT, 0);
            if (at == 0 || at % least != 0)
                return refuse(BAD_PARAM, "a tensor's address", uid);
            seen |= UINT64_C(1) << uid;
        }
    }
    if (__builtin_popcountll(seen) != si_count(pack, MERAK_CUDNN_PACK_UIDS))
        return refuse(BAD_PARAM, "tensors that the graph has not", 0);
    return 0;
}

/* What the graph writes last. */
static const struct si_desc *last_of(const struct si_desc *graph)
{
    int64_t n = si_count(graph, MERAK_CUDNN_GRAPH_OPS);

    return si_ends_of(si_desc(graph, MERAK_CUDNN_GRAPH_OPS, n - 1)).out;
}

EXPORT int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
    const struct si_desc *p = plan, *v = pack, *engine, *graph;
    unsigned char *workspace;
    struct si_call call;
    int status;

    if (handle != &stream_of_handle || !p->is_final || !v->is_final ||
        p->type != MERAK_CUDNN_PLAN || v->type != MERAK_CUDNN_PACK)
        return refuse(NOT_FINAL, "executed", 0);
    if (wrong("execute"))
        return refuse(EXECUTION_FAILED, "no such luck", 0);
    engine =
        si_desc(si_desc(p, MERAK_CUDNN_PLAN_CFG, 0), MERAK_CUDNN_CFG_ENGINE, 0);
    graph = si_desc(engine, MERAK_CUDNN_ENGINE_GRAPH, 0);
    status = check_call(graph, v);
    if (status != 0)
        return status;
    workspace = *(void *const *)si_element(v, MERAK_CUDNN_PACK_WORKSPACE, 0);
    if (workspace == NULL || (uintptr_t)workspace % 256 != 0)
        return refuse(BAD_PARAM, "a workspace", 0);
    call.graph = graph;
    call.jitter_at = NULL;
    call.workspace = workspace;
    call.workspace_bytes = (size_t)p->workspace;
    call.n = (int)si_count(v, MERAK_CUDNN_PACK_UIDS);
    for (int i = 0; i < call.n; i++) {
        call.uid[i] = si_int64(v, MERAK_CUDNN_PACK_UIDS, i);
        call.pointer[i] =
            *(void *const *)si_element(v, MERAK_CUDNN_PACK_POINTERS, i);
    }
    merak_stand_in_runs++;
    if (wrong("jitter") && merak_stand_in_runs % 2 == 0)
        call.jitter_at = find_pointer(
            pack, si_int64(last_of(graph), MERAK_CUDNN_TENSOR_UID, 0));
    merak_stand_in_stream = stream_of_handle;
    return si_put(&call, stream_of_handle) == 0 ? 0 : EXECUTION_FAILED;
}

EXPORT size_t cudnnGetVersion(void)
{
    const char *text = getenv("MERAK_STAND_IN_CUDNN");
    const char *at = text != NULL ? strstr(text, "version=") : NULL;

    return at != NULL ? (size_t)atol(at + 8) : 91900;
}

EXPORT const char *cudnnGetErrorString(int status)
{
    return status >= REFUSED ? "CUDNN_STATUS_REFUSED" : "CUDNN_STATUS_WRONG";
}

EXPORT void cudnnGetLastErrorString(char *message, size_t bytes)
{
    snprintf(message, bytes, "%s", words);
}
