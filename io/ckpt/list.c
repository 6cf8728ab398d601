/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - which checkpoints a run has, and whether one can be loaded */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "base/size.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char *const suffix[] = {[MERAK_CKPT_PLAIN] = "",
                                     [MERAK_CKPT_OLD] = ".old",
                                     [MERAK_CKPT_TMP] = ".tmp"};

char *merak_ckpt_name(char *buf, uint64_t step, enum merak_ckpt_kind kind)
{
    snprintf(buf, MERAK_CKPT_NAME, "step-%08" PRIu64 "%s", step, suffix[kind]);
    return buf;
}

/* False if merak_ckpt_name() does not make such a name. */
static bool parse_name(const char *name, struct merak_ckpt_entry *entry)
{
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    entry->elsewhere = false;
    entry->step = strtoull(name + 5, NULL, 10);
    for (int kind = MERAK_CKPT_PLAIN; kind <= MERAK_CKPT_TMP; kind++) {
        entry->kind = (enum merak_ckpt_kind)kind;
        if (strcmp(merak_ckpt_name(entry->name, entry->step, entry->kind),
                   name) == 0)
            return true;
    }
    return false;
}

static int newest_first(const void *a, const void *b)
{
    const struct merak_ckpt_entry *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

static enum merak_status add_entry(const char *name,
                                   struct merak_ckpt_entry **entries, int *n,
                                   struct merak_error *err)
{
    struct merak_ckpt_entry entry, *more;

    if (!parse_name(name, &entry))
        return MERAK_OK;
    /* Grows at powers of two. */
    if ((*n & (*n - 1)) == 0) {
        size_t bytes = (size_t)(*n == 0 ? 1 : 2 * *n) * sizeof(**entries);

        more = realloc(*entries, bytes);
        if (more == NULL)
            return merak_fail_nomem(err, bytes);
        *entries = more;
    }
    (*entries)[(*n)++] = entry;
    return MERAK_OK;
}

enum merak_status merak_ckpt_list(const char *run_dir,
                                  struct merak_ckpt_entry **entries_p, int *n_p,
                                  struct merak_error *err)
{
    struct merak_ckpt_entry *entries = NULL;
    enum merak_status rc = MERAK_OK;
    DIR *dir = opendir(run_dir);
    struct dirent *entry;
    int n = 0;

    if (dir == NULL)
        return merak_file_fail(err, "open directory", run_dir);
    while (rc == MERAK_OK && (entry = readdir(dir)) != NULL)
        rc = add_entry(entry->d_name, &entries, &n, err);
    closedir(dir);
    if (rc != MERAK_OK) {
        free(entries);
        return rc;
    }
    if (n > 0)
        qsort(entries, (size_t)n, sizeof(*entries), newest_first);
    *entries_p = entries;
    *n_p = n;
    return MERAK_OK;
}

enum merak_status merak_ckpt_check_none(const char *run_dir,
                                        struct merak_error *err)
{
    struct merak_ckpt_entry *entries = NULL;
    int n = 0;
    enum merak_status rc = merak_ckpt_list(run_dir, &entries, &n, err);

    if (rc == MERAK_OK && n > 0)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "%.100s already has checkpoints, such as %s: give "
                        "--out another directory",
                        run_dir, entries[0].name);
    free(entries);
    return rc;
}

bool merak_ckpt_is_one(const char *dir)
{
    const char *base = strrchr(dir, '/');
    struct merak_ckpt_entry entry;
    char path[PATH_MAX];

    return access(merak_path(path, dir, MERAK_CKPT_MANIFEST), F_OK) == 0 ||
           access(merak_path(path, dir, MERAK_CKPT_COMMITTED), F_OK) == 0 ||
           parse_name(base == NULL ? dir : base + 1, &entry);
}

size_t merak_ckpt_record(char buf[MERAK_CKPT_MAX_RECORD], uint64_t step,
                         const char *manifest, size_t bytes)
{
    char hash[MERAK_HASH_TEXT];
    int n;

    merak_hash(manifest, bytes, hash);
    n = snprintf(buf, MERAK_CKPT_MAX_RECORD,
                 "%s %d step %" PRIu64 " manifest %zu %s\n", MERAK_CKPT_FORMAT,
                 MERAK_CKPT_VERSION, step, bytes, hash);
    merak_hash(buf, (size_t)n, hash);
    n += snprintf(buf + n, MERAK_CKPT_MAX_RECORD - (size_t)n, "%s\n", hash);
    return (size_t)n;
}

/* Its second line is the hash of its first, which shows which of the two files
 * is damaged. */
static bool record_is_sound(const char *record, size_t bytes)
{
    const char *end = memchr(record, '\n', bytes);
    char hash[MERAK_HASH_TEXT];
    size_t line;

    if (end == NULL)
        return false;
    line = (size_t)(end - record) + 1;
    merak_hash(record, line, hash);
    return bytes == line + MERAK_HASH_TEXT &&
           memcmp(record + line, hash, MERAK_HASH_TEXT - 1) == 0 &&
           record[bytes - 1] == '\n';
}

static enum merak_status check_record(const char *record, size_t record_bytes,
                                      const char *manifest, size_t bytes,
                                      struct merak_error *err)
{
    char hash[MERAK_HASH_TEXT];
    unsigned long long want = 0;

    if (!record_is_sound(record, record_bytes))
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          MERAK_CKPT_COMMITTED " is damaged");
    merak_hash(manifest, bytes, hash);
    if (sscanf(record, "%*s %*d step %*u manifest %llu", &want) == 1 &&
        want != bytes)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          MERAK_CKPT_MANIFEST " has %zu bytes, not %llu", bytes,
                          want);
    if (strstr(record, hash) == NULL)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          MERAK_CKPT_MANIFEST " is damaged: its checksum is "
                                              "not the one committed");
    return MERAK_OK;
}

static enum merak_status read_pair(const char *dir, char **record_p,
                                   size_t *record_bytes_p, char **manifest_p,
                                   size_t *bytes_p, struct merak_error *err)
{
    char path[PATH_MAX];
    enum merak_status rc;

    rc = merak_durable_read(merak_path(path, dir, MERAK_CKPT_COMMITTED),
                            record_p, record_bytes_p, err);
    if (rc == MERAK_ERR_NOT_FOUND && access(dir, F_OK) != 0)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "there is no such checkpoint: it was never saved, or "
                          "removed as older than those of --keep");
    if (rc == MERAK_ERR_NOT_FOUND)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "not committed: a save was interrupted");
    if (rc != MERAK_OK)
        return rc;
    rc = merak_durable_read(merak_path(path, dir, MERAK_CKPT_MANIFEST),
                            manifest_p, bytes_p, err);
    if (rc == MERAK_ERR_NOT_FOUND)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          MERAK_CKPT_MANIFEST " is missing");
    return rc;
}

/* A directory renamed to another step would be mistaken for it. */
static enum merak_status check_name(const char *dir, uint64_t step,
                                    struct merak_error *err)
{
    const char *base = strrchr(dir, '/');
    struct merak_ckpt_entry entry;

    if (!parse_name(base == NULL ? dir : base + 1, &entry) ||
        entry.step == step)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "it holds step %" PRIu64 ", not the one in its name",
                      step);
}

enum merak_status merak_ckpt_load_manifest(const char *dir,
                                           struct merak_ckpt_manifest **mf_p,
                                           struct merak_error *err)
{
    char *record = NULL, *manifest = NULL;
    struct merak_ckpt_manifest *mf = NULL;
    size_t record_bytes, bytes;
    enum merak_status rc;

    rc = read_pair(dir, &record, &record_bytes, &manifest, &bytes, err);
    if (rc != MERAK_OK)
        goto out;
    rc = check_record(record, record_bytes, manifest, bytes, err);
    if (rc != MERAK_OK)
        goto out;
    rc = merak_ckpt_manifest_parse(manifest, bytes, &mf, err);
    if (rc == MERAK_OK)
        rc = check_name(dir, mf->state.step, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_manifest_cover(mf, MERAK_ERR_CORRUPT, err);
    if (rc != MERAK_OK) {
        merak_error_wrap(err, MERAK_CKPT_MANIFEST);
        goto out;
    }
    *mf_p = mf;
    mf = NULL;
out:
    merak_ckpt_manifest_destroy(mf);
    free(manifest);
    free(record);
    return rc;
}

enum merak_status merak_ckpt_check_size(const char *dir,
                                        const struct merak_ckpt_file *file,
                                        struct merak_error *err)
{
    char path[PATH_MAX];
    struct stat st;

    if (stat(merak_path(path, dir, file->name), &st) != 0)
        return errno == ENOENT ? merak_fail(err, MERAK_ERR_CORRUPT,
                                            "%s is missing", file->name)
                               : merak_file_fail(err, "look at", file->name);
    if ((uint64_t)st.st_size != file->bytes)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%s has %llu bytes, not %" PRIu64, file->name,
                          (unsigned long long)st.st_size, file->bytes);
    return MERAK_OK;
}

enum merak_status merak_ckpt_room(const char *run_dir, double bytes,
                                  uint64_t saves, uint64_t stay, int newest,
                                  struct merak_error *err)
{
    struct merak_ckpt_entry *entries = NULL;
    struct statvfs fs;
    uint64_t there = 0, most;
    enum merak_status rc;
    double have;
    int n = 0;

    rc = merak_ckpt_list(run_dir, &entries, &n, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_branch_mark(run_dir, entries, n, err);
    for (int i = 0; i < n && rc == MERAK_OK; i++)
        there += entries[i].kind != MERAK_CKPT_TMP && !entries[i].elsewhere;
    free(entries);
    if (rc != MERAK_OK)
        return rc;
    /* A file system that reports 0 blocks in total gives no information. */
    if (statvfs(run_dir, &fs) != 0 || fs.f_blocks == 0)
        return MERAK_OK;
    most = (uint64_t)newest >= there ? (uint64_t)newest + 1 - there : 1;
    most += stay;
    if (newest == 0 || saves < most)
        most = saves;
    have = (double)fs.f_bavail * (double)fs.f_frsize;
    if ((double)most * bytes <= have)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_NOSPACE,
                      "%.80s has %.3f GB free, and this run adds up to "
                      "%" PRIu64 " checkpoint%s of %.3f GB: free some space, "
                      "keep fewer or save elsewhere",
                      run_dir, have * 1e-9, most, merak_plural((long)most),
                      bytes * 1e-9);
}

enum merak_status merak_ckpt_load(const char *dir,
                                  struct merak_ckpt_manifest **mf_p,
                                  struct merak_error *err)
{
    struct merak_ckpt_manifest *mf = NULL;
    enum merak_status rc = merak_ckpt_load_manifest(dir, &mf, err);

    if (rc == MERAK_OK)
        rc = merak_ckpt_check_size(dir, &mf->master, err);
    for (int i = 0; rc == MERAK_OK && i < mf->n_shards; i++)
        rc = merak_ckpt_check_size(dir, &mf->shard[i], err);
    if (rc == MERAK_OK)
        *mf_p = mf;
    else
        merak_ckpt_manifest_destroy(mf);
    return rc;
}
