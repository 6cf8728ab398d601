/* SPDX-License-Identifier: Apache-2.0 */
/* saves.c - the saved checkpoints in a rank's trace
 *
 * /saves in trace-RANK.h5 (trace.c): [saves] of a compound of 48 bytes, absent
 * in traces of earlier versions:
 *   step          i64
 *   bytes         u64  of this rank's tensors
 *   start_ns, resumed_ns, written_ns, committed_ns
 *                 i64  struct merak_trace_save says what they mean
 */
#include "config.h"

#include "io/trace/trace_impl.h"

#include <stddef.h>
#include <stdlib.h>

#define CHUNK_SAVES 64

#define INSERT(member, h5type)                                           \
    (H5Tinsert(type, #member, offsetof(struct merak_trace_save, member), \
               h5type) >= 0)

static hid_t save_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct merak_trace_save));

    if (type >= 0 && INSERT(step, H5T_STD_I64LE) &&
        INSERT(bytes, H5T_STD_U64LE) && INSERT(start_ns, H5T_STD_I64LE) &&
        INSERT(resumed_ns, H5T_STD_I64LE) &&
        INSERT(written_ns, H5T_STD_I64LE) &&
        INSERT(committed_ns, H5T_STD_I64LE))
        return type;
    merak_h5_drop(type);
    return -1;
}

hid_t merak_trace_make_saves(hid_t file)
{
    const hsize_t none = 0, chunk = CHUNK_SAVES, most = H5S_UNLIMITED;
    hid_t space = H5Screate_simple(1, &none, &most), type = save_type();
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), set = -1;

    if (space >= 0 && dcpl >= 0 && type >= 0 &&
        H5Pset_chunk(dcpl, 1, &chunk) >= 0 &&
        H5Pset_obj_track_times(dcpl, false) >= 0)
        set = H5Dcreate2(file, MERAK_TRACE_SAVES, type, space, H5P_DEFAULT,
                         dcpl, H5P_DEFAULT);
    merak_h5_drop(dcpl);
    merak_h5_drop(type);
    merak_h5_drop(space);
    return set;
}

bool merak_trace_put_save(hid_t set, hsize_t n,
                          const struct merak_trace_save *save)
{
    const hsize_t one = 1, total = n + 1;
    hid_t from = H5Screate_simple(1, &one, NULL), type = save_type(), to = -1;
    bool ok = from >= 0 && type >= 0 && H5Dset_extent(set, &total) >= 0;

    if (ok)
        to = H5Dget_space(set);
    ok = to >= 0 &&
         H5Sselect_hyperslab(to, H5S_SELECT_SET, &n, NULL, &one, NULL) >= 0 &&
         H5Dwrite(set, type, from, to, H5P_DEFAULT, save) >= 0;
    merak_h5_drop(to);
    merak_h5_drop(type);
    merak_h5_drop(from);
    return ok;
}

bool merak_trace_get_saves(hid_t file, struct merak_trace_rank *rank)
{
    hid_t set, type = save_type();
    size_t n = 0;
    bool ok;

    if (H5Lexists(file, MERAK_TRACE_SAVES, H5P_DEFAULT) <= 0) {
        merak_h5_drop(type);
        return true;
    }
    set = H5Dopen2(file, MERAK_TRACE_SAVES, H5P_DEFAULT);
    if (set >= 0 && type >= 0 && merak_h5_count(set, sizeof(*rank->saves), &n))
        rank->saves = calloc(n + 1, sizeof(*rank->saves));
    ok = rank->saves != NULL &&
         (n == 0 ||
          H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rank->saves) >= 0);
    rank->n_saves = ok ? n : 0;
    merak_h5_drop(type);
    merak_h5_drop(set);
    return ok;
}
