/* SPDX-License-Identifier: Apache-2.0 */
/* no_ckpt.c - a build without HDF5 writes no checkpoints
 *
 * Reading needs no HDF5 (part.c).  Options that need it fail early
 * (train_options.c); these functions are for callers of the library.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"

static enum merak_status refuse(struct merak_error *err)
{
    return merak_fail(
        err, MERAK_ERR_UNSUPPORTED,
        "checkpoints cannot be written: this Merak was built without HDF5");
}

enum merak_status merak_ckpt_save(const char *run_dir,
                                  const struct merak_ckpt_state *state,
                                  const struct merak_ckpt_piece *pieces,
                                  int n_pieces, struct merak_ckpt_keep keep,
                                  const struct merak_ckpt_comm *comm,
                                  struct merak_error *err)
{
    (void)run_dir;
    (void)state;
    (void)pieces;
    (void)n_pieces;
    (void)keep;
    (void)comm;
    return refuse(err);
}

enum merak_status
merak_ckpt_save_timed(const char *run_dir, const struct merak_ckpt_state *state,
                      const struct merak_ckpt_piece *pieces, int n_pieces,
                      struct merak_ckpt_keep keep,
                      const struct merak_ckpt_comm *comm,
                      struct merak_ckpt_times *times_p, struct merak_error *err)
{
    (void)times_p;
    return merak_ckpt_save(run_dir, state, pieces, n_pieces, keep, comm, err);
}

enum merak_status
merak_ckpt_write(const char *run_dir, const struct merak_ckpt_state *state,
                 const struct merak_ckpt_piece *pieces, const int *first,
                 int n_shards, merak_ckpt_fill_fn fill, void *arg,
                 struct merak_error *err)
{
    (void)run_dir;
    (void)state;
    (void)pieces;
    (void)first;
    (void)n_shards;
    (void)fill;
    (void)arg;
    return refuse(err);
}

enum merak_status merak_ckpt_remove_debris(const char *run_dir,
                                           struct merak_error *err)
{
    (void)run_dir;
    return refuse(err);
}

enum merak_status merak_ckpt_async_create(const struct merak_ckpt_piece *pieces,
                                          int n_pieces,
                                          merak_ckpt_check_fn check,
                                          void *check_arg,
                                          const struct merak_ckpt_node *node,
                                          struct merak_ckpt_async **async_p,
                                          struct merak_error *err)
{
    (void)pieces;
    (void)n_pieces;
    (void)check;
    (void)check_arg;
    (void)node;
    (void)async_p;
    return refuse(err);
}

void merak_ckpt_async_touch(struct merak_ckpt_async *async)
{
    (void)async;
}

enum merak_status merak_ckpt_async_start(struct merak_ckpt_async *async,
                                         const char *run_dir,
                                         const struct merak_ckpt_state *state,
                                         struct merak_ckpt_keep keep,
                                         const struct merak_ckpt_comm *comm,
                                         struct merak_error *err)
{
    (void)async;
    (void)run_dir;
    (void)state;
    (void)keep;
    (void)comm;
    return refuse(err);
}

bool merak_ckpt_async_is_active(const struct merak_ckpt_async *async)
{
    (void)async;
    return false;
}

size_t merak_ckpt_async_written(struct merak_ckpt_async *async, size_t *of_p)
{
    (void)async;
    *of_p = 0;
    return 0;
}

bool merak_ckpt_async_is_busy(struct merak_ckpt_async *async)
{
    (void)async;
    return false;
}

enum merak_status merak_ckpt_async_advance(struct merak_ckpt_async *async,
                                           struct merak_error *err)
{
    (void)async;
    return refuse(err);
}

enum merak_status merak_ckpt_async_wait(struct merak_ckpt_async *async,
                                        struct merak_error *err)
{
    (void)async;
    return refuse(err);
}

const struct merak_ckpt_times *
merak_ckpt_async_times(const struct merak_ckpt_async *async)
{
    static const struct merak_ckpt_times none;

    (void)async;
    return &none;
}

void merak_ckpt_async_destroy(struct merak_ckpt_async *async)
{
    (void)async;
}

enum merak_status merak_ckpt_repair_master(const char *ckpt_dir,
                                           enum merak_ckpt_repair *found_p,
                                           struct merak_error *err)
{
    (void)ckpt_dir;
    (void)found_p;
    return refuse(err);
}
