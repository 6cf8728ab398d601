/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - find and open merak_NAME.so */
#include "config.h"

#include "kernels/module.h"

#include "base/error.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PLACES 3

struct places {
    int n;
    char path[MAX_PLACES][PATH_MAX];
};

static void add_place(struct places *at, const char *dir, const char *below,
                      const char *name)
{
    int n = snprintf(at->path[at->n], PATH_MAX, "%s%s/merak_%s.so", dir, below,
                     name);

    at->n += n > 0 && n < PATH_MAX;
}

/* The directory that this library was loaded from, or "". */
static void find_own_dir(char dir[PATH_MAX])
{
    Dl_info info;
    char *slash;

    dir[0] = '\0';
    if (dladdr((void *)(uintptr_t)merak_module_open, &info) == 0 ||
        info.dli_fname == NULL || realpath(info.dli_fname, dir) == NULL) {
        dir[0] = '\0';
        return;
    }
    slash = strrchr(dir, '/');
    if (slash != NULL)
        *slash = '\0';
}

/*
 * The root of the build tree that `dir` may lie in, from there; "" where it
 * does not: libtool puts libraries into .libs, and programs that hold a static
 * one are built for these two folders alone.
 */
static const char *find_build_root(const char *dir)
{
    static const char *const built[] = {"/.libs", "/tests/unit", "/bench"};
    static const char *const root[] = {"/../..", "/../..", "/.."};
    size_t n = strlen(dir);

    for (size_t i = 0; i < sizeof(built) / sizeof(*built); i++) {
        size_t tail = strlen(built[i]);

        if (n > tail && strcmp(dir + n - tail, built[i]) == 0)
            return root[i];
    }
    return "";
}

/* Can nobody write to it who cannot write to the folder of this library? */
static bool is_as_safe(const char *path, const struct stat *own)
{
    struct stat st;

    return stat(path, &st) == 0 && st.st_uid == own->st_uid &&
           (st.st_mode & ~own->st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
           ((st.st_mode & S_IWGRP) == 0 || st.st_gid == own->st_gid);
}

/*
 * A folder's name is no evidence: what is above an installed Merak's prefix, or
 * above a user's own "bench", may be anybody's.  The root of a build tree has
 * what configure wrote, and it and all down to the module are as safe as the
 * library that opens it.
 */
static bool is_build_tree(const char *dir, const char *root, const char *below)
{
    char path[PATH_MAX];
    struct stat own;
    size_t n;

    if (stat(dir, &own) != 0)
        return false;
    snprintf(path, sizeof(path), "%s%s/config.status", dir, root);
    if (!is_as_safe(path, &own))
        return false;
    for (n = 0; below[n] != '\0'; n++) {
        snprintf(path, sizeof(path), "%s%s%.*s", dir, root, (int)n, below);
        if (below[n] == '/' && !is_as_safe(path, &own))
            return false;
    }
    snprintf(path, sizeof(path), "%s%s%s", dir, root, below);
    return is_as_safe(path, &own);
}

static void add_built(struct places *at, const char *dir,
                      const struct merak_module_ask *ask)
{
    const char *root = find_build_root(dir);
    char below[128];

    snprintf(below, sizeof(below), "/%s/.libs/merak_%s.so", ask->built,
             ask->name);
    if (root[0] == '\0' || !is_build_tree(dir, root, below))
        return;
    snprintf(below, sizeof(below), "%s/%s/.libs", root, ask->built);
    add_place(at, dir, below, ask->name);
}

static void find_places(const struct merak_module_ask *ask, struct places *at)
{
    const char *only = getenv("MERAK_MODULE_DIR");
    char dir[PATH_MAX];

    at->n = 0;
    if (only != NULL && *only != '\0') {
        add_place(at, only, "", ask->name);
        return;
    }
    find_own_dir(dir);
    if (dir[0] != '\0') {
        add_place(at, dir, "/merak", ask->name);
        add_built(at, dir, ask);
    }
    add_place(at, MERAK_MODULE_INSTALL_DIR, "", ask->name);
}

static enum merak_status fail_absent(const struct merak_module_ask *ask,
                                     const struct places *at,
                                     struct merak_error *err)
{
    const char *only = getenv("MERAK_MODULE_DIR");

    if (only != NULL && *only != '\0')
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "%s \"%s\" is in merak_%s.so, and "
                          "MERAK_MODULE_DIR=%.100s does not have it",
                          ask->kind, ask->name, ask->name, only);
    return merak_fail(err, MERAK_ERR_NOT_FOUND,
                      "%s \"%s\" does not exist: this Merak was built without "
                      "it (no %.80s); %s",
                      ask->kind, ask->name,
                      at->n > 0 ? at->path[at->n - 1] : "module", ask->mend);
}

static enum merak_status open_at(const char *path,
                                 const struct merak_module_ask *ask,
                                 const void **symbol_p, struct merak_error *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const void *symbol;

    if (handle == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s \"%s\" cannot be loaded: %s", ask->kind,
                          ask->name, dlerror());
    symbol = dlsym(handle, ask->symbol);
    if (symbol == NULL) {
        dlclose(handle);
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%.100s has no symbol %s: it is not a Merak module",
                          path, ask->symbol);
    }
    *symbol_p = symbol;
    return MERAK_OK;
}

enum merak_status merak_module_symbol(const struct merak_module_ask *ask,
                                      const void **symbol_p, char *path,
                                      struct merak_error *err)
{
    struct places *at = malloc(sizeof(*at));
    enum merak_status rc = MERAK_ERR_NOT_FOUND;

    if (at == NULL)
        return merak_fail_nomem(err, sizeof(*at));
    find_places(ask, at);
    for (int i = 0; i < at->n && rc == MERAK_ERR_NOT_FOUND; i++) {
        if (access(at->path[i], F_OK) != 0)
            continue;
        rc = open_at(at->path[i], ask, symbol_p, err);
        if (rc == MERAK_OK && path != NULL)
            memcpy(path, at->path[i], PATH_MAX);
    }
    if (rc == MERAK_ERR_NOT_FOUND)
        rc = fail_absent(ask, at, err);
    free(at);
    return rc;
}

/* --- backends ---------------------------------------------------------------
 */

static enum merak_status check_module(const struct merak_module *m,
                                      const char *path, const char *name,
                                      struct merak_error *err)
{
    if (m->abi == MERAK_MODULE_ABI &&
        strcmp(m->version, PACKAGE_VERSION) == 0 &&
        m->call_bytes == sizeof(struct merak_kernel_call) &&
        m->accel_bytes == sizeof(struct merak_accel_ops) &&
        strcmp(m->backend->name, name) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "%.100s is from another build of Merak than this one "
                      "(%s): install both from one build",
                      path, PACKAGE_VERSION);
}

enum merak_status merak_module_open(const char *name,
                                    const struct merak_backend **backend_p,
                                    struct merak_error *err)
{
    char built[64], path[PATH_MAX];
    const struct merak_module_ask ask = {
        .name = name,
        .kind = "backend",
        .built = built,
        .symbol = MERAK_MODULE_SYMBOL,
        .mend = "build it where nvcc is, or use --backend cpu",
    };
    const void *symbol;
    const struct merak_module *module;
    enum merak_status rc;

    snprintf(built, sizeof(built), "kernels/%s", name);
    rc = merak_module_symbol(&ask, &symbol, path, err);
    if (rc != MERAK_OK)
        return rc;
    module = symbol;
    rc = check_module(module, path, name, err);
    if (rc == MERAK_OK)
        *backend_p = module->backend;
    return rc;
}
