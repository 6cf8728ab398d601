/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_shard.c - write one rank's shard of a checkpoint
 *
 * The format is described in ckpt_save.c.
 */
#include "config.h"

#include "io/ckpt_impl.h"

#include "base/error.h"
#include "io/h5.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* HDF5's own part of a file: headers and attributes of a dataset, alignment,
 * superblock.  For the look at free space, on the high side. */
#define DATASET_OVERHEAD ((size_t)2048 + 4096)
#define FILE_OVERHEAD ((size_t)65536)

struct shard {
    const char *dir;
    char name[32]; /* shard-00003.h5 */
    char path[PATH_MAX];
    int rank;
    uint64_t step;
    size_t need_bytes;
    hid_t file;
    json_t *parts;
};

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

/* Closing a small dataset writes it, so its status counts. */
static bool write_dataset(hid_t file, const char *name, const char *tensor,
                          const struct merak_box *box, const float *data,
                          haddr_t *offset_p)
{
    hid_t space = box_space(box), set = -1;
    bool ok = false;

    if (space >= 0)
        set = merak_h5_dataset(file, name, H5T_IEEE_F32LE, space);
    if (set >= 0)
        ok = put_attributes(set, tensor, box) &&
             H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                      data) >= 0;
    if (ok) {
        *offset_p = H5Dget_offset(set);
        ok = *offset_p != HADDR_UNDEF;
    }
    if (ok)
        ok = H5Dclose(set) >= 0;
    else
        merak_h5_drop(set);
    merak_h5_drop(space);
    return ok;
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

static enum merak_status write_piece(struct shard *shard,
                                     const struct merak_ckpt_piece *piece,
                                     struct merak_error *err)
{
    struct merak_box boxes[MERAK_FLAT_BOXES];
    int n = merak_ckpt_piece_boxes(piece, boxes);
    char name[MERAK_CKPT_MAX_DATASET], hash[MERAK_HASH_TEXT];
    const float *data = piece->data;

    for (int i = 0; i < n; i++) {
        size_t count = merak_box_count(&boxes[i]);
        haddr_t offset;

        merak_ckpt_dataset_name(name, piece->name, &boxes[i]);
        if (!write_dataset(shard->file, name, piece->name, &boxes[i], data,
                           &offset))
            return merak_h5_fail(err, "cannot write %s to %s", name,
                                 shard->path);
        /* From memory: what reads back otherwise was damaged on its way. */
        merak_hash(data, count * sizeof(*data), hash);
        if (json_array_append_new(
                shard->parts,
                part_json(piece->name, &boxes[i], offset, hash)) != 0)
            return merak_fail_nomem(err, sizeof(hash));
        data += count;
    }
    return MERAK_OK;
}

static enum merak_status put_header(const struct shard *shard,
                                    struct merak_error *err)
{
    const uint64_t version = MERAK_CKPT_VERSION, rank = (uint64_t)shard->rank;

    if (!merak_h5_put_text(shard->file, "format", MERAK_CKPT_FORMAT) ||
        !merak_h5_put_u64(shard->file, "version", &version, 1) ||
        !merak_h5_put_u64(shard->file, "step", &shard->step, 1) ||
        !merak_h5_put_u64(shard->file, "rank", &rank, 1))
        return merak_h5_fail(err, "cannot write %s", shard->path);
    return MERAK_OK;
}

static enum merak_status write_h5(struct shard *shard,
                                  const struct merak_ckpt_piece *pieces,
                                  int n_pieces, struct merak_error *err)
{
    enum merak_status rc;

    shard->file = merak_h5_create(shard->path);
    if (shard->file < 0)
        return merak_h5_fail(err, "cannot create %s", shard->path);
    rc = put_header(shard, err);
    for (int i = 0; i < n_pieces && rc == MERAK_OK; i++)
        rc = write_piece(shard, &pieces[i], err);
    if (rc == MERAK_OK && H5Fflush(shard->file, H5F_SCOPE_LOCAL) < 0)
        rc = merak_h5_fail(err, "cannot write %s", shard->path);
    if (rc != MERAK_OK)
        merak_h5_discard(shard->file);
    else if (H5Fclose(shard->file) < 0)
        rc = merak_h5_fail(err, "cannot close %s", shard->path);
    return rc;
}

/* What rank 0 merges into the manifest. */
static enum merak_status write_json(const struct shard *shard,
                                    struct merak_error *err)
{
    char name[48], path[PATH_MAX], hash[MERAK_HASH_TEXT];
    uint64_t bytes = 0;
    json_t *json;
    char *text;
    enum merak_status rc;

    rc = merak_durable_hash(shard->path, true, &bytes, hash, err);
    if (rc != MERAK_OK)
        return rc;
    json = json_pack("{s:s, s:I, s:s, s:I, s:O}", "file", shard->name, "bytes",
                     (json_int_t)bytes, "xxh128", hash, "step",
                     (json_int_t)shard->step, "parts", shard->parts);
    text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (text == NULL)
        return merak_fail_nomem(err, 0);
    snprintf(name, sizeof(name), "shard-%05d.json", shard->rank);
    rc = merak_durable_write(merak_path(path, shard->dir, name), text,
                             strlen(text), err);
    free(text);
    return rc;
}

static enum merak_status no_space(const struct shard *shard,
                                  struct merak_error *err)
{
    struct statvfs fs;
    double free_bytes = 0;

    if (statvfs(shard->dir, &fs) == 0)
        free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    return merak_fail(err, MERAK_ERR_NOSPACE,
                      "no space left for %s: %zu bytes needed, %.0f free; "
                      "free some space or keep fewer checkpoints",
                      shard->path, shard->need_bytes, free_bytes);
}

/* Better to find out before gigabytes are written.  A file system that says
 * nothing useful (0 blocks in all) is not asked. */
static bool has_space(const struct shard *shard)
{
    struct statvfs fs;

    if (statvfs(shard->dir, &fs) != 0 || fs.f_blocks == 0)
        return true;
    return (double)fs.f_bavail * (double)fs.f_frsize >=
           (double)shard->need_bytes;
}

static enum merak_status check_pieces(struct shard *shard,
                                      const struct merak_ckpt_piece *pieces,
                                      int n_pieces, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    shard->need_bytes = FILE_OVERHEAD;
    for (int i = 0; i < n_pieces && rc == MERAK_OK; i++) {
        rc = merak_ckpt_piece_check(&pieces[i], err);
        shard->need_bytes +=
            DATASET_OVERHEAD +
            (pieces[i].flat_hi - pieces[i].flat_lo) * sizeof(*pieces[i].data);
    }
    return rc;
}

enum merak_status merak_ckpt_shard_write(const char *dir, int rank,
                                         uint64_t step,
                                         const struct merak_ckpt_piece *pieces,
                                         int n_pieces, struct merak_error *err)
{
    struct shard shard = {.dir = dir, .rank = rank, .step = step, .file = -1};
    enum merak_status rc;

    snprintf(shard.name, sizeof(shard.name), "shard-%05d.h5", rank);
    merak_path(shard.path, dir, shard.name);
    rc = check_pieces(&shard, pieces, n_pieces, err);
    if (rc != MERAK_OK)
        return rc;
    if (!has_space(&shard))
        return no_space(&shard, err);
    shard.parts = json_array();
    if (shard.parts == NULL)
        return merak_fail_nomem(err, sizeof(json_t));
    rc = write_h5(&shard, pieces, n_pieces, err);
    if (rc == MERAK_OK)
        rc = write_json(&shard, err);
    if (rc == MERAK_ERR_NOSPACE)
        rc = no_space(&shard, err);
    json_decref(shard.parts);
    return rc;
}
