/* SPDX-License-Identifier: Apache-2.0 */
/* repair.c - recreate a damaged or missing master file
 *
 * The master has no data: all its contents follow from the manifest's entries
 * of shard files.  The same HDF5 makes the same bytes as when the checkpoint
 * was saved.  Another version of HDF5 may not, and masters of earlier versions
 * of Merak contain timestamps: then the manifest gets a new entry for the
 * master, and COMMITTED a new line:
 *
 *   1  master.h5.new, manifest.json.new and COMMITTED.new, each synced, and the
 *      directory
 *   2  rename them over the old ones in this order, and sync the directory
 *
 * Between the second and the third rename COMMITTED does not match the
 * manifest; COMMITTED.new does, and the next repair continues from there.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEW ".new"

static bool is_sound(const char *path, const struct merak_ckpt_file *file)
{
    char hash[MERAK_HASH_TEXT];
    uint64_t bytes;

    return merak_durable_hash(path, &bytes, hash, NULL) == MERAK_OK &&
           bytes == file->bytes && strcmp(hash, file->hash) == 0;
}

static enum merak_status put_in_place(const char *dir, const char *name,
                                      struct merak_error *err)
{
    char from[PATH_MAX], to[PATH_MAX];

    merak_path(to, dir, name);
    snprintf(from, sizeof(from), "%.*s" NEW, (int)sizeof(from) - 8, to);
    if (rename(from, to) != 0)
        return merak_file_fail(err, "rename", from);
    return MERAK_OK;
}

/* Finish a repair that was interrupted between its last two renames. */
static void finish_earlier(const char *dir)
{
    char path[PATH_MAX], record[MERAK_CKPT_MAX_RECORD];
    struct merak_ckpt_manifest *mf = NULL;
    char *text = NULL, *committed = NULL;
    size_t bytes, n, has;

    if (merak_durable_read(merak_path(path, dir, MERAK_CKPT_MANIFEST), &text,
                           &bytes, NULL) == MERAK_OK &&
        merak_durable_read(merak_path(path, dir, MERAK_CKPT_COMMITTED NEW),
                           &committed, &has, NULL) == MERAK_OK &&
        merak_ckpt_manifest_parse(text, bytes, &mf, NULL) == MERAK_OK) {
        n = merak_ckpt_record(record, mf->state.step, text, bytes);
        if (n == has && memcmp(record, committed, n) == 0)
            (void)put_in_place(dir, MERAK_CKPT_COMMITTED, NULL);
    }
    merak_ckpt_manifest_destroy(mf);
    free(committed);
    free(text);
}

/* Write a new manifest with the new master's entry, and a new record. */
static enum merak_status write_records(const char *dir, const char *master,
                                       const struct merak_ckpt_manifest *mf,
                                       struct merak_error *err)
{
    char path[PATH_MAX], record[MERAK_CKPT_MAX_RECORD];
    enum merak_status rc = merak_ckpt_master_record(master, mf->root, err);
    char *text = rc == MERAK_OK ? json_dumps(mf->root, JSON_COMPACT) : NULL;
    size_t n;

    if (rc != MERAK_OK)
        return rc;
    if (text == NULL)
        return merak_fail_nomem(err, 0);
    rc = merak_durable_write(merak_path(path, dir, MERAK_CKPT_MANIFEST NEW),
                             text, strlen(text), err);
    n = merak_ckpt_record(record, mf->state.step, text, strlen(text));
    free(text);
    if (rc == MERAK_OK)
        rc = merak_durable_write(
            merak_path(path, dir, MERAK_CKPT_COMMITTED NEW), record, n, err);
    if (rc == MERAK_OK)
        rc = merak_dir_sync(dir, err);
    return rc;
}

/* Check that the shard files exist, else this is no checkpoint to repair;
 * merak_ckpt_verify() checks their bytes. */
static enum merak_status check_shards(const char *dir,
                                      const struct merak_ckpt_manifest *mf,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < mf->n_shards && rc == MERAK_OK; i++)
        rc = merak_ckpt_check_size(dir, &mf->shard[i], err);
    return rc;
}

/* Remove the new files; the old ones are unchanged. */
static void remove_new(const char *dir)
{
    static const char *const names[] = {MERAK_CKPT_MASTER NEW,
                                        MERAK_CKPT_MANIFEST NEW,
                                        MERAK_CKPT_COMMITTED NEW};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        (void)unlink(merak_path(path, dir, names[i]));
}

static enum merak_status
repair(const char *dir, const struct merak_ckpt_manifest *mf, const char *fresh,
       enum merak_ckpt_repair *found_p, struct merak_error *err)
{
    bool same;
    enum merak_status rc;

    (void)unlink(fresh);
    rc = merak_ckpt_master_write(fresh, &mf->state, mf, err);
    if (rc != MERAK_OK)
        return rc;
    same = is_sound(fresh, &mf->master);
    if (!same)
        rc = write_records(dir, fresh, mf, err);
    if (rc != MERAK_OK) {
        remove_new(dir);
        return rc;
    }
    rc = put_in_place(dir, MERAK_CKPT_MASTER, err);
    if (rc == MERAK_OK && !same)
        rc = put_in_place(dir, MERAK_CKPT_MANIFEST, err);
    if (rc == MERAK_OK && !same)
        rc = put_in_place(dir, MERAK_CKPT_COMMITTED, err);
    if (rc == MERAK_OK)
        rc = merak_dir_sync(dir, err);
    if (rc == MERAK_OK)
        *found_p = same ? MERAK_CKPT_REPAIR_SAME : MERAK_CKPT_REPAIR_REWRITTEN;
    return rc;
}

enum merak_status merak_ckpt_repair_master(const char *ckpt_dir,
                                           enum merak_ckpt_repair *found_p,
                                           struct merak_error *err)
{
    struct merak_ckpt_manifest *mf = NULL;
    char path[PATH_MAX], fresh[PATH_MAX];
    enum merak_status rc;

    if (strlen(ckpt_dir) >= MERAK_DIR_MAX || !merak_ckpt_is_one(ckpt_dir))
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "%.200s is not a checkpoint", ckpt_dir);
    rc = merak_ckpt_load_manifest(ckpt_dir, &mf, err);
    if (rc == MERAK_ERR_CORRUPT) {
        finish_earlier(ckpt_dir);
        rc = merak_ckpt_load_manifest(ckpt_dir, &mf, err);
    }
    if (rc == MERAK_OK)
        rc = check_shards(ckpt_dir, mf, err);
    merak_path(path, ckpt_dir, MERAK_CKPT_MASTER);
    merak_path(fresh, ckpt_dir, MERAK_CKPT_MASTER NEW);
    if (rc == MERAK_OK && is_sound(path, &mf->master))
        *found_p = MERAK_CKPT_REPAIR_SOUND;
    else if (rc == MERAK_OK)
        rc = repair(ckpt_dir, mf, fresh, found_p, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "%s", ckpt_dir);
    merak_ckpt_manifest_destroy(mf);
    return rc;
}
