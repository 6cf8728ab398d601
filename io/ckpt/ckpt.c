/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt.c - open a checkpoint and read pieces of its tensors
 *
 * The reader uses the manifest to read bytes of shard files directly, not
 * through the master: for a source that HDF5 cannot read it returns fill
 * values and no error.  Bytes are checked when read: parts of tensors by their
 * own checksums (part.c), and the bytes around them when the shard file is
 * opened.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "base/log.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Shard files kept open at the same time; the limit on descriptors is often
 * 1024. */
#define MAX_OPEN 32

struct merak_ckpt {
    char dir[PATH_MAX];
    struct merak_ckpt_manifest *mf;
    bool *checked;      /* by shard: the bytes around its parts are right */
    bool *part_checked; /* by part */
    int n_open, next; /* if all are used, open[next] is closed for another */
    struct {
        int shard;
        int fd;
    } open[MAX_OPEN];
};

/* --- opening ---------------------------------------------------------------
 */

static enum merak_status make_ckpt(const char *dir,
                                   struct merak_ckpt_manifest *mf,
                                   struct merak_ckpt **ckpt_p,
                                   struct merak_error *err)
{
    struct merak_ckpt *ckpt = calloc(1, sizeof(*ckpt));

    if (ckpt == NULL) {
        merak_ckpt_manifest_destroy(mf);
        return merak_fail_nomem(err, sizeof(*ckpt));
    }
    ckpt->mf = mf;
    ckpt->checked = calloc((size_t)mf->n_shards + 1, sizeof(bool));
    ckpt->part_checked = calloc((size_t)mf->n_parts + 1, sizeof(bool));
    if (ckpt->checked == NULL || ckpt->part_checked == NULL) {
        merak_ckpt_close(ckpt);
        return merak_fail_nomem(err, (size_t)mf->n_parts + 1);
    }
    strcpy(ckpt->dir, dir);
    *ckpt_p = ckpt;
    return MERAK_OK;
}

/* The index after the entry of that path; 0 if there is none. */
static int entry_behind(const struct merak_ckpt_entry *entries, int n,
                        const char *path)
{
    const char *name = path == NULL ? NULL : strrchr(path, '/');

    for (int i = 0; name != NULL && i < n; i++) {
        if (strcmp(entries[i].name, name + 1) == 0)
            return i + 1;
    }
    return 0;
}

static bool has_own(const struct merak_ckpt_entry *entries, int n)
{
    for (int i = 0; i < n; i++) {
        if (!entries[i].elsewhere && entries[i].kind != MERAK_CKPT_TMP)
            return true;
    }
    return false;
}

static enum merak_status open_newest(const char *run_dir, const char *after,
                                     bool skip, char *dir,
                                     struct merak_ckpt_manifest **mf_p,
                                     struct merak_error *err)
{
    struct merak_ckpt_entry *entries = NULL;
    enum merak_status rc;
    struct merak_error why;
    int n = 0;

    rc = merak_ckpt_list(run_dir, &entries, &n, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_branch_mark(run_dir, entries, n, err);
    if (rc != MERAK_OK) {
        free(entries);
        return rc;
    }
    if (after == NULL && !has_own(entries, n) &&
        merak_ckpt_branch_goes_on(run_dir))
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "no checkpoint of the branch that %s is on is left, "
                        "only others': name the one to go on from",
                        run_dir);
    else if (after == NULL)
        rc = merak_fail(err, MERAK_ERR_NOT_FOUND, "no checkpoint in %s",
                        run_dir);
    else
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "%s is damaged, and there is no older checkpoint",
                        after);
    for (int i = entry_behind(entries, n, after); i < n && rc != MERAK_OK;
         i++) {
        merak_path(dir, run_dir, entries[i].name);
        if (entries[i].elsewhere)
            continue;
        if (entries[i].kind == MERAK_CKPT_TMP) {
            merak_warn("ckpt", "%s skipped: not committed", dir);
            continue;
        }
        rc = merak_ckpt_load(dir, mf_p, &why);
        if (rc == MERAK_OK)
            break;
        if (!skip) {
            rc = merak_fail(err, rc, "%s: %s", dir, why.text);
            break;
        }
        merak_warn("ckpt", "%s skipped: %s", dir, why.text);
        /* Not NOT_FOUND: starting from scratch would lose the run. */
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "every checkpoint in %s is damaged, %s: %s", run_dir,
                        entries[i].name, why.text);
    }
    free(entries);
    return rc;
}

enum merak_status merak_ckpt_open(const char *run_dir,
                                  struct merak_ckpt **ckpt_p,
                                  struct merak_error *err)
{
    return merak_ckpt_open_next(run_dir, NULL, true, ckpt_p, err);
}

enum merak_status merak_ckpt_open_next(const char *run_dir, const char *after,
                                       bool skip, struct merak_ckpt **ckpt_p,
                                       struct merak_error *err)
{
    struct merak_ckpt_manifest *mf = NULL;
    char dir[PATH_MAX];
    enum merak_status rc;

    if (strlen(run_dir) >= MERAK_DIR_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "path too long: %.100s...",
                          run_dir);
    if (merak_ckpt_is_one(run_dir)) {
        strcpy(dir, run_dir);
        rc = merak_ckpt_load(dir, &mf, err);
        if (rc != MERAK_OK)
            merak_error_wrap(err, "%s", dir);
    } else {
        rc = open_newest(run_dir, after, skip, dir, &mf, err);
    }
    if (rc != MERAK_OK)
        return rc;
    return make_ckpt(dir, mf, ckpt_p, err);
}

void merak_ckpt_close(struct merak_ckpt *ckpt)
{
    if (ckpt == NULL)
        return;
    for (int i = 0; i < ckpt->n_open; i++)
        close(ckpt->open[i].fd);
    merak_ckpt_manifest_destroy(ckpt->mf);
    free(ckpt->part_checked);
    free(ckpt->checked);
    free(ckpt);
}

const struct merak_ckpt_manifest *
merak_ckpt_manifest(const struct merak_ckpt *ckpt)
{
    return ckpt->mf;
}

const char *merak_ckpt_path(const struct merak_ckpt *ckpt)
{
    return ckpt->dir;
}

const struct merak_ckpt_state *merak_ckpt_state(const struct merak_ckpt *ckpt)
{
    return &ckpt->mf->state;
}

const char *merak_ckpt_tensor(const struct merak_ckpt *ckpt, int i,
                              struct merak_shape *shape)
{
    if (i >= ckpt->mf->n_tensors)
        return NULL;
    *shape = ckpt->mf->tensor[i].shape;
    return ckpt->mf->tensor[i].name;
}

/* --- reading ----------------------------------------------------------------
 */

/* Check the whole file, if a checkpoint of an earlier version has no checksum
 * of the bytes around parts. */
static enum merak_status check_whole(struct merak_ckpt *ckpt, int shard,
                                     const char *path, struct merak_error *err)
{
    const struct merak_ckpt_file *file = &ckpt->mf->shard[shard];
    char hash[MERAK_HASH_TEXT];
    uint64_t bytes;
    enum merak_status rc = merak_durable_hash(path, &bytes, hash, err);

    if (rc != MERAK_OK)
        return rc;
    if (bytes != file->bytes || strcmp(hash, file->hash) != 0)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s is damaged: its checksum is not the one in the "
                          "manifest",
                          path);
    for (int i = ckpt->mf->first_placed[shard];
         i < ckpt->mf->first_placed[shard + 1]; i++)
        ckpt->part_checked[ckpt->mf->placed[i] - ckpt->mf->part] = true;
    return MERAK_OK;
}

static enum merak_status check_around(const struct merak_ckpt *ckpt, int shard,
                                      int fd, const char *path,
                                      struct merak_error *err)
{
    const char *want = ckpt->mf->shard[shard].rest;
    char hash[MERAK_HASH_TEXT];
    enum merak_status rc =
        merak_ckpt_rest_hash(ckpt->mf, shard, fd, path, hash, err);

    if (rc != MERAK_OK || strcmp(hash, want) == 0)
        return rc;
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "%s is damaged: the checksum of the data around its "
                      "tensors is not the one in the manifest",
                      path);
}

static enum merak_status check_shard(struct merak_ckpt *ckpt, int shard, int fd,
                                     const char *path, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (ckpt->checked[shard])
        return MERAK_OK;
    rc = ckpt->mf->shard[shard].rest == NULL
             ? check_whole(ckpt, shard, path, err)
             : check_around(ckpt, shard, fd, path, err);
    ckpt->checked[shard] = rc == MERAK_OK;
    return rc;
}

static enum merak_status open_shard(struct merak_ckpt *ckpt, int shard,
                                    const char *path, int *fd_p,
                                    struct merak_error *err)
{
    uint64_t bytes;
    enum merak_status rc;
    int at, fd;

    for (int i = 0; i < ckpt->n_open; i++) {
        if (ckpt->open[i].shard == shard) {
            *fd_p = ckpt->open[i].fd;
            return MERAK_OK;
        }
    }
    rc = merak_file_open(path, &fd, &bytes, err);
    if (rc != MERAK_OK)
        return rc;
    rc = check_shard(ckpt, shard, fd, path, err);
    if (rc != MERAK_OK) {
        close(fd);
        return rc;
    }
    if (ckpt->n_open < MAX_OPEN) {
        at = ckpt->n_open++;
    } else {
        at = ckpt->next;
        ckpt->next = (ckpt->next + 1) % MAX_OPEN;
        close(ckpt->open[at].fd);
    }
    ckpt->open[at].shard = shard;
    ckpt->open[at].fd = fd;
    *fd_p = fd;
    return MERAK_OK;
}

/* Read elements `both` of a part to their position in `data`, which holds the
 * elements of `box`. */
static enum merak_status read_part(struct merak_ckpt *ckpt,
                                   const struct merak_ckpt_part *part,
                                   const struct merak_box *both,
                                   const struct merak_box *box, float *data,
                                   struct merak_error *err)
{
    bool *checked = &ckpt->part_checked[part - ckpt->mf->part];
    char path[PATH_MAX];
    enum merak_status rc;
    int fd = -1;

    merak_path(path, ckpt->dir, ckpt->mf->shard[part->shard].name);
    rc = open_shard(ckpt, part->shard, path, &fd, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_part_read(fd, path, part, both, box, data, !*checked,
                                  err);
    if (rc == MERAK_OK)
        *checked = true;
    return rc;
}

bool merak_ckpt_has(const struct merak_ckpt *ckpt, const char *name)
{
    return merak_ckpt_tensor_find(ckpt->mf, name) != NULL;
}

static enum merak_status find_tensor(const struct merak_ckpt *ckpt,
                                     const struct merak_ckpt_piece *piece,
                                     const struct merak_ckpt_tensor **t_p,
                                     struct merak_error *err)
{
    const struct merak_ckpt_tensor *t =
        merak_ckpt_tensor_find(ckpt->mf, piece->name);
    char want[160], has[160];

    if (t == NULL)
        return merak_fail(err, MERAK_ERR_MISMATCH, "%s has no tensor %s",
                          ckpt->dir, piece->name);
    if (t->shape.ndim != piece->shape.ndim ||
        memcmp(t->shape.dim, piece->shape.dim,
               (size_t)t->shape.ndim * sizeof(*t->shape.dim)) != 0)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "tensor %s is %s in %s, and %s here", piece->name,
                          merak_shape_text(has, &t->shape), ckpt->dir,
                          merak_shape_text(want, &piece->shape));
    *t_p = t;
    return MERAK_OK;
}

static enum merak_status read_boxes(struct merak_ckpt *ckpt,
                                    const struct merak_ckpt_piece *piece,
                                    const struct merak_ckpt_tensor *t,
                                    struct merak_error *err)
{
    struct merak_box boxes[MERAK_FLAT_BOXES], both;
    int n = merak_ckpt_piece_boxes(piece, boxes);
    enum merak_status rc = MERAK_OK;
    float *data = piece->data;

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < t->n && rc == MERAK_OK; k++) {
            const struct merak_ckpt_part *part = &ckpt->mf->part[t->first + k];

            if (merak_ckpt_box_meet(&boxes[i], &part->box, &both))
                rc = read_part(ckpt, part, &both, &boxes[i], data, err);
        }
        data += merak_box_count(&boxes[i]);
    }
    return rc;
}

enum merak_status merak_ckpt_read(struct merak_ckpt *ckpt,
                                  const struct merak_ckpt_piece *piece,
                                  struct merak_error *err)
{
    const struct merak_ckpt_tensor *t = NULL;
    enum merak_status rc;

    rc = merak_ckpt_piece_check(piece, err);
    if (rc == MERAK_OK)
        rc = find_tensor(ckpt, piece, &t, err);
    if (rc != MERAK_OK)
        return rc;
    rc = read_boxes(ckpt, piece, t, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "tensor %s", piece->name);
    return rc;
}
