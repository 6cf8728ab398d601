/* SPDX-License-Identifier: Apache-2.0 */
/* out_file.c - files under temporary names until they are whole */
#include "config.h"

#include "io/tokens/out_file.h"

#include "base/error.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES 65536
enum { HOST_BYTES = 64 };

/* --- what a killed process left ---------------------------------------- */

/* Temporary files are named PATH.tmp-HOST-PID: only on its own host can be told
 * whether a process is gone. */
static void get_host(char host[HOST_BYTES])
{
    if (gethostname(host, HOST_BYTES) != 0)
        host[0] = '\0';
    host[HOST_BYTES - 1] = '\0';
}

/* Is this, behind the prefix, the name of one whose process is gone?  There is
 * none of this process yet. */
static bool is_leftover(const char *name, const char *host)
{
    static const char *const suffix[] = {".bin.tmp-", ".idx.tmp-", ".mask.tmp-",
                                         ".ref.tmp-"};
    char *end;
    long pid;

    for (size_t i = 0; i < sizeof(suffix) / sizeof(*suffix); i++) {
        size_t n = strlen(suffix[i]), h = strlen(host);

        if (strncmp(name, suffix[i], n) != 0 ||
            strncmp(name + n, host, h) != 0 || name[n + h] != '-')
            continue;
        pid = strtol(name + n + h + 1, &end, 10);
        return pid > 0 && *end == '\0' &&
               (pid == (long)getpid() ||
                (kill((pid_t)pid, 0) != 0 && errno == ESRCH));
    }
    return false;
}

/* A folder that cannot be read is no reason to stop. */
void merak_out_remove_leftovers(const char *prefix)
{
    const char *slash = strrchr(prefix, '/');
    const char *base = slash != NULL ? slash + 1 : prefix;
    size_t n = strlen(base);
    char host[HOST_BYTES];
    char *folder = slash == NULL ? strdup(".")
                   : slash == prefix
                       ? strdup("/")
                       : strndup(prefix, (size_t)(slash - prefix));
    DIR *dir = folder != NULL ? opendir(folder) : NULL;
    const struct dirent *entry;

    get_host(host);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, base, n) == 0 &&
            is_leftover(entry->d_name + n, host))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL)
        closedir(dir);
    free(folder);
}

/* --- one file ---------------------------------------------------------- */

enum merak_status merak_out_open(struct merak_out *out, const char *prefix,
                                 const char *suffix, struct merak_error *err)
{
    size_t n = strlen(prefix) + 40 + HOST_BYTES;
    char host[HOST_BYTES];

    out->path = malloc(n);
    out->temporary = malloc(n);
    out->buffer = malloc(BUFFER_BYTES);
    if (out->path == NULL || out->temporary == NULL || out->buffer == NULL)
        return merak_fail_nomem(err, BUFFER_BYTES);
    snprintf(out->path, n, "%s%s", prefix, suffix);
    get_host(host);
    snprintf(out->temporary, n, "%s%s.tmp-%s-%ld", prefix, suffix, host,
             (long)getpid());
    out->fd = open(out->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out->fd < 0)
        return merak_file_fail(err, "create", out->temporary);
    out->made = true;
    return MERAK_OK;
}

enum merak_status merak_out_open_headed(struct merak_out *out,
                                        const char *prefix, const char *suffix,
                                        size_t header_bytes,
                                        struct merak_error *err)
{
    enum merak_status rc = merak_out_open(out, prefix, suffix, err);

    if (rc != MERAK_OK)
        return rc;
    memset(out->buffer, 0, header_bytes);
    rc = merak_file_write(out->fd, out->path, out->buffer, header_bytes, err);
    return rc == MERAK_OK ? merak_out_start_sum(out, err) : rc;
}

enum merak_status merak_out_flush(struct merak_out *out,
                                  struct merak_error *err)
{
    size_t n = out->used;

    out->used = 0;
    if (out->sum != NULL)
        XXH3_64bits_update(out->sum, out->buffer, n);
    return merak_file_write(out->fd, out->path, out->buffer, n, err);
}

enum merak_status merak_out_put(struct merak_out *out, const void *bytes,
                                size_t n, struct merak_error *err)
{
    if (out->used + n > BUFFER_BYTES) {
        enum merak_status rc = merak_out_flush(out, err);

        if (rc != MERAK_OK)
            return rc;
    }
    memcpy(out->buffer + out->used, bytes, n);
    out->used += n;
    return MERAK_OK;
}

enum merak_status merak_out_sync(struct merak_out *out, struct merak_error *err)
{
    enum merak_status rc = merak_out_flush(out, err);
    int fd = out->fd;

    if (rc != MERAK_OK)
        return rc;
    out->fd = -1;
    return merak_file_sync_close(fd, out->path, err);
}

enum merak_status merak_out_finish(struct merak_out *out,
                                   const unsigned char *header, size_t n,
                                   struct merak_error *err)
{
    enum merak_status rc =
        merak_file_write_at(out->fd, out->path, header, n, 0, err);

    return rc == MERAK_OK ? merak_out_sync(out, err) : rc;
}

enum merak_status merak_out_publish(struct merak_out *out,
                                    struct merak_error *err)
{
    if (rename(out->temporary, out->path) != 0)
        return merak_file_fail(err, "rename to", out->path);
    out->made = false;
    return MERAK_OK;
}

void merak_out_close(struct merak_out *out)
{
    if (out->fd >= 0)
        close(out->fd);
    if (out->made)
        unlink(out->temporary);
    free(out->path);
    free(out->temporary);
    free(out->buffer);
    XXH3_freeState(out->sum);
}

enum merak_status merak_out_start_sum(struct merak_out *out,
                                      struct merak_error *err)
{
    out->sum = XXH3_createState();
    if (out->sum == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(out->sum);
    return MERAK_OK;
}
