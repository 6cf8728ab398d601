/* SPDX-License-Identifier: Apache-2.0 */
/* h5.c - the HDF5 code that checkpoints and traces share
 *
 * HDF5 1.10 does not survive a full file system: once it fails to write cached
 * metadata, the file can neither be flushed nor closed, and the library
 * crashes, at the latest at exit.  So HDF5 never writes to disk: it lays files
 * out in memory (h5_image.c), which holds only their metadata, and this file
 * writes them to disk by system calls.
 *
 * Only explicitly numbered functions are called (H5Dcreate2, never H5Dcreate):
 * the meaning of the bare names depends on how the library was built.
 */
#include "config.h"

#include "io/h5.h"

#include "base/error.h"
#include "io/file.h"
#include "io/h5_image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Raw data of this size and more starts on a page. */
#define ALIGN_FROM ((hsize_t)64 << 10)
#define ALIGN_TO ((hsize_t)4096)

/* HDF5's state is global to the process, and so is the lock on it. */
static pthread_mutex_t h5_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void merak_h5_quiet(struct merak_h5_quiet *saved)
{
    pthread_mutex_lock(&h5_lock);
    saved->fn = NULL;
    saved->arg = NULL;
    (void)H5Eget_auto2(H5E_DEFAULT, &saved->fn, &saved->arg);
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void merak_h5_restore(const struct merak_h5_quiet *saved)
{
    (void)H5Eset_auto2(H5E_DEFAULT, saved->fn, saved->arg);
    pthread_mutex_unlock(&h5_lock);
}

struct innermost {
    bool found;
    int code; /* errno in the message, or 0 */
    char text[160];
};

/* The first entry of an upward walk is the innermost: the cause.  The file
 * driver's text contains errno; the rest of it (buffer addresses, offsets) is
 * useless. */
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
    /* At least V18, for compact groups; at most V110, for virtual datasets
     * that HDF5 1.10 can still read. */
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

/* No timestamps, so that the same data gives the same bytes. */
static hid_t create_list(void)
{
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);

    if (fcpl >= 0 && H5Pset_obj_track_times(fcpl, false) >= 0)
        return fcpl;
    merak_h5_drop(fcpl);
    return -1;
}

hid_t merak_h5_create(const char *path)
{
    hid_t fcpl = create_list(), fapl = file_access(), file = -1;

    if (fcpl >= 0 && fapl >= 0)
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

int merak_h5_descriptor(hid_t file)
{
    void *fd = NULL;

    if (H5Fget_vfd_handle(file, H5P_DEFAULT, &fd) < 0)
        return -1;
    return *(int *)fd;
}

/* Create the file first: an existing file is a separate error. */
static enum merak_status stage_file(const char *path,
                                    struct merak_h5_stage *stage, hid_t *file_p,
                                    struct merak_error *err)
{
    hid_t fcpl, fapl;

    stage->image = NULL;
    stage->disk = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (stage->disk < 0)
        return merak_file_fail(err, "create", path);
    stage->image = merak_h5_image_create();
    if (stage->image == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory to lay out %s",
                          path);
    fcpl = create_list();
    fapl = file_access();
    if (fcpl >= 0 && fapl >= 0)
        *file_p = merak_h5_image_file(stage->image, fcpl, fapl);
    merak_h5_drop(fcpl);
    merak_h5_drop(fapl);
    return *file_p >= 0 ? MERAK_OK
                        : merak_h5_fail(err, "cannot lay out %s", path);
}

/* Holds the lock on HDF5 only during this call. */
enum merak_status merak_h5_lay_out(const char *path, merak_h5_make_fn make,
                                   void *arg, struct merak_h5_stage *stage,
                                   struct merak_error *err)
{
    struct merak_h5_quiet quiet;
    hid_t file = -1;
    enum merak_status rc;

    merak_h5_quiet(&quiet);
    rc = stage_file(path, stage, &file, err);
    if (rc == MERAK_OK && !make(file, arg))
        rc = merak_h5_fail(err, "cannot lay out %s", path);
    if (file >= 0 && H5Fclose(file) < 0 && rc == MERAK_OK)
        rc = merak_h5_fail(err, "cannot lay out %s", path);
    merak_h5_restore(&quiet);
    /* whatever HDF5 returned after pages were dropped */
    if (stage->image != NULL && !merak_h5_image_is_whole(stage->image))
        rc = merak_fail(err, MERAK_ERR_NOMEM, "no memory to lay out %s", path);
    return rc;
}

void merak_h5_unstage(struct merak_h5_stage *stage)
{
    merak_h5_image_destroy(stage->image);
    if (stage->disk >= 0)
        close(stage->disk);
    stage->image = NULL;
    stage->disk = -1;
}

/* Preallocation avoids fragmentation on a disk.  In memory it is useless, and
 * clears each page before it is written. */
static bool is_in_memory(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static enum merak_status copy_range(const struct merak_h5_stage *stage,
                                    uint64_t at, uint64_t end, const char *path,
                                    struct merak_error *err)
{
    char block[65536];

    while (at < end) {
        size_t n =
            sizeof(block) < end - at ? sizeof(block) : (size_t)(end - at);
        enum merak_status rc;

        merak_h5_image_read(stage->image, at, block, n);
        rc = merak_file_write_at(stage->disk, path, block, n, at, err);
        if (rc != MERAK_OK)
            return rc;
        at += n;
    }
    return MERAK_OK;
}

/* Set the size first: a file that is too large then fails before anything is
 * written. */
enum merak_status merak_h5_copy_out(const struct merak_h5_stage *stage,
                                    const char *path, struct merak_error *err)
{
    off_t size = (off_t)merak_h5_image_bytes(stage->image);
    enum merak_status rc = MERAK_OK;
    uint64_t at = 0, end;

    if (!is_in_memory(stage->disk) && fallocate(stage->disk, 0, 0, size) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return merak_file_fail(err, "write", path);
    if (ftruncate(stage->disk, size) != 0)
        return merak_file_fail(err, "write", path);
    while (rc == MERAK_OK && merak_h5_image_next(stage->image, &at, &end)) {
        rc = copy_range(stage, at, end, path, err);
        at = end;
    }
    return rc;
}

enum merak_status merak_h5_sync(struct merak_h5_stage *stage, const char *path,
                                struct merak_error *err)
{
    int fd = stage->disk;

    stage->disk = -1;
    return merak_file_sync_close(fd, path, err);
}

enum merak_status merak_h5_write(const char *path, merak_h5_make_fn make,
                                 void *arg, struct merak_error *err)
{
    struct merak_h5_stage stage;
    enum merak_status rc = merak_h5_lay_out(path, make, arg, &stage, err);
    bool made = stage.disk >= 0;

    if (rc == MERAK_OK)
        rc = merak_h5_copy_out(&stage, path, err);
    if (rc == MERAK_OK)
        rc = merak_h5_sync(&stage, path, err);
    merak_h5_unstage(&stage);
    if (rc != MERAK_OK && made)
        (void)unlink(path);
    return rc;
}

/* Groups that HDF5 creates implicitly contain timestamps. */
bool merak_h5_make_groups(hid_t file, const char *name)
{
    hid_t gcpl = H5Pcreate(H5P_GROUP_CREATE), group;
    bool ok = gcpl >= 0 && H5Pset_obj_track_times(gcpl, false) >= 0;
    char above[1024];

    for (const char *end = strchr(name, '/'); ok && end != NULL;
         end = strchr(end + 1, '/')) {
        size_t n = (size_t)(end - name);

        if (n == 0)
            continue;
        ok = n < sizeof(above);
        if (!ok)
            break;
        memcpy(above, name, n);
        above[n] = '\0';
        if (H5Lexists(file, above, H5P_DEFAULT) > 0)
            continue;
        group = H5Gcreate2(file, above, H5P_DEFAULT, gcpl, H5P_DEFAULT);
        ok = group >= 0;
        merak_h5_drop(group);
    }
    merak_h5_drop(gcpl);
    return ok;
}

hid_t merak_h5_dataset(hid_t file, const char *name, hid_t type, hid_t space)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t set = -1;

    if (dcpl >= 0 && merak_h5_make_groups(file, name) &&
        H5Pset_obj_track_times(dcpl, false) >= 0 &&
        H5Pset_layout(dcpl, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY) >= 0)
        set =
            H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    merak_h5_drop(dcpl);
    return set;
}

/* Neither a virtual dataset nor one whose raw data are another file. */
static bool is_own(hid_t set)
{
    hid_t dcpl = H5Dget_create_plist(set);
    bool own = dcpl >= 0 && H5Pget_layout(dcpl) != H5D_VIRTUAL &&
               H5Pget_external_count(dcpl) == 0 && H5Pget_nfilters(dcpl) == 0;

    merak_h5_drop(dcpl);
    return own;
}

bool merak_h5_count(hid_t set, size_t bytes, size_t *n_p)
{
    hid_t space = H5Dget_space(set), file = H5Iget_file_id(set);
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    hsize_t most = 0;
    bool ok = n >= 0 && file >= 0 && H5Fget_filesize(file, &most) >= 0 &&
              bytes > 0 && (uint64_t)n <= most / bytes && is_own(set);

    merak_h5_drop(space);
    merak_h5_drop(file);
    if (ok)
        *n_p = (size_t)n;
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

bool merak_h5_put_number(hid_t object, const char *name, uint64_t value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    bool ok = space >= 0 && put(object, name, H5T_NATIVE_UINT64, space, &value);

    merak_h5_drop(space);
    return ok;
}

bool merak_h5_get_text(hid_t object, const char *name, char *text, size_t size)
{
    hid_t at = H5Aopen(object, name, H5P_DEFAULT), type, space;
    bool ok = false;
    size_t n;

    if (at < 0)
        return false;
    type = H5Aget_type(at);
    space = H5Aget_space(at);
    if (type >= 0 && H5Tget_class(type) == H5T_STRING &&
        H5Tis_variable_str(type) == 0 && space >= 0 &&
        H5Sget_simple_extent_npoints(space) == 1) {
        n = H5Tget_size(type);
        ok = n <= size && H5Aread(at, type, text) >= 0;
        if (ok)
            text[n - 1] = '\0';
    }
    merak_h5_drop(space);
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

/* --- warming up ------------------------------------------------------------
 */

/* Create enough datasets for HDF5's caches to grow as in a checkpoint. */
static hid_t rehearse(const char *name)
{
    const hsize_t n = 1024;
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file = -1;
    hid_t space = H5Screate_simple(1, &n, NULL);
    char path[32];

    /* In memory, never written to disk. */
    if (fapl >= 0 && H5Pset_fapl_core(fapl, (size_t)64 << 10, false) >= 0)
        file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    for (int i = 0; file >= 0 && i < 100; i++) {
        snprintf(path, sizeof(path), "layer/%d/weight", i);
        merak_h5_drop(merak_h5_dataset(file, path, H5T_NATIVE_FLOAT, space));
    }
    merak_h5_drop(space);
    merak_h5_drop(fapl);
    return file;
}

void merak_h5_warm_up(void)
{
    struct merak_h5_quiet quiet;
    hid_t shard, master;

    merak_h5_quiet(&quiet);
    shard = rehearse("shard");
    master = rehearse("master");
    if (shard >= 0)
        (void)H5Fclose(shard);
    if (master >= 0)
        (void)H5Fclose(master);
    merak_h5_restore(&quiet);
}

bool merak_h5_is_built_in(void)
{
    return true;
}
