/* SPDX-License-Identifier: Apache-2.0 */
/* keep.c - which checkpoints of a run to keep, and removing the others
 *
 * One that is removed is renamed to .tmp first, so that nothing half removed
 * looks like a checkpoint.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "io/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum merak_status remove_one(const char *run_dir,
                                    const struct merak_ckpt_entry *entry,
                                    struct merak_error *err)
{
    char from[PATH_MAX], to[PATH_MAX], name[MERAK_CKPT_NAME];
    enum merak_status rc;

    merak_path(from, run_dir, entry->name);
    if (entry->kind == MERAK_CKPT_TMP)
        return merak_dir_remove(from, err);
    merak_path(to, run_dir, merak_ckpt_name(name, entry->step, MERAK_CKPT_TMP));
    rc = merak_dir_remove(to, err);
    if (rc != MERAK_OK)
        return rc;
    if (rename(from, to) != 0)
        return merak_file_fail(err, "rename", from);
    /* Remove the name first, durably, then the files under it. */
    rc = merak_dir_sync(run_dir, err);
    if (rc == MERAK_OK)
        rc = merak_dir_remove(to, err);
    return rc;
}

/* Was it imported?  Then a user put it there, and saves do not remove it. */
static bool is_imported(const char *run_dir,
                        const struct merak_ckpt_entry *entry)
{
    struct merak_ckpt_manifest *mf = NULL;
    char path[PATH_MAX];
    bool imported;

    if (entry->step != 0 ||
        merak_ckpt_load_manifest(merak_path(path, run_dir, entry->name), &mf,
                                 NULL) != MERAK_OK)
        return false;
    imported = mf->state.imported;
    merak_ckpt_manifest_destroy(mf);
    return imported;
}

static bool can_be_loaded(const char *run_dir,
                          const struct merak_ckpt_entry *entry)
{
    struct merak_ckpt_manifest *mf = NULL;
    char path[PATH_MAX];

    if (merak_ckpt_load(merak_path(path, run_dir, entry->name), &mf, NULL) !=
        MERAK_OK)
        return false;
    merak_ckpt_manifest_destroy(mf);
    return true;
}

static uint64_t bytes_on_disk(const char *run_dir, const char *name)
{
    char dir_path[PATH_MAX], path[PATH_MAX];
    DIR *dir = opendir(merak_path(dir_path, run_dir, name));
    struct dirent *entry;
    uint64_t bytes = 0;
    struct stat st;

    if (dir == NULL)
        return 0;
    while ((entry = readdir(dir)) != NULL) {
        if (stat(merak_path(path, dir_path, entry->d_name), &st) == 0 &&
            S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
    }
    closedir(dir);
    return bytes;
}

struct walk {
    const char *run_dir;
    struct merak_ckpt_keep keep;
    uint64_t newest;
    bool debris;
    int good; /* loadable ones so far */
    uint64_t good_step;
};

/* Is it removed, and why or why not? */
static bool goes(struct walk *w, const struct merak_ckpt_entry *entry,
                 const char **why_p)
{
    if (entry->kind == MERAK_CKPT_TMP) {
        *why_p = "a save that was interrupted, or is in progress";
        return w->debris;
    }
    *why_p = "later than the step that is saved";
    if (entry->step > w->newest)
        return false;
    *why_p = "its step was saved again";
    if (w->good > 0 && entry->kind == MERAK_CKPT_OLD &&
        w->good_step == entry->step)
        return true;
    *why_p = "of another branch of the run";
    if (entry->elsewhere)
        return false;
    if (w->keep.newest > 0 && w->good >= w->keep.newest) {
        *why_p = "its step is a multiple of --keep-every";
        if (w->keep.every > 0 && entry->step % w->keep.every == 0)
            return false;
        *why_p = "imported";
        if (is_imported(w->run_dir, entry))
            return false;
        *why_p = "older than those that are kept";
        return true;
    }
    *why_p = "damaged: not counted";
    if (can_be_loaded(w->run_dir, entry)) {
        *why_p = "one of the newest";
        w->good_step = entry->step;
        w->good++;
    }
    return false;
}

static void tell(const struct merak_ckpt_pruning *how, const char *run_dir,
                 const struct merak_ckpt_entry *entry, bool stays,
                 const char *why)
{
    const struct merak_ckpt_fate fate = {
        .name = entry->name,
        .step = entry->step,
        .bytes = bytes_on_disk(run_dir, entry->name),
        .stays = stays,
        .why = why,
    };

    how->tell(how->arg, &fate);
}

enum merak_status merak_ckpt_prune(const char *run_dir,
                                   struct merak_ckpt_keep keep, uint64_t newest,
                                   const struct merak_ckpt_pruning *how,
                                   struct merak_error *err)
{
    struct walk w = {.run_dir = run_dir,
                     .keep = keep,
                     .newest = newest,
                     .debris = how != NULL && how->debris};
    struct merak_ckpt_entry *entries = NULL;
    enum merak_status rc;
    int n = 0;

    rc = merak_ckpt_list(run_dir, &entries, &n, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_branch_mark(run_dir, entries, n, err);
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        const char *why;
        bool going = goes(&w, &entries[i], &why);

        if (how != NULL && how->tell != NULL)
            tell(how, run_dir, &entries[i], !going, why);
        if (going && (how == NULL || !how->dry_run))
            rc = remove_one(run_dir, &entries[i], err);
    }
    free(entries);
    return rc;
}
