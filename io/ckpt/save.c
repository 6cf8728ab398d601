/* SPDX-License-Identifier: Apache-2.0 */
/* save.c - write a checkpoint; THE description of its format
 *
 * A run's directory holds
 *
 *   step-00000020/        a checkpoint: committed, never changed again
 *     shard-00000.h5      one HDF5 file per rank, by number in the plan (its
 *                         logical rank, not Slurm's), or one per node, by the
 *                         node's index (node_copy.c)
 *     shard-00001.h5
 *     master.h5           every tensor whole: virtual datasets over the shards
 *     manifest.json       its contents: sizes, checksums, boxes, state
 *     COMMITTED           written last; holds the manifest's checksum
 *   step-00000040.tmp/    a save under way or interrupted, or one being removed
 *   step-00000020.old/    a checkpoint that a new step-00000020 replaces
 *   LATEST                the name of the newest, one line; for users and
 *                         scripts, the reader does not need it
 *   BRANCH                of a run that was taken back: branch.c
 *   OWNER                 the run that saves here now: owner.c
 *   model/                config.json of the model, and what else makes
 *                         a checkpoint a model folder: run_model.c
 *
 * The step has at least eight digits.  All checksums are xxh3-128, 32 hex
 * digits, as `xxhsum -H2` prints them.
 *
 * shard-RANK.h5.  Root attributes: format "merak-checkpoint", version, step,
 * rank (the number in its name).  A dataset for each box of a tensor that the
 * rank, or a rank of the node, holds, contiguous, IEEE f32 little-endian,
 * named TENSOR@LO:HI,LO:HI.. after the box
 * ("param/h.0.attn.qkv.w@0:2304,0:384"; a scalar is "TENSOR@").  Attributes:
 * tensor, shape (of the whole), lo (the box's first corner).  A flat range
 * (ZeRO) is written as the few boxes it consists of, so that readers of shard
 * files have to know only boxes.
 *
 * master.h5.  Root attributes: format, version and the whole state.  For each
 * tensor a virtual dataset TENSOR in its own shape (a scalar as [1]), sources
 * named by file name alone, fill value NaN.
 *
 * manifest.json.  One object:
 *   format "merak-checkpoint", version 1
 *   merak, hdf5          versions that wrote it, for users
 *   state    { step, consumed_samples, consumed_tokens, seed (text), model_id,
 *              data_id, dtype, tp, pp, dp, seq, global_batch, recipe, imported,
 *              init_from, fingerprint, steps, branch, cp, ep, stages; those
 *              from seq on were added later, may be absent; cp and ep are
 *              absent if 1, stages if all have the same tp and dp }
 *   master   { file, bytes, xxh128 }
 *   shards   [ { file, bytes, xxh128, step, rest (xxh128 of the bytes that are
 *                in no part; added later and may be absent),
 *                parts [ { tensor, shape, lo, len, offset (of the dataset's
 *                          bytes in the file), xxh128 (of them) } ] } ]
 * The parts of all shards tile every tensor: each element has one writer.
 *
 * COMMITTED.  Two lines:
 *   merak-checkpoint 1 step STEP manifest BYTES XXH128
 *   XXH128 of the line above, its newline included
 *
 * A checkpoint is valid if COMMITTED's second line matches its first, its
 * first matches manifest.json, the manifest's parts tile their tensors, and
 * the files it names exist with their sizes.  A file's contents are checked
 * against its checksums before any byte is used: the bytes around parts when
 * the first part is read, each part as it is read; a file without `rest` as a
 * whole.
 *
 * The writer, rank 0 unless stated otherwise:
 *   1  remove what dead saves left (*.tmp), make step-N.tmp
 *      -- all ranks agree --
 *   2  every rank: shard-RANK.h5, fsync; shard-RANK.json (its entry of the
 *      manifest, removed before the commit)
 *      -- all ranks agree --
 *   3  merge the entries, check the tiling; master.h5 and manifest.json,
 *      fsync each and the directory; COMMITTED, fsync, the directory again
 *   4  if there is an older step-N: rename it to step-N.old, fsync the run's
 *      directory
 *   5  rename step-N.tmp to step-N, fsync the run's directory: committed
 *   6  LATEST by a rename; remove what is no longer kept, each renamed
 *      to .tmp first, so that nothing half removed looks like a checkpoint
 *      -- all ranks agree --
 * While training goes on (async.c) a thread does 2 and 3 to 6, from a copy of
 * the tensors, and the ranks agree between steps.
 * A failure in 1 to 5 removes step-N.tmp and is returned by all ranks.
 *
 * The reader, after any crash: of the directories step-N and step-N.old,
 * without those of other branches (branch.c), the valid one with the highest N,
 * step-N before step-N.old.  *.tmp is never read.  Until step 5 is on disk that
 * is the newest from before the save (in 4: step-N.old has the same files under
 * another name); from then on it is the new one, all of whose bytes and names
 * were synced before its rename.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/log.h"
#include "io/file.h"
#include "io/h5.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- 1: the directory ----------------------------------------------------
 */

enum merak_status merak_ckpt_remove_debris(const char *run_dir,
                                           struct merak_error *err)
{
    struct merak_ckpt_entry *entries = NULL;
    char path[PATH_MAX];
    enum merak_status rc;
    int n = 0;

    rc = merak_ckpt_list(run_dir, &entries, &n, err);
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        if (entries[i].kind == MERAK_CKPT_TMP)
            rc = merak_dir_remove(merak_path(path, run_dir, entries[i].name),
                                  err);
    }
    free(entries);
    return rc;
}

static enum merak_status prepare(const struct merak_ckpt_save *save,
                                 struct merak_error *err)
{
    enum merak_status rc = merak_dir_make(save->run_dir, err);

    if (rc == MERAK_OK)
        rc = merak_ckpt_remove_debris(save->run_dir, err);
    if (rc != MERAK_OK)
        return rc;
    if (mkdir(save->tmp, 0777) != 0)
        return merak_file_fail(err, "make directory", save->tmp);
    return MERAK_OK;
}

/* --- 3: master, manifest, COMMITTED -----------------------------------------
 */

/* Take one shard file's entry, and remove its JSON file. */
static enum merak_status take_shard(const struct merak_ckpt_save *save,
                                    int file, json_t *shards,
                                    struct merak_error *err)
{
    char name[48], path[PATH_MAX];
    char *text = NULL;
    size_t bytes;
    json_error_t why;
    json_t *json;
    enum merak_status rc;

    snprintf(name, sizeof(name), "shard-%05d.json", file);
    merak_path(path, save->tmp, name);
    rc = merak_durable_read(path, &text, &bytes, err);
    if (rc != MERAK_OK)
        return rc;
    json = json_loadb(text, bytes, 0, &why);
    free(text);
    if (json == NULL)
        return merak_fail(err, MERAK_ERR_CORRUPT, "%s: %s", path, why.text);
    if (json_integer_value(json_object_get(json, "step")) !=
        (json_int_t)save->state.step) {
        json_decref(json);
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%s is of another step than %llu", path,
                          (unsigned long long)save->state.step);
    }
    if (json_array_append_new(shards, json) != 0)
        return merak_fail_nomem(err, bytes);
    (void)unlink(path);
    return MERAK_OK;
}

static enum merak_status merge_shards(const struct merak_ckpt_save *save,
                                      struct merak_ckpt_manifest **mf_p,
                                      struct merak_error *err)
{
    struct merak_ckpt_manifest *mf = NULL;
    json_t *shards = json_array();
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:o, s:O}", "format", MERAK_CKPT_FORMAT, "version",
        MERAK_CKPT_VERSION, "merak", PACKAGE_VERSION, "state",
        merak_ckpt_state_json(&save->state), "shards", shards);
    enum merak_status rc = MERAK_OK;

    if (root == NULL)
        rc = merak_fail_nomem(err, 0);
    for (int file = 0; file < save->files && rc == MERAK_OK; file++)
        rc = take_shard(save, file, shards, err);
    json_decref(shards);
    if (rc != MERAK_OK) {
        json_decref(root);
        return rc;
    }
    rc = merak_ckpt_manifest_shards_take(root, &mf, err);
    if (rc != MERAK_OK)
        return rc;
    rc = merak_ckpt_manifest_cover(mf, MERAK_ERR_PARAM, err);
    if (rc == MERAK_OK)
        *mf_p = mf;
    else
        merak_ckpt_manifest_destroy(mf);
    return rc;
}

/* COMMITTED vouches for the manifest, so it must not exist before it: the
 * directory is synced in between as well. */
static enum merak_status write_records(const struct merak_ckpt_save *save,
                                       json_t *root, struct merak_error *err)
{
    char path[PATH_MAX], record[MERAK_CKPT_MAX_RECORD];
    char *text = json_dumps(root, JSON_COMPACT);
    enum merak_status rc;
    size_t bytes, n;

    if (text == NULL)
        return merak_fail_nomem(err, 0);
    bytes = strlen(text);
    n = merak_ckpt_record(record, save->state.step, text, bytes);
    rc = merak_durable_write(merak_path(path, save->tmp, MERAK_CKPT_MANIFEST),
                             text, bytes, err);
    free(text);
    if (rc == MERAK_OK)
        rc = merak_dir_sync(save->tmp, err);
    if (rc == MERAK_OK)
        rc = merak_durable_write(
            merak_path(path, save->tmp, MERAK_CKPT_COMMITTED), record, n, err);
    if (rc == MERAK_OK)
        rc = merak_dir_sync(save->tmp, err);
    return rc;
}

static enum merak_status complete(const struct merak_ckpt_save *save,
                                  struct merak_error *err)
{
    struct merak_ckpt_manifest *mf = NULL;
    char path[PATH_MAX];
    enum merak_status rc;

    rc = merge_shards(save, &mf, err);
    if (rc != MERAK_OK)
        return rc;
    rc = merak_ckpt_master_write(merak_path(path, save->tmp, MERAK_CKPT_MASTER),
                                 &save->state, mf, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_master_record(path, mf->root, err);
    if (rc == MERAK_OK)
        rc = write_records(save, mf->root, err);
    merak_ckpt_manifest_destroy(mf);
    return rc;
}

/* --- 4, 5: commit ------------------------------------------------------------
 */

/* A run that went back comes to steps that another branch has saved. */
static void tell_other_branch(const struct merak_ckpt_save *save,
                              const struct merak_ckpt_manifest *mf)
{
    if (!merak_ckpt_branch_has(save->state.branch, mf->state.branch,
                               mf->state.step))
        merak_warn("ckpt",
                   "%s of another branch of the run is replaced: its step was "
                   "saved again",
                   save->final);
}

/* A loadable step-N is renamed to step-N.old, which the reader uses while
 * there is no step-N.  A damaged one must not replace a good .old. */
static enum merak_status set_aside(const struct merak_ckpt_save *save,
                                   struct merak_error *err)
{
    struct merak_ckpt_manifest *mf = NULL;
    enum merak_status rc;

    if (access(save->final, F_OK) != 0)
        return MERAK_OK;
    if (merak_ckpt_load(save->final, &mf, NULL) != MERAK_OK)
        return merak_dir_remove(save->final, err);
    tell_other_branch(save, mf);
    merak_ckpt_manifest_destroy(mf);
    rc = merak_dir_remove(save->old, err);
    if (rc != MERAK_OK)
        return rc;
    if (rename(save->final, save->old) != 0)
        return merak_file_fail(err, "rename", save->final);
    return merak_dir_sync(save->run_dir, err);
}

static enum merak_status commit(const struct merak_ckpt_save *save,
                                struct merak_error *err)
{
    enum merak_status rc = set_aside(save, err);

    if (rc != MERAK_OK)
        return rc;
    if (rename(save->tmp, save->final) != 0)
        return merak_file_fail(err, "rename", save->tmp);
    rc = merak_dir_sync(save->run_dir, err);
    if (rc != MERAK_OK) /* it may not be on disk, so take it back */
        (void)rename(save->final, save->tmp);
    return rc;
}

/* --- 6: after the commit
 * ------------------------------------------------------ */

enum merak_status merak_ckpt_replace_line(const char *run_dir, const char *name,
                                          const char *line,
                                          struct merak_error *err)
{
    char path[PATH_MAX], tmp[PATH_MAX], part[32];
    enum merak_status rc;

    snprintf(part, sizeof(part), "%s.tmp", name);
    merak_path(path, run_dir, name);
    merak_path(tmp, run_dir, part);
    rc = merak_durable_write(tmp, line, strlen(line), err);
    if (rc != MERAK_OK)
        return rc;
    if (rename(tmp, path) != 0)
        return merak_file_fail(err, "rename", tmp);
    return merak_dir_sync(run_dir, err);
}

static enum merak_status write_latest(const struct merak_ckpt_save *save,
                                      struct merak_error *err)
{
    char line[MERAK_CKPT_NAME + 1];

    merak_ckpt_name(line, save->state.step, MERAK_CKPT_PLAIN);
    strcat(line, "\n");
    return merak_ckpt_replace_line(save->run_dir, MERAK_CKPT_LATEST, line, err);
}

/* The checkpoint is safe: failures from here on only give a warning. */
static void tidy(const struct merak_ckpt_save *save)
{
    struct merak_error err;

    if (write_latest(save, &err) != MERAK_OK)
        merak_warn("ckpt", "%s", err.text);
    if (merak_ckpt_prune(save->run_dir, save->keep, save->state.step, NULL,
                         &err) != MERAK_OK)
        merak_warn("ckpt", "old checkpoints stay: %s", err.text);
}

/* --- all of it
 * ----------------------------------------------------------------- */

static enum merak_status agree(const struct merak_ckpt_comm *comm,
                               enum merak_status mine, struct merak_error *err)
{
    return comm == NULL ? mine : comm->agree(comm->arg, mine, err);
}

static const struct merak_ckpt_comm *comm_of(const struct merak_ckpt_save *save)
{
    return save->comm.agree == NULL ? NULL : &save->comm;
}

static enum merak_status check_args(const char *run_dir,
                                    const struct merak_ckpt_state *state,
                                    const struct merak_ckpt_keep *keep,
                                    struct merak_error *err)
{
    if (strlen(run_dir) >= MERAK_DIR_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "path too long: %.100s...",
                          run_dir);
    if (keep->newest != 0 && keep->newest < MERAK_CKPT_MIN_KEEP)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "cannot keep %d checkpoints: at least %d, or 0 for "
                          "all",
                          keep->newest, MERAK_CKPT_MIN_KEEP);
    if (state->step > INT64_MAX || state->consumed_samples > INT64_MAX ||
        state->consumed_tokens > INT64_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "step or position beyond 2^63");
    return MERAK_OK;
}

static void set_paths(struct merak_ckpt_save *save)
{
    char name[MERAK_CKPT_NAME];
    uint64_t step = save->state.step;

    merak_path(save->final, save->run_dir,
               merak_ckpt_name(name, step, MERAK_CKPT_PLAIN));
    merak_path(save->old, save->run_dir,
               merak_ckpt_name(name, step, MERAK_CKPT_OLD));
    merak_path(save->tmp, save->run_dir,
               merak_ckpt_name(name, step, MERAK_CKPT_TMP));
}

enum merak_status merak_ckpt_save_begin(struct merak_ckpt_save *save,
                                        const char *run_dir,
                                        const struct merak_ckpt_state *state,
                                        struct merak_ckpt_keep keep,
                                        const struct merak_ckpt_comm *comm,
                                        struct merak_error *err)
{
    enum merak_status rc =
        agree(comm, check_args(run_dir, state, &keep, err), err);

    if (rc != MERAK_OK)
        return rc;
    memset(save, 0, sizeof(*save));
    strcpy(save->run_dir, run_dir);
    save->state = *state;
    save->keep = keep;
    save->files = 1;
    if (comm != NULL) {
        save->comm = *comm;
        save->rank = comm->rank;
        save->file = comm->files > 0 ? comm->file : comm->rank;
        save->files = comm->files > 0 ? comm->files : comm->size;
    }
    set_paths(save);
    if (save->rank == 0)
        rc = prepare(save, err);
    return agree(comm, rc, err);
}

enum merak_status merak_ckpt_save_written(const struct merak_ckpt_save *save,
                                          enum merak_status rc,
                                          struct merak_error *err)
{
    rc = agree(comm_of(save), rc, err);
    if (rc != MERAK_OK && save->rank == 0)
        (void)merak_dir_remove(save->tmp, NULL);
    return rc;
}

enum merak_status merak_ckpt_save_finish(const struct merak_ckpt_save *save,
                                         struct merak_error *err)
{
    enum merak_status rc = complete(save, err);

    if (rc == MERAK_OK)
        rc = commit(save, err);
    if (rc == MERAK_OK)
        tidy(save);
    else
        (void)merak_dir_remove(save->tmp, NULL);
    return rc;
}

enum merak_status merak_ckpt_save_finished(const struct merak_ckpt_save *save,
                                           enum merak_status rc,
                                           struct merak_error *err)
{
    return agree(comm_of(save), rc, err);
}

enum merak_status
merak_ckpt_save_timed(const char *run_dir, const struct merak_ckpt_state *state,
                      const struct merak_ckpt_piece *pieces, int n_pieces,
                      struct merak_ckpt_keep keep,
                      const struct merak_ckpt_comm *comm,
                      struct merak_ckpt_times *times_p, struct merak_error *err)
{
    const struct merak_ckpt_source source = {
        .piece = pieces,
        .end = n_pieces,
        .spare_core = merak_cores_allowed() > 1,
        .progress = comm == NULL ? NULL : comm->progress};
    struct merak_ckpt_times times = {.step = state->step,
                                     .start_ns = merak_clock_ns()};
    struct merak_ckpt_save save;
    enum merak_status rc =
        merak_ckpt_save_begin(&save, run_dir, state, keep, comm, err);

    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < n_pieces; i++)
        times.bytes += merak_ckpt_piece_bytes(&pieces[i]);
    if (source.progress != NULL)
        source.progress->total = (double)times.bytes;
    rc = merak_ckpt_shard_write(save.tmp, save.file, save.state.step, &source,
                                err);
    times.written_ns = merak_clock_ns();
    rc = merak_ckpt_save_written(&save, rc, err);
    if (rc != MERAK_OK)
        return rc;
    if (save.rank == 0) {
        rc = merak_ckpt_save_finish(&save, err);
        times.committed_ns = merak_clock_ns();
    }
    rc = merak_ckpt_save_finished(&save, rc, err);
    times.resumed_ns = merak_clock_ns();
    if (rc == MERAK_OK)
        *times_p = times;
    return rc;
}

enum merak_status merak_ckpt_save(const char *run_dir,
                                  const struct merak_ckpt_state *state,
                                  const struct merak_ckpt_piece *pieces,
                                  int n_pieces, struct merak_ckpt_keep keep,
                                  const struct merak_ckpt_comm *comm,
                                  struct merak_error *err)
{
    struct merak_ckpt_times times;

    return merak_ckpt_save_timed(run_dir, state, pieces, n_pieces, keep, comm,
                                 &times, err);
}

enum merak_status merak_ckpt_write(const char *run_dir,
                                   const struct merak_ckpt_state *state,
                                   const struct merak_ckpt_piece *pieces,
                                   const int *first, int n_shards,
                                   merak_ckpt_fill_fn fill, void *arg,
                                   struct merak_error *err)
{
    const struct merak_ckpt_keep keep_all = {.newest = 0};
    struct merak_ckpt_save save;
    enum merak_status rc =
        merak_ckpt_save_begin(&save, run_dir, state, keep_all, NULL, err);

    if (rc != MERAK_OK)
        return rc;
    save.files = n_shards;
    for (int s = 0; s < n_shards && rc == MERAK_OK; s++) {
        const struct merak_ckpt_source source = {
            .piece = pieces,
            .first = first[s],
            .end = first[s + 1],
            .fill = fill,
            .arg = arg,
            .spare_core = merak_cores_allowed() > 1};

        rc = merak_ckpt_shard_write(save.tmp, s, save.state.step, &source, err);
    }
    rc = merak_ckpt_save_written(&save, rc, err);
    return rc == MERAK_OK ? merak_ckpt_save_finish(&save, err) : rc;
}
