/* SPDX-License-Identifier: Apache-2.0 */
/* beside.c - headers and checksums of the files beside a token file */
#include "config.h"

#include "io/tokens/beside.h"

#include "base/error.h"
#include "io/file.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK 16384

void merak_put_u64(unsigned char *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof(value));
}

uint64_t merak_get_u64(const unsigned char *from)
{
    uint64_t value;

    memcpy(&value, from, sizeof(value));
    return le64toh(value);
}

enum merak_status merak_beside_header(int fd, const char *path, uint64_t bytes,
                                      const char *magic, const char *not_one,
                                      unsigned char *head, size_t n,
                                      struct merak_error *err)
{
    enum merak_status rc;

    if (bytes < n)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s: %llu bytes, expected a header of %zu", path,
                          (unsigned long long)bytes, n);
    rc = merak_file_read(fd, path, head, n, 0, err);
    if (rc == MERAK_OK && memcmp(head, magic, 8) != 0)
        rc = merak_fail(err, MERAK_ERR_FORMAT,
                        "%s: %s, it does not start with %s", path, not_one,
                        magic);
    return rc;
}

/* Of bytes [at, bytes) of a file, and how many bits of them are 1. */
static enum merak_status sum_file(int fd, const char *path, uint64_t at,
                                  uint64_t bytes, uint64_t *sum_p,
                                  uint64_t *ones_p, struct merak_error *err)
{
    XXH3_state_t *h = XXH3_createState();
    enum merak_status rc = MERAK_OK;
    unsigned char block[BLOCK];
    uint64_t ones = 0;

    if (h == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(h);
    while (rc == MERAK_OK && at < bytes) {
        size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;

        rc = merak_file_read(fd, path, block, n, at, err);
        for (size_t i = 0; rc == MERAK_OK && i < n; i++)
            ones += (uint64_t)__builtin_popcount(block[i]);
        if (rc == MERAK_OK)
            XXH3_64bits_update(h, block, n);
        at += n;
    }
    *sum_p = XXH3_64bits_digest(h);
    *ones_p = ones;
    XXH3_freeState(h);
    return rc;
}

enum merak_status merak_beside_check(int fd, const char *path, uint64_t at,
                                     uint64_t bytes, uint64_t sum,
                                     uint64_t *ones_p, struct merak_error *err)
{
    uint64_t found;
    enum merak_status rc = sum_file(fd, path, at, bytes, &found, ones_p, err);

    if (rc == MERAK_OK && found != sum)
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "%s is damaged: its checksum is %016llx, expected "
                        "%016llx",
                        path, (unsigned long long)found,
                        (unsigned long long)sum);
    return rc;
}

enum merak_status merak_beside_index(const char *prefix, uint64_t *sum_p,
                                     struct merak_error *err)
{
    char *path = merak_beside_path(prefix, ".idx");
    uint64_t bytes, ones;
    enum merak_status rc;
    int fd;

    if (path == NULL)
        return merak_fail_nomem(err, strlen(prefix));
    rc = merak_file_open(path, &fd, &bytes, err);
    if (rc == MERAK_OK) {
        rc = sum_file(fd, path, 0, bytes, sum_p, &ones, err);
        close(fd);
    }
    free(path);
    return rc;
}

char *merak_beside_path(const char *prefix, const char *suffix)
{
    size_t n = strlen(prefix) + strlen(suffix) + 1;
    char *path = malloc(n);

    if (path != NULL)
        snprintf(path, n, "%s%s", prefix, suffix);
    return path;
}
