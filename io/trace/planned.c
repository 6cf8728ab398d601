/* SPDX-License-Identifier: Apache-2.0 */
/* planned.c - the planned instructions in a rank's trace
 *
 * /planned in trace-RANK.h5 (trace.c): [instructions] of a compound of 72
 * bytes, absent in traces of runs without a plan:
 *   op            text of 32 bytes, ends in a zero
 *   tag           u64  \
 *   first, second i32   > struct merak_trace_planned says what they mean
 *   start_ns, end_ns i64  predicted, since the step's start; -1: not
 *   again         u8
 */
#include "config.h"

#include "io/trace/trace_impl.h"

#include <stddef.h>
#include <stdlib.h>

#define INSERT(member, h5type)                                              \
    (H5Tinsert(type, #member, offsetof(struct merak_trace_planned, member), \
               h5type) >= 0)

static hid_t planned_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct merak_trace_planned));
    hid_t text = H5Tcopy(H5T_C_S1);
    bool ok =
        type >= 0 && text >= 0 &&
        H5Tset_size(text, sizeof(((struct merak_trace_planned *)0)->op)) >= 0 &&
        INSERT(op, text) && INSERT(tag, H5T_STD_U64LE) &&
        INSERT(first, H5T_STD_I32LE) && INSERT(second, H5T_STD_I32LE) &&
        INSERT(start_ns, H5T_STD_I64LE) && INSERT(end_ns, H5T_STD_I64LE) &&
        INSERT(again, H5T_STD_U8LE);

    merak_h5_drop(text);
    if (ok)
        return type;
    merak_h5_drop(type);
    return -1;
}

bool merak_trace_put_planned(hid_t file, const struct merak_trace_info *info)
{
    hsize_t n = (hsize_t)info->n_instrs;
    hid_t type, space, set = -1;
    bool ok;

    if (info->planned == NULL || n == 0)
        return true;
    type = planned_type();
    space = H5Screate_simple(1, &n, NULL);
    if (type >= 0 && space >= 0)
        set = merak_h5_dataset(file, MERAK_TRACE_PLANNED, type, space);
    ok = set >= 0 &&
         H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, info->planned) >= 0;
    merak_h5_drop(set);
    merak_h5_drop(space);
    merak_h5_drop(type);
    return ok;
}

/* Does it have one element for each instruction? */
static bool fits(hid_t set, int n_instrs)
{
    hid_t space = H5Dget_space(set);
    bool ok =
        space >= 0 && H5Sget_simple_extent_npoints(space) == (hssize_t)n_instrs;

    merak_h5_drop(space);
    return ok;
}

bool merak_trace_get_planned(hid_t file, struct merak_trace_rank *rank)
{
    size_t n = (size_t)rank->info.n_instrs;
    hid_t type, set;
    bool ok;

    if (n == 0 || H5Lexists(file, MERAK_TRACE_PLANNED, H5P_DEFAULT) <= 0)
        return true;
    set = H5Dopen2(file, MERAK_TRACE_PLANNED, H5P_DEFAULT);
    type = planned_type();
    ok = set >= 0 && type >= 0 && fits(set, rank->info.n_instrs);
    if (ok)
        rank->planned = calloc(n, sizeof(*rank->planned));
    ok = ok && rank->planned != NULL &&
         H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rank->planned) >= 0;
    merak_h5_drop(type);
    merak_h5_drop(set);
    for (size_t i = 0; ok && i < n; i++)
        rank->planned[i].op[sizeof(rank->planned[i].op) - 1] = '\0';
    rank->info.planned = rank->planned;
    return ok;
}
