/* SPDX-License-Identifier: Apache-2.0 */
/* io/ckpt/owner.h - only one run at a time saves into a run's directory
 *
 * merak-checkpoint(5) and owner.c describe when a run counts as gone.
 */
#ifndef MERAK_IO_CKPT_OWNER_H
#define MERAK_IO_CKPT_OWNER_H

#include "merak/status.h"

struct merak_ckpt_owner;

/*
 * Make run_dir and its parents, and prepare to claim it.  MERAK_ERR_CONFIG if
 * it exists and is not a directory.
 */
enum merak_status
merak_ckpt_owner_create(const char *run_dir, struct merak_ckpt_owner **owner_p,
                        struct merak_error *err) MERAK_CHECKED;
/*
 * Write the record that makes run_dir this process's, and remove what dead
 * saves left.  A thread then touches the record until
 * merak_ckpt_owner_destroy().  MERAK_ERR_CONFIG names the run that has the
 * directory.  MERAK_IN_PROGRESS, with that run in err, if it is not known yet
 * whether that run is alive: call it again every second or so, for at most a
 * minute.
 */
enum merak_status merak_ckpt_owner_claim(struct merak_ckpt_owner *owner,
                                         struct merak_error *err) MERAK_CHECKED;
/* Both for a command: waits until it is known whether another run is alive. */
enum merak_status merak_ckpt_owner_take(const char *run_dir,
                                        struct merak_ckpt_owner **owner_p,
                                        struct merak_error *err) MERAK_CHECKED;
/* Before anything in run_dir is changed: is it still this process's?
 * MERAK_ERR_CONFIG names the run that took it. */
enum merak_status merak_ckpt_owner_check(struct merak_ckpt_owner *owner,
                                         struct merak_error *err) MERAK_CHECKED;
/* Remove the record, if there is one and it is this process's. */
void merak_ckpt_owner_destroy(struct merak_ckpt_owner *owner);

/*
 * Can this rank write into run_dir, and does it see the record of the rank
 * that claimed it?  Writes a file and removes it.
 */
enum merak_status merak_ckpt_owner_probe(const char *run_dir, int rank,
                                         struct merak_error *err) MERAK_CHECKED;

#endif
