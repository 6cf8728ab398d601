/* SPDX-License-Identifier: Apache-2.0 */
/* hub.c - models in the local cache of the Hugging Face hub
 *
 * The cache has, for ORG/NAME,
 *
 *   models--ORG--NAME/refs/main               the name of a commit
 *   models--ORG--NAME/snapshots/COMMIT/FILE   links to ../../blobs/..
 */
#include "config.h"

#include "base/hub.h"

#include "base/error.h"

#include <ctype.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMMIT_BYTES = 128 };

/* "a/b" in room, or "" if that is too long. */
static const char *join(char room[PATH_MAX], const char *a, const char *b)
{
    int n = snprintf(room, PATH_MAX, "%s/%s", a, b);

    if (n < 0 || n >= PATH_MAX)
        room[0] = '\0';
    return room;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* HF_HUB_CACHE, or hub in HF_HOME, else where the hub's programs have it. */
static const char *cache_folder(char room[PATH_MAX])
{
    const char *dir = variable("HF_HUB_CACHE");
    const struct passwd *user;

    if (dir == NULL)
        dir = variable("HUGGINGFACE_HUB_CACHE");
    if (dir != NULL) {
        snprintf(room, PATH_MAX, "%s", dir);
        return room;
    }
    dir = variable("HF_HOME");
    if (dir != NULL)
        return join(room, dir, "hub");
    dir = variable("XDG_CACHE_HOME");
    if (dir != NULL)
        return join(room, dir, "huggingface/hub");
    dir = variable("HOME");
    user = dir == NULL ? getpwuid(getuid()) : NULL;
    return join(room,
                dir != NULL    ? dir
                : user != NULL ? user->pw_dir
                               : "",
                ".cache/huggingface/hub");
}

/* NAME or ORG/NAME, as the hub allows them. */
static bool is_name(const char *name)
{
    const char *slash = strchr(name, '/');

    if (!isalnum((unsigned char)name[0]) || strstr(name, "..") != NULL ||
        (slash != NULL &&
         (!isalnum((unsigned char)slash[1]) || strchr(slash + 1, '/') != NULL)))
        return false;
    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name) && strchr("/-_.", *name) == NULL)
            return false;
    }
    return true;
}

/* The folder's name: "models--ORG--NAME". */
static bool name_folder(const char *name, char *text, size_t bytes)
{
    const char *slash = strchr(name, '/');
    int n = slash == NULL ? snprintf(text, bytes, "models--%s", name)
                          : snprintf(text, bytes, "models--%.*s--%s",
                                     (int)(slash - name), name, slash + 1);

    return n > 0 && (size_t)n < bytes;
}

static bool read_commit(const char *model, char commit[COMMIT_BYTES])
{
    char path[PATH_MAX];
    FILE *file = fopen(join(path, model, "refs/main"), "re");
    bool read = file != NULL && fgets(commit, COMMIT_BYTES, file) != NULL;

    if (file != NULL)
        fclose(file);
    if (!read)
        return false;
    commit[strcspn(commit, " \r\n")] = '\0';
    return commit[0] != '\0' &&
           strspn(commit, "0123456789abcdef") == strlen(commit);
}

const char *merak_hub_path(const char *name, char room[PATH_MAX])
{
    char folder[256], commit[COMMIT_BYTES], model[PATH_MAX], all[PATH_MAX];

    if (access(name, F_OK) == 0 || !is_name(name) ||
        !name_folder(name, folder, sizeof(folder)))
        return name;
    join(model, cache_folder(room), folder);
    if (!read_commit(model, commit))
        return name;
    join(all, model, "snapshots");
    join(room, all, commit);
    return access(room, F_OK) == 0 ? room : name;
}

const char *merak_hub_download(const char *dir, char *room, size_t bytes)
{
    static const char begin[] = "models--";
    const char *end = strstr(dir, "/snapshots/"), *name = end;
    const char *two;

    while (name != NULL && name > dir && name[-1] != '/')
        name--;
    if (name == NULL || strncmp(name, begin, sizeof(begin) - 1) != 0) {
        snprintf(room, bytes, "hf download NAME --local-dir %s", dir);
        return room;
    }
    name += sizeof(begin) - 1;
    two = strstr(name, "--");
    if (two != NULL && two < end)
        snprintf(room, bytes, "hf download %.*s/%.*s", (int)(two - name), name,
                 (int)(end - two - 2), two + 2);
    else
        snprintf(room, bytes, "hf download %.*s", (int)(end - name), name);
    return room;
}

static enum merak_status fail(struct merak_error *err, enum merak_status status,
                              const char *what, const char *path,
                              const char *expected)
{
    char cache[PATH_MAX];

    return merak_fail(
        err, status,
        "%s %.60s: there is no such file or folder; give %s; one of the "
        "Hugging Face hub has to be downloaded first: hf download NAME (to "
        "%.200s)",
        what, path, expected, cache_folder(cache));
}

enum merak_status merak_fail_no_path(struct merak_error *err, const char *what,
                                     const char *path, const char *expected)
{
    return fail(err, MERAK_ERR_CONFIG, what, path, expected);
}

enum merak_status merak_fail_no_weights(struct merak_error *err,
                                        const char *what, const char *path,
                                        const char *expected)
{
    return fail(err, MERAK_ERR_NOT_FOUND, what, path, expected);
}
