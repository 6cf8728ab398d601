/* SPDX-License-Identifier: Apache-2.0 */
/* data_files.h - a scratch folder and token files written byte by byte, so
 * that readers are tested against the format and not against our writer */
#ifndef MERAK_TESTS_DATA_FILES_H
#define MERAK_TESTS_DATA_FILES_H

#include "unit/near.h"

#include "io/tokens/token_file.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Documents [1,2,3] and [4,5] as u16, as Megatron-LM itself writes them. */
static const unsigned char golden_bin[10] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0};
static const unsigned char golden_idx[82] = {
    'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, /* magic */
    1,   0,   0,   0,   0,   0,   0,   0,    /* version */
    8,                                       /* u16 */
    2,   0,   0,   0,   0,   0,   0,   0,    /* sequences */
    3,   0,   0,   0,   0,   0,   0,   0,    /* document entries */
    3,   0,   0,   0,   2,   0,   0,   0,    /* lengths */
    0,   0,   0,   0,   0,   0,   0,   0,    /* pointers */
    6,   0,   0,   0,   0,   0,   0,   0,    /* */
    0,   0,   0,   0,   0,   0,   0,   0,    /* documents */
    1,   0,   0,   0,   0,   0,   0,   0,    /* */
    2,   0,   0,   0,   0,   0,   0,   0,
};

static char scratch[64];

static inline int make_scratch(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/merak-data-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static inline int remove_scratch(void **state)
{
    char pattern[80];
    glob_t found = {0};

    (void)state;
    snprintf(pattern, sizeof(pattern), "%s/*", scratch);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
    }
    globfree(&found);
    return rmdir(scratch);
}

/* A name in the scratch folder; good until the eighth next call. */
static inline const char *at(const char *name)
{
    static char path[8][160];
    static int turn;
    char *p = path[turn++ % 8];

    snprintf(p, sizeof(path[0]), "%s/%s", scratch, name);
    return p;
}

static inline void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline size_t read_file(const char *path, void *bytes, size_t max)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    assert_non_null(f);
    n = fread(bytes, 1, max, f);
    fclose(f);
    return n;
}

/* prefix.bin/.idx of one document per length; token i is first + i. */
static inline void write_megatron(const char *prefix, int32_t first,
                                  const int32_t *lengths, int64_t n)
{
    char path[200];
    int64_t zero = 0, entries = n + 1, version = 1, at_byte = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s.idx", prefix);
    f = fopen(path, "wb");
    assert_non_null(f);
    fwrite("MMIDIDX\0", 1, 9, f);
    fwrite(&version, 8, 1, f);
    fputc(4, f); /* i32 */
    fwrite(&n, 8, 1, f);
    fwrite(&entries, 8, 1, f);
    fwrite(lengths, 4, (size_t)n, f);
    for (int64_t i = 0; i < n; i++) {
        fwrite(&at_byte, 8, 1, f);
        at_byte += 4 * lengths[i];
    }
    for (; zero <= n; zero++)
        fwrite(&zero, 8, 1, f);
    assert_int_equal(fclose(f), 0);
    snprintf(path, sizeof(path), "%s.bin", prefix);
    f = fopen(path, "wb");
    assert_non_null(f);
    for (int32_t i = 0; i < at_byte / 4; i++)
        fwrite(&(int32_t){first + i}, 4, 1, f);
    assert_int_equal(fclose(f), 0);
}

static inline void write_llmc_u16(const char *path, uint16_t first,
                                  int32_t tokens)
{
    int32_t head[256] = {20240520, 1, tokens};
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    fwrite(head, 1, sizeof(head), f);
    for (int32_t i = 0; i < tokens; i++)
        fwrite(&(uint16_t){(uint16_t)(first + i)}, 2, 1, f);
    assert_int_equal(fclose(f), 0);
}

#endif
