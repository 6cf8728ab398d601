/* SPDX-License-Identifier: Apache-2.0 */
/* scratch_dir.h - a folder of a test's own, gone when it ends */
#ifndef MERAK_TESTS_SCRATCH_DIR_H
#define MERAK_TESTS_SCRATCH_DIR_H

#include "unit/near.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_dir[64];

static inline int scratch_make(void **state)
{
    (void)state;
    strcpy(scratch_dir, "/tmp/merak-weights-XXXXXX");
    return mkdtemp(scratch_dir) == NULL;
}

static inline int scratch_remove(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", scratch_dir);
    return system(command);
}

/* A path in it, printf-like; of the last 32 calls. */
static inline const char *scratch_path(const char *name)
{
    static char path[32][512];
    static int next;

    next = (next + 1) % 32;
    snprintf(path[next], sizeof(path[next]), "%s/%s", scratch_dir, name);
    return path[next];
}

static inline void scratch_write(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(scratch_path(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The whole of a file; free() it. */
static inline unsigned char *read_whole(const char *path, size_t *n_p)
{
    FILE *f = fopen(path, "rb");
    unsigned char *data;
    long n;

    if (f == NULL)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    n = ftell(f);
    rewind(f);
    data = malloc((size_t)n + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)n, f), n);
    fclose(f);
    *n_p = (size_t)n;
    return data;
}

#endif
