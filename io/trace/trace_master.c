/* SPDX-License-Identifier: Apache-2.0 */
/* trace_master.c - one file that contains the traces of all ranks
 *
 * The format is described in trace.c.
 */
#include "config.h"

#include "io/trace/trace_impl.h"

#include "base/error.h"
#include "base/log.h"
#include "io/ckpt/durable.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Records in a rank's file, or -1 if it cannot be read. */
static int64_t count_records(const char *path)
{
    hid_t file = merak_h5_open(path), set = -1, space = -1;
    int64_t n = -1;

    if (file < 0)
        return -1;
    set = H5Dopen2(file, MERAK_TRACE_RECORDS, H5P_DEFAULT);
    if (set >= 0)
        space = H5Dget_space(set);
    if (space >= 0)
        n = H5Sget_simple_extent_npoints(space);
    merak_h5_drop(space);
    merak_h5_drop(set);
    (void)H5Fclose(file);
    return n;
}

/* Set first[], with first[r + 1] - first[r] records of rank r; 0 if its file
 * is missing. */
static void count_all(const char *dir, int ranks, uint64_t *first)
{
    char path[PATH_MAX], name[32];

    first[0] = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t n =
            count_records(merak_path(path, dir, merak_trace_file(name, r)));

        if (n < 0)
            merak_warn("trace", "%s cannot be read: left out of %s/%s", path,
                       dir, MERAK_TRACE_MASTER);
        first[r + 1] = first[r] + (uint64_t)(n < 0 ? 0 : n);
    }
}

static bool map_ranks(hid_t dcpl, hid_t space, int ranks, const uint64_t *first)
{
    char name[32];
    bool ok = true;

    for (int r = 0; r < ranks && ok; r++) {
        hsize_t at = first[r], n = first[r + 1] - first[r];
        hid_t source;

        if (n == 0)
            continue;
        source = H5Screate_simple(1, &n, NULL);
        ok = source >= 0 &&
             H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &n, NULL) >=
                 0 &&
             H5Pset_virtual(dcpl, space, merak_trace_file(name, r),
                            "/" MERAK_TRACE_RECORDS, source) >= 0;
        merak_h5_drop(source);
    }
    return ok;
}

static bool put_records(hid_t file, int ranks, const uint64_t *first)
{
    hsize_t total = first[ranks];
    hid_t type = merak_trace_type(), space = H5Screate_simple(1, &total, NULL);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), set = -1;
    bool ok = type >= 0 && space >= 0 && dcpl >= 0 &&
              H5Pset_obj_track_times(dcpl, false) >= 0 &&
              map_ranks(dcpl, space, ranks, first);

    if (ok)
        set = H5Dcreate2(file, MERAK_TRACE_RECORDS, type, space, H5P_DEFAULT,
                         dcpl, H5P_DEFAULT);
    merak_h5_drop(set);
    merak_h5_drop(dcpl);
    merak_h5_drop(space);
    merak_h5_drop(type);
    return ok && set >= 0;
}

static bool put_first(hid_t file, int ranks, const uint64_t *first)
{
    hsize_t n = (hsize_t)ranks + 1;
    hid_t space = H5Screate_simple(1, &n, NULL), set = -1;
    bool ok;

    /* It is small, so HDF5 writes it, into the image. */
    if (space >= 0)
        set = merak_h5_dataset(file, "first", H5T_STD_U64LE, space);
    ok = set >= 0 && H5Dwrite(set, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL,
                              H5P_DEFAULT, first) >= 0;
    merak_h5_drop(set);
    merak_h5_drop(space);
    return ok;
}

static bool put_links(hid_t file, int ranks)
{
    hid_t lcpl = H5Pcreate(H5P_LINK_CREATE);
    bool ok = lcpl >= 0 && H5Pset_create_intermediate_group(lcpl, 1) >= 0;
    char name[32], link[32];

    for (int r = 0; r < ranks && ok; r++) {
        snprintf(link, sizeof(link), "rank/%05d", r);
        ok = H5Lcreate_external(merak_trace_file(name, r), "/", file, link,
                                lcpl, H5P_DEFAULT) >= 0;
    }
    merak_h5_drop(lcpl);
    return ok;
}

struct contents {
    int ranks;
    const uint64_t *first;
};

static bool make_contents(hid_t file, void *arg)
{
    const struct contents *contents = arg;
    int ranks = contents->ranks;

    return merak_h5_put_text(file, "format", MERAK_TRACE_FORMAT) &&
           merak_h5_put_number(file, "version", MERAK_TRACE_VERSION) &&
           merak_h5_put_number(file, "ranks", (uint64_t)ranks) &&
           put_records(file, ranks, contents->first) &&
           put_first(file, ranks, contents->first) && put_links(file, ranks);
}

enum merak_status merak_trace_write_master(const char *dir, int ranks,
                                           struct merak_error *err)
{
    uint64_t *first = calloc((size_t)ranks + 1, sizeof(*first));
    struct contents contents = {ranks, first};
    char path[PATH_MAX];
    enum merak_status rc;

    if (first == NULL)
        return merak_fail_nomem(err, ((size_t)ranks + 1) * sizeof(*first));
    count_all(dir, ranks, first);
    (void)unlink(merak_path(path, dir, MERAK_TRACE_MASTER));
    rc = merak_h5_write(path, make_contents, &contents, err);
    free(first);
    return rc;
}
