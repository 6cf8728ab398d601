/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - packing in parts, by several tasks or in several runs */
#include "config.h"

#include "io/tokens/parts.h"

#include "base/error.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Large enough that the files of a part cost nothing beside it, small enough
 * that little is lost with one, and that tasks have several each. */
#define MOST_PART_BYTES ((uint64_t)256 << 20)
#define LEAST_PART_BYTES ((uint64_t)64 << 10)
enum { PARTS_PER_TASK = 8, NAME_BYTES = 160, HOST_BYTES = 64 };

static char *join_path(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);

    if (path != NULL)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

/* A name that no other process has. */
static void get_own_name(char name[NAME_BYTES])
{
    char host[HOST_BYTES] = "";

    if (gethostname(host, sizeof(host)) != 0)
        host[0] = '\0';
    host[sizeof(host) - 1] = '\0';
    snprintf(name, NAME_BYTES, "%s-%ld", host, (long)getpid());
}

/* --- files of JSON ---------------------------------------------------------
 */

/* Write under a temporary name, and link it to the final one: `exists_p` says
 * that there was such a file, which stays.  NULL: it is replaced. */
static enum merak_status put_json(const char *folder, const char *name,
                                  const json_t *json, bool *exists_p,
                                  struct merak_error *err)
{
    char own[NAME_BYTES], temporary[4 * NAME_BYTES];
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS), *from, *to;
    enum merak_status rc = MERAK_OK;
    int fd = -1;

    get_own_name(own);
    snprintf(temporary, sizeof(temporary), "tmp-%s-%s", own, name);
    from = join_path(folder, temporary);
    to = join_path(folder, name);
    if (text == NULL || from == NULL || to == NULL)
        rc = merak_fail_nomem(err, NAME_BYTES);
    if (rc == MERAK_OK) {
        fd = open(from, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                  0666);
        if (fd < 0)
            rc = merak_file_fail(err, "create", from);
    }
    if (rc == MERAK_OK)
        rc = merak_file_write(fd, from, text, strlen(text), err);
    if (fd >= 0) {
        if (rc == MERAK_OK)
            rc = merak_file_sync_close(fd, from, err);
        else
            close(fd);
    }
    if (rc == MERAK_OK && exists_p == NULL && rename(from, to) != 0)
        rc = merak_file_fail(err, "rename to", to);
    if (rc == MERAK_OK && exists_p != NULL) {
        *exists_p = link(from, to) != 0;
        if (*exists_p && errno != EEXIST)
            rc = merak_file_fail(err, "link to", to);
    }
    if (from != NULL && (exists_p != NULL || rc != MERAK_OK))
        unlink(from);
    if (rc == MERAK_OK)
        rc = merak_file_sync_dir(to, err);
    free(text);
    free(from);
    free(to);
    return rc;
}

static json_t *get_json(const char *folder, const char *name)
{
    char *path = join_path(folder, name);
    json_t *json = path != NULL ? json_load_file(path, 0, NULL) : NULL;

    free(path);
    return json;
}

/* --- the plan --------------------------------------------------------------
 */

static enum merak_status add_part(struct merak_parts *parts, size_t input,
                                  uint64_t begin, uint64_t end,
                                  struct merak_error *err)
{
    if ((parts->n & (parts->n + 1)) == 0) { /* 0, 1, 3, 7, .. */
        size_t room = 2 * parts->n + 1;
        void *more = realloc(parts->part, room * sizeof(*parts->part));

        if (more == NULL)
            return merak_fail_nomem(err, room * sizeof(*parts->part));
        parts->part = more;
    }
    parts->part[parts->n++] = (struct merak_part){input, begin, end};
    return MERAK_OK;
}

/* Cut an input into parts of so many bytes, if it can be. */
static enum merak_status cut_input(struct merak_parts *parts, size_t input,
                                   uint64_t bytes, uint64_t each,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (bytes <= each)
        return add_part(parts, input, 0, 0, err);
    for (uint64_t at = 0; rc == MERAK_OK && at < bytes; at += each)
        rc = add_part(parts, input, at, at + each < bytes ? at + each : bytes,
                      err);
    return rc;
}

static json_t *describe_input(const char *path, uint64_t cut_bytes,
                              struct merak_error *err)
{
    struct stat st;
    json_t *input;

    if (strcmp(path, "-") == 0) {
        (void)merak_fail(err, MERAK_ERR_CONFIG,
                         "several tasks cannot share standard input; give "
                         "files");
        return NULL;
    }
    if (stat(path, &st) != 0) {
        (void)merak_file_fail(err, "open", path);
        return NULL;
    }
    input = json_pack("{s:s%, s:I, s:I, s:I}", "path", path, strlen(path),
                      "bytes", (json_int_t)st.st_size, "changed",
                      (json_int_t)st.st_mtime, "cut", (json_int_t)cut_bytes);
    if (input == NULL)
        (void)merak_fail(err, MERAK_ERR_CONFIG,
                         "%.200s: several tasks take files with names in "
                         "UTF-8; rename it, or pack with one task",
                         path);
    return input;
}

/* The plan as it would be made now. */
static json_t *make_plan(const json_t *facts, size_t n, char *const *inputs,
                         merak_parts_cut_fn cut, const char *key, int n_tasks,
                         struct merak_error *err)
{
    json_t *list = json_array(), *each;
    uint64_t all = 0, part;
    char id[64];

    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = cut(inputs[i], key);

        each = describe_input(inputs[i], bytes, err);
        if (each == NULL) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, each);
        all += bytes;
    }
    part = all / (uint64_t)(n_tasks * PARTS_PER_TASK);
    part = part < LEAST_PART_BYTES  ? LEAST_PART_BYTES
           : part > MOST_PART_BYTES ? MOST_PART_BYTES
                                    : part;
    snprintf(id, sizeof(id), "%lld_%ld", (long long)time(NULL), (long)getpid());
    return json_pack("{s:i, s:s, s:O, s:o, s:I, s:I}", "version", 1, "id", id,
                     "facts", facts, "inputs", list, "part_bytes",
                     (json_int_t)part, "now", (json_int_t)time(NULL));
}

/* The first key of the facts that differs, or NULL. */
static const char *find_other(const json_t *old, const json_t *new)
{
    const char *key;
    json_t *each;

    json_object_foreach((json_t *)new, key, each)
    {
        if (!json_equal(json_object_get(old, key), each))
            return key;
    }
    return NULL;
}

static enum merak_status compare_plans(const struct merak_parts *parts,
                                       const json_t *old, const json_t *new,
                                       struct merak_error *err)
{
    const char *other = find_other(json_object_get(old, "facts"),
                                   json_object_get(new, "facts"));

    if (other == NULL && !json_equal(json_object_get(old, "inputs"),
                                     json_object_get(new, "inputs")))
        other = "the files, their sizes or their times";
    if (other == NULL)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "%s has parts of another packing, not the same in %s; "
                      "finish it with what it began with, or remove the folder",
                      parts->folder, other);
}

static enum merak_status use_plan(struct merak_parts *parts, const json_t *plan,
                                  struct merak_error *err)
{
    const json_t *inputs = json_object_get(plan, "inputs"), *each;
    const json_int_t part =
        json_integer_value(json_object_get(plan, "part_bytes"));
    enum merak_status rc = MERAK_OK;
    size_t i;

    const char *id = json_string_value(json_object_get(plan, "id"));

    parts->now = json_integer_value(json_object_get(plan, "now"));
    parts->id = id != NULL ? strdup(id) : NULL;
    if (part <= 0 || parts->id == NULL)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s/plan.json is no plan; remove the folder",
                          parts->folder);
    json_array_foreach(inputs, i, each)
    {
        const json_int_t bytes =
            json_integer_value(json_object_get(each, "cut"));

        rc = cut_input(parts, i, bytes > 0 ? (uint64_t)bytes : 0,
                       (uint64_t)part, err);
        if (rc != MERAK_OK)
            break;
    }
    return rc;
}

/* What tells a run of tasks from others: Slurm's numbers; the tasks of an array
 * are one run. */
static char *name_run(void)
{
    const char *array = getenv("SLURM_ARRAY_JOB_ID");
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    const char *again = getenv("SLURM_RESTART_COUNT");
    char name[NAME_BYTES];

    if (array != NULL)
        snprintf(name, sizeof(name), "%.30s", array);
    else
        snprintf(name, sizeof(name), "%.30s.%.30s.%.30s",
                 job != NULL ? job : "0", step != NULL ? step : "0",
                 again != NULL ? again : "0");
    for (char *at = name; *at != '\0'; at++)
        *at = strchr("/-", *at) != NULL ? '_' : *at;
    return strdup(name);
}

static enum merak_status agree(struct merak_parts *parts, const json_t *plan,
                               struct merak_error *err)
{
    bool exists = false;
    enum merak_status rc =
        put_json(parts->folder, "plan.json", plan, &exists, err);
    json_t *old;

    if (rc != MERAK_OK || !exists)
        return rc == MERAK_OK ? use_plan(parts, plan, err) : rc;
    old = get_json(parts->folder, "plan.json");
    rc = json_is_object(old) ? compare_plans(parts, old, plan, err)
                             : merak_fail(err, MERAK_ERR_FORMAT,
                                          "%s/plan.json is no plan; remove "
                                          "the folder",
                                          parts->folder);
    if (rc == MERAK_OK)
        rc = use_plan(parts, old, err);
    json_decref(old);
    return rc;
}

enum merak_status merak_parts_open(const char *prefix, const json_t *facts,
                                   size_t n_inputs, char *const *inputs,
                                   merak_parts_cut_fn cut, const char *key,
                                   int n_tasks, struct merak_parts *parts,
                                   struct merak_error *err)
{
    size_t n = strlen(prefix) + 7;
    json_t *plan;
    enum merak_status rc = MERAK_OK;

    *parts = (struct merak_parts){.folder = malloc(n), .run = name_run()};
    if (parts->folder == NULL || parts->run == NULL)
        return merak_fail_nomem(err, n);
    snprintf(parts->folder, n, "%s.parts", prefix);
    plan = make_plan(facts, n_inputs, inputs, cut, key, n_tasks, err);
    if (plan == NULL)
        return MERAK_ERR_NOT_FOUND;
    if (mkdir(parts->folder, 0777) != 0 && errno != EEXIST)
        rc = merak_file_fail(err, "make", parts->folder);
    if (rc == MERAK_OK)
        rc = agree(parts, plan, err);
    json_decref(plan);
    return rc;
}

void merak_parts_close(struct merak_parts *parts)
{
    free(parts->folder);
    free(parts->id);
    free(parts->run);
    free(parts->part);
    *parts = (struct merak_parts){.folder = NULL};
}

/* --- parts -----------------------------------------------------------------
 */

static void name_files(size_t i, char name[2 * NAME_BYTES])
{
    char own[NAME_BYTES];

    get_own_name(own);
    snprintf(name, 2 * NAME_BYTES, "%zu-%s", i, own);
}

static void name_part(const struct merak_parts *parts, size_t i,
                      char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%zu-%s.json", i, parts->id);
}

char *merak_parts_prefix(const struct merak_parts *parts, size_t i)
{
    char name[2 * NAME_BYTES];

    name_files(i, name);
    return join_path(parts->folder, name);
}

json_t *merak_parts_counts(const struct merak_parts *parts, size_t i)
{
    char name[NAME_BYTES];

    name_part(parts, i, name);
    return get_json(parts->folder, name);
}

enum merak_status merak_parts_done(const struct merak_parts *parts, size_t i,
                                   json_t *counts, struct merak_error *err)
{
    char name[NAME_BYTES], files[2 * NAME_BYTES];

    name_part(parts, i, name);
    name_files(i, files);
    json_object_set_new(counts, "files", json_string(files));
    return put_json(parts->folder, name, counts, NULL, err);
}

/* --- the last one ----------------------------------------------------------
 */

/* Names in the folder, counted by what they are. */
struct found {
    size_t parts, tasks;
};

/* Is this "NUMBER-PLAN.json"? */
static bool is_part(const struct merak_parts *parts, const char *name)
{
    char whole[NAME_BYTES];
    size_t i = strtoull(name, NULL, 10);

    name_part(parts, i, whole);
    return i < parts->n && strcmp(name, whole) == 0;
}

static enum merak_status look(const struct merak_parts *parts, int n_tasks,
                              struct found *found, struct merak_error *err)
{
    DIR *dir = opendir(parts->folder);
    char begin[NAME_BYTES], end[32];
    const struct dirent *entry;

    if (dir == NULL)
        return merak_file_fail(err, "read", parts->folder);
    *found = (struct found){0, 0};
    snprintf(begin, sizeof(begin), "here-%s-", parts->run);
    snprintf(end, sizeof(end), "-%d", n_tasks);
    while ((entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        size_t n = strlen(name), b = strlen(begin), e = strlen(end);

        found->parts += is_part(parts, name);
        found->tasks += n > b + e && strncmp(name, begin, b) == 0 &&
                        strcmp(name + n - e, end) == 0;
    }
    closedir(dir);
    return MERAK_OK;
}

/* Does who began to join them live, as far as can be told here?  Another run's
 * does not, nor does a process of this host that is gone. */
static bool is_joining(const struct merak_parts *parts, const json_t *claim)
{
    const char *run = json_string_value(json_object_get(claim, "run"));
    const char *who = json_string_value(json_object_get(claim, "who"));
    char own[NAME_BYTES];
    const char *dash;
    size_t host;

    if (run == NULL || who == NULL || strcmp(run, parts->run) != 0)
        return false;
    get_own_name(own);
    dash = strrchr(own, '-');
    host = (size_t)(dash - own) + 1;
    if (strncmp(who, own, host) != 0)
        return true;
    return kill((pid_t)strtol(who + host, NULL, 10), 0) == 0 || errno != ESRCH;
}

static enum merak_status claim(const struct merak_parts *parts, bool *mine_p,
                               struct merak_error *err)
{
    char own[NAME_BYTES];
    json_t *now, *old;
    bool exists = true;
    enum merak_status rc = MERAK_OK;
    char *path = join_path(parts->folder, "joining");

    get_own_name(own);
    now = json_pack("{s:s, s:s}", "run", parts->run, "who", own);
    for (int tries = 0; rc == MERAK_OK && exists && tries < 2; tries++) {
        rc = put_json(parts->folder, "joining", now, &exists, err);
        if (rc != MERAK_OK || !exists)
            break;
        old = get_json(parts->folder, "joining");
        if (old == NULL || is_joining(parts, old))
            tries = 2;
        else if (path != NULL)
            unlink(path);
        json_decref(old);
    }
    *mine_p = rc == MERAK_OK && !exists;
    json_decref(now);
    free(path);
    return rc;
}

enum merak_status merak_parts_arrive(const struct merak_parts *parts, int task,
                                     int n_tasks, bool *joins_p, size_t *left_p,
                                     struct merak_error *err)
{
    char name[2 * NAME_BYTES];
    struct found found = {0, 0};
    json_t *empty = json_object();
    enum merak_status rc;

    *joins_p = false;
    snprintf(name, sizeof(name), "here-%s-%d-%d", parts->run, task, n_tasks);
    rc = put_json(parts->folder, name, empty, NULL, err);
    json_decref(empty);
    if (rc == MERAK_OK)
        rc = look(parts, n_tasks, &found, err);
    *left_p = parts->n - found.parts;
    if (rc == MERAK_OK && *left_p == 0 && found.tasks == (size_t)n_tasks)
        rc = claim(parts, joins_p, err);
    return rc;
}

bool merak_parts_are_joined(const struct merak_parts *parts)
{
    json_t *plan = get_json(parts->folder, "plan.json");
    const char *id = json_string_value(json_object_get(plan, "id"));
    bool gone = id == NULL || strcmp(id, parts->id) != 0;

    json_decref(plan);
    return gone;
}

/* The plan goes first: without it the parts are nobody's.  A task that lives on
 * may write more of them. */
enum merak_status merak_parts_remove(const struct merak_parts *parts,
                                     struct merak_error *err)
{
    DIR *dir = opendir(parts->folder);
    const struct dirent *entry;

    if (dir == NULL)
        return errno == ENOENT ? MERAK_OK
                               : merak_file_fail(err, "read", parts->folder);
    (void)unlinkat(dirfd(dir), "plan.json", 0);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    if (rmdir(parts->folder) != 0 && errno != ENOTEMPTY && errno != EEXIST &&
        errno != ENOENT)
        return merak_file_fail(err, "remove", parts->folder);
    return MERAK_OK;
}
