/* SPDX-License-Identifier: Apache-2.0 */
/* h5.c - the little that checkpoints and traces share of HDF5
 *
 * Only explicitly numbered functions are called (H5Dcreate2, never H5Dcreate):
 * what the bare names mean depends on how the library was built.
 */
#include "config.h"

#include "io/h5.h"

#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Raw data of this size and more starts on a page. */
#define ALIGN_FROM ((hsize_t)64 << 10)
#define ALIGN_TO ((hsize_t)4096)

void merak_h5_quiet(struct merak_h5_quiet *saved)
{
    saved->fn = NULL;
    saved->arg = NULL;
    (void)H5Eget_auto2(H5E_DEFAULT, &saved->fn, &saved->arg);
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void merak_h5_restore(const struct merak_h5_quiet *saved)
{
    (void)H5Eset_auto2(H5E_DEFAULT, saved->fn, saved->arg);
}

struct innermost {
    bool found;
    int code; /* errno in the message, or 0 */
    char text[160];
};

/* The first entry of an upward walk is the innermost: where it happened.  The
 * file driver spells errno out in its text; the rest of that text (buffer
 * addresses, offsets) helps nobody. */
static herr_t take_innermost(unsigned n, const H5E_error2_t *entry, void *arg)
{
    struct innermost *in = arg;
    const char *at;

    if (n != 0 || entry->desc == NULL)
        return 0;
    in->found = true;
    at = strstr(entry->desc, "errno = ");
    if (at != NULL)
        in->code = atoi(at + strlen("errno = "));
    if (in->code != 0)
        snprintf(in->text, sizeof(in->text), "%.*s: %s",
                 (int)strcspn(entry->desc, ":"), entry->desc,
                 strerror(in->code));
    else
        snprintf(in->text, sizeof(in->text), "%s", entry->desc);
    return 0;
}

enum merak_status merak_h5_fail(struct merak_error *err, const char *fmt, ...)
{
    struct innermost in = {false, 0, "no message from HDF5"};
    enum merak_status status = MERAK_ERR_IO;
    char what[sizeof(err->text)];
    va_list ap;

    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &in);
    if (in.code == ENOSPC || in.code == EDQUOT)
        status = MERAK_ERR_NOSPACE;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return merak_fail(err, status, "%s: HDF5: %s", what, in.text);
}

void merak_h5_drop(hid_t object)
{
    hid_t stack;

    if (object < 0)
        return;
    stack = H5Eget_current_stack();
    (void)H5Idec_ref(object);
    (void)H5Eset_current_stack(stack);
}

static hid_t file_access(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

    if (fapl < 0)
        return fapl;
    /* V18 at least: compact groups.  V110 at most: virtual datasets, and
     * still what HDF5 1.10 can read. */
    if (H5Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_V110) < 0 ||
        H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG) < 0 ||
        H5Pset_alignment(fapl, ALIGN_FROM, ALIGN_TO) < 0)
        goto fail;
#if H5_VERSION_GE(1, 10, 7)
    /* Our files have one writer and no reader until they are complete, and
     * locks fail on many parallel file systems. */
    if (H5Pset_file_locking(fapl, false, true) < 0)
        goto fail;
#endif
    return fapl;
fail:
    merak_h5_drop(fapl);
    return -1;
}

hid_t merak_h5_create(const char *path)
{
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = file_access(), file = -1;

    /* Without times the same data gives the same bytes. */
    if (fcpl >= 0 && fapl >= 0 && H5Pset_obj_track_times(fcpl, false) >= 0)
        file = H5Fcreate(path, H5F_ACC_EXCL, fcpl, fapl);
    merak_h5_drop(fcpl);
    merak_h5_drop(fapl);
    return file;
}

hid_t merak_h5_open(const char *path)
{
    hid_t fapl = file_access(), file;

    if (fapl < 0)
        return fapl;
    file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
    merak_h5_drop(fapl);
    return file;
}

/* On a full file system HDF5 cannot write what it still caches, so it can
 * neither close the file nor forget it.  The file is lost anyway: give its
 * space back first. */
void merak_h5_discard(hid_t file)
{
    void *fd = NULL;

    if (H5Fget_vfd_handle(file, H5P_DEFAULT, &fd) >= 0)
        (void)!ftruncate(*(int *)fd, 0);
    (void)H5Fclose(file);
}

hid_t merak_h5_dataset(hid_t file, const char *name, hid_t type, hid_t space)
{
    hid_t lcpl = H5Pcreate(H5P_LINK_CREATE),
          dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t set = -1;

    if (lcpl >= 0 && dcpl >= 0 &&
        H5Pset_create_intermediate_group(lcpl, 1) >= 0 &&
        H5Pset_obj_track_times(dcpl, false) >= 0 &&
        H5Pset_layout(dcpl, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY) >= 0)
        set = H5Dcreate2(file, name, type, space, lcpl, dcpl, H5P_DEFAULT);
    merak_h5_drop(lcpl);
    merak_h5_drop(dcpl);
    return set;
}

bool merak_h5_dataset_fits(hid_t set, int ndim, const size_t *dim)
{
    hid_t space = H5Dget_space(set), type = H5Dget_type(set);
    hsize_t has[H5S_MAX_RANK];
    bool ok = space >= 0 && type >= 0 && H5Tequal(type, H5T_IEEE_F32LE) > 0 &&
              H5Sget_simple_extent_ndims(space) == ndim &&
              H5Sget_simple_extent_dims(space, has, NULL) == ndim;

    for (int d = 0; ok && d < ndim; d++)
        ok = has[d] == dim[d];
    merak_h5_drop(type);
    merak_h5_drop(space);
    return ok;
}

static bool put(hid_t object, const char *name, hid_t type, hid_t space,
                const void *value)
{
    hid_t at = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = at >= 0 && H5Awrite(at, type, value) >= 0;

    merak_h5_drop(at);
    return ok;
}

/* An HDF5 string type cannot have size 0: an empty text is one null byte. */
bool merak_h5_put_text(hid_t object, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    bool ok = type >= 0 && space >= 0 &&
              H5Tset_size(type, strlen(text) + 1) >= 0 &&
              H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
              put(object, name, type, space, text);

    merak_h5_drop(space);
    merak_h5_drop(type);
    return ok;
}

bool merak_h5_put_u64(hid_t object, const char *name, const uint64_t *value,
                      int n)
{
    hsize_t dim = (hsize_t)n;
    hid_t space = H5Screate_simple(1, &dim, NULL);
    bool ok = space >= 0 && put(object, name, H5T_NATIVE_UINT64, space, value);

    merak_h5_drop(space);
    return ok;
}

bool merak_h5_get_text(hid_t object, const char *name, char *text, size_t size)
{
    hid_t at = H5Aopen(object, name, H5P_DEFAULT), type;
    bool ok = false;
    size_t n;

    if (at < 0)
        return false;
    type = H5Aget_type(at);
    if (type >= 0 && H5Tget_class(type) == H5T_STRING &&
        H5Tis_variable_str(type) == 0) {
        n = H5Tget_size(type);
        ok = n <= size && H5Aread(at, type, text) >= 0;
        if (ok)
            text[n - 1] = '\0';
    }
    merak_h5_drop(type);
    merak_h5_drop(at);
    return ok;
}

bool merak_h5_get_u64(hid_t object, const char *name, uint64_t *value, int n)
{
    hid_t at = H5Aopen(object, name, H5P_DEFAULT), space;
    bool ok = false;

    if (at < 0)
        return false;
    space = H5Aget_space(at);
    if (space >= 0)
        ok = H5Sget_simple_extent_npoints(space) == n &&
             H5Aread(at, H5T_NATIVE_UINT64, value) >= 0;
    merak_h5_drop(space);
    merak_h5_drop(at);
    return ok;
}
