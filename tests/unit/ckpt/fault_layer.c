/* SPDX-License-Identifier: Apache-2.0 */
/* fault_layer.c - a file system that fails at one call, for tests */
#define _GNU_SOURCE

#include "unit/ckpt/fault_layer.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FDS 1024
#define SLOW_US 8000

/* libc's own, behind the one in front of it. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* All processes of a fork have one. */
struct shared {
    atomic_long calls;
    atomic_int struck;
};

static struct fault {
    char dir[PATH_MAX], calls[128]; /* dir "": not armed */
    long at;
    int with;
    int log;
    struct shared *shared;
    /* Descriptors of what is below dir and written to or synced. */
    bool below[MOST_FDS], cut[MOST_FDS]; /* cut: the next write fails */
} fault = {.log = -1};

/* --- control ----------------------------------------------------------------
 */

void fault_arm(const char *dir, const char *calls, long at, int with)
{
    if (fault.shared == NULL)
        fault.shared = mmap(NULL, sizeof(*fault.shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    atomic_store(&fault.shared->calls, 0);
    atomic_store(&fault.shared->struck, 0);
    snprintf(fault.dir, sizeof(fault.dir), "%s", dir);
    snprintf(fault.calls, sizeof(fault.calls), "%s",
             calls == NULL ? "" : calls);
    fault.at = at;
    fault.with = with;
}

void fault_disarm(void)
{
    fault.dir[0] = '\0';
}

long fault_calls(void)
{
    return atomic_load(&fault.shared->calls);
}

bool fault_struck(void)
{
    return atomic_load(&fault.shared->struck) != 0;
}

static int error_of(const char *word)
{
    static const struct {
        const char *word;
        int with;
    } rows[] = {{"ENOSPC", ENOSPC},
                {"EIO", EIO},
                {"EDQUOT", EDQUOT},
                {"KILL", FAULT_KILL},
                {"SLOW", FAULT_SLOW}};

    for (size_t i = 0; word != NULL && i < sizeof(rows) / sizeof(*rows); i++) {
        if (strcmp(rows[i].word, word) == 0)
            return rows[i].with;
    }
    return EIO;
}

/* Without the variables nothing is armed: a program that has the layer in it
 * arms it itself. */
__attribute__((constructor)) static void arm_by_environment(void)
{
    const char *dir = getenv("MERAK_FAULT_DIR"), *at = getenv("MERAK_FAULT_AT");
    const char *log = getenv("MERAK_FAULT_LOG");

    if (dir == NULL)
        return;
    fault_arm(dir, getenv("MERAK_FAULT_CALLS"), at == NULL ? 0 : atol(at),
              error_of(getenv("MERAK_FAULT_WITH")));
    if (log != NULL)
        fault.log =
            REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

/* --- which call fails -------------------------------------------------------
 */

static bool is_below(const char *path)
{
    size_t n = strlen(fault.dir);

    return n > 0 && path != NULL && strncmp(path, fault.dir, n) == 0 &&
           (path[n] == '/' || path[n] == '\0');
}

static bool is_open_below(int fd)
{
    return fault.dir[0] != '\0' && fd >= 0 && fd < MOST_FDS && fault.below[fd];
}

static void note(const char *call, const char *what, long number)
{
    char line[512];
    int n;

    if (fault.log < 0)
        return;
    n = snprintf(line, sizeof(line), "%ld %s %s\n", number, call, what);
    if (REAL(write)(fault.log, line, (size_t)n) < 0)
        return;
}

/* Is this the one?  Then errno is set, or the process is no more. */
static bool strikes(const char *call, const char *what)
{
    long number;

    if (fault.calls[0] != '\0' && strstr(fault.calls, call) == NULL)
        return false;
    number = atomic_fetch_add(&fault.shared->calls, 1) + 1;
    note(call, what, number);
    if (fault.with == FAULT_SLOW)
        usleep(SLOW_US);
    if (fault.with == FAULT_SLOW || number != fault.at)
        return false;
    atomic_store(&fault.shared->struck, 1);
    if (fault.with == FAULT_KILL) {
        kill(0, SIGKILL);
        for (;;)
            pause();
    }
    errno = fault.with;
    return true;
}

static const char *name_of(int fd, char name[32])
{
    snprintf(name, 32, "descriptor %d", fd);
    return name;
}

static bool strikes_fd(const char *call, int fd)
{
    char name[32];

    return is_open_below(fd) && strikes(call, name_of(fd, name));
}

/* --- the calls --------------------------------------------------------------
 */

static void remember(int fd, bool below)
{
    if (fd < 0 || fd >= MOST_FDS)
        return;
    fault.below[fd] = below;
    fault.cut[fd] = false;
}

/* Directories count, for they are synced; files that are read do not. */
static int open_any(__typeof__(&open) real, const char *path, int flags,
                    mode_t mode)
{
    bool counts = is_below(path) && ((flags & O_ACCMODE) != O_RDONLY ||
                                     (flags & O_DIRECTORY) != 0);
    int fd;

    if (counts && strikes("open", path))
        return -1;
    fd = real(path, flags, mode);
    remember(fd, counts);
    return fd;
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & O_CREAT ? va_arg(ap, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    mode_t mode;
    va_list ap;

    va_start(ap, flags);
    mode = mode_of(flags, ap);
    va_end(ap);
    return open_any(REAL(open), path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    mode_t mode;
    va_list ap;

    va_start(ap, flags);
    mode = mode_of(flags, ap);
    va_end(ap);
    return open_any(REAL(open64), path, flags, mode);
}

int close(int fd)
{
    remember(fd, false);
    return REAL(close)(fd);
}

/* How many bytes of n may be written: all, or half of them, or none. */
static ssize_t allowed(int fd, size_t n)
{
    if (is_open_below(fd) && fault.cut[fd]) {
        errno = fault.with;
        return -1;
    }
    if (!strikes_fd("write", fd))
        return (ssize_t)n;
    if (n < 2)
        return -1;
    fault.cut[fd] = true;
    return (ssize_t)(n / 2);
}

ssize_t write(int fd, const void *data, size_t n)
{
    ssize_t may = allowed(fd, n);

    return may < 0 ? -1 : REAL(write)(fd, data, (size_t)may);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    ssize_t may = allowed(fd, n);

    return may < 0 ? -1 : REAL(pwrite)(fd, data, (size_t)may, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    ssize_t may = allowed(fd, n);

    return may < 0 ? -1 : REAL(pwrite64)(fd, data, (size_t)may, at);
}

int fsync(int fd)
{
    return strikes_fd("fsync", fd) ? -1 : REAL(fsync)(fd);
}

int ftruncate(int fd, off_t size)
{
    return strikes_fd("ftruncate", fd) ? -1 : REAL(ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    return strikes_fd("ftruncate", fd) ? -1 : REAL(ftruncate64)(fd, size);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    return strikes_fd("fallocate", fd) ? -1 : REAL(fallocate)(fd, mode, at, n);
}

int fallocate64(int fd, int mode, off64_t at, off64_t n)
{
    return strikes_fd("fallocate", fd) ? -1
                                       : REAL(fallocate64)(fd, mode, at, n);
}

int rename(const char *from, const char *to)
{
    return is_below(from) && strikes("rename", from) ? -1
                                                     : REAL(rename)(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    return is_below(path) && strikes("mkdir", path) ? -1
                                                    : REAL(mkdir)(path, mode);
}

int unlink(const char *path)
{
    return is_below(path) && strikes("unlink", path) ? -1 : REAL(unlink)(path);
}

int rmdir(const char *path)
{
    return is_below(path) && strikes("rmdir", path) ? -1 : REAL(rmdir)(path);
}

/* Below a directory that is open, or by a path. */
int unlinkat(int dir, const char *path, int flags)
{
    const char *call = flags & AT_REMOVEDIR ? "rmdir" : "unlink";
    bool counts = path[0] != '/' && dir != AT_FDCWD ? is_open_below(dir)
                                                    : is_below(path);

    return counts && strikes(call, path) ? -1
                                         : REAL(unlinkat)(dir, path, flags);
}
