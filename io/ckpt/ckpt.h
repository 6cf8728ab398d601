/* SPDX-License-Identifier: Apache-2.0 */
/* io/ckpt/ckpt.h - sharded HDF5 checkpoints (merak-checkpoint(5))
 *
 * Tensors are named "param/NAME", "adam_m/NAME", "adam_v/NAME", all f32, with
 * their logical (global) shape; a piece is a flat range of a box of one.  Any
 * layout can read what any other wrote.
 */
#ifndef MERAK_IO_CKPT_CKPT_H
#define MERAK_IO_CKPT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/degree_text.h"
#include "base/progress.h"
#include "merak/status.h"
#include "partitioner/layout/layout.h"

struct merak_ckpt_piece {
    const char *name;         /* "param/h.0.attn.qkv.w" */
    struct merak_shape shape; /* global */
    struct merak_box box;     /* full = shape */
    size_t flat_lo, flat_hi;  /* of the box's elements, row-major */
    float *data;              /* flat_hi - flat_lo elements, contiguous */
};

enum {
    MERAK_CKPT_ORIGIN = 512,
    MERAK_CKPT_RECIPE_BYTES = 512,
    MERAK_CKPT_FINGERPRINT = 2048,
    MERAK_CKPT_BRANCH = 256,
    MERAK_CKPT_STAGES = 64,
};

/* The state other than tensors. */
struct merak_ckpt_state {
    uint64_t step;             /* steps done */
    uint64_t consumed_samples; /* position in the data */
    uint64_t consumed_tokens;
    uint64_t seed;
    uint64_t seq, global_batch; /* of the last step; 0: not known */
    char model_id[65]; /* fingerprint of names and shapes, hex */
    char data_id[65];  /* fingerprint of the data set, or "" */
    char dtype[8];
    char recipe[MERAK_CKPT_RECIPE_BYTES]; /* merak_train_recipe(), for users;
                                             "": not known */
    char fingerprint[MERAK_CKPT_FINGERPRINT]; /* what determines the run
                                                 (runtime/train/fingerprint.h);
                                                 "": not known */
    uint64_t steps; /* --steps of the writer; 0: not known */
    char branch[MERAK_CKPT_BRANCH]; /* of a run that was taken back (branch.c);
                                       "": it never was */
    int tp, pp, dp; /* of the writer; for users */
    int cp, ep;     /* of it, too; 0 is 1 */
    char stages[MERAK_CKPT_STAGES]; /* its list, "2x4-8x1", if they are unlike:
                                       then tp and dp are the first's; else "" */
    bool imported;  /* imported weights: no moments, no data position */
    char init_from[MERAK_CKPT_ORIGIN]; /* where the first weights came from;
                                          "": the seed */
};

/* How ranks communicate during a save; agree is like merak_agree(): all get
 * the first failure.  Only rank 0 commits. */
struct merak_ckpt_comm {
    int rank, size;
    void *arg;
    enum merak_status (*agree)(void *arg, enum merak_status mine,
                               struct merak_error *err);
    int file, files; /* this rank writes file `file` of `files`, or none: -1;
                        files 0: one per rank */
    struct merak_progress *progress; /* counts bytes that this rank writes
                                        while its caller waits; its total is
                                        set.  NULL: not shown */
};

/* Ranks of a node, the first of which writes the pieces of all. */
struct merak_ckpt_node {
    int rank, size; /* on the node; size 1: no effect */
    void *arg;
    /* Broadcast data[bytes] from the node's rank `root` to its others. */
    enum merak_status (*broadcast)(void *arg, void *data, size_t bytes,
                                   int root, struct merak_error *err);
};

/* With fewer, one bad disk block could lose the run. */
enum { MERAK_CKPT_MIN_KEEP = 2 };

/* Which committed checkpoints are kept. */
struct merak_ckpt_keep {
    int newest;     /* how many, >= MERAK_CKPT_MIN_KEEP; 0: all */
    uint64_t every; /* also those whose step it divides; 0: none */
};

/* Times of a save on this rank, by merak_clock_ns(). */
struct merak_ckpt_times {
    uint64_t step;
    uint64_t bytes;       /* of this rank's tensors */
    int64_t start_ns;     /* the save was requested */
    int64_t resumed_ns;   /* training could continue */
    int64_t written_ns;   /* its shard file was on disk */
    int64_t committed_ns; /* rank 0: the checkpoint was committed; others: 0 */
};

/*
 * Write run_dir/step-N/ : every rank writes its pieces, rank 0 the master, the
 * manifest and, last, COMMITTED.  All ranks return the same status; on failure
 * nothing is committed and nothing committed before is touched.
 */
enum merak_status merak_ckpt_save(const char *run_dir,
                                  const struct merak_ckpt_state *state,
                                  const struct merak_ckpt_piece *pieces,
                                  int n_pieces, struct merak_ckpt_keep keep,
                                  const struct merak_ckpt_comm *comm,
                                  struct merak_error *err) MERAK_CHECKED;

/* The same; times_p is set to the times. */
enum merak_status merak_ckpt_save_timed(
    const char *run_dir, const struct merak_ckpt_state *state,
    const struct merak_ckpt_piece *pieces, int n_pieces,
    struct merak_ckpt_keep keep, const struct merak_ckpt_comm *comm,
    struct merak_ckpt_times *times_p, struct merak_error *err) MERAK_CHECKED;

/* Fill pieces[i].data, which is then written. */
typedef enum merak_status (*merak_ckpt_fill_fn)(void *arg, int i,
                                                struct merak_error *err);

/*
 * The same by one process that cannot hold all data at once: pieces may share
 * memory, and each is filled just before it is written.
 *
 *   first  [n_shards + 1]  shard s gets pieces [first[s], first[s + 1])
 */
enum merak_status
merak_ckpt_write(const char *run_dir, const struct merak_ckpt_state *state,
                 const struct merak_ckpt_piece *pieces, const int *first,
                 int n_shards, merak_ckpt_fill_fn fill, void *arg,
                 struct merak_error *err) MERAK_CHECKED;

/* Does this directory hold a checkpoint's files, complete or not? */
bool merak_ckpt_is_one(const char *dir);

/*
 * The same while the tensors continue to change: the save stalls its caller
 * only for copying them, and a thread writes the copy.  The ranks agree on the
 * threads' results between two of the caller's steps.
 */
struct merak_ckpt_async;

/* May this piece be saved?  Called by the thread, before anything is written.
 */
typedef enum merak_status (*merak_ckpt_check_fn)(
    void *arg, const struct merak_ckpt_state *state,
    const struct merak_ckpt_piece *piece, struct merak_error *err);

/*
 * Create memory for a copy of the pieces, whose names and data are borrowed
 * until destroy, and the thread.
 *
 *   check  NULL: any piece may be saved
 *   node   NULL: each rank writes its own pieces.  Else collective on the node,
 *          whose ranks all return the first failure, and copies are in shared
 *          memory: the first rank writes them all, with a comm that gives only
 *          it a file.  Blocking saves then have to be started and waited for
 *          here, too.
 */
enum merak_status
merak_ckpt_async_create(const struct merak_ckpt_piece *pieces, int n_pieces,
                        merak_ckpt_check_fn check, void *check_arg,
                        const struct merak_ckpt_node *node,
                        struct merak_ckpt_async **async_p,
                        struct merak_error *err) MERAK_CHECKED;
/* Fault in the copy's pages in the background: else the first save waits for
 * that. */
void merak_ckpt_async_touch(struct merak_ckpt_async *async);
/* Copy the pieces and start to write them.  No other save may be under way.
 * Collective. */
enum merak_status merak_ckpt_async_start(struct merak_ckpt_async *async,
                                         const char *run_dir,
                                         const struct merak_ckpt_state *state,
                                         struct merak_ckpt_keep keep,
                                         const struct merak_ckpt_comm *comm,
                                         struct merak_error *err) MERAK_CHECKED;
/* Is a save under way?  The same on all ranks. */
bool merak_ckpt_async_is_active(const struct merak_ckpt_async *async);
/* Does this rank's thread still have work? */
bool merak_ckpt_async_is_busy(struct merak_ckpt_async *async);
/* Advance a save under way, once no rank's thread is busy: agree on the result
 * and commit, or finish.  A failure ends the save.  Collective. */
enum merak_status
merak_ckpt_async_advance(struct merak_ckpt_async *async,
                         struct merak_error *err) MERAK_CHECKED;
/* Wait for the save that is under way, if any.  Collective. */
enum merak_status merak_ckpt_async_wait(struct merak_ckpt_async *async,
                                        struct merak_error *err) MERAK_CHECKED;
/* Bytes that this rank's thread has written of the save under way; *of_p is
 * set to the total. */
size_t merak_ckpt_async_written(struct merak_ckpt_async *async, size_t *of_p);
/* Times of the last successful save; borrowed. */
const struct merak_ckpt_times *
merak_ckpt_async_times(const struct merak_ckpt_async *async);
/* Waits for the thread; a save that is under way stays uncommitted. */
void merak_ckpt_async_destroy(struct merak_ckpt_async *async);

struct merak_ckpt;

/*
 * Open the newest committed checkpoint in run_dir whose manifest is sound
 * (sizes checked; damaged or partial ones are named by a warning and skipped),
 * or run_dir itself if it is one (then damage is an error).
 * MERAK_ERR_NOT_FOUND if none was ever committed there, and MERAK_ERR_CORRUPT
 * if there are some and all are damaged: a run must not start from scratch
 * then.
 */
enum merak_status merak_ckpt_open(const char *run_dir,
                                  struct merak_ckpt **ckpt_p,
                                  struct merak_error *err) MERAK_CHECKED;
/*
 * The same among those older than `after`, the path of one that was opened
 * before and turned out to be damaged; NULL: among all.  skip: warn about
 * damaged ones and continue; else the first one's damage is the error.
 */
enum merak_status merak_ckpt_open_next(const char *run_dir, const char *after,
                                       bool skip, struct merak_ckpt **ckpt_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_ckpt_close(struct merak_ckpt *ckpt);
const char *merak_ckpt_path(const struct merak_ckpt *ckpt);
const struct merak_ckpt_state *merak_ckpt_state(const struct merak_ckpt *ckpt);
/* The writer's degrees, as merak_degrees_text(); or "stages 2x4-8x1". */
const char *merak_ckpt_degrees(const struct merak_ckpt_state *state,
                               const char *between,
                               char text[MERAK_DEGREES_TEXT]);
/* The name of the i-th tensor, sorted by name; NULL: there are no more. */
const char *merak_ckpt_tensor(const struct merak_ckpt *ckpt, int i,
                              struct merak_shape *shape);
/* Is there a tensor of that name? */
bool merak_ckpt_has(const struct merak_ckpt *ckpt, const char *name);
/* Fill piece->data from the checkpoint.  Checks checksums of what it reads,
 * once.  MERAK_ERR_MISMATCH names a tensor that is absent or of another shape;
 * MERAK_ERR_CORRUPT names shard file and tensor. */
enum merak_status merak_ckpt_read(struct merak_ckpt *ckpt,
                                  const struct merak_ckpt_piece *piece,
                                  struct merak_error *err) MERAK_CHECKED;
/*
 * Is there room for the `saves` further checkpoints of a run, of `bytes` bytes
 * each, that exist at the same time: all if all are kept, else at most the
 * `newest`, the one being written and `stay` that are kept permanently?
 * MERAK_ERR_NOSPACE gives what is needed and what is free.
 */
enum merak_status merak_ckpt_room(const char *run_dir, double bytes,
                                  uint64_t saves, uint64_t stay, int newest,
                                  struct merak_error *err) MERAK_CHECKED;
/*
 * Branches of a run that was taken back to an earlier step (branch.c).
 *
 * Is `named`, a checkpoint by name, present or not, the one to which the run
 * was taken back before, so that its branch goes on?
 */
enum merak_status merak_ckpt_branch_at(const char *run_dir, const char *named,
                                       bool *again_p,
                                       struct merak_error *err) MERAK_CHECKED;
/*
 * The branch of a run that has loaded a checkpoint with state `from`: a new one
 * if it was named and its own branch goes on after it.  NULL: it begins anew.
 * branch is set on success only; it may be from->branch.
 */
enum merak_status merak_ckpt_branch_choose(
    const char *run_dir, bool named, const struct merak_ckpt_state *from,
    char branch[MERAK_CKPT_BRANCH], struct merak_error *err) MERAK_CHECKED;
/* Record it, and that `from` is the newest of it. */
enum merak_status
merak_ckpt_branch_enter(const char *run_dir, const char *branch,
                        const struct merak_ckpt_state *from,
                        struct merak_error *err) MERAK_CHECKED;
/* Whether one of a run's checkpoints is kept, and why. */
struct merak_ckpt_fate {
    const char *name; /* "step-00000020" */
    uint64_t step;
    uint64_t bytes; /* on disk */
    bool stays;
    const char *why;
};
struct merak_ckpt_pruning {
    bool dry_run; /* remove nothing */
    bool debris;  /* also remove what dead saves left: no save may be under
                     way */
    /* Called for each before it is removed, newest first; or NULL. */
    void (*tell)(void *arg, const struct merak_ckpt_fate *fate);
    void *arg;
};
/*
 * Remove checkpoints older than the keep.newest-th that can be loaded, except
 * multiples of keep.every and imports, and any step-N.old whose step-N can be
 * loaded.  Those later than step `newest` are neither removed nor counted:
 * UINT64_MAX for no such limit. how NULL: as in a save.
 */
enum merak_status merak_ckpt_prune(const char *run_dir,
                                   struct merak_ckpt_keep keep, uint64_t newest,
                                   const struct merak_ckpt_pruning *how,
                                   struct merak_error *err) MERAK_CHECKED;

/* What merak_ckpt_repair_master() found. */
enum merak_ckpt_repair {
    MERAK_CKPT_REPAIR_SOUND,     /* nothing to repair */
    MERAK_CKPT_REPAIR_SAME,      /* the master has the same bytes as before */
    MERAK_CKPT_REPAIR_REWRITTEN, /* it has other bytes, of another HDF5, and
                                    the manifest is updated */
};
/*
 * Recreate the master file of a checkpoint if it is damaged or missing.  The
 * rest must exist; after a crash the repair can be repeated.
 */
enum merak_status
merak_ckpt_repair_master(const char *ckpt_dir, enum merak_ckpt_repair *found_p,
                         struct merak_error *err) MERAK_CHECKED;

/* How a tensor differs between two checkpoints. */
enum merak_ckpt_relation {
    MERAK_CKPT_EQUAL, /* bitwise */
    MERAK_CKPT_DIFFERENT,
    MERAK_CKPT_OTHER_SHAPE,
    MERAK_CKPT_ONLY_A,
    MERAK_CKPT_ONLY_B,
};
struct merak_ckpt_difference {
    const char *name;
    enum merak_ckpt_relation relation;
    struct merak_shape a, b; /* of those that have it */
    /* DIFFERENT: */
    size_t elements, n;      /* n of them differ in their bits */
    size_t n_not_finite;     /* where one is infinite or NaN; for the
                                others: */
    double max_abs, max_rel; /* |a - b|, also divided by max(|a|, |b|) */
    size_t at;               /* row-major index of max_abs */
    float a_at, b_at;
};
/*
 * Compare the tensors of two checkpoints, by name.
 *
 *   tell      called for each tensor of either, sorted by name
 *   same_p    out  all are in both and equal
 *   progress  NULL, or a progress line
 *
 * Holds a few MiB at a time.
 */
enum merak_status merak_ckpt_compare(
    struct merak_ckpt *a, struct merak_ckpt *b,
    void (*tell)(void *arg, const struct merak_ckpt_difference *difference),
    void *arg, bool *same_p, struct merak_progress *progress,
    struct merak_error *err) MERAK_CHECKED;

/* Check everything: sizes, checksums, coverage of every tensor.  Damaged shard
 * files are named: the first in err, all by `report`. */
enum merak_status merak_ckpt_verify(const char *ckpt_dir,
                                    void (*report)(void *arg, const char *line),
                                    void *arg,
                                    struct merak_error *err) MERAK_CHECKED;
/* The same with a progress line, whose total is set. */
enum merak_status
merak_ckpt_verify_watched(const char *ckpt_dir,
                          void (*report)(void *arg, const char *line),
                          void *arg, struct merak_progress *progress,
                          struct merak_error *err) MERAK_CHECKED;

#endif
