/* SPDX-License-Identifier: Apache-2.0 */
/* io/ckpt/ckpt_impl.h - shared by the files of the checkpoint module
 *
 * The format, the writer's order and the reader's algorithm are described at
 * the top of save.c.
 */
#ifndef MERAK_IO_CKPT_IMPL_H
#define MERAK_IO_CKPT_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include <jansson.h>

#include "io/ckpt/ckpt.h"
#include "io/ckpt/durable.h"

#define MERAK_CKPT_FORMAT "merak-checkpoint"
#define MERAK_CKPT_VERSION 1
#define MERAK_CKPT_MASTER "master.h5"
#define MERAK_CKPT_MANIFEST "manifest.json"
#define MERAK_CKPT_COMMITTED "COMMITTED"
#define MERAK_CKPT_LATEST "LATEST"
#define MERAK_CKPT_BRANCH_FILE "BRANCH" /* described in branch.c */
#define MERAK_CKPT_OWNER "OWNER" /* described in owner.c */

#define MERAK_CKPT_NAME 40         /* "step-00000020.old" */
#define MERAK_CKPT_MAX_TENSOR 256  /* bytes of a tensor's name, end included */
#define MERAK_CKPT_MAX_DATASET 600 /* followed by "@lo:hi,.." */
#define MERAK_CKPT_MAX_RECORD 160  /* of a COMMITTED file */

/* --- the manifest -------------------------------------------------------- */

/* A box of one tensor, a dataset of one shard file. */
struct merak_ckpt_part {
    const char *tensor; /* borrowed from the manifest's JSON */
    const char *hash;   /* of the dataset's bytes; likewise */
    struct merak_box box;
    int shard;
    uint64_t offset; /* of the dataset's bytes in the shard file */
};

struct merak_ckpt_tensor {
    const char *name;
    struct merak_shape shape;
    int first, n; /* its parts */
};

struct merak_ckpt_file {
    const char *name; /* in the checkpoint's directory */
    const char *hash;
    const char *rest; /* of a shard file: hash of its bytes outside of all
                         parts; NULL in checkpoints of earlier versions */
    uint64_t bytes;
};

struct merak_ckpt_manifest {
    json_t *root; /* owns all the text below */
    struct merak_ckpt_state state;
    struct merak_ckpt_file master;
    struct merak_ckpt_file *shard;
    int n_shards;
    struct merak_ckpt_part *part; /* by tensor name, then by box.lo */
    int n_parts;
    /* The same by shard, then by offset, without overlap.  Shard s has
     * placed[first_placed[s]] .. */
    const struct merak_ckpt_part **placed;
    int *first_placed;                /* [n_shards + 1] */
    struct merak_ckpt_tensor *tensor; /* by name */
    int n_tensors;
};

/* Parse the "shards" array of a manifest, sort parts, find tensors.  Steals
 * root.  Whatever the JSON holds, the result is safe to use. */
enum merak_status
merak_ckpt_manifest_shards_take(json_t *root, struct merak_ckpt_manifest **mf_p,
                                struct merak_error *err) MERAK_CHECKED;
/* Parse a whole manifest: shards, state and master. */
enum merak_status
merak_ckpt_manifest_parse(const char *text, size_t bytes,
                          struct merak_ckpt_manifest **mf_p,
                          struct merak_error *err) MERAK_CHECKED;
void merak_ckpt_manifest_destroy(struct merak_ckpt_manifest *mf);
size_t merak_ckpt_part_bytes(const struct merak_ckpt_part *part);
/* Do the parts of every tensor tile it?  `status` and the tensor's name if
 * not. */
enum merak_status
merak_ckpt_manifest_cover(const struct merak_ckpt_manifest *mf,
                          enum merak_status status,
                          struct merak_error *err) MERAK_CHECKED;
/* NULL if there is none of this name. */
const struct merak_ckpt_tensor *
merak_ckpt_tensor_find(const struct merak_ckpt_manifest *mf, const char *name);

/* "param/w@0:4,8:16", the dataset of a part; buf of MERAK_CKPT_MAX_DATASET.
 * Returns buf. */
char *merak_ckpt_dataset_name(char *buf, const char *tensor,
                              const struct merak_box *box);
/* "[4, 16]"; buf of 160.  Returns buf. */
char *merak_shape_text(char *buf, const struct merak_shape *shape);
json_t *merak_ckpt_state_json(const struct merak_ckpt_state *state);
json_t *merak_ckpt_sizes_json(const size_t *value, int n);

/* --- pieces as boxes ----------------------------------------------------- */

/* A piece as boxes of the whole tensor, in the order of its data; returns how
 * many. */
int merak_ckpt_piece_boxes(const struct merak_ckpt_piece *piece,
                           struct merak_box boxes[MERAK_FLAT_BOXES]);
/* The intersection of two boxes of a tensor; false if empty. */
bool merak_ckpt_box_meet(const struct merak_box *a, const struct merak_box *b,
                         struct merak_box *both);
/* Check name, box, range and data. */
enum merak_status merak_ckpt_piece_check(const struct merak_ckpt_piece *piece,
                                         struct merak_error *err) MERAK_CHECKED;

size_t merak_ckpt_piece_bytes(const struct merak_ckpt_piece *piece);

/*
 * Read elements `both` of a part from the shard file to their position in
 * `data`, which holds the elements of box `to`.
 *
 *   check  read all of the part, and check its checksum
 */
enum merak_status merak_ckpt_part_read(int fd, const char *path,
                                       const struct merak_ckpt_part *part,
                                       const struct merak_box *both,
                                       const struct merak_box *to, float *data,
                                       bool check,
                                       struct merak_error *err) MERAK_CHECKED;

/* The hash of a shard file's bytes outside of all parts. */
enum merak_status merak_ckpt_rest_hash(const struct merak_ckpt_manifest *mf,
                                       int shard, int fd, const char *path,
                                       char hash[MERAK_HASH_TEXT],
                                       struct merak_error *err) MERAK_CHECKED;
/* The manifest of an open checkpoint; borrowed. */
const struct merak_ckpt_manifest *
merak_ckpt_manifest(const struct merak_ckpt *ckpt);

/* --- directories --------------------------------------------------------- */

enum merak_ckpt_kind {
    MERAK_CKPT_PLAIN, /* step-N */
    MERAK_CKPT_OLD,   /* step-N.old: being replaced by a new step-N */
    MERAK_CKPT_TMP,   /* step-N.tmp: being written or removed */
};

struct merak_ckpt_entry {
    char name[MERAK_CKPT_NAME];
    uint64_t step;
    enum merak_ckpt_kind kind;
    bool elsewhere; /* of another branch: merak_ckpt_branch_mark() */
};

/* "step-00000020.old"; buf of MERAK_CKPT_NAME.  Returns buf. */
char *merak_ckpt_name(char *buf, uint64_t step, enum merak_ckpt_kind kind);
/* The checkpoints of a run, newest first, step-N before step-N.old before
 * step-N.tmp; free() them. */
enum merak_status merak_ckpt_list(const char *run_dir,
                                  struct merak_ckpt_entry **entries_p, int *n_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* Replace a file of the run's directory by this line, durably. */
enum merak_status
merak_ckpt_replace_line(const char *run_dir, const char *name, const char *line,
                        struct merak_error *err) MERAK_CHECKED;
/* Set `elsewhere` of each entry.  MERAK_ERR_CORRUPT if RUN/BRANCH is damaged.
 */
enum merak_status merak_ckpt_branch_mark(const char *run_dir,
                                         struct merak_ckpt_entry *entries,
                                         int n,
                                         struct merak_error *err) MERAK_CHECKED;
/* Does the branch of RUN/BRANCH begin at a checkpoint, so that there is one to
 * go on from? */
bool merak_ckpt_branch_goes_on(const char *run_dir);
/* Is it a branch's text? */
bool merak_ckpt_branch_is_text(const char *branch);
/* Is a checkpoint of branch `other` at that step one of this branch? */
bool merak_ckpt_branch_has(const char *branch, const char *other,
                           uint64_t step);
/* MERAK_ERR_CONFIG if a run has any: --out must be another directory. */
enum merak_status merak_ckpt_check_none(const char *run_dir,
                                        struct merak_error *err) MERAK_CHECKED;
/* Remove what dead saves left (*.tmp). */
enum merak_status
merak_ckpt_remove_debris(const char *run_dir,
                         struct merak_error *err) MERAK_CHECKED;
/* The contents of COMMITTED for a manifest; returns their length. */
size_t merak_ckpt_record(char buf[MERAK_CKPT_MAX_RECORD], uint64_t step,
                         const char *manifest, size_t bytes);
/* Load one: COMMITTED agrees with the manifest, the manifest is sound and
 * covers its tensors, every file exists with its size. */
enum merak_status merak_ckpt_load(const char *dir,
                                  struct merak_ckpt_manifest **mf_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* The same without checking shard files and master. */
enum merak_status
merak_ckpt_load_manifest(const char *dir, struct merak_ckpt_manifest **mf_p,
                         struct merak_error *err) MERAK_CHECKED;

/* Does the file exist with its size? */
enum merak_status merak_ckpt_check_size(const char *dir,
                                        const struct merak_ckpt_file *file,
                                        struct merak_error *err) MERAK_CHECKED;

/* --- a save, step by step ------------------------------------------------ */

struct merak_ckpt_save {
    char run_dir[PATH_MAX];
    struct merak_ckpt_state state;
    struct merak_ckpt_keep keep;
    struct merak_ckpt_comm comm; /* agree NULL: one rank */
    int rank;
    int file, files;      /* file -1: this rank writes none */
    char final[PATH_MAX]; /* run_dir/step-N, and with suffixes */
    char old[PATH_MAX];
    char tmp[PATH_MAX];
};

/* Make the directory save->tmp.  Collective. */
enum merak_status merak_ckpt_save_begin(struct merak_ckpt_save *save,
                                        const char *run_dir,
                                        const struct merak_ckpt_state *state,
                                        struct merak_ckpt_keep keep,
                                        const struct merak_ckpt_comm *comm,
                                        struct merak_error *err) MERAK_CHECKED;
/* Agree on the status of all ranks' shard files.  Collective. */
enum merak_status
merak_ckpt_save_written(const struct merak_ckpt_save *save,
                        enum merak_status rc,
                        struct merak_error *err) MERAK_CHECKED;
/* Write master and manifest, commit; only on rank 0. */
enum merak_status merak_ckpt_save_finish(const struct merak_ckpt_save *save,
                                         struct merak_error *err) MERAK_CHECKED;
/* Agree on its status.  Collective. */
enum merak_status
merak_ckpt_save_finished(const struct merak_ckpt_save *save,
                         enum merak_status rc,
                         struct merak_error *err) MERAK_CHECKED;

/* --- the copy for an asynchronous save (bulk_copy.c) ----- */

/* memcpy() with non-temporal stores, for data that is not read soon. */
void merak_bulk_copy(void *to, const void *from, size_t n);

/* Copying pieces to pieces whose data is contiguous, in order. */
struct merak_ckpt_copying {
    const struct merak_ckpt_piece *from, *to;
    int n;
    atomic_size_t next; /* offset in the copy that no thread has taken yet */
};
void merak_ckpt_copying_begin(struct merak_ckpt_copying *c,
                              const struct merak_ckpt_piece *from,
                              const struct merak_ckpt_piece *to, int n);
/* Copy shares that no other thread has taken, until none is left. */
void merak_ckpt_copying_share(struct merak_ckpt_copying *c);

/* --- saves written by a node's first rank (node_copy.c)
 * --------------------- */

/* The pieces of all ranks of the node, in their copies, which are mapped
 * here. */
struct merak_ckpt_node_pieces {
    struct merak_ckpt_piece *piece;
    char (*name)[MERAK_CKPT_MAX_TENSOR];
    int n;
    void **map;
    size_t *map_bytes;
    int n_maps;
};

/* Memory that other ranks of the node can map by the descriptor. */
enum merak_status merak_ckpt_node_memory(size_t bytes, int *fd_p, void **map_p,
                                         struct merak_error *err) MERAK_CHECKED;
/*
 * Send the node's first rank this one's pieces and their locations; collective
 * on the node.
 *
 *   piece, n   this rank's, whose data is in `copy`
 *   all_p      out  on the first rank: all pieces; on others: none
 */
enum merak_status merak_ckpt_node_gather(const struct merak_ckpt_node *node,
                                         const struct merak_ckpt_piece *piece,
                                         int n, int fd, const void *copy,
                                         size_t bytes,
                                         struct merak_ckpt_node_pieces *all,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_ckpt_node_release(struct merak_ckpt_node_pieces *all);

/* --- files --------------------------------------------------------------- */

/* Pieces [first, end) of a list, and a function to fill them; NULL: they are
 * filled. */
struct merak_ckpt_source {
    const struct merak_ckpt_piece *piece;
    int first, end;
    merak_ckpt_fill_fn fill;
    void *arg;
    bool spare_core; /* a core is idle: a second thread may hash */
    struct merak_progress *progress; /* for a blocking save, or NULL */
    atomic_size_t *written;          /* for an asynchronous save, or NULL */
};

/* Write shard-FILE.h5 and shard-FILE.json. */
enum merak_status merak_ckpt_shard_write(const char *dir, int file,
                                         uint64_t step,
                                         const struct merak_ckpt_source *source,
                                         struct merak_error *err) MERAK_CHECKED;
/* Write the master for a manifest's shard files, which need not exist; the
 * same manifest and HDF5 version give the same bytes. */
enum merak_status
merak_ckpt_master_write(const char *path, const struct merak_ckpt_state *state,
                        const struct merak_ckpt_manifest *mf,
                        struct merak_error *err) MERAK_CHECKED;

/* Add to a manifest the master's entry, and the versions that wrote it. */
enum merak_status
merak_ckpt_master_record(const char *path, json_t *root,
                         struct merak_error *err) MERAK_CHECKED;

#endif
