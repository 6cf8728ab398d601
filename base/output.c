/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - files that a command writes where the user said */
#include "config.h"

#include "base/output.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
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

enum merak_status merak_outputs_check(const struct merak_output_place *out,
                                      size_t n, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < n && rc == MERAK_OK; i++) {
        rc = merak_output_check(out[i].option, out[i].path, err);
        for (size_t j = 0; j < i && rc == MERAK_OK && out[i].path != NULL; j++)
            if (out[j].path != NULL && strcmp(out[i].path, out[j].path) == 0)
                rc = merak_fail(err, MERAK_ERR_CONFIG,
                                "%s and %s are both to be written to %.150s: "
                                "give each a place of its own",
                                out[j].option, out[i].option, out[i].path);
    }
    return rc;
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

static enum merak_status cannot_write(const struct merak_output *o,
                                      struct merak_error *err)
{
    return merak_fail(err,
                      errno == ENOSPC || errno == EDQUOT ? MERAK_ERR_NOSPACE
                                                         : MERAK_ERR_IO,
                      "cannot write %.150s: %m",
                      strcmp(o->path, "-") == 0 ? "the output" : o->path);
}

/* May what is there, if anything, be replaced by a file of ours? */
static bool is_replaced(const char *path, mode_t *mode_p)
{
    struct stat st;

    *mode_p = 0666;
    if (lstat(path, &st) != 0)
        return errno == ENOENT;
    *mode_p = st.st_mode & 0777;
    return S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1 &&
           access(path, W_OK) == 0;
}

/* The file beside its place; NULL: there is none, as errno says. */
static FILE *open_part(struct merak_output *o)
{
    bool is_new = access(o->path, F_OK) != 0;
    FILE *file = NULL;
    mode_t mode;
    int fd;

    errno = 0;
    if (!is_replaced(o->path, &mode) ||
        snprintf(o->part, sizeof(o->part), "%s.%ld.part", o->path,
                 (long)getpid()) >= (int)sizeof(o->part))
        return NULL;
    fd = open(o->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd >= 0 && (is_new || fchmod(fd, mode) == 0))
        file = fdopen(fd, "w");
    if (fd >= 0 && file == NULL) {
        close(fd);
        unlink(o->part);
    }
    return file;
}

enum merak_status merak_output_open(struct merak_output *o, const char *path,
                                    struct merak_error *err)
{
    *o = (struct merak_output){.file = stdout, .path = path};
    if (strcmp(path, "-") == 0)
        return MERAK_OK;
    o->file = open_part(o);
    if (o->file != NULL)
        return MERAK_OK;
    o->part[0] = '\0';
    /* without room nothing is emptied */
    if (errno != ENOSPC && errno != EDQUOT)
        o->file = fopen(path, "we");
    return o->file != NULL ? MERAK_OK : cannot_write(o, err);
}

enum merak_status merak_output_close(struct merak_output *o, bool fine,
                                     struct merak_error *err)
{
    int why = errno;

    fine = fine && !ferror(o->file);
    if (fflush(o->file) != 0) {
        fine = false;
        why = errno;
    }
    if (o->file != stdout && fclose(o->file) != 0) {
        fine = false;
        why = errno;
    }
    if (fine && o->part[0] != '\0' && rename(o->part, o->path) != 0) {
        fine = false;
        why = errno;
    }
    if (fine)
        return MERAK_OK;
    if (o->part[0] != '\0')
        unlink(o->part);
    errno = why;
    return cannot_write(o, err);
}
