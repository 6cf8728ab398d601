/* SPDX-License-Identifier: Apache-2.0 */
/* costs.c - the work of a run's instructions, in a rank's trace
 *
 * In trace-RANK.h5 (trace.c), all absent in traces of older runs:
 *
 *   root attributes: backend (of kernels, "cpu"), dtype ("fp32", "bf16"),
 *   threads (of a rank), ranks_per_node (logical ranks fill nodes in order;
 *   absent: not known)
 *   /costs  [instructions] of a compound of 40 bytes, the cost model's
 *           input (partitioner/program/program.h); an instruction's op and
 *           peers are in /planned:
 *     flops   f64
 *     bytes   f64  read and written, or sent
 *     width   f64  of a kernel (partitioner/device/rates.h)
 *     reuse   f64  bytes, of a kernel (likewise); absent in older runs
 *     inside  i32  of a collective's members or a transfer's ends, this rank
 *                  counted, how many the plan has on this rank's node; 0:
 *                  moves nothing
 *     tp      i32  of a kernel, tensor ranks that share the model
 *   /plan   [1] of text, only in rank 0's file: the plan in the format of
 *           io/plan_file.c
 */
#include "config.h"

#include "io/trace/trace_impl.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define COSTS "costs"
#define PLAN "plan"
#define INSERT(member, h5type)                                           \
    (H5Tinsert(type, #member, offsetof(struct merak_trace_cost, member), \
               h5type) >= 0)

static hid_t cost_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct merak_trace_cost));

    if (type >= 0 && INSERT(flops, H5T_IEEE_F64LE) &&
        INSERT(bytes, H5T_IEEE_F64LE) && INSERT(width, H5T_IEEE_F64LE) &&
        INSERT(reuse, H5T_IEEE_F64LE) && INSERT(inside, H5T_STD_I32LE) &&
        INSERT(tp, H5T_STD_I32LE))
        return type;
    merak_h5_drop(type);
    return -1;
}

static bool put_costs(hid_t file, const struct merak_trace_info *info)
{
    hsize_t n = (hsize_t)info->n_instrs;
    hid_t type, space, set = -1;
    bool ok;

    if (info->cost == NULL || n == 0)
        return true;
    type = cost_type();
    space = H5Screate_simple(1, &n, NULL);
    if (type >= 0 && space >= 0)
        set = merak_h5_dataset(file, COSTS, type, space);
    ok = set >= 0 &&
         H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, info->cost) >= 0;
    merak_h5_drop(set);
    merak_h5_drop(space);
    merak_h5_drop(type);
    return ok;
}

static bool put_plan(hid_t file, const char *text)
{
    const hsize_t one = 1;
    hid_t type, space, set = -1;
    bool ok;

    if (text == NULL)
        return true;
    type = H5Tcopy(H5T_C_S1);
    space = H5Screate_simple(1, &one, NULL);
    ok = type >= 0 && space >= 0 && H5Tset_size(type, strlen(text) + 1) >= 0 &&
         H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
    if (ok)
        set = merak_h5_dataset(file, PLAN, type, space);
    ok = set >= 0 &&
         H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0;
    merak_h5_drop(set);
    merak_h5_drop(space);
    merak_h5_drop(type);
    return ok;
}

bool merak_trace_put_costs(hid_t file, const struct merak_trace_info *info)
{
    if (info->backend[0] != '\0' &&
        !(merak_h5_put_text(file, "backend", info->backend) &&
          merak_h5_put_text(file, "dtype", info->dtype) &&
          merak_h5_put_number(file, "threads", (uint64_t)info->threads)))
        return false;
    if (info->ranks_per_node > 0 &&
        !merak_h5_put_number(file, "ranks_per_node",
                             (uint64_t)info->ranks_per_node))
        return false;
    return put_costs(file, info) && put_plan(file, info->plan);
}

/* --- reading -------------------------------------------------------------- */

static bool get_run(hid_t file, struct merak_trace_info *info)
{
    uint64_t threads, per_node = 0;

    if (H5Aexists(file, "backend") <= 0)
        return true;
    if (!merak_h5_get_text(file, "backend", info->backend,
                           sizeof(info->backend)) ||
        !merak_h5_get_text(file, "dtype", info->dtype, sizeof(info->dtype)) ||
        !merak_h5_get_u64(file, "threads", &threads, 1) || threads > INT32_MAX)
        return false;
    if (H5Aexists(file, "ranks_per_node") > 0 &&
        (!merak_h5_get_u64(file, "ranks_per_node", &per_node, 1) ||
         per_node > INT32_MAX))
        return false;
    info->threads = (int)threads;
    info->ranks_per_node = (int)per_node;
    return true;
}

static bool has_elements(hid_t set, hssize_t n)
{
    hid_t space = H5Dget_space(set);
    bool ok = space >= 0 && H5Sget_simple_extent_npoints(space) == n;

    merak_h5_drop(space);
    return ok;
}

static bool get_costs(hid_t file, struct merak_trace_rank *rank)
{
    size_t n = (size_t)rank->info.n_instrs;
    hid_t type, set;
    bool ok;

    if (n == 0 || H5Lexists(file, COSTS, H5P_DEFAULT) <= 0)
        return true;
    set = H5Dopen2(file, COSTS, H5P_DEFAULT);
    type = cost_type();
    ok = set >= 0 && type >= 0 && has_elements(set, (hssize_t)n);
    if (ok)
        rank->cost = calloc(n, sizeof(*rank->cost));
    ok = ok && rank->cost != NULL &&
         H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rank->cost) >= 0;
    merak_h5_drop(type);
    merak_h5_drop(set);
    rank->info.cost = rank->cost;
    return ok;
}

static bool get_plan(hid_t file, struct merak_trace_rank *rank)
{
    hid_t set, type = -1;
    size_t size = 0, n;
    bool ok;

    if (H5Lexists(file, PLAN, H5P_DEFAULT) <= 0)
        return true;
    set = H5Dopen2(file, PLAN, H5P_DEFAULT);
    if (set >= 0)
        type = H5Dget_type(set);
    ok = type >= 0 && H5Tget_class(type) == H5T_STRING &&
         H5Tis_variable_str(type) == 0 && has_elements(set, 1);
    if (ok) {
        size = H5Tget_size(type);
        ok = merak_h5_count(set, size, &n);
    }
    if (ok) {
        rank->plan = calloc(size + 1, 1);
    }
    ok = ok && rank->plan != NULL &&
         H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rank->plan) >= 0;
    merak_h5_drop(type);
    merak_h5_drop(set);
    rank->info.plan = rank->plan;
    return ok;
}

bool merak_trace_get_costs(hid_t file, struct merak_trace_rank *rank)
{
    return get_run(file, &rank->info) && get_costs(file, rank) &&
           get_plan(file, rank);
}
