/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - can an output be made there? */
#include "config.h"

#include "base/output.h"

#include "base/error.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum merak_status merak_output_check(const char *option, const char *path,
                                     struct merak_error *err)
{
    char copy[PATH_MAX];
    const char *folder;
    struct stat st;

    if (path == NULL || strcmp(path, "-") == 0 || strlen(path) >= sizeof(copy))
        return MERAK_OK;
    snprintf(copy, sizeof(copy), "%s", path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return merak_fail(err, MERAK_ERR_NOSPACE,
                          "%s %.150s: expected the name of a file, this is a "
                          "folder",
                          option, path);
    folder = dirname(copy);
    /* of a device, and of a file that is written in place, the folder may be
     * read-only */
    if (access(path, W_OK) == 0 || access(folder, W_OK) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_NOSPACE, "%s %.100s: folder %.100s: %m",
                      option, path, folder);
}

enum merak_status merak_output_folder_check(const char *option,
                                            const char *path,
                                            struct merak_error *err)
{
    char copy[PATH_MAX];
    const char *above = copy;
    struct stat st;

    if (path == NULL || strlen(path) >= sizeof(copy))
        return MERAK_OK;
    snprintf(copy, sizeof(copy), "%s", path);
    while (stat(above, &st) != 0) {
        int why = errno;
        struct stat link;

        /* a link that leads nowhere is in the way as well */
        if ((why != ENOENT && why != ENOTDIR) || lstat(above, &link) == 0) {
            errno = why;
            return merak_fail(err, MERAK_ERR_NOSPACE,
                              "%s %.100s: folder %.100s: %m", option, path,
                              above);
        }
        above = dirname(copy); /* in place, "." or "/" in the end */
        if (above != copy)
            snprintf(copy, sizeof(copy), "%s", above);
    }
    if (!S_ISDIR(st.st_mode))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s: %.150s is not a directory: expected one, or a "
                          "name that does not exist yet",
                          option, above);
    if (strcmp(above, path) != 0 && access(above, W_OK) != 0)
        return merak_fail(err, MERAK_ERR_NOSPACE,
                          "%s %.100s: folder %.100s: %m", option, path, above);
    return MERAK_OK;
}
