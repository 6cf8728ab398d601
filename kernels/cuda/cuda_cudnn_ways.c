/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_cudnn_ways.c - cuDNN's ways to compute a shape of attention
 *
 * A way is a cuDNN engine with values of its knobs.  The query only depends on
 * the shape, so equal GPUs with equal libraries give equal answers.
 */
#include "config.h"

#include "kernels/cuda/cuda_cudnn_impl.h"

#define MOST_ANSWERS 16

/* --- reading descriptors ----------------------------------------------------
 */

/* By its notes, is an engine as exact as its operands, and deterministic?  Sums
 * in any order are not always noted. */
static bool is_exact(const struct merak_cudnn *c, const void *engine)
{
    int note[MERAK_CUDNN_NOTES];
    int64_t n = 0;

    if (c->call.desc_get(engine, MERAK_CUDNN_ENGINE_NOTES,
                         MERAK_CUDNN_TYPE_NUMERICAL_NOTE, MERAK_CUDNN_NOTES, &n,
                         note) != MERAK_CUDNN_OK)
        return false;
    for (int64_t i = 0; i < n && i < MERAK_CUDNN_NOTES; i++) {
        if (note[i] == MERAK_CUDNN_NOTE_DOWN_CONVERT ||
            note[i] == MERAK_CUDNN_NOTE_REDUCED_SUMS ||
            note[i] == MERAK_CUDNN_NOTE_NONDETERMINISTIC)
            return false;
    }
    return true;
}

/* Read a config's values of knobs; false: they cannot be read. */
static bool read_knobs(const struct merak_cudnn *c, const void *config,
                       struct merak_cudnn_way *way)
{
    void *desc[MERAK_CUDNN_KNOBS];
    int made = 0;
    int64_t n = 0;
    bool ok = true;

    while (made < MERAK_CUDNN_KNOBS &&
           c->call.desc_create(MERAK_CUDNN_KNOB_CHOICE, &desc[made]) ==
               MERAK_CUDNN_OK)
        made++;
    ok = made == MERAK_CUDNN_KNOBS &&
         c->call.desc_get(config, MERAK_CUDNN_CFG_KNOBS,
                          MERAK_CUDNN_TYPE_DESCRIPTOR, made, &n,
                          desc) == MERAK_CUDNN_OK &&
         n <= made;
    for (int64_t i = 0; i < n && ok; i++) {
        int type = 0; /* a cuDNN enum */

        ok = merak_cudnn_get(c, desc[i], MERAK_CUDNN_KNOB_TYPE,
                             MERAK_CUDNN_TYPE_KNOB_TYPE, &type) &&
             merak_cudnn_get(c, desc[i], MERAK_CUDNN_KNOB_VALUE,
                             MERAK_CUDNN_TYPE_INT64, &way->knob[i].value);
        way->knob[i].type = type;
    }
    way->n_knobs = ok ? n : 0;
    while (made > 0)
        (void)c->call.desc_destroy(desc[--made]);
    return ok;
}

/* Read an answer: its engine and the rest; false: it may not be used. */
static bool read_config(const struct merak_cudnn *c, const void *config,
                        struct merak_cudnn_way *way)
{
    void *engine = NULL;
    bool ok;

    if (c->call.desc_create(MERAK_CUDNN_ENGINE, &engine) != MERAK_CUDNN_OK)
        return false;
    ok = merak_cudnn_get(c, config, MERAK_CUDNN_CFG_ENGINE,
                         MERAK_CUDNN_TYPE_DESCRIPTOR, &engine) &&
         merak_cudnn_get(c, engine, MERAK_CUDNN_ENGINE_INDEX,
                         MERAK_CUDNN_TYPE_INT64, &way->engine) &&
         merak_cudnn_get(c, config, MERAK_CUDNN_CFG_WORKSPACE,
                         MERAK_CUDNN_TYPE_INT64, &way->workspace_bytes) &&
         is_exact(c, engine) && read_knobs(c, config, way);
    (void)c->call.desc_destroy(engine);
    return ok;
}

/* --- ways -------------------------------------------------------------------
 */

static int make_heuristics(const struct merak_cudnn *c, void *graph,
                           void **heuristics_p)
{
    const int mode = MERAK_CUDNN_HEUR_A;
    int status = c->call.desc_create(MERAK_CUDNN_ENGINEHEUR, heuristics_p);

    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_set(*heuristics_p, MERAK_CUDNN_HEUR_GRAPH,
                                  MERAK_CUDNN_TYPE_DESCRIPTOR, 1, &graph);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_set(*heuristics_p, MERAK_CUDNN_HEUR_MODE,
                                  MERAK_CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (status == MERAK_CUDNN_OK && c->properties != NULL)
        status =
            c->call.desc_set(*heuristics_p, MERAK_CUDNN_HEUR_DEVICEPROP,
                             MERAK_CUDNN_TYPE_DESCRIPTOR, 1, &c->properties);
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_finalize(*heuristics_p);
    return status;
}

/* Get the answers, as configs; *n_p descriptors were made, of which *got_p are
 * answers. */
static int ask(const struct merak_cudnn *c, const void *heuristics,
               void *config[MOST_ANSWERS], int *n_p, int64_t *got_p)
{
    int status = MERAK_CUDNN_OK;

    while (*n_p < MOST_ANSWERS && status == MERAK_CUDNN_OK) {
        status = c->call.desc_create(MERAK_CUDNN_ENGINECFG, &config[*n_p]);
        *n_p += status == MERAK_CUDNN_OK;
    }
    if (status == MERAK_CUDNN_OK)
        status = c->call.desc_get(heuristics, MERAK_CUDNN_HEUR_RESULTS,
                                  MERAK_CUDNN_TYPE_DESCRIPTOR, MOST_ANSWERS,
                                  got_p, config);
    return status;
}

static int collect(const struct merak_cudnn *c, const void *heuristics,
                   int64_t most, struct merak_cudnn_way *way, int max, int *n_p)
{
    void *config[MOST_ANSWERS];
    int64_t got = 0;
    int made = 0, n = 0;
    int status = ask(c, heuristics, config, &made, &got);

    for (int64_t i = 0; i < got && i < made && n < max; i++) {
        way[n] = (struct merak_cudnn_way){.version = c->version};
        n += status == MERAK_CUDNN_OK && read_config(c, config[i], &way[n]) &&
             way[n].workspace_bytes <= most;
    }
    while (made > 0)
        (void)c->call.desc_destroy(config[--made]);
    *n_p = n;
    return status;
}

enum merak_status merak_cudnn_ways(struct merak_cudnn *c,
                                   const struct merak_cudnn_shape *shape,
                                   int64_t most, struct merak_cudnn_way *way,
                                   int max, int *n_p, struct merak_error *err)
{
    struct merak_cudnn_graph graph;
    const char *what = "what is asked";
    void *heuristics = NULL;
    enum merak_status rc = MERAK_OK;
    int status = merak_cudnn_graph_init(&graph, &c->call, c->handle, shape);

    *n_p = 0;
    if (status != MERAK_CUDNN_OK)
        what = graph.what;
    else
        status = make_heuristics(c, graph.graph, &heuristics);
    if (status == MERAK_CUDNN_OK)
        status = collect(c, heuristics, most, way, max, n_p);
    if (status != MERAK_CUDNN_OK)
        rc = merak_cudnn_fail(c, what, status, err);
    for (int i = 0; i < *n_p; i++)
        way[i].samples = shape->B;
    if (heuristics != NULL)
        (void)c->call.desc_destroy(heuristics);
    merak_cudnn_graph_fini(&graph);
    return rc;
}
