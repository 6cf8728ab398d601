/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c - can checkpoints be kept in a directory: locks, fsync, rename,
 * room, rate
 */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "base/clock.h"
#include "base/open.h"
#include "base/size.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

/* How much is written to measure the rate, and for how long at most. */
#define PROBE_BYTES ((size_t)16 << 20)
#define BLOCK_BYTES ((size_t)1 << 20)
#define PROBE_NS INT64_C(400000000)
/* Less free space than this gets a note. */
#define LITTLE_ROOM_BYTES (UINT64_C(1) << 30)

/* Magic numbers of statfs(2) for the file systems of clusters. */
static const struct {
    unsigned long magic;
    const char *name;
    bool remote;
} known[] = {
    {0xef53, "ext4", false},
    {0x58465342, "xfs", false},
    {0x9123683e, "btrfs", false},
    {0x01021994, "tmpfs", false},
    {0x794c7630, "overlayfs", false},
    {0x2fc12fc1, "zfs", false},
    {0x6969, "nfs", true},
    {0x0bd00bd0, "lustre", true},
    {0x47504653, "gpfs", true},
    {0x19830326, "beegfs", true},
    {0x00c36400, "ceph", true},
    {0xaad7aaea, "panfs", true},
    {0x7461636f, "ocfs2", true},
    {0x01161970, "gfs2", true},
    {0x01021997, "9p", true},
    {0x65735546, "fuse", true},
    {0xfe534d42, "smb2", true},
    {0x20030528, "orangefs", true},
    {0x6a656a63, "virtiofs", true},
};

static void find_existing(const char *asked, char *path, size_t size)
{
    struct stat st;
    char *slash;

    snprintf(path, size, "%s", asked);
    while (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        slash = strrchr(path, '/');
        if (slash == NULL) {
            snprintf(path, size, ".");
            return;
        }
        if (slash == path) {
            snprintf(path, size, "/");
            return;
        }
        *slash = '\0';
    }
}

static void gather_room(struct merak_directory *d)
{
    struct statvfs room;
    struct statfs fs;

    if (statfs(d->path, &fs) == 0) {
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
            if (known[i].magic == ((unsigned long)fs.f_type & 0xffffffffu)) {
                d->fs = known[i].name;
                d->remote = known[i].remote;
            }
        }
    }
    if (statvfs(d->path, &room) == 0) {
        d->free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
        d->free_files = room.f_files == 0 ? UINT64_MAX : room.f_favail;
    }
}

static void try_locks(int fd, struct merak_directory *d)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    d->flock_errno = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    d->fcntl_errno = fcntl(fd, F_SETLK, &lock) == 0 ? 0 : errno;
}

/* Bytes per second as a save sees them: written and synced. */
static void measure_writing(int fd, struct merak_directory *d)
{
    int64_t start = merak_clock_ns(), written;
    char *block = malloc(BLOCK_BYTES);
    size_t bytes = 0;
    bool fine = block != NULL;

    if (block == NULL)
        return;
    for (size_t i = 0; i < BLOCK_BYTES; i++)
        block[i] = (char)(i * 2654435761u >> 13);
    while (fine && bytes < PROBE_BYTES && merak_clock_ns() - start < PROBE_NS) {
        fine = write(fd, block, BLOCK_BYTES) == (ssize_t)BLOCK_BYTES;
        bytes += BLOCK_BYTES;
    }
    free(block);
    written = merak_clock_ns();
    fine = fine && fsync(fd) == 0;
    if (!fine) {
        d->access_errno = errno != 0 ? errno : EIO;
        return;
    }
    d->sync_s = merak_clock_since_s(written);
    d->write_bytes_per_s = (double)bytes / (merak_clock_since_s(start));
}

static int touch(const char *path)
{
    int fd;

    return merak_open_new(path, 0600, &fd) == NULL ? close(fd) : -1;
}

/* A save ends with a rename and a sync of the directory above. */
static void try_renames(const char *from, const char *to,
                        struct merak_directory *d)
{
    struct stat before, after;
    int fd;

    if (touch(to) != 0 || stat(from, &before) != 0 || rename(from, to) != 0) {
        d->rename_errno = errno;
        return;
    }
    d->replaces = stat(to, &after) == 0 && after.st_ino == before.st_ino;
    fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        d->dir_sync_errno = errno;
    if (fd >= 0)
        close(fd);
}

void merak_directory_gather(const char *path, struct merak_directory *d)
{
    char from[PATH_MAX], to[PATH_MAX];
    int fd;

    memset(d, 0, sizeof(*d));
    snprintf(d->asked, sizeof(d->asked), "%s", path);
    find_existing(d->asked, d->path, sizeof(d->path));
    gather_room(d);
    snprintf(from, sizeof(from), "%s/.merak-doctor-%ld-XXXXXX", d->path,
             (long)getpid());
    fd = mkostemp(from, O_CLOEXEC);
    if (fd < 0) {
        d->access_errno = errno;
        return;
    }
    snprintf(to, sizeof(to), "%.*s-b", PATH_MAX - 4, from);
    try_locks(fd, d);
    measure_writing(fd, d);
    close(fd);
    try_renames(from, to, d);
    unlink(from);
    unlink(to);
}

/* --- judging -------------------------------------------------------------- */

static void judge_room(const struct merak_directory *d,
                       struct merak_findings *found)
{
    char bytes[MERAK_BYTES_TEXT];
    struct merak_finding *f;

    if (d->free_bytes < LITTLE_ROOM_BYTES) {
        merak_bytes_text((double)d->free_bytes, bytes);
        f = merak_find(found, MERAK_FINDING_WARNING, "files",
                       "%s are free in %s", bytes, d->path);
        merak_find_fix(f, "a checkpoint takes 12 bytes per parameter, and two "
                          "are kept: choose another directory, or `merak ckpt "
                          "prune` older runs");
    }
    if (d->free_files < 1024) {
        f = merak_find(found, MERAK_FINDING_WARNING, "files",
                       "room for %" PRIu64 " more files in %s", d->free_files,
                       d->path);
        merak_find_fix(f, "a checkpoint is one file per task and three more: "
                          "remove files there");
    }
}

static void judge_locks(const struct merak_directory *d,
                        struct merak_findings *found)
{
    struct merak_finding *f;

    if (d->flock_errno == 0 && d->fcntl_errno == 0)
        return;
    f = merak_find(
        found, MERAK_FINDING_NOTE, "files",
        "no file locks in %s (%s); Merak needs none, other readers "
        "of its HDF5 files do",
        d->path,
        strerror(d->flock_errno != 0 ? d->flock_errno : d->fcntl_errno));
    merak_find_fix(f, "HDF5_USE_FILE_LOCKING=FALSE for h5py and h5dump, or "
                      "mount with -o flock (Lustre)");
}

static void judge_names(const struct merak_directory *d,
                        struct merak_findings *found)
{
    struct merak_finding *f;

    if (d->rename_errno != 0 || !d->replaces) {
        f = merak_find(found, MERAK_FINDING_ERROR, "files",
                       "a rename in %s does not replace a file%s%s", d->path,
                       d->rename_errno != 0 ? ": " : "",
                       d->rename_errno != 0 ? strerror(d->rename_errno) : "");
        merak_find_fix(f, "keep checkpoints on a POSIX file system: commits "
                          "are renames");
        merak_find_code(f, MERAK_EXIT_RESOURCE);
    }
    if (d->dir_sync_errno != 0) {
        f = merak_find(found, MERAK_FINDING_WARNING, "files",
                       "fsync of directory %s: %s; a commit may be lost in a "
                       "power failure",
                       d->path, strerror(d->dir_sync_errno));
        merak_find_fix(f, "keep checkpoints on a file system that can sync "
                          "directories");
    }
}

void merak_directory_judge(const struct merak_directory *d,
                           struct merak_findings *found)
{
    char room[MERAK_BYTES_TEXT], rate[MERAK_BYTES_TEXT];
    bool same = strcmp(d->asked, d->path) == 0;
    struct merak_finding *f;
    int before = found->n;

    if (d->access_errno != 0) {
        f = merak_find(found, MERAK_FINDING_ERROR, "files",
                       "cannot write in %s: %s", d->path,
                       strerror(d->access_errno));
        merak_find_fix(f, "name a directory that the job may write to, on "
                          "every node");
        merak_find_code(f, MERAK_EXIT_RESOURCE);
        return;
    }
    judge_room(d, found);
    judge_locks(d, found);
    judge_names(d, found);
    if (d->fs != NULL && strcmp(d->fs, "tmpfs") == 0) {
        f = merak_find(found, MERAK_FINDING_WARNING, "files",
                       "%s is in memory (tmpfs): its files are lost with the "
                       "node",
                       d->path);
        merak_find_fix(f, "keep checkpoints on a disk that all nodes share");
    }
    merak_bytes_text((double)d->free_bytes, room);
    merak_bytes_text(d->write_bytes_per_s, rate);
    merak_find(found, found->n > before ? MERAK_FINDING_NOTE : MERAK_FINDING_OK,
               "files",
               "%s%s: %s, %s free, %s/s written and synced by one "
               "task, fsync %.0f ms",
               d->path, same ? "" : " (above the one named)",
               d->fs != NULL ? d->fs : "unknown file system", room, rate,
               d->sync_s * 1e3);
}
