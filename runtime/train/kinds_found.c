/* SPDX-License-Identifier: Apache-2.0 */
/* kinds_found.c - which nodes of a run are of which kind
 *
 * A plan for nodes of several kinds has some stages on the nodes of each: these
 * have to be found before the first step, in whatever order the job has them.
 * A node is known by its accelerators, or by what --device says it emulates or
 * was calibrated as.  Else ranks multiply for a moment, and the fastest nodes
 * are those of the fastest kind: that names them, but cannot be wrong about
 * them, so a rate that the plan did not expect is only warned of.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* What a rank knows of its node. */
struct seen {
    char name[64]; /* "": nothing */
    double rate;   /* how fast it multiplies; 0: not measured */
};

/* A rate this many times the expected one, or less than its inverse, is worth a
 * warning: kinds differ by more, and clocks of equal nodes by less. */
#define UNEXPECTED 1.3

/* --- what a node is --------------------------------------------------------
 */

static double own_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Products a second of this thread, by its own clock, so that who shares its
 * cores does not count; times the threads.  Takes some milliseconds. */
static double measure(int threads)
{
    enum { N = 1024, TIMES = 4000, ROUNDS = 5 };
    volatile float by = 0.999f;
    float x[N], most = 0;
    double best = 0;

    for (int i = 0; i < N; i++)
        x[i] = 1;
    for (int r = 0; r < ROUNDS; r++) {
        double start = own_seconds(), took;

        for (int k = 0; k < TIMES; k++) {
            float factor = by;

            for (int i = 0; i < N; i++)
                x[i] = x[i] * factor + 1e-3f;
        }
        took = own_seconds() - start;
        best = took > 0 ? fmax(best, (double)N * TIMES / took) : best;
    }
    for (int i = 0; i < N; i++)
        most = fmaxf(most, x[i]);
    return most > 0 ? best * threads : 0;
}

static struct seen look(const struct merak_trainer *t)
{
    struct seen seen = {.rate = 0};

    if (t->opt.own_device != NULL || merak_backend_is_emulated(t->opt.backend))
        snprintf(seen.name, sizeof(seen.name), "%s", t->device.name);
    else if (t->compute.accel != NULL && t->compute.card.name[0] != '\0')
        snprintf(seen.name, sizeof(seen.name), "%s", t->compute.card.name);
    else if (t->compute.accel == NULL)
        seen.rate = measure(t->threads);
    return seen;
}

/* A device's name, or that of the same hardware. */
static bool is_of(const char *seen, const char *device)
{
    const char *a = merak_device_of_hardware(seen);
    const char *b = merak_device_of_hardware(device);

    return strcasecmp(seen, device) == 0 ||
           (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* --- which kind that is ----------------------------------------------------
 */

struct finding {
    const struct merak_boot *boot;
    const struct merak_plan_file *plan;
    const struct seen *seen; /* [boot->n_nodes] */
    int *kind;               /* [boot->n_nodes]; -1: not known yet */
    int left[MERAK_PLAN_KINDS];
};

/* "1 node of fast and 2 of slow" */
static const char *kinds_text(const struct merak_plan_file *plan,
                              char text[160])
{
    size_t n = 0;

    for (int k = 0; k < plan->n_kinds && n < 120; k++)
        n += (size_t)snprintf(text + n, 160 - n, "%s%d%s of %s",
                              k == 0                  ? ""
                              : k + 1 < plan->n_kinds ? ", "
                                                      : " and ",
                              plan->kind[k].nodes,
                              k > 0                      ? ""
                              : plan->kind[0].nodes == 1 ? " node"
                                                         : " nodes",
                              plan->kind[k].device);
    return text;
}

static enum merak_status find_by_name(struct finding *f, int node,
                                      struct merak_error *err)
{
    const char *name = f->seen[node].name;
    char text[160];

    for (int k = 0; k < f->plan->n_kinds; k++) {
        if (!is_of(name, f->plan->kind[k].device))
            continue;
        f->kind[node] = k;
        if (f->left[k]-- > 0)
            return MERAK_OK;
    }
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "node %s is %s%s: the plan is for %s; plan for these "
                      "nodes with `merak plan --nodes`",
                      f->boot->hosts[node], name,
                      f->kind[node] >= 0 ? ", one too many" : "",
                      kinds_text(f->plan, text));
}

/* The fastest kind that nodes are still missing of; -1: none. */
static int fastest_left(const struct finding *f)
{
    int best = -1;

    for (int k = 0; k < f->plan->n_kinds; k++) {
        if (f->left[k] > 0 && (best < 0 || f->plan->kind[k].flops_per_s >
                                               f->plan->kind[best].flops_per_s))
            best = k;
    }
    return best;
}

static void find_by_rate(struct finding *f)
{
    for (int i = 0; i < f->boot->n_nodes; i++) {
        int fastest = -1, kind = fastest_left(f);

        for (int node = 0; node < f->boot->n_nodes; node++) {
            if (f->kind[node] < 0 &&
                (fastest < 0 || f->seen[node].rate > f->seen[fastest].rate))
                fastest = node;
        }
        if (fastest < 0 || kind < 0)
            return;
        f->kind[fastest] = kind;
        f->left[kind]--;
    }
}

/* By how much a node multiplies faster than the plan has it for its kind. */
static double over_plan(const struct finding *f, int node)
{
    double planned = f->plan->kind[f->kind[node]].flops_per_s;

    return planned > 0 && f->seen[node].rate > 0 ? f->seen[node].rate / planned
                                                 : 0;
}

/* The same of the mean node of other kinds than this one's; 0: not known. */
static double others_over_plan(const struct finding *f, int node)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < f->boot->n_nodes; i++) {
        if (f->kind[i] == f->kind[node] || !(over_plan(f, i) > 0))
            continue;
        sum += log(over_plan(f, i));
        n++;
    }
    return n > 0 ? exp(sum / n) : 0;
}

static void warn_of_rates(const struct finding *f)
{
    for (int node = 0; node < f->boot->n_nodes; node++) {
        double others = others_over_plan(f, node);
        double by = others > 0 ? over_plan(f, node) / others : 0;

        if (by > 0 && (by > UNEXPECTED || by < 1 / UNEXPECTED))
            merak_warn("train",
                       "node %s is taken for %s, and multiplies at %.2f of the "
                       "rate that the plan expects of it beside the others: "
                       "calibrate each kind of nodes and plan again",
                       f->boot->hosts[node],
                       f->plan->kind[f->kind[node]].device, by);
    }
}

/* --- together --------------------------------------------------------------
 */

static void log_kinds(const struct finding *f)
{
    for (int node = 0; node < f->boot->n_nodes; node++)
        merak_info("train", "node %s is of kind %s", f->boot->hosts[node],
                   f->plan->kind[f->kind[node]].device);
}

/* The nodes, those of the plan's first kind first. */
static void put_in_order(const struct finding *f, int *nodes)
{
    int at = 0;

    for (int k = 0; k < f->plan->n_kinds; k++) {
        for (int node = 0; node < f->boot->n_nodes; node++) {
            if (f->kind[node] == k)
                nodes[at++] = node;
        }
    }
}

/* A launch that placed its tasks has given them places on the nodes as they
 * come. */
static enum merak_status check_launch(const struct finding *f,
                                      const struct merak_ranks *r,
                                      struct merak_error *err)
{
    bool placed = r->launched && !merak_degrees_auto(&r->launch.input);

    for (int i = 0; i < f->boot->n_nodes && placed; i++) {
        if (r->nodes[i] != i)
            return merak_fail(
                err, MERAK_ERR_CONFIG,
                "node %s is of kind %s, and srun placed tasks there that the "
                "plan has on %s: leave out the placement's options, or list "
                "the nodes in the plan's order",
                f->boot->hosts[i], f->plan->kind[f->kind[i]].device,
                f->plan->kind[f->kind[r->nodes[i]]].device);
    }
    return MERAK_OK;
}

static int tasks_on(const struct merak_boot *boot, int node)
{
    int n = 0;

    for (int task = 0; task < boot->size; task++)
        n += boot->node_of[task] == node;
    return n;
}

static enum merak_status find(struct finding *f, struct merak_ranks *r,
                              struct merak_error *err)
{
    char text[160];
    int all = 0;

    for (int k = 0; k < f->plan->n_kinds; k++) {
        f->left[k] = f->plan->kind[k].nodes;
        all += f->left[k];
    }
    if (all != f->boot->n_nodes)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "the plan is for %s, and this run has %d node%s",
                          kinds_text(f->plan, text), f->boot->n_nodes,
                          merak_plural(f->boot->n_nodes));
    for (int node = 0; node < f->boot->n_nodes; node++) {
        if (tasks_on(f->boot, node) * f->boot->n_nodes != f->boot->size)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "node %s has %d of %d tasks: plans for nodes of "
                              "several kinds have as many on each",
                              f->boot->hosts[node], tasks_on(f->boot, node),
                              f->boot->size);
        f->kind[node] = -1;
        if (f->seen[node].name[0] != '\0' &&
            find_by_name(f, node, err) != MERAK_OK)
            return err->status;
    }
    find_by_rate(f);
    put_in_order(f, r->nodes);
    if (f->boot->rank == 0) {
        log_kinds(f);
        warn_of_rates(f);
    }
    return check_launch(f, r, err);
}

enum merak_status merak_node_kinds_find(struct merak_trainer *t,
                                        struct merak_error *err)
{
    const struct merak_boot *boot = t->boot;
    struct finding f = {.boot = boot, .plan = t->chosen};
    struct seen *all, *seen, mine;
    enum merak_status rc = MERAK_OK;

    if (t->chosen == NULL || t->chosen->n_kinds < 2)
        return MERAK_OK;
    mine = look(t);
    all = calloc((size_t)boot->size, sizeof(*all));
    seen = calloc((size_t)boot->n_nodes, sizeof(*seen));
    f.kind = calloc((size_t)boot->n_nodes, sizeof(*f.kind));
    t->ranks.nodes = calloc((size_t)boot->n_nodes, sizeof(*t->ranks.nodes));
    if (all == NULL || seen == NULL || f.kind == NULL || t->ranks.nodes == NULL)
        rc = merak_fail_nomem(err, (size_t)boot->size * sizeof(*all));
    rc = merak_boot_allgather(t->boot, rc, &mine, sizeof(mine), all, err);
    for (int r = boot->size - 1; r >= 0 && rc == MERAK_OK; r--)
        seen[boot->node_of[r]] = all[r];
    f.seen = seen;
    if (rc == MERAK_OK)
        rc = find(&f, &t->ranks, err);
    free(f.kind);
    free(seen);
    free(all);
    return rc;
}
