/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_disk.h - a disk that forgets what was not synced, for tests
 *
 * The program that links ckpt_disk.c has its own open, write, pwrite, fsync,
 * rename .. in front of libc's, for itself and for every library in it.  They
 * do what libc's do, and below one directory they also note it down, or run
 * out of space.
 */
#ifndef MERAK_TESTS_CKPT_DISK_H
#define MERAK_TESTS_CKPT_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Note down what is done below dir from now on; dir's present content counts
 * as synced. */
void disk_record(const char *dir);
/* Put a mark between two operations. */
void disk_mark(int64_t value);
/* Stop noting down; how many operations there are. */
int disk_stop(void);
/* Replay as if nothing had ever been synced; operations left. */
int disk_forget_syncs(void);
/* The last mark before operation n, or -1. */
int64_t disk_last_mark(int n);
/* Operation n in words, for messages. */
const char *disk_describe(int n);

/* What the disk may hold after a power loss. */
enum disk_loss {
    DISK_NOTHING,     /* lost: a kill */
    DISK_ALL,         /* names and data that were not synced */
    DISK_DATA,        /* data only; names are as they were */
    DISK_NAMES,       /* names only */
    DISK_ZEROS,       /* data, but sizes are there: zeros instead */
    DISK_INNER_NAMES, /* names in sub-directories, and data */
    DISK_COIN_A,      /* each directory and file by the toss of a coin */
    DISK_COIN_B,
    DISK_LOSSES
};
/*
 * Make `image` the directory as it may be after a crash that follows the first
 * n operations.  False if it is the same as the image before it of this kind:
 * then nothing was made.
 */
bool disk_image(int n, enum disk_loss loss, const char *image);
void disk_free(void);

/* From now on writes below dir fail with ENOSPC once `bytes` are used up;
 * truncating gives them back.  SIZE_MAX: no limit.  reserves: fallocate()
 * can tell so before. */
void disk_limit(const char *dir, size_t bytes, bool reserves);
/* Bytes written below dir since disk_limit(). */
size_t disk_used(void);

#endif
