/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - check all of a checkpoint, name what is damaged
 *
 * A shard file is read once, in order: each block is added to the checksum of
 * the file and to that of its part, or of the bytes around parts.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "io/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A block stays in cache while it is added to two checksums. */
#define BLOCK ((size_t)256 << 10)

struct verify {
    const char *dir;
    const struct merak_ckpt_manifest *mf;
    void (*report)(void *arg, const char *line);
    void *arg;
    struct merak_progress *progress; /* or NULL */
    struct merak_hasher *file, *part;
    char *block;
    int damaged;
    struct merak_error *err; /* the first damage */
};

static void damage(struct verify *v, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void damage(struct verify *v, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (v->damaged++ == 0)
        merak_fail(v->err, MERAK_ERR_CORRUPT, "%s: %s", v->dir, line);
    if (v->report != NULL)
        v->report(v->arg, line);
}

/* Report damage, unless the file matches the manifest. */
static bool is_as_written(struct verify *v, const struct merak_ckpt_file *file,
                          uint64_t bytes, const char *hash)
{
    if (bytes != file->bytes)
        damage(v, "%s has %" PRIu64 " bytes, not %" PRIu64, file->name, bytes,
               file->bytes);
    else if (strcmp(hash, file->hash) != 0)
        damage(v, "%s is damaged: its checksum is not the one in the manifest",
               file->name);
    else
        return true;
    return false;
}

static void cannot_read(struct verify *v, const struct merak_ckpt_file *file,
                        enum merak_status rc, const struct merak_error *why)
{
    if (rc == MERAK_ERR_NOT_FOUND)
        damage(v, "%s is missing", file->name);
    else
        damage(v, "%s", why->text);
}

static void check_master(struct verify *v)
{
    const struct merak_ckpt_file *file = &v->mf->master;
    char path[PATH_MAX], hash[MERAK_HASH_TEXT];
    struct merak_error why;
    uint64_t bytes = 0;
    enum merak_status rc;

    rc = merak_durable_hash(merak_path(path, v->dir, file->name), &bytes, hash,
                            &why);
    merak_progress_add(v->progress, (double)file->bytes);
    if (rc != MERAK_OK)
        cannot_read(v, file, rc, &why);
    else
        (void)is_as_written(v, file, bytes, hash);
}

/* --- a shard -----------------------------------------------------------------
 */

struct walk {
    struct verify *v;
    const char *path;
    int fd;
    uint64_t at;
    bool cut;      /* it is shorter than it should be, or cannot be read */
    int n_damaged; /* parts */
};

/* Bytes up to `to`, added to the file's checksum and to the part's if `also`.
 */
static void walk_to(struct walk *w, uint64_t to, bool also)
{
    struct verify *v = w->v;

    while (w->at < to && !w->cut) {
        size_t n = to - w->at < BLOCK ? (size_t)(to - w->at) : BLOCK;

        if (merak_file_read(w->fd, w->path, v->block, n, w->at, NULL) !=
            MERAK_OK) {
            w->cut = true;
            return;
        }
        merak_hasher_add(v->file, v->block, n);
        if (also)
            merak_hasher_add(v->part, v->block, n);
        merak_progress_add(v->progress, (double)n);
        w->at += n;
    }
}

static void walk_part(struct walk *w, const struct merak_ckpt_part *part)
{
    const char *name = w->v->mf->shard[part->shard].name;
    size_t bytes = merak_ckpt_part_bytes(part);
    char hash[MERAK_HASH_TEXT];

    if (bytes > 0) {
        walk_to(w, part->offset, false);
        walk_to(w, part->offset + bytes, true);
    }
    merak_hasher_take(w->v->part, hash);
    if ((bytes == 0 || !w->cut) && strcmp(hash, part->hash) == 0)
        return;
    w->n_damaged++;
    damage(w->v, "%s: tensor %s is damaged", name, part->tensor);
}

/* Damaged parts are listed after the file; in an undamaged file there are
 * none, unless memory was bad when it was written. */
static void walk_shard(struct walk *w, int shard, uint64_t bytes)
{
    const struct merak_ckpt_manifest *mf = w->v->mf;
    const struct merak_ckpt_file *file = &mf->shard[shard];
    char hash[MERAK_HASH_TEXT];
    bool sound = false;

    for (int i = mf->first_placed[shard]; i < mf->first_placed[shard + 1]; i++)
        walk_part(w, mf->placed[i]);
    walk_to(w, bytes, false);
    merak_hasher_take(w->v->file, hash);
    if (w->cut && bytes == file->bytes)
        damage(w->v, "%s cannot be read at byte %" PRIu64, file->name, w->at);
    else
        sound = is_as_written(w->v, file, bytes, hash);
    if (!sound && w->n_damaged == 0)
        damage(w->v,
               "%s: its tensors are sound; the damage is in the data around "
               "them",
               file->name);
}

static void check_shard(struct verify *v, int shard)
{
    const struct merak_ckpt_file *file = &v->mf->shard[shard];
    double done = v->progress == NULL ? 0 : v->progress->done;
    char path[PATH_MAX];
    struct walk w = {.v = v, .path = path};
    struct merak_error why;
    uint64_t bytes = 0;
    enum merak_status rc;

    merak_path(path, v->dir, file->name);
    rc = merak_file_open(path, &w.fd, &bytes, &why);
    if (rc != MERAK_OK) {
        cannot_read(v, file, rc, &why);
    } else {
        (void)posix_fadvise(w.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        walk_shard(&w, shard, bytes);
        close(w.fd);
    }
    if (v->progress != NULL) /* count it as read entirely */
        merak_progress_add(v->progress,
                           done + (double)file->bytes - v->progress->done);
}

static double bytes_to_read(const struct merak_ckpt_manifest *mf)
{
    double bytes = (double)mf->master.bytes;

    for (int i = 0; i < mf->n_shards; i++)
        bytes += (double)mf->shard[i].bytes;
    return bytes;
}

static enum merak_status check_all(struct verify *v)
{
    enum merak_status rc = MERAK_OK;

    if (v->progress != NULL)
        v->progress->total = bytes_to_read(v->mf);
    v->file = merak_hasher_create();
    v->part = merak_hasher_create();
    v->block = malloc(BLOCK);
    if (v->file == NULL || v->part == NULL || v->block == NULL) {
        rc = merak_fail_nomem(v->err, BLOCK);
        goto out;
    }
    check_master(v);
    for (int i = 0; i < v->mf->n_shards; i++)
        check_shard(v, i);
    if (v->damaged > 0)
        rc = MERAK_ERR_CORRUPT;
out:
    free(v->block);
    merak_hasher_destroy(v->part);
    merak_hasher_destroy(v->file);
    return rc;
}

enum merak_status merak_ckpt_verify(const char *ckpt_dir,
                                    void (*report)(void *arg, const char *line),
                                    void *arg, struct merak_error *err)
{
    return merak_ckpt_verify_watched(ckpt_dir, report, arg, NULL, err);
}

enum merak_status merak_ckpt_verify_watched(
    const char *ckpt_dir, void (*report)(void *arg, const char *line),
    void *arg, struct merak_progress *progress, struct merak_error *err)
{
    struct verify v = {.dir = ckpt_dir,
                       .report = report,
                       .arg = arg,
                       .progress = progress,
                       .err = err};
    struct merak_ckpt_manifest *mf = NULL;
    struct merak_error why;
    enum merak_status rc;

    if (strlen(ckpt_dir) >= MERAK_DIR_MAX || !merak_ckpt_is_one(ckpt_dir))
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "%.200s is not a checkpoint", ckpt_dir);
    rc = merak_ckpt_load_manifest(ckpt_dir, &mf, &why);
    if (rc != MERAK_OK && rc != MERAK_ERR_CORRUPT)
        return merak_fail(err, rc, "%s: %s", ckpt_dir, why.text);
    if (rc != MERAK_OK) {
        damage(&v, "%s", why.text);
        return MERAK_ERR_CORRUPT;
    }
    v.mf = mf;
    rc = check_all(&v);
    merak_ckpt_manifest_destroy(mf);
    return rc;
}
