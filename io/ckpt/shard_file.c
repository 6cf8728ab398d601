/* SPDX-License-Identifier: Apache-2.0 */
/* shard_file.c - write one shard file of a checkpoint
 *
 * HDF5 lays the file out, and the tensors' bytes are written by plain writes:
 * errors are errno values, the lock on HDF5 is not held meanwhile, and a full
 * file system cannot crash the library (h5.c).
 *
 * The format is described in save.c.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "io/file.h"
#include "io/h5.h"
#include "io/h5_image.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* HDF5's part of a file: superblock, headers, attributes, alignment; a high
 * estimate, for the first check of free space. */
#define DATASET_OVERHEAD ((size_t)2048 + 4096)
#define FILE_OVERHEAD ((size_t)65536)

/* Bytes that are hashed and written at a time: they stay in cache between the
 * two. */
#define BLOCK ((size_t)256 << 10)

/* With fewer bytes, starting a thread does not pay off. */
#define WORTH_A_THREAD ((size_t)8 << 20)

/* A box of a tensor: its piece, the offset `at` in the piece's data, and the
 * offset in the file. */
struct run {
    const char *tensor;
    struct merak_box box;
    int piece;
    size_t at, bytes;
    haddr_t offset;
    char hash[MERAK_HASH_TEXT];
};

/* Checksums of the file, made from memory while it is written: bytes around
 * runs are in HDF5's image.  This requires that runs are written in file
 * order, which a source that fills pieces one by one may not do. */
struct sums {
    struct merak_hasher *file, *rest, *part;
    char *block;
    uint64_t at; /* bytes added */
    bool in_order;
};

/* What to do with each run. */
enum { HASH = 1, WRITE = 2 };

/* The thread that hashes while this one writes, if a core is idle. */
struct hashing {
    bool started;
    pthread_t thread;
    atomic_bool stop; /* the writes failed */
    const struct merak_h5_stage *stage;
    enum merak_status rc;
    struct merak_error why;
};

struct shard {
    const char *dir;
    char name[32]; /* shard-00003.h5 */
    char path[PATH_MAX];
    int number; /* 3 */
    uint64_t step;
    const struct merak_ckpt_source *source;
    size_t need_bytes;
    struct run *run;
    int n_runs;
    struct sums sums;
    struct hashing hashing;
    uint64_t bytes; /* of the file, once it is written */
    char hash[MERAK_HASH_TEXT];
    char rest[MERAK_HASH_TEXT]; /* "": not known */
};

/* --- laying the file out -----------------------------------------------------
 */

static bool put_attributes(hid_t set, const char *tensor,
                           const struct merak_box *box)
{
    uint64_t shape[MERAK_MAX_DIMS] = {0}, lo[MERAK_MAX_DIMS] = {0};

    for (int d = 0; d < box->ndim; d++) {
        shape[d] = box->full[d];
        lo[d] = box->lo[d];
    }
    return merak_h5_put_text(set, "tensor", tensor) &&
           (box->ndim == 0 ||
            (merak_h5_put_u64(set, "shape", shape, box->ndim) &&
             merak_h5_put_u64(set, "lo", lo, box->ndim)));
}

static hid_t box_space(const struct merak_box *box)
{
    hsize_t dim[MERAK_MAX_DIMS];

    if (box->ndim == 0)
        return H5Screate(H5S_SCALAR);
    for (int d = 0; d < box->ndim; d++)
        dim[d] = box->len[d];
    return H5Screate_simple(box->ndim, dim, NULL);
}

static bool make_dataset(hid_t file, struct run *run)
{
    char name[MERAK_CKPT_MAX_DATASET];
    hid_t space = box_space(&run->box), set = -1;
    bool ok = false;

    merak_ckpt_dataset_name(name, run->tensor, &run->box);
    if (space >= 0)
        set = merak_h5_dataset(file, name, H5T_IEEE_F32LE, space);
    if (set >= 0 && put_attributes(set, run->tensor, &run->box)) {
        run->offset = H5Dget_offset(set);
        ok = run->offset != HADDR_UNDEF;
    }
    merak_h5_drop(set);
    merak_h5_drop(space);
    return ok;
}

static bool put_header(hid_t file, const struct shard *shard)
{
    return merak_h5_put_text(file, "format", MERAK_CKPT_FORMAT) &&
           merak_h5_put_number(file, "version", MERAK_CKPT_VERSION) &&
           merak_h5_put_number(file, "step", shard->step) &&
           merak_h5_put_number(file, "rank", (uint64_t)shard->number);
}

/* Create all of the file except the tensors' bytes; sets run[].offset. */
static bool make_contents(hid_t file, void *arg)
{
    struct shard *shard = arg;
    bool ok = put_header(file, shard);

    for (int i = 0; i < shard->n_runs && ok; i++)
        ok = make_dataset(file, &shard->run[i]);
    return ok;
}

/* --- writing
 * ------------------------------------------------------------------- */

static enum merak_status sums_init(struct sums *sums, struct merak_error *err)
{
    sums->file = merak_hasher_create();
    sums->rest = merak_hasher_create();
    sums->part = merak_hasher_create();
    sums->block = malloc(BLOCK);
    sums->in_order = true;
    if (sums->file == NULL || sums->rest == NULL || sums->part == NULL ||
        sums->block == NULL)
        return merak_fail_nomem(err, BLOCK);
    return MERAK_OK;
}

static void sums_fini(struct sums *sums)
{
    merak_hasher_destroy(sums->file);
    merak_hasher_destroy(sums->rest);
    merak_hasher_destroy(sums->part);
    free(sums->block);
}

/* Hash HDF5's bytes since the last run, up to `to`. */
static void add_rest(struct shard *shard, const struct merak_h5_stage *stage,
                     uint64_t to)
{
    struct sums *sums = &shard->sums;

    while (sums->at < to) {
        size_t n = to - sums->at < BLOCK ? (size_t)(to - sums->at) : BLOCK;

        merak_h5_image_read(stage->image, sums->at, sums->block, n);
        merak_hasher_add(sums->file, sums->block, n);
        merak_hasher_add(sums->rest, sums->block, n);
        sums->at += n;
    }
}

static void reach_run(struct shard *shard, const struct merak_h5_stage *stage,
                      const struct run *run)
{
    struct sums *sums = &shard->sums;

    if (run->bytes == 0)
        return;
    if (run->offset < sums->at)
        sums->in_order = false;
    if (sums->in_order)
        add_rest(shard, stage, run->offset);
}

static void add_block(struct sums *sums, const char *block, size_t n)
{
    merak_hasher_add(sums->part, block, n);
    if (sums->in_order) {
        merak_hasher_add(sums->file, block, n);
        sums->at += n;
    }
}

static void count_written(const struct merak_ckpt_source *source, size_t n)
{
    merak_progress_add(source->progress, (double)n);
    if (source->written != NULL)
        atomic_fetch_add(source->written, n);
}

/* Hashes are of the bytes in memory, so data damaged on its way to disk is
 * detected.  A thread that does both uses blocks in cache for the second. */
static enum merak_status do_run(struct shard *shard,
                                const struct merak_h5_stage *stage,
                                struct run *run, int what,
                                struct merak_error *err)
{
    const char *data = (const char *)shard->source->piece[run->piece].data;
    enum merak_status rc = MERAK_OK;

    if (what & HASH)
        reach_run(shard, stage, run);
    for (size_t lo = 0; lo < run->bytes && rc == MERAK_OK; lo += BLOCK) {
        size_t n = run->bytes - lo < BLOCK ? run->bytes - lo : BLOCK;
        const char *block = data + run->at + lo;

        if (what & HASH)
            add_block(&shard->sums, block, n);
        if (what & WRITE)
            rc = merak_file_write_at(stage->disk, shard->path, block, n,
                                     run->offset + lo, err);
        if (what & WRITE)
            count_written(shard->source, n);
    }
    if (what & HASH)
        merak_hasher_take(shard->sums.part, run->hash);
    return rc;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct run *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The runs of a piece are consecutive, unless all data is in memory. */
static enum merak_status do_runs(struct shard *shard,
                                 const struct merak_h5_stage *stage, int what,
                                 struct merak_error *err)
{
    const struct merak_ckpt_source *source = shard->source;
    enum merak_status rc = MERAK_OK;
    int filled = -1;

    for (int i = 0; i < shard->n_runs && rc == MERAK_OK; i++) {
        struct run *run = &shard->run[i];

        if (source->fill != NULL && run->piece != filled)
            rc = source->fill(source->arg, run->piece, err);
        filled = run->piece;
        if (rc == MERAK_OK && !atomic_load(&shard->hashing.stop))
            rc = do_run(shard, stage, run, what, err);
    }
    return rc;
}

/* Take the file's checksums, or none if it was not written in order. */
static void take_sums(struct shard *shard, const struct merak_h5_stage *stage)
{
    if (!shard->sums.in_order)
        return;
    add_rest(shard, stage, merak_h5_image_bytes(stage->image));
    shard->bytes = shard->sums.at;
    merak_hasher_take(shard->sums.file, shard->hash);
    merak_hasher_take(shard->sums.rest, shard->rest);
}

static void *hash_all(void *arg)
{
    struct shard *shard = arg;
    struct hashing *h = &shard->hashing;

    h->rc = do_runs(shard, h->stage, HASH, &h->why);
    if (h->rc == MERAK_OK && !atomic_load(&h->stop))
        take_sums(shard, h->stage);
    return NULL;
}

/* If no thread can be started, the writer hashes. */
static void start_hashing(struct shard *shard,
                          const struct merak_h5_stage *stage)
{
    const struct merak_ckpt_source *source = shard->source;
    struct hashing *h = &shard->hashing;

    h->stage = stage;
    h->started = source->spare_core && source->fill == NULL &&
                 shard->need_bytes >= WORTH_A_THREAD &&
                 pthread_create(&h->thread, NULL, hash_all, shard) == 0;
}

static enum merak_status end_hashing(struct shard *shard, enum merak_status rc,
                                     struct merak_error *err)
{
    struct hashing *h = &shard->hashing;

    if (!h->started)
        return rc;
    atomic_store(&h->stop, rc != MERAK_OK);
    pthread_join(h->thread, NULL);
    if (rc != MERAK_OK || h->rc == MERAK_OK)
        return rc;
    *err = h->why;
    return h->rc;
}

static enum merak_status write_data(struct shard *shard,
                                    struct merak_h5_stage *stage,
                                    struct merak_error *err)
{
    enum merak_status rc = sums_init(&shard->sums, err);

    if (rc != MERAK_OK)
        return rc;
    if (shard->source->fill == NULL)
        qsort(shard->run, (size_t)shard->n_runs, sizeof(*shard->run),
              compare_offsets);
    start_hashing(shard, stage);
    rc = do_runs(shard, stage, shard->hashing.started ? WRITE : HASH | WRITE,
                 err);
    if (rc == MERAK_OK && !shard->hashing.started)
        take_sums(shard, stage);
    if (rc == MERAK_OK) {
        merak_progress_phase(shard->source->progress, "syncing");
        rc = merak_h5_sync(stage, shard->path, err);
    }
    return end_hashing(shard, rc, err);
}

static enum merak_status write_h5(struct shard *shard, struct merak_error *err)
{
    struct merak_h5_stage stage;
    enum merak_status rc =
        merak_h5_lay_out(shard->path, make_contents, shard, &stage, err);

    if (rc == MERAK_OK)
        rc = merak_h5_copy_out(&stage, shard->path, err);
    if (rc == MERAK_OK)
        rc = write_data(shard, &stage, err);
    merak_h5_unstage(&stage);
    sums_fini(&shard->sums);
    if (rc == MERAK_OK && shard->hash[0] == '\0')
        rc = merak_durable_hash(shard->path, &shard->bytes, shard->hash, err);
    return rc;
}

static json_t *part_json(const char *tensor, const struct merak_box *box,
                         haddr_t offset, const char *hash)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:I, s:s}", "tensor", tensor,
                     "shape", merak_ckpt_sizes_json(box->full, box->ndim), "lo",
                     merak_ckpt_sizes_json(box->lo, box->ndim), "len",
                     merak_ckpt_sizes_json(box->len, box->ndim), "offset",
                     (json_int_t)offset, "xxh128", hash);
}

static json_t *parts_json(const struct shard *shard)
{
    json_t *parts = json_array();

    for (int i = 0; i < shard->n_runs; i++) {
        const struct run *run = &shard->run[i];

        if (json_array_append_new(parts, part_json(run->tensor, &run->box,
                                                   run->offset, run->hash)) !=
            0) {
            json_decref(parts);
            return NULL;
        }
    }
    return parts;
}

/* Write the entry that rank 0 merges into the manifest. */
static enum merak_status write_json(const struct shard *shard,
                                    struct merak_error *err)
{
    char name[48], path[PATH_MAX];
    json_t *json, *parts;
    char *text;
    enum merak_status rc;

    parts = parts_json(shard);
    json = json_pack("{s:s, s:I, s:s, s:I, s:o}", "file", shard->name, "bytes",
                     (json_int_t)shard->bytes, "xxh128", shard->hash, "step",
                     (json_int_t)shard->step, "parts", parts);
    if (json != NULL && shard->rest[0] != '\0')
        json_object_set_new(json, "rest", json_string(shard->rest));
    text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (text == NULL)
        return merak_fail_nomem(err, 0);
    snprintf(name, sizeof(name), "shard-%05d.json", shard->number);
    rc = merak_durable_write(merak_path(path, shard->dir, name), text,
                             strlen(text), err);
    free(text);
    return rc;
}

/* Add the needed bytes to the failure: a quota may be exhausted while there is
 * space. */
static enum merak_status tell_need(const struct shard *shard,
                                   struct merak_error *err)
{
    struct statvfs fs;
    double free_bytes = 0;

    if (statvfs(shard->dir, &fs) == 0)
        free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    return merak_error_fix(err, MERAK_ERR_NOSPACE,
                           ": %zu bytes needed, %.0f free; free some space or "
                           "keep fewer checkpoints",
                           shard->need_bytes, free_bytes);
}

/* Check before gigabytes are written.  A file system that reports 0 blocks in
 * total gives no information. */
static enum merak_status check_space(const struct shard *shard,
                                     struct merak_error *err)
{
    struct statvfs fs;

    if (statvfs(shard->dir, &fs) != 0 || fs.f_blocks == 0 ||
        (double)fs.f_bavail * (double)fs.f_frsize >= (double)shard->need_bytes)
        return MERAK_OK;
    errno = ENOSPC;
    return merak_file_fail(err, "write", shard->path);
}

static enum merak_status take_pieces(struct shard *shard,
                                     struct merak_error *err)
{
    const struct merak_ckpt_source *source = shard->source;
    size_t n_pieces = (size_t)(source->end - source->first);
    size_t most = n_pieces * MERAK_FLAT_BOXES + 1;
    struct merak_box boxes[MERAK_FLAT_BOXES];

    shard->run = calloc(most, sizeof(*shard->run));
    if (shard->run == NULL)
        return merak_fail_nomem(err, most * sizeof(*shard->run));
    shard->need_bytes = FILE_OVERHEAD;
    for (int i = source->first; i < source->end; i++) {
        const struct merak_ckpt_piece *piece = &source->piece[i];
        enum merak_status rc = merak_ckpt_piece_check(piece, err);
        size_t at = 0;
        int n;

        if (rc != MERAK_OK)
            return rc;
        n = merak_ckpt_piece_boxes(piece, boxes);
        for (int k = 0; k < n; k++) {
            size_t bytes = merak_box_count(&boxes[k]) * sizeof(*piece->data);

            shard->run[shard->n_runs++] = (struct run){.tensor = piece->name,
                                                       .box = boxes[k],
                                                       .piece = i,
                                                       .at = at,
                                                       .bytes = bytes,
                                                       .offset = HADDR_UNDEF};
            shard->need_bytes += DATASET_OVERHEAD + bytes;
            at += bytes;
        }
    }
    return MERAK_OK;
}

enum merak_status merak_ckpt_shard_write(const char *dir, int file,
                                         uint64_t step,
                                         const struct merak_ckpt_source *source,
                                         struct merak_error *err)
{
    struct shard shard = {
        .dir = dir, .number = file, .step = step, .source = source};
    struct merak_error why = {.status = MERAK_OK};
    enum merak_status rc;

    snprintf(shard.name, sizeof(shard.name), "shard-%05d.h5", file);
    merak_path(shard.path, dir, shard.name);
    rc = take_pieces(&shard, &why);
    if (rc == MERAK_OK)
        rc = check_space(&shard, &why);
    if (rc == MERAK_OK)
        rc = write_h5(&shard, &why);
    if (rc == MERAK_OK)
        rc = write_json(&shard, &why);
    if (rc == MERAK_ERR_NOSPACE)
        rc = tell_need(&shard, &why);
    if (rc != MERAK_OK && err != NULL)
        *err = why;
    free(shard.run);
    return rc;
}
