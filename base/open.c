/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - opening files that a user named, or that others can prepare */
#include "config.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a file is if it is not a regular one. */
static const char *other_kind(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory, not a file";
    if (S_ISFIFO(mode))
        return "a pipe, not a file";
    return "a device, not a file";
}

/* Close fd, set errno and return the reason. */
static const char *give_up(int fd, int code, const char *why)
{
    close(fd);
    errno = code;
    return why;
}

/* With these flags, without blocking; a pipe without a reader cannot be opened
 * for writing, a link not with O_NOFOLLOW. */
static const char *open_kind(const char *path, int flags, struct stat *st,
                             int *fd_p)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);

    if (fd < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0) {
        errno = 0;
        return "a link, not a file of the run itself";
    }
    if (fd < 0 && errno == ENXIO) {
        errno = 0;
        return other_kind(S_IFIFO);
    }
    if (fd < 0)
        return strerror(errno);
    if (fstat(fd, st) != 0)
        return give_up(fd, errno, strerror(errno));
    if (!S_ISREG(st->st_mode))
        return give_up(fd, 0, other_kind(st->st_mode));
    *fd_p = fd;
    return NULL;
}

static const char *open_own(const char *path, int flags, uid_t owner, int *fd_p)
{
    struct stat st;
    int fd;
    const char *why = open_kind(path, flags | O_NOFOLLOW, &st, &fd);

    if (why != NULL)
        return why;
    if (st.st_nlink > 1)
        return give_up(fd, 0, "a file with a second name, perhaps another's");
    if (owner != MERAK_ANY_OWNER && st.st_uid != owner)
        return give_up(fd, 0, "another user's, not of who started the run");
    *fd_p = fd;
    return NULL;
}

/* The stream of a descriptor, which it takes. */
static const char *make_stream(const char *why, int fd, const char *mode,
                               FILE **file_p)
{
    if (why != NULL)
        return why;
    *file_p = fdopen(fd, mode);
    return *file_p != NULL ? NULL : give_up(fd, errno, strerror(errno));
}

const char *merak_open_regular(const char *path, int *fd_p)
{
    struct stat st;

    return open_kind(path, O_RDONLY, &st, fd_p);
}

const char *merak_fopen_regular(const char *path, FILE **file_p)
{
    int fd = -1;
    const char *why = merak_open_regular(path, &fd);

    return make_stream(why, fd, "r", file_p);
}

const char *merak_fopen_own(const char *path, uid_t owner, FILE **file_p)
{
    int fd = -1;
    const char *why = open_own(path, O_RDONLY, owner, &fd);

    return make_stream(why, fd, "r", file_p);
}

const char *merak_fopen_append(const char *path, FILE **file_p)
{
    int fd = -1;
    const char *why =
        open_own(path, O_WRONLY | O_APPEND | O_CREAT, MERAK_ANY_OWNER, &fd);

    return make_stream(why, fd, "a", file_p);
}

const char *merak_open_new(const char *path, mode_t mode, int *fd_p)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, mode);

    if (fd < 0 && errno == EEXIST && unlink(path) == 0)
        fd = open(path, flags, mode);
    if (fd < 0)
        return strerror(errno);
    *fd_p = fd;
    return NULL;
}

const char *merak_fopen_new(const char *path, FILE **file_p)
{
    int fd = -1;
    const char *why = merak_open_new(path, 0666, &fd);

    return make_stream(why, fd, "w", file_p);
}

void merak_follow_links(const char *path, char *to)
{
    char *real = realpath(path, NULL);

    snprintf(to, PATH_MAX, "%s", real == NULL ? path : real);
    free(real);
}

void merak_open_std(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* The lowest number that is free is this one.  Without /dev/null a
         * descriptor that can be neither read nor written keeps the place. */
        if (open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) < 0)
            (void)!open("/", O_PATH);
    }
}

void merak_first_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");

    line[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(line, (int)size, file) == NULL)
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}
