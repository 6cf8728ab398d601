/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_replay.h - what was done to a disk, between ckpt_disk.c and
 * ckpt_replay.c
 */
#ifndef MERAK_TESTS_CKPT_REPLAY_H
#define MERAK_TESTS_CKPT_REPLAY_H

#include "unit/ckpt/ckpt_disk.h"

#include <dlfcn.h>
#include <sys/types.h>

#define DISK_MAX_OPS 20000
#define DISK_MAX_FDS 256

enum op_kind {
    OP_CREATE,
    OP_WRITE,
    OP_TRUNCATE,
    OP_SYNC,
    OP_RENAME,
    OP_MKDIR,
    OP_UNLINK,
    OP_RMDIR,
    OP_MARK
};

struct op {
    enum op_kind kind;
    char *path, *to; /* below the directory */
    char *data;      /* WRITE */
    size_t n;        /* WRITE: bytes; TRUNCATE: size */
    off_t at;
    bool empties; /* CREATE: O_TRUNC */
    int64_t mark;
};

struct disk {
    char dir[256];
    bool recording;
    struct op op[DISK_MAX_OPS];
    int n_ops;
    int applied; /* operations that the images so far include */
    char *fd_path[DISK_MAX_FDS];
    bool limited, reserves;
    size_t limit, used;
};
extern struct disk disk;

/* libc's own, behind the one in front of it. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Begin with what is in the directory, as synced. */
void replay_begin(const char *dir);
void replay_free(void);

#endif
