/* SPDX-License-Identifier: Apache-2.0 */
/* load.c - read the traces of all ranks of a directory
 *
 * The format is described in trace.c.
 */
#include "config.h"

#include "io/trace/trace_impl.h"

#include "base/error.h"
#include "base/log.h"
#include "io/ckpt/durable.h"
#include "partitioner/plan/plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RANKS 100000 /* five digits */

static bool get_int(hid_t file, const char *name, int *value)
{
    uint64_t wide;

    if (!merak_h5_get_u64(file, name, &wide, 1) || wide > INT32_MAX)
        return false;
    *value = (int)wide;
    return true;
}

/* A degree that is only written where it is more than 1. */
static bool get_more(hid_t file, const char *name, int *value)
{
    *value = 1;
    return H5Aexists(file, name) <= 0 || get_int(file, name, value);
}

static bool get_info(hid_t file, struct merak_trace_info *info)
{
    char format[32];
    int version;

    return merak_h5_get_text(file, "format", format, sizeof(format)) &&
           strcmp(format, MERAK_TRACE_FORMAT) == 0 &&
           get_int(file, "version", &version) &&
           version == MERAK_TRACE_VERSION &&
           get_int(file, "rank", &info->rank) &&
           get_int(file, "ranks", &info->ranks) &&
           get_int(file, "stage", &info->stage) &&
           get_int(file, "stages", &info->stages) &&
           get_int(file, "tp", &info->tp) && get_int(file, "dp", &info->dp) &&
           get_int(file, "tp_index", &info->tp_index) &&
           get_int(file, "dp_index", &info->dp_index) &&
           get_more(file, "cp", &info->cp) && get_more(file, "ep", &info->ep) &&
           get_int(file, "microbatches", &info->microbatches) &&
           merak_h5_get_text(file, "schedule", info->schedule,
                             sizeof(info->schedule)) &&
           merak_h5_get_text(file, "transport", info->transport,
                             sizeof(info->transport));
}

/* A whole one-dimensional dataset of elements of `size` bytes; free() it. */
static void *read_all(hid_t set, hid_t type, size_t size, size_t *n_p)
{
    void *data = NULL;

    if (merak_h5_count(set, size, n_p))
        data = calloc(*n_p + 1, size);
    if (data != NULL && *n_p > 0 &&
        H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
        free(data);
        data = NULL;
    }
    return data;
}

/* One block: the pointers, then the text. */
static bool get_names(hid_t file, struct merak_trace_rank *rank)
{
    hid_t set = H5Dopen2(file, MERAK_TRACE_NAMES, H5P_DEFAULT), type = -1;
    char *text = NULL;
    size_t size = 0, n = 0;

    if (set >= 0)
        type = H5Dget_type(set);
    if (type >= 0 && H5Tget_class(type) == H5T_STRING &&
        H5Tis_variable_str(type) == 0) {
        size = H5Tget_size(type);
        text = read_all(set, type, size, &n);
    }
    merak_h5_drop(type);
    merak_h5_drop(set);
    if (text == NULL || n > INT32_MAX) {
        free(text);
        return false;
    }
    rank->names = malloc((n + 1) * (sizeof(char *) + size));
    if (rank->names != NULL) {
        char *copy = (char *)(rank->names + n + 1);

        memcpy(copy, text, n * size);
        for (size_t i = 0; i < n; i++) {
            rank->names[i] = copy + i * size;
            rank->names[i][size - 1] = '\0';
        }
    }
    free(text);
    rank->info.n_instrs = (int)n;
    rank->info.instr_name = (const char *const *)rank->names;
    return rank->names != NULL;
}

static bool get_records(hid_t file, struct merak_trace_rank *rank)
{
    hid_t set = H5Dopen2(file, MERAK_TRACE_RECORDS, H5P_DEFAULT);
    hid_t type = merak_trace_type();

    if (set >= 0 && type >= 0)
        rank->records = read_all(set, type, sizeof(*rank->records), &rank->n);
    merak_h5_drop(type);
    merak_h5_drop(set);
    return rank->records != NULL;
}

/* A list of stages has one item for each. */
static bool get_degrees(hid_t file, struct merak_trace_rank *rank)
{
    struct merak_trace_info *info = &rank->info;
    size_t n = 2 * (size_t)info->stages;
    uint64_t *number;
    bool ok;

    if (H5Aexists(file, MERAK_TRACE_DEGREES_OF) <= 0)
        return true;
    if (info->stages < 1 || info->stages > info->ranks)
        return false;
    number = calloc(n, sizeof(*number));
    rank->degrees = calloc(n / 2, sizeof(*rank->degrees));
    ok = number != NULL && rank->degrees != NULL &&
         merak_h5_get_u64(file, MERAK_TRACE_DEGREES_OF, number, (int)n);
    for (size_t i = 0; i < n && ok; i++) {
        ok = number[i] <= INT32_MAX;
        *(i % 2 == 0 ? &rank->degrees[i / 2].dp : &rank->degrees[i / 2].tp) =
            (int)number[i];
    }
    free(number);
    info->degrees = rank->degrees;
    return ok;
}

/* Is a list of all ranks, and none of its stages empty? */
static bool is_whole(const struct merak_trace_info *info)
{
    for (int s = 0; s < info->stages; s++) {
        if (info->degrees[s].dp < 1 || info->degrees[s].tp < 1)
            return false;
    }
    return merak_stages_ranks(info->degrees, info->stages) == info->ranks;
}

/* Are cp and ep factors of tp?  A list of stages has neither. */
static bool is_divided(const struct merak_trace_info *info)
{
    return info->cp >= 1 && info->ep >= 1 && info->tp % info->cp == 0 &&
           info->tp / info->cp % info->ep == 0 &&
           (info->degrees == NULL || (info->cp == 1 && info->ep == 1));
}

/* Are the coordinates of a rank in tp x pp x dp ranks, and are these all?  Of
 * a list's stage: those that the list has for it. */
static bool is_placed(const struct merak_trace_info *info)
{
    const struct merak_stage_degrees *own = info->degrees;
    uint64_t ranks = (uint64_t)info->tp * (uint64_t)info->stages;

    if (info->tp_index >= info->tp || info->stage >= info->stages ||
        info->dp_index >= info->dp || !is_divided(info))
        return false;
    if (own != NULL)
        return is_whole(info) && own[info->stage].tp == info->tp &&
               own[info->stage].dp == info->dp;
    return ranks <= INT32_MAX &&
           ranks * (uint64_t)info->dp == (uint64_t)info->ranks;
}

/* Are two ranks of one run? */
static bool is_same(const struct merak_trace_info *a,
                    const struct merak_trace_info *b)
{
    if (a->ranks != b->ranks || a->stages != b->stages ||
        a->microbatches != b->microbatches ||
        (a->degrees == NULL) != (b->degrees == NULL))
        return false;
    if (a->degrees == NULL)
        return a->tp == b->tp && a->cp == b->cp && a->ep == b->ep &&
               a->dp == b->dp;
    return memcmp(a->degrees, b->degrees,
                  (size_t)a->stages * sizeof(*a->degrees)) == 0;
}

/* All ranks of a run have the same shape, and each a place of its own: its
 * number says which, so that no two can have one. */
static enum merak_status check_info(const struct merak_trace_info *info,
                                    const struct merak_trace_info *first,
                                    const char *path, struct merak_error *err)
{
    const struct merak_plan near = {.tp = info->tp,
                                    .pp = info->stages,
                                    .dp = info->dp,
                                    .stage = info->degrees};
    char text[MERAK_TRACE_DEGREES], other[MERAK_TRACE_DEGREES];
    struct merak_plan far = near;

    far.order_tp_pp_dp = true;
    if (!is_placed(info) ||
        (merak_plan_rank(&near, info->tp_index, info->dp_index, info->stage) !=
             info->rank &&
         merak_plan_rank(&far, info->tp_index, info->dp_index, info->stage) !=
             info->rank))
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: rank %d of %d cannot be number %d, %d and %d of "
                          "%s",
                          path, info->rank, info->ranks, info->tp_index,
                          info->stage, info->dp_index,
                          merak_trace_degrees(info, text));
    if (!is_same(info, first))
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s is of %s with %d micro-batches, rank 0 of %s "
                          "with %d: of two runs",
                          path, merak_trace_degrees(info, text),
                          info->microbatches, merak_trace_degrees(first, other),
                          first->microbatches);
    return MERAK_OK;
}

/* The limit of nanoseconds since a run's epoch, either way: 31 years.  Sums
 * and differences of a few such numbers do not overflow. */
#define MOST_NS INT64_C(1000000000000000000)

/* A prediction ends after it starts, or both are -1. */
static enum merak_status check_planned(const struct merak_trace_rank *rank,
                                       const char *path,
                                       struct merak_error *err)
{
    for (int i = 0; rank->planned != NULL && i < rank->info.n_instrs; i++) {
        const struct merak_trace_planned *p = &rank->planned[i];

        if (p->start_ns < -1 || p->end_ns < p->start_ns || p->end_ns > MOST_NS)
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s: the prediction of instruction %d makes no "
                              "sense: %lld to %lld ns",
                              path, i, (long long)p->start_ns,
                              (long long)p->end_ns);
    }
    return MERAK_OK;
}

static enum merak_status check_records(const struct merak_trace_rank *rank,
                                       const char *path,
                                       struct merak_error *err)
{
    for (size_t i = 0; i < rank->n; i++) {
        const struct merak_trace_record *r = &rank->records[i];

        if (r->instr < 0 || r->instr >= rank->info.n_instrs ||
            r->end_ns < r->start_ns || r->start_ns < -MOST_NS ||
            r->end_ns > MOST_NS || (i > 0 && r->step < r[-1].step))
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s: record %zu makes no sense: step %d, "
                              "instruction %d of %d, %lld to %lld ns",
                              path, i, r->step, r->instr, rank->info.n_instrs,
                              (long long)r->start_ns, (long long)r->end_ns);
    }
    return MERAK_OK;
}

static enum merak_status load_rank(const char *path, int number,
                                   const struct merak_trace_info *first,
                                   struct merak_trace_rank *rank,
                                   struct merak_error *err)
{
    hid_t file = merak_h5_open(path);
    enum merak_status rc = MERAK_OK;

    if (file < 0)
        return merak_h5_fail(err, "cannot open %s", path);
    if (!get_info(file, &rank->info))
        rc = merak_fail(err, MERAK_ERR_FORMAT,
                        "%s is not a trace this merak reads", path);
    else if (!get_degrees(file, rank) || !get_names(file, rank) ||
             !merak_trace_get_planned(file, rank) ||
             !merak_trace_get_costs(file, rank) ||
             !merak_trace_get_saves(file, rank) || !get_records(file, rank))
        rc = merak_h5_fail(err, "cannot read %s", path);
    else if (rank->info.rank != number || rank->info.ranks <= number)
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "%s is of rank %d of %d, not of rank %d", path,
                        rank->info.rank, rank->info.ranks, number);
    (void)H5Fclose(file);
    if (rc == MERAK_OK)
        rc = check_info(&rank->info, first, path, err);
    if (rc == MERAK_OK)
        rc = check_planned(rank, path, err);
    return rc == MERAK_OK ? check_records(rank, path, err) : rc;
}

static int count_files(const char *dir)
{
    char path[PATH_MAX], name[32];
    int n = 0;

    while (n < MAX_RANKS &&
           access(merak_path(path, dir, merak_trace_file(name, n)), F_OK) == 0)
        n++;
    return n;
}

enum merak_status merak_trace_load(const char *dir,
                                   struct merak_trace_rank **ranks_p, int *n_p,
                                   struct merak_error *err)
{
    struct merak_trace_rank *ranks;
    char path[PATH_MAX], name[32];
    struct merak_h5_quiet quiet;
    enum merak_status rc = MERAK_OK;
    int n;

    if (strlen(dir) >= MERAK_DIR_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "path too long: %.100s...",
                          dir);
    n = count_files(dir);
    if (n == 0)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "no trace in %s: %s is not there", dir,
                          merak_trace_file(name, 0));
    ranks = calloc((size_t)n, sizeof(*ranks));
    if (ranks == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*ranks));
    merak_h5_quiet(&quiet);
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        rc = load_rank(merak_path(path, dir, merak_trace_file(name, i)), i,
                       &ranks[0].info, &ranks[i], err);
        /* Ignore files left by an earlier run with more ranks. */
        if (rc == MERAK_OK && i == 0 && ranks[0].info.ranks < n)
            n = ranks[0].info.ranks;
    }
    merak_h5_restore(&quiet);
    if (rc != MERAK_OK) {
        merak_trace_unload(ranks, n);
        return rc;
    }
    if (ranks[0].info.ranks != n)
        merak_warn("trace", "%s has traces of %d of the run's %d ranks", dir, n,
                   ranks[0].info.ranks);
    *ranks_p = ranks;
    *n_p = n;
    return MERAK_OK;
}
