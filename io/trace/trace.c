/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - write one rank's trace; THE description of its format
 *
 * A directory holds trace-RANK.h5 (five digits) for each rank and trace.h5.
 *
 * trace-RANK.h5.  Root attributes: format "merak-trace", version 1, and the
 * fields of struct merak_trace_info: rank, ranks, stage, stages, tp, dp,
 * tp_index, dp_index, microbatches, schedule, transport; cp and ep, factors of
 * tp, where they are more than 1; degrees, if stages have unlike ranks:
 * [2 stages] u64, dp and tp of each.
 *   /names    [instructions] of text: what each instruction of the program is
 *   /planned  [instructions] of a compound, or absent; see planned.c
 *   /costs, /plan and some attributes, or absent; see costs.c
 *   /records  [n] of a compound of 48 bytes, chunked, extendible:
 *     start_ns, end_ns  i64  since the run's epoch; one clock for all ranks
 *     bytes             u64  moved, or 0
 *     instr             i32  index in /names
 *     step              i32
 *     microbatch        i16  -1: not of one micro-batch
 *     peer              i16  logical rank, or -1
 *     kind, queue, phase  u8 with an HDF5 enum of their names
 *     chunk             u8
 *   /saves    [saves] of a compound, or absent; see saves.c
 *   The records of a step are contiguous, steps in order.  The first step,
 *   every k-th and the last are kept; the last is only known at the end, so
 *   the newest of the others is kept in the engine's memory.
 *
 * trace.h5, written when rank 0 closes.  Root attributes: format, version,
 * ranks.
 *   /records  [sum of n] virtual: the records of rank 0, of rank 1, ..
 *   /first    [ranks + 1] u64: rank r has records first[r] .. first[r+1] - 1
 *   /rank/RANK  external link to the root of trace-RANK.h5
 *
 * The file is flushed to the system after each kept step: the trace of a
 * killed run has all kept steps except the last few.
 */
#include "config.h"

#include "io/trace/trace_impl.h"

#include "base/error.h"
#include "io/ckpt/durable.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define KEEP_EVERY 100
#define MIN_SPACE ((size_t)4 << 20)
#define CHUNK_RECORDS 4096 /* 192 KiB, well inside HDF5's chunk cache */

struct merak_trace {
    char dir[PATH_MAX];
    char path[PATH_MAX];
    int rank, ranks;
    int keep_every;
    int64_t first_step; /* -1: none yet */
    hid_t file, type, set, saves;
    hsize_t n; /* records written */
    hsize_t n_saves;
    const struct merak_trace_record *waiting; /* the newest step, if it is not
                                                 written; borrowed */
    int n_waiting;
};

/* --- the record's type
 * --------------------------------------------------------- */

/* Insert an enum of u8, whose names end with the first "?", and close it. */
static bool insert_enum(hid_t type, const char *member, size_t offset,
                        const char *(*name)(uint8_t))
{
    hid_t kind = H5Tenum_create(H5T_STD_U8LE);
    bool ok = kind >= 0;

    for (uint8_t i = 0; ok && *name(i) != '?'; i++)
        ok = H5Tenum_insert(kind, name(i), &i) >= 0;
    ok = ok && H5Tinsert(type, member, offset, kind) >= 0;
    merak_h5_drop(kind);
    return ok;
}

#define INSERT(member, h5type)                                             \
    (H5Tinsert(type, #member, offsetof(struct merak_trace_record, member), \
               h5type) >= 0)
#define INSERT_ENUM(member)                                                 \
    insert_enum(type, #member, offsetof(struct merak_trace_record, member), \
                merak_trace_##member##_name)

hid_t merak_trace_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct merak_trace_record));

    if (type >= 0 && INSERT(start_ns, H5T_STD_I64LE) &&
        INSERT(end_ns, H5T_STD_I64LE) && INSERT(bytes, H5T_STD_U64LE) &&
        INSERT(instr, H5T_STD_I32LE) && INSERT(step, H5T_STD_I32LE) &&
        INSERT(microbatch, H5T_STD_I16LE) && INSERT(peer, H5T_STD_I16LE) &&
        INSERT_ENUM(kind) && INSERT_ENUM(queue) && INSERT_ENUM(phase) &&
        INSERT(chunk, H5T_STD_U8LE))
        return type;
    merak_h5_drop(type);
    return -1;
}

char *merak_trace_file(char *buf, int rank)
{
    snprintf(buf, 32, "trace-%05d.h5", rank);
    return buf;
}

/* --- creating
 * -------------------------------------------------------------------- */

static bool put_degrees(hid_t file, const struct merak_trace_info *info)
{
    size_t n = 2 * (size_t)info->stages;
    uint64_t *number;
    bool ok;

    if (info->degrees == NULL)
        return true;
    number = calloc(n, sizeof(*number));
    for (size_t i = 0; number != NULL && i < n; i += 2) {
        number[i] = (uint64_t)info->degrees[i / 2].dp;
        number[i + 1] = (uint64_t)info->degrees[i / 2].tp;
    }
    ok = number != NULL &&
         merak_h5_put_u64(file, MERAK_TRACE_DEGREES_OF, number, (int)n);
    free(number);
    return ok;
}

/* A degree of which 1 is not written. */
static bool put_more(hid_t file, const char *name, int degree)
{
    return degree <= 1 || merak_h5_put_number(file, name, (uint64_t)degree);
}

static bool put_info(hid_t file, const struct merak_trace_info *info)
{
    return merak_h5_put_text(file, "format", MERAK_TRACE_FORMAT) &&
           merak_h5_put_number(file, "version",
                               (uint64_t)MERAK_TRACE_VERSION) &&
           merak_h5_put_number(file, "rank", (uint64_t)info->rank) &&
           merak_h5_put_number(file, "ranks", (uint64_t)info->ranks) &&
           merak_h5_put_number(file, "stage", (uint64_t)info->stage) &&
           merak_h5_put_number(file, "stages", (uint64_t)info->stages) &&
           merak_h5_put_number(file, "tp", (uint64_t)info->tp) &&
           merak_h5_put_number(file, "dp", (uint64_t)info->dp) &&
           merak_h5_put_number(file, "tp_index", (uint64_t)info->tp_index) &&
           merak_h5_put_number(file, "dp_index", (uint64_t)info->dp_index) &&
           merak_h5_put_number(file, "microbatches",
                               (uint64_t)info->microbatches) &&
           merak_h5_put_text(file, "schedule", info->schedule) &&
           merak_h5_put_text(file, "transport", info->transport) &&
           put_more(file, "cp", info->cp) && put_more(file, "ep", info->ep) &&
           put_degrees(file, info);
}

/* Bytes of the longest instruction name, its null byte included. */
static size_t longest_name(const struct merak_trace_info *info)
{
    size_t size = 1;

    for (int i = 0; i < info->n_instrs; i++) {
        size_t need = strlen(info->instr_name[i]) + 1;

        size = need > size ? need : size;
    }
    return size;
}

/* Names have fixed length, that of the longest, so that no heap has to be
 * read. */
static bool put_names(hid_t file, const struct merak_trace_info *info)
{
    hsize_t n = (hsize_t)info->n_instrs;
    size_t size = longest_name(info);
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &n, NULL);
    hid_t set = -1;
    char *text;
    bool ok;

    text = calloc((size_t)info->n_instrs + 1, size);
    for (int i = 0; text != NULL && i < info->n_instrs; i++)
        strcpy(text + (size_t)i * size, info->instr_name[i]);
    ok = text != NULL && type >= 0 && space >= 0 &&
         H5Tset_size(type, size) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
    if (ok)
        set = merak_h5_dataset(file, MERAK_TRACE_NAMES, type, space);
    ok = set >= 0 && (n == 0 || H5Dwrite(set, type, H5S_ALL, H5S_ALL,
                                         H5P_DEFAULT, text) >= 0);
    merak_h5_drop(set);
    merak_h5_drop(space);
    merak_h5_drop(type);
    free(text);
    return ok;
}

static bool make_records(struct merak_trace *trace)
{
    const hsize_t none = 0, chunk = CHUNK_RECORDS, most = H5S_UNLIMITED;
    hid_t space = H5Screate_simple(1, &none, &most);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);

    trace->type = merak_trace_type();
    if (space >= 0 && dcpl >= 0 && trace->type >= 0 &&
        H5Pset_chunk(dcpl, 1, &chunk) >= 0 &&
        H5Pset_obj_track_times(dcpl, false) >= 0)
        trace->set = H5Dcreate2(trace->file, MERAK_TRACE_RECORDS, trace->type,
                                space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    merak_h5_drop(dcpl);
    merak_h5_drop(space);
    return trace->set >= 0;
}

/* HDF5 must not reach the limit on file sizes either. */
static bool is_allowed(uint64_t bytes)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_FSIZE, &lim) != 0 || lim.rlim_cur == RLIM_INFINITY ||
        bytes <= lim.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* HDF5 must not fill the file system (h5.c).  False, with errno, if fewer
 * bytes are free; a file system that reports no blocks is assumed to have
 * enough. */
static bool is_left(const char *dir, size_t bytes)
{
    struct statvfs fs;

    if (statvfs(dir, &fs) != 0 || fs.f_blocks == 0 ||
        (double)fs.f_bavail * (double)fs.f_frsize > (double)bytes)
        return true;
    errno = ENOSPC;
    return false;
}

/* Reserve the space of n more records, if the file system supports that. */
static bool has_space(const struct merak_trace *trace, int n)
{
    size_t bytes =
        ((size_t)n + 2 * CHUNK_RECORDS) * sizeof(struct merak_trace_record);
    int fd = merak_h5_descriptor(trace->file);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0 ||
        !is_allowed((uint64_t)st.st_size + bytes))
        return false;
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, st.st_size, (off_t)bytes) == 0)
        return true;
    return errno != ENOSPC && errno != EDQUOT && is_left(trace->dir, bytes);
}

/* Bytes in the file before the first record, and some more. */
static size_t first_bytes(const struct merak_trace_info *info)
{
    size_t each =
        sizeof(struct merak_trace_planned) + sizeof(struct merak_trace_cost);

    return MIN_SPACE + (size_t)info->n_instrs * (longest_name(info) + each) +
           (info->plan == NULL ? 0 : strlen(info->plan));
}

static enum merak_status open_file(struct merak_trace *trace,
                                   const struct merak_trace_info *info,
                                   struct merak_error *err)
{
    struct merak_h5_quiet quiet;
    size_t bytes = first_bytes(info);
    enum merak_status rc = MERAK_OK;

    merak_h5_quiet(&quiet);
    (void)unlink(trace->path); /* a trace of an earlier run */
    if (is_allowed(bytes) && is_left(trace->dir, bytes))
        trace->file = merak_h5_create(trace->path);
    else
        rc = merak_file_fail(err, "write", trace->path);
    if (rc == MERAK_OK &&
        (trace->file < 0 || !put_info(trace->file, info) ||
         !put_names(trace->file, info) ||
         !merak_trace_put_planned(trace->file, info) ||
         !merak_trace_put_costs(trace->file, info) || !make_records(trace)))
        rc = merak_h5_fail(err, "cannot create %s", trace->path);
    if (rc == MERAK_OK) {
        trace->saves = merak_trace_make_saves(trace->file);
        if (trace->saves < 0)
            rc = merak_h5_fail(err, "cannot create %s", trace->path);
    }
    merak_h5_restore(&quiet);
    return rc;
}

static void destroy(struct merak_trace *trace)
{
    struct merak_h5_quiet quiet;

    merak_h5_quiet(&quiet);
    merak_h5_drop(trace->set);
    merak_h5_drop(trace->saves);
    merak_h5_drop(trace->type);
    if (trace->file >= 0)
        (void)H5Fclose(trace->file);
    merak_h5_restore(&quiet);
    free(trace);
}

enum merak_status merak_trace_create(const char *dir,
                                     const struct merak_trace_info *info,
                                     int keep_every,
                                     struct merak_trace **trace_p,
                                     struct merak_error *err)
{
    struct merak_trace *trace;
    char name[32];
    enum merak_status rc;

    if (strlen(dir) >= MERAK_DIR_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "path too long: %.100s...",
                          dir);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return merak_file_fail(err, "make directory", dir);
    trace = calloc(1, sizeof(*trace));
    if (trace == NULL)
        return merak_fail_nomem(err, sizeof(*trace));
    strcpy(trace->dir, dir);
    merak_path(trace->path, dir, merak_trace_file(name, info->rank));
    trace->rank = info->rank;
    trace->ranks = info->ranks;
    trace->keep_every = keep_every > 0 ? keep_every : KEEP_EVERY;
    trace->first_step = -1;
    trace->file = trace->type = trace->set = trace->saves = -1;
    rc = open_file(trace, info, err);
    if (rc == MERAK_OK)
        *trace_p = trace;
    else
        destroy(trace);
    return rc;
}

/* --- appending
 * ----------------------------------------------------------------- */

/* Are this step's records kept, whether or not steps follow? */
static bool wants(const struct merak_trace *trace, int64_t step)
{
    return trace->first_step < 0 || step == trace->first_step ||
           step % trace->keep_every == 0;
}

static bool append(struct merak_trace *trace,
                   const struct merak_trace_record *records, hsize_t n)
{
    const hsize_t total = trace->n + n;
    hid_t from = H5Screate_simple(1, &n, NULL), to = -1;
    bool ok = from >= 0 && H5Dset_extent(trace->set, &total) >= 0;

    if (ok)
        to = H5Dget_space(trace->set);
    ok = to >= 0 &&
         H5Sselect_hyperslab(to, H5S_SELECT_SET, &trace->n, NULL, &n, NULL) >=
             0 &&
         H5Dwrite(trace->set, trace->type, from, to, H5P_DEFAULT, records) >=
             0 &&
         H5Fflush(trace->file, H5F_SCOPE_LOCAL) >= 0;
    merak_h5_drop(to);
    merak_h5_drop(from);
    if (ok)
        trace->n = total;
    return ok;
}

static enum merak_status write_records(struct merak_trace *trace,
                                       const struct merak_trace_record *records,
                                       int n, struct merak_error *err)
{
    struct merak_h5_quiet quiet;
    enum merak_status rc = MERAK_OK;

    if (n == 0)
        return MERAK_OK;
    merak_h5_quiet(&quiet);
    if (!has_space(trace, n))
        rc = merak_file_fail(err, "write", trace->path);
    else if (!append(trace, records, (hsize_t)n))
        rc = merak_h5_fail(err, "cannot write %s", trace->path);
    merak_h5_restore(&quiet);
    return rc;
}

enum merak_status merak_trace_step(struct merak_trace *trace,
                                   const struct merak_trace_record *records,
                                   int n, struct merak_error *err)
{
    if (n == 0)
        return MERAK_OK;
    if (!wants(trace, records[0].step)) {
        trace->waiting = records;
        trace->n_waiting = n;
        return MERAK_OK;
    }
    if (trace->first_step < 0)
        trace->first_step = records[0].step;
    trace->n_waiting = 0; /* no longer the last */
    return write_records(trace, records, n, err);
}

enum merak_status merak_trace_save(struct merak_trace *trace,
                                   const struct merak_trace_save *save,
                                   struct merak_error *err)
{
    struct merak_h5_quiet quiet;
    enum merak_status rc = MERAK_OK;

    merak_h5_quiet(&quiet);
    if (!has_space(trace, 1))
        rc = merak_file_fail(err, "write", trace->path);
    else if (!merak_trace_put_save(trace->saves, trace->n_saves, save))
        rc = merak_h5_fail(err, "cannot write %s", trace->path);
    else
        trace->n_saves++;
    merak_h5_restore(&quiet);
    return rc;
}

enum merak_status merak_trace_close(struct merak_trace *trace,
                                    struct merak_error *err)
{
    struct merak_h5_quiet quiet;
    enum merak_status rc;

    if (trace == NULL)
        return MERAK_OK;
    rc = write_records(trace, trace->waiting, trace->n_waiting, err);
    merak_h5_quiet(&quiet);
    merak_h5_drop(trace->set);
    merak_h5_drop(trace->saves);
    trace->set = trace->saves = -1;
    if (H5Fclose(trace->file) < 0 && rc == MERAK_OK)
        rc = merak_h5_fail(err, "cannot close %s", trace->path);
    trace->file = -1;
    if (rc == MERAK_OK && trace->rank == 0)
        rc = merak_trace_write_master(trace->dir, trace->ranks, err);
    merak_h5_restore(&quiet);
    destroy(trace);
    return rc;
}
