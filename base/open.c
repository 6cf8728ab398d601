/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - opening a file that a user named */
#include "config.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
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

const char *merak_open_regular(const char *path, int *fd_p)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return strerror(errno);
    if (fstat(fd, &st) != 0)
        return give_up(fd, errno, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return give_up(fd, 0, other_kind(st.st_mode));
    *fd_p = fd;
    return NULL;
}

const char *merak_fopen_regular(const char *path, FILE **file_p)
{
    int fd;
    const char *why = merak_open_regular(path, &fd);

    if (why != NULL)
        return why;
    *file_p = fdopen(fd, "r");
    return *file_p != NULL ? NULL : give_up(fd, errno, strerror(errno));
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
