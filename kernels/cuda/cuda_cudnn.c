/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_cudnn.c - open cuDNN, and its plans
 *
 * The library is opened at run time, when the first call needs it.  A plan is a
 * way to compute that is compiled for one shape, which takes seconds, so it is
 * made in the warm-up.
 */
#include "config.h"

#include "kernels/cuda/cuda_cudnn_impl.h"

#include "base/error.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 200

struct merak_cudnn_plan {
    struct merak_cudnn *cudnn;
    struct merak_cudnn_shape shape; /* of all samples */
    int64_t samples;
    struct merak_cudnn_graph graph; /* of some samples */
    void *engine, *config, *knob[MERAK_CUDNN_KNOBS], *plan;
    int64_t n_knobs;
};

/* --- failures ---------------------------------------------------------------
 */

/* cuDNN's own message, on one line. */
static void last_words(const struct merak_cudnn *c, char *text, size_t bytes)
{
    memset(text, 0, bytes);
    c->call.last_error(text, bytes);
    text[bytes - 1] = '\0';
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '\n' || *at == '\r' || *at == '\t')
            *at = ' ';
    }
}

enum merak_status merak_cudnn_fail(const struct merak_cudnn *c,
                                   const char *what, int status,
                                   struct merak_error *err)
{
    char words[WORDS];
    enum merak_status rc = status / 1000 * 1000 == MERAK_CUDNN_NOT_SUPPORTED
                               ? MERAK_ERR_UNSUPPORTED
                               : MERAK_ERR_SYSTEM;

    last_words(c, words, sizeof(words));
    return merak_fail(err, rc, "cuDNN cannot take %s: %s%s%.120s", what,
                      c->call.error_string(status),
                      words[0] != '\0' ? ": " : "", words);
}

/* Get an attribute's only element; false: there is none. */
bool merak_cudnn_get(const struct merak_cudnn *c, const void *desc, int name,
                     int type, void *element)
{
    int64_t n = 0;

    return c->call.desc_get(desc, name, type, 1, &n, element) ==
               MERAK_CUDNN_OK &&
           n == 1;
}

/* --- the library ------------------------------------------------------------
 */

static enum merak_status load(struct merak_cudnn *c, const char *soname,
                              struct merak_error *err)
{
    const struct {
        const char *name;
        void *place;
    } want[] = {
        {"cudnnGetVersion", &c->call.version},
        {"cudnnGetErrorString", &c->call.error_string},
        {"cudnnGetLastErrorString", &c->call.last_error},
        {"cudnnCreate", &c->call.create},
        {"cudnnDestroy", &c->call.destroy},
        {"cudnnSetStream", &c->call.set_stream},
        {"cudnnBackendCreateDescriptor", &c->call.desc_create},
        {"cudnnBackendDestroyDescriptor", &c->call.desc_destroy},
        {"cudnnBackendSetAttribute", &c->call.desc_set},
        {"cudnnBackendGetAttribute", &c->call.desc_get},
        {"cudnnBackendFinalize", &c->call.desc_finalize},
        {"cudnnBackendExecute", &c->call.execute},
    };

    c->library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (c->library == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "cuDNN cannot be opened (%s)", dlerror());
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        void *symbol = dlsym(c->library, want[i].name);

        if (symbol == NULL)
            return merak_fail(err, MERAK_ERR_UNSUPPORTED, "%s has no %s",
                              soname, want[i].name);
        memcpy(want[i].place, &symbol, sizeof(symbol));
    }
    c->version = (int64_t)c->call.version();
    return MERAK_OK;
}

/* Describe a device that is not present. */
static enum merak_status describe(struct merak_cudnn *c, const char *properties,
                                  struct merak_error *err)
{
    int status = c->call.desc_create(MERAK_CUDNN_DEVICEPROP, &c->properties);

    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_set(c->properties, MERAK_CUDNN_DEVICEPROP_JSON,
                                  MERAK_CUDNN_TYPE_CHAR,
                                  (int64_t)strlen(properties) + 1, properties);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_finalize(c->properties);
    return status == MERAK_CUDNN_OK
               ? MERAK_OK
               : merak_cudnn_fail(c, "a device", status, err);
}

enum merak_status merak_cudnn_open(const char *soname, const char *properties,
                                   struct merak_cudnn **cudnn_p,
                                   struct merak_error *err)
{
    struct merak_cudnn *c = calloc(1, sizeof(*c));
    enum merak_status rc;
    int status;

    if (c == NULL)
        return merak_fail_nomem(err, sizeof(*c));
    rc = load(c, soname, err);
    if (rc == MERAK_OK && properties != NULL)
        rc = describe(c, properties, err);
    if (rc == MERAK_OK && properties == NULL) {
        status = c->call.create(&c->handle);
        if (status != MERAK_CUDNN_OK)
            rc = merak_cudnn_fail(c, "this device", status, err);
    }
    if (rc != MERAK_OK) {
        merak_cudnn_close(c);
        return rc;
    }
    *cudnn_p = c;
    return MERAK_OK;
}

void merak_cudnn_close(struct merak_cudnn *c)
{
    if (c == NULL)
        return;
    if (c->properties != NULL)
        (void)c->call.desc_destroy(c->properties);
    if (c->handle != NULL)
        (void)c->call.destroy(c->handle);
    /* The library stays open: it may have threads and kernels in use. */
    free(c);
}

int64_t merak_cudnn_version(const struct merak_cudnn *c)
{
    return c->version;
}

/* --- plans ------------------------------------------------------------------
 */

static struct merak_cudnn_shape part_of(const struct merak_cudnn_shape *shape,
                                        int64_t samples)
{
    struct merak_cudnn_shape part = *shape;

    part.B = samples;
    return part;
}

static int set_knobs(struct merak_cudnn_plan *p,
                     const struct merak_cudnn_way *way)
{
    const struct merak_cudnn_calls *call = &p->cudnn->call;
    int status = MERAK_CUDNN_OK;

    for (int64_t i = 0; i < way->n_knobs && status == MERAK_CUDNN_OK; i++) {
        const int type = (int)way->knob[i].type;

        status = call->desc_create(MERAK_CUDNN_KNOB_CHOICE, &p->knob[i]);
        if (status != MERAK_CUDNN_OK)
            break;
        p->n_knobs++;
        status = call->desc_set(p->knob[i], MERAK_CUDNN_KNOB_TYPE,
                                MERAK_CUDNN_TYPE_KNOB_TYPE, 1, &type);
        if (status == MERAK_CUDNN_OK)
            status =
                call->desc_set(p->knob[i], MERAK_CUDNN_KNOB_VALUE,
                               MERAK_CUDNN_TYPE_INT64, 1, &way->knob[i].value);
        if (status == MERAK_CUDNN_OK)
            status = call->desc_finalize(p->knob[i]);
    }
    if (status == MERAK_CUDNN_OK && p->n_knobs > 0)
        status =
            call->desc_set(p->config, MERAK_CUDNN_CFG_KNOBS,
                           MERAK_CUDNN_TYPE_DESCRIPTOR, p->n_knobs, p->knob);
    return status;
}

static int make_config(struct merak_cudnn_plan *p,
                       const struct merak_cudnn_way *way)
{
    const struct merak_cudnn *c = p->cudnn;
    int status = c->call.desc_create(MERAK_CUDNN_ENGINE, &p->engine);

    if (status == MERAK_CUDNN_OK)
        status =
            c->call.desc_set(p->engine, MERAK_CUDNN_ENGINE_GRAPH,
                             MERAK_CUDNN_TYPE_DESCRIPTOR, 1, &p->graph.graph);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_set(p->engine, MERAK_CUDNN_ENGINE_INDEX,
                                  MERAK_CUDNN_TYPE_INT64, 1, &way->engine);
    if (status == MERAK_CUDNN_OK && c->properties != NULL)
        status =
            c->call.desc_set(p->engine, MERAK_CUDNN_ENGINE_DEVICEPROP,
                             MERAK_CUDNN_TYPE_DESCRIPTOR, 1, &c->properties);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_finalize(p->engine);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_create(MERAK_CUDNN_ENGINECFG, &p->config);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_set(p->config, MERAK_CUDNN_CFG_ENGINE,
                                  MERAK_CUDNN_TYPE_DESCRIPTOR, 1, &p->engine);
    if (status == MERAK_CUDNN_OK)
        status = set_knobs(p, way);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_finalize(p->config);
    return status;
}

static int make_plan(struct merak_cudnn_plan *p)
{
    const struct merak_cudnn *c = p->cudnn;
    int status = c->call.desc_create(MERAK_CUDNN_PLAN, &p->plan);

    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_set(p->plan, MERAK_CUDNN_PLAN_HANDLE,
                                  MERAK_CUDNN_TYPE_HANDLE, 1, &c->handle);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_set(p->plan, MERAK_CUDNN_PLAN_CFG,
                                  MERAK_CUDNN_TYPE_DESCRIPTOR, 1, &p->config);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_finalize(p->plan);
    return status;
}

/* Make a plan up to its config, which needs no device. */
static enum merak_status prepare(struct merak_cudnn *c,
                                 const struct merak_cudnn_shape *shape,
                                 const struct merak_cudnn_way *way,
                                 struct merak_cudnn_plan **plan_p,
                                 struct merak_error *err)
{
    struct merak_cudnn_shape part = part_of(shape, way->samples);
    struct merak_cudnn_plan *p = calloc(1, sizeof(*p));
    const char *what = "this way to compute";
    enum merak_status rc;
    int status;

    if (p == NULL)
        return merak_fail_nomem(err, sizeof(*p));
    p->cudnn = c;
    p->shape = *shape;
    p->samples = way->samples;
    status = merak_cudnn_graph_init(&p->graph, &c->call, c->handle, &part);
    if (status != MERAK_CUDNN_OK)
        what = p->graph.what;
    else
        status = make_config(p, way);
    if (status == MERAK_CUDNN_OK) {
        *plan_p = p;
        return MERAK_OK;
    }
    rc = merak_cudnn_fail(c, what, status, err);
    merak_cudnn_plan_destroy(p);
    return rc;
}

enum merak_status merak_cudnn_ask_bytes(struct merak_cudnn *c,
                                        const struct merak_cudnn_shape *shape,
                                        const struct merak_cudnn_way *way,
                                        int64_t *bytes_p,
                                        struct merak_error *err)
{
    struct merak_cudnn_plan *p = NULL;
    enum merak_status rc = prepare(c, shape, way, &p, err);

    if (rc == MERAK_OK &&
        !merak_cudnn_get(c, p->config, MERAK_CUDNN_CFG_WORKSPACE,
                         MERAK_CUDNN_TYPE_INT64, bytes_p))
        rc =
            merak_fail(err, MERAK_ERR_UNSUPPORTED,
                       "cuDNN does not report the workspace of engine %" PRId64,
                       way->engine);
    merak_cudnn_plan_destroy(p);
    return rc;
}

enum merak_status merak_cudnn_plan_create(struct merak_cudnn *c,
                                          const struct merak_cudnn_shape *shape,
                                          const struct merak_cudnn_way *way,
                                          struct merak_cudnn_plan **plan_p,
                                          struct merak_error *err)
{
    struct merak_cudnn_plan *p = NULL;
    enum merak_status rc = prepare(c, shape, way, &p, err);
    int64_t bytes = 0;
    int status;

    if (rc != MERAK_OK)
        return rc;
    status = make_plan(p);
    if (status != MERAK_CUDNN_OK)
        rc = merak_cudnn_fail(c, "this plan", status, err);
    else if (!merak_cudnn_get(c, p->plan, MERAK_CUDNN_PLAN_WORKSPACE,
                              MERAK_CUDNN_TYPE_INT64, &bytes) ||
             bytes > way->workspace_bytes)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "cuDNN's plan works in %" PRId64
                        " bytes and has %" PRId64,
                        bytes, way->workspace_bytes);
    if (rc != MERAK_OK) {
        merak_cudnn_plan_destroy(p);
        return rc;
    }
    *plan_p = p;
    return MERAK_OK;
}

void merak_cudnn_plan_destroy(struct merak_cudnn_plan *p)
{
    const struct merak_cudnn_calls *call;

    if (p == NULL)
        return;
    call = &p->cudnn->call;
    if (p->plan != NULL)
        (void)call->desc_destroy(p->plan);
    if (p->config != NULL)
        (void)call->desc_destroy(p->config);
    while (p->n_knobs > 0)
        (void)call->desc_destroy(p->knob[--p->n_knobs]);
    if (p->engine != NULL)
        (void)call->desc_destroy(p->engine);
    merak_cudnn_graph_fini(&p->graph);
    free(p);
}

/* --- running ----------------------------------------------------------------
 */

/* Scalars are in host memory and read during the call. */
static int fill_pack(const struct merak_cudnn_plan *p, void *pack,
                     const struct merak_cudnn_memory *memory,
                     float scalar[MERAK_CUDNN_UIDS])
{
    const struct merak_cudnn_calls *call = &p->cudnn->call;
    int64_t uid[MERAK_CUDNN_UIDS], n = 0;
    void *at[MERAK_CUDNN_UIDS], *workspace = memory->workspace;
    int status;

    for (int u = 1; u < MERAK_CUDNN_UIDS; u++) {
        if ((p->graph.uids >> u & 1u) == 0)
            continue;
        scalar[u] = merak_cudnn_scalar(&p->shape, (enum merak_cudnn_uid)u);
        uid[n] = u;
        at[n++] = merak_cudnn_is_scalar((enum merak_cudnn_uid)u)
                      ? (void *)&scalar[u]
                      : memory->at[u];
    }
    status = call->desc_set(pack, MERAK_CUDNN_PACK_UIDS, MERAK_CUDNN_TYPE_INT64,
                            n, uid);
    if (status == MERAK_CUDNN_OK)
        status = call->desc_set(pack, MERAK_CUDNN_PACK_POINTERS,
                                MERAK_CUDNN_TYPE_VOID_PTR, n, at);
    if (status == MERAK_CUDNN_OK)
        status = call->desc_set(pack, MERAK_CUDNN_PACK_WORKSPACE,
                                MERAK_CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == MERAK_CUDNN_OK)
        status = call->desc_finalize(pack);
    return status;
}

static int run_part(const struct merak_cudnn_plan *p,
                    const struct merak_cudnn_memory *memory)
{
    const struct merak_cudnn *c = p->cudnn;
    float scalar[MERAK_CUDNN_UIDS];
    void *pack = NULL;
    int status = c->call.desc_create(MERAK_CUDNN_PACK, &pack);

    if (status != MERAK_CUDNN_OK)
        return status;
    status = fill_pack(p, pack, memory, scalar);
    if (status == MERAK_CUDNN_OK)
        status = c->call.execute(c->handle, p->plan, pack);
    (void)c->call.desc_destroy(pack);
    return status;
}

enum merak_status merak_cudnn_run(const struct merak_cudnn_plan *p,
                                  void *stream,
                                  const struct merak_cudnn_memory *memory,
                                  struct merak_error *err)
{
    const struct merak_cudnn *c = p->cudnn;
    int status = c->call.set_stream(c->handle, stream);
    char text[160];

    for (int64_t b = 0; b < p->shape.B && status == MERAK_CUDNN_OK;
         b += p->samples) {
        struct merak_cudnn_memory part;

        merak_cudnn_memory_from(&p->shape, memory, b, &part);
        status = run_part(p, &part);
    }
    if (status == MERAK_CUDNN_OK)
        return MERAK_OK;
    merak_cudnn_name_shape(&p->shape, text, sizeof(text));
    return merak_cudnn_fail(c, text, status, err);
}
