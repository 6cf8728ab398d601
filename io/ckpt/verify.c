/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - check everything a checkpoint holds, name what is damaged */
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
#include <unistd.h>

struct verify {
    const char *dir;
    const struct merak_ckpt_manifest *mf;
    void (*report)(void *arg, const char *line);
    void *arg;
    struct merak_progress *progress; /* or NULL */
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

/* True if the file is what the manifest says. */
static bool check_file(struct verify *v, const struct merak_ckpt_file *file)
{
    char path[PATH_MAX], hash[MERAK_HASH_TEXT];
    struct merak_error why;
    uint64_t bytes = 0;
    enum merak_status rc;

    rc = merak_durable_hash(merak_path(path, v->dir, file->name), &bytes, hash,
                            &why);
    merak_progress_add(v->progress, (double)file->bytes);
    if (rc == MERAK_ERR_NOT_FOUND)
        damage(v, "%s is missing", file->name);
    else if (rc != MERAK_OK)
        damage(v, "%s", why.text);
    else if (bytes != file->bytes)
        damage(v, "%s has %" PRIu64 " bytes, not %" PRIu64, file->name, bytes,
               file->bytes);
    else if (strcmp(hash, file->hash) != 0)
        damage(v, "%s is damaged: its checksum is not the one in the manifest",
               file->name);
    else
        return true;
    return false;
}

static bool part_is_sound(int fd, const struct merak_ckpt_part *part,
                          void *data)
{
    size_t bytes = merak_box_count(&part->box) * sizeof(float);
    char hash[MERAK_HASH_TEXT];

    if (merak_file_read(fd, "", data, bytes, part->offset, NULL) != MERAK_OK)
        return false;
    merak_hash(data, bytes, hash);
    return strcmp(hash, part->hash) == 0;
}

static double part_bytes(const struct merak_ckpt_part *part)
{
    return (double)merak_box_count(&part->box) * sizeof(float);
}

/* Which tensors of a shard are hit; in a file that is as it was written none
 * can be, unless memory was bad then.  Read by offset: HDF5's parser is not
 * made for damaged files. */
static void check_parts(struct verify *v, int shard, int fd, void *data,
                        bool file_is_sound)
{
    const char *name = v->mf->shard[shard].name;
    int hit = 0;

    for (int i = 0; i < v->mf->n_parts; i++) {
        const struct merak_ckpt_part *part = &v->mf->part[i];

        bool sound;

        if (part->shard != shard)
            continue;
        sound = part_is_sound(fd, part, data);
        merak_progress_add(v->progress, part_bytes(part));
        if (sound)
            continue;
        hit++;
        damage(v, "%s: tensor %s is damaged", name, part->tensor);
    }
    if (hit == 0 && !file_is_sound)
        damage(v, "%s: its tensors are sound, the damage is around them", name);
}

static void check_shard(struct verify *v, int shard, void *data)
{
    bool sound = check_file(v, &v->mf->shard[shard]);
    char path[PATH_MAX];
    int fd = open(merak_path(path, v->dir, v->mf->shard[shard].name),
                  O_RDONLY | O_CLOEXEC);

    if (fd < 0) /* check_file() has said so */
        return;
    check_parts(v, shard, fd, data, sound);
    close(fd);
}

/* Files are read as a whole, and their tensors once more. */
static double bytes_to_read(const struct merak_ckpt_manifest *mf)
{
    double bytes = (double)mf->master.bytes;

    for (int i = 0; i < mf->n_shards; i++)
        bytes += (double)mf->shard[i].bytes;
    for (int i = 0; i < mf->n_parts; i++)
        bytes += part_bytes(&mf->part[i]);
    return bytes;
}

static enum merak_status check_all(struct verify *v)
{
    size_t most = 0;
    void *data;

    if (v->progress != NULL)
        v->progress->total = bytes_to_read(v->mf);

    for (int i = 0; i < v->mf->n_parts; i++) {
        size_t n = merak_box_count(&v->mf->part[i].box);

        most = n > most ? n : most;
    }
    data = malloc(most * sizeof(float) + 1);
    if (data == NULL)
        return merak_fail_nomem(v->err, most * sizeof(float));
    (void)check_file(v, &v->mf->master);
    for (int i = 0; i < v->mf->n_shards; i++)
        check_shard(v, i, data);
    free(data);
    return v->damaged > 0 ? MERAK_ERR_CORRUPT : MERAK_OK;
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
        return merak_fail(err, MERAK_ERR_NOT_FOUND, "%.200s is no checkpoint",
                          ckpt_dir);
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
