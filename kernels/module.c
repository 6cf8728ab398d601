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

static void find_places(const char *name, struct places *at)
{
    const char *only = getenv("MERAK_MODULE_DIR");
    char dir[PATH_MAX], below[64];

    at->n = 0;
    if (only != NULL && *only != '\0') {
        add_place(at, only, "", name);
        return;
    }
    find_own_dir(dir);
    if (dir[0] != '\0') {
        add_place(at, dir, "/merak", name);
        snprintf(below, sizeof(below), "/../../kernels/%s/.libs", name);
        add_place(at, dir, below, name);
    }
    add_place(at, MERAK_MODULE_INSTALL_DIR, "", name);
}

static enum merak_status fail_absent(const char *name, const struct places *at,
                                     struct merak_error *err)
{
    const char *only = getenv("MERAK_MODULE_DIR");

    if (only != NULL && *only != '\0')
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "backend \"%s\" is in merak_%s.so, and "
                          "MERAK_MODULE_DIR=%.100s has none",
                          name, name, only);
    return merak_fail(err, MERAK_ERR_NOT_FOUND,
                      "backend \"%s\" is not there: this Merak was built "
                      "without it (no %.80s); build it where nvcc is, or use "
                      "--backend cpu",
                      name, at->n > 0 ? at->path[at->n - 1] : "module");
}

static enum merak_status check_module(const struct merak_module *m,
                                      const char *path, const char *name,
                                      struct merak_error *err)
{
    if (m != NULL && m->abi == MERAK_MODULE_ABI &&
        strcmp(m->version, PACKAGE_VERSION) == 0 &&
        m->call_bytes == sizeof(struct merak_kernel_call) &&
        m->accel_bytes == sizeof(struct merak_accel_ops) &&
        strcmp(m->backend->name, name) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "%.100s is of another build of Merak than this one "
                      "(%s): install both from one build",
                      path, PACKAGE_VERSION);
}

static enum merak_status open_at(const char *path, const char *name,
                                 const struct merak_backend **backend_p,
                                 struct merak_error *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct merak_module *module;
    enum merak_status rc;

    if (handle == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "backend \"%s\" cannot be loaded: %s", name,
                          dlerror());
    module = dlsym(handle, MERAK_MODULE_SYMBOL);
    rc = check_module(module, path, name, err);
    if (rc == MERAK_OK)
        *backend_p = module->backend;
    else
        dlclose(handle);
    return rc;
}

enum merak_status merak_module_open(const char *name,
                                    const struct merak_backend **backend_p,
                                    struct merak_error *err)
{
    struct places *at = malloc(sizeof(*at));
    enum merak_status rc = MERAK_ERR_NOT_FOUND;

    if (at == NULL)
        return merak_fail_nomem(err, sizeof(*at));
    find_places(name, at);
    for (int i = 0; i < at->n && rc == MERAK_ERR_NOT_FOUND; i++) {
        if (access(at->path[i], F_OK) == 0)
            rc = open_at(at->path[i], name, backend_p, err);
    }
    if (rc == MERAK_ERR_NOT_FOUND)
        rc = fail_absent(name, at, err);
    free(at);
    return rc;
}
