/* SPDX-License-Identifier: Apache-2.0 */
/* owner.c - the record by which a run owns its directory
 *
 * RUN/OWNER is one line of JSON, made with O_EXCL by the run's rank 0 and
 * removed by it:
 *   format "merak-owner", version 1
 *   host, pid, started   the process; started in clock ticks since the boot
 *   boot, pids           the machine's boot id and its namespace of pids
 *   cluster, job, step, restart   SLURM_CLUSTER_NAME, SLURM_JOB_ID,
 *                        SLURM_STEP_ID, SLURM_RESTART_COUNT; "" without Slurm
 * The owner touches it every BEAT_S seconds, by the descriptor that created
 * it: so the time is the file server's, and never that of a record that has
 * replaced this one.
 *
 * A run that finds a record takes the directory over if the other run is gone:
 *   1  same boot and namespace: gone if there is no such process, or one of the
 *      same pid that started at another time; else alive
 *   2  same job, another restart: gone, since Slurm restarts a job only after
 *      it has ended what was running
 *   3  otherwise, by the record's time: older than STALE_S by the file server's
 *      clock (that of a newly made file), the run is gone; if the time
 *      changes while it is watched, it is alive; if not for STALE_S,
 *      it is gone
 * To take over, the record is renamed, checked once more, and removed.
 *
 * A run that was stopped or disconnected for longer than that finds the
 * other's record before its next save (merak_ckpt_owner_check()), and ends
 * without saving.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"
#include "io/ckpt/owner.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/open.h"
#include "base/thread.h"
#include "base/wait.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OWNER_FORMAT "merak-owner"
#define OWNER_VERSION 1
#define BEAT_S 10
#define STALE_S 60
/* How often another may come and go between two checks of ours. */
#define MAX_TRIES 8
/* The stack of the thread, which only calls futimens(). */
#define STACK_BYTES ((size_t)64 << 10)

enum { RECORD_BYTES = 768 };

struct record {
    char text[RECORD_BYTES]; /* "": nothing is written yet */
    struct timespec touched;
};

/* The contents of a record. */
struct run {
    char host[128], boot[48], pids[48], cluster[64], job[32], step[32];
    int64_t pid, started, restart;
};

struct merak_ckpt_owner {
    char dir[PATH_MAX];
    char path[PATH_MAX]; /* dir/OWNER */
    size_t there;        /* of dir, what existed before */
    struct run self;
    char text[RECORD_BYTES]; /* ours */
    int fd;                  /* of the record once it exists, else -1 */
    /* Another's record that is being watched. */
    struct record seen;
    int64_t seen_ns; /* since when it is unchanged; 0: none is watched */
    /* The thread */
    bool beats;
    bool ends;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t end;
};

/* --- this process, and others --------------------------------------
 */

/* State and start, in clock ticks since the boot, of a process of this
 * namespace; false if /proc does not have them. */
static bool read_process(int64_t pid, char *state_p, int64_t *started_p)
{
    char path[64], line[1024], *at;
    long long started;

    snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
    merak_first_line(path, line, sizeof(line));
    at = strrchr(line, ')'); /* after the name, which may contain anything */
    if (at == NULL ||
        sscanf(at,
               ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
               "%*s %*s %*s %*s %lld",
               state_p, &started) != 2)
        return false;
    *started_p = started;
    return true;
}

static void copy_variable(const char *name, char *to, size_t size)
{
    const char *value = getenv(name);

    snprintf(to, size, "%s", value == NULL ? "" : value);
}

static void describe_self(struct run *self)
{
    char restart[24], state;
    ssize_t n;

    memset(self, 0, sizeof(*self));
    if (gethostname(self->host, sizeof(self->host) - 1) != 0)
        strcpy(self->host, "?");
    merak_first_line("/proc/sys/kernel/random/boot_id", self->boot,
                     sizeof(self->boot));
    n = readlink("/proc/self/ns/pid", self->pids, sizeof(self->pids) - 1);
    self->pids[n > 0 ? n : 0] = '\0';
    self->pid = getpid();
    (void)read_process(self->pid, &state, &self->started);
    copy_variable("SLURM_CLUSTER_NAME", self->cluster, sizeof(self->cluster));
    copy_variable("SLURM_JOB_ID", self->job, sizeof(self->job));
    copy_variable("SLURM_STEP_ID", self->step, sizeof(self->step));
    copy_variable("SLURM_RESTART_COUNT", restart, sizeof(restart));
    self->restart = strtol(restart, NULL, 10);
}

static enum merak_status print_run(const struct run *run,
                                   char text[RECORD_BYTES],
                                   struct merak_error *err)
{
    json_t *json = json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:I}", "format",
        OWNER_FORMAT, "version", OWNER_VERSION, "host", run->host, "pid",
        (json_int_t)run->pid, "started", (json_int_t)run->started, "boot",
        run->boot, "pids", run->pids, "cluster", run->cluster, "job", run->job,
        "step", run->step, "restart", (json_int_t)run->restart);
    size_t n = json == NULL
                   ? 0
                   : json_dumpb(json, text, RECORD_BYTES - 2, JSON_COMPACT);

    json_decref(json);
    if (n == 0 || n > RECORD_BYTES - 2)
        return merak_fail_nomem(err, RECORD_BYTES);
    strcpy(text + n, "\n");
    return MERAK_OK;
}

static bool parse_run(const char *text, struct run *run)
{
    const char *format, *host, *boot, *pids, *cluster, *job, *step;
    json_int_t pid, started, restart;
    json_t *json = json_loads(text, 0, NULL);
    bool ok =
        json_unpack(json, "{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:I}",
                    "format", &format, "host", &host, "pid", &pid, "started",
                    &started, "boot", &boot, "pids", &pids, "cluster", &cluster,
                    "job", &job, "step", &step, "restart", &restart) == 0 &&
        strcmp(format, OWNER_FORMAT) == 0;

    if (ok) {
        snprintf(run->host, sizeof(run->host), "%s", host);
        snprintf(run->boot, sizeof(run->boot), "%s", boot);
        snprintf(run->pids, sizeof(run->pids), "%s", pids);
        snprintf(run->cluster, sizeof(run->cluster), "%s", cluster);
        snprintf(run->job, sizeof(run->job), "%s", job);
        snprintf(run->step, sizeof(run->step), "%s", step);
        run->pid = pid;
        run->started = started;
        run->restart = restart;
    }
    json_decref(json);
    return ok;
}

/* "process 17 on n3 (job 5.0)". */
static const char *name_run(const char *text, char *buf, size_t size)
{
    struct run run;

    if (!parse_run(text, &run))
        snprintf(buf, size, "a run whose record cannot be read");
    else if (run.job[0] == '\0')
        snprintf(buf, size, "process %" PRId64 " on %.60s", run.pid, run.host);
    else
        snprintf(buf, size, "process %" PRId64 " on %.60s (job %.16s.%.16s)",
                 run.pid, run.host, run.job, run.step);
    return buf;
}

/* --- is another's run still alive? ------------------------------------------
 */

enum fate { THERE, GONE, UNKNOWN };

static enum fate fate_of_process(const struct run *run)
{
    int64_t started;
    char state;

    if (kill((pid_t)run->pid, 0) != 0 && errno == ESRCH)
        return GONE;
    if (!read_process(run->pid, &state, &started))
        return THERE;
    return started != run->started || state == 'Z' || state == 'X' ? GONE
                                                                   : THERE;
}

static enum fate fate_of_run(const struct merak_ckpt_owner *owner,
                             const char *text)
{
    const struct run *self = &owner->self;
    struct run run;

    if (!parse_run(text, &run))
        return UNKNOWN;
    if (self->boot[0] != '\0' && self->pids[0] != '\0' && run.pid > 0 &&
        strcmp(run.boot, self->boot) == 0 && strcmp(run.pids, self->pids) == 0)
        return fate_of_process(&run);
    if (run.job[0] != '\0' && strcmp(run.job, self->job) == 0 &&
        strcmp(run.cluster, self->cluster) == 0 && run.restart != self->restart)
        return GONE;
    return UNKNOWN;
}

/* Seconds since a file in dir was touched, by the file server's clock; 0 if
 * unknown. */
static double age_of(const char *dir, const struct timespec *touched)
{
    char path[PATH_MAX];
    struct stat st;
    double age = 0;
    int fd;

    fd = mkostemp(merak_path(path, dir, ".now-XXXXXX"), O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0)
        age = (double)(st.st_mtim.tv_sec - touched->tv_sec) +
              1e-9 * (double)(st.st_mtim.tv_nsec - touched->tv_nsec);
    close(fd);
    (void)unlink(path);
    return age;
}

/* By the record's time: compares it with the server's clock and with what the
 * last check saw. */
static enum fate watch(struct merak_ckpt_owner *owner,
                       const struct record *record)
{
    int64_t now = merak_clock_ns();
    bool same = owner->seen_ns != 0 &&
                strcmp(record->text, owner->seen.text) == 0 &&
                record->touched.tv_sec == owner->seen.touched.tv_sec &&
                record->touched.tv_nsec == owner->seen.touched.tv_nsec;

    if (owner->seen_ns != 0 && !same)
        return THERE;
    if (!same && age_of(owner->dir, &record->touched) > STALE_S)
        return GONE;
    if (!same) {
        owner->seen = *record;
        owner->seen_ns = now;
    }
    return now - owner->seen_ns > STALE_S * INT64_C(1000000000) ? GONE
                                                                : UNKNOWN;
}

/* --- the record -------------------------------------------------------------
 */

/* Opening it makes NFS revalidate with the server. */
static enum merak_status read_record(const char *path, struct record *record,
                                     struct merak_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return merak_file_fail(err, "open", path);
    n = read(fd, record->text, sizeof(record->text) - 1);
    if (n < 0 || fstat(fd, &st) != 0) {
        enum merak_status rc = merak_file_fail(err, "read", path);

        close(fd);
        return rc;
    }
    close(fd);
    record->text[n] = '\0';
    record->touched = st.st_mtim;
    return MERAK_OK;
}

/* MERAK_IN_PROGRESS if there is one already. */
static enum merak_status write_record(struct merak_ckpt_owner *owner,
                                      struct merak_error *err)
{
    int fd = open(owner->path, /* O_EXCL follows no link */
                  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    enum merak_status rc;

    if (fd < 0 && errno == EEXIST)
        return MERAK_IN_PROGRESS;
    if (fd < 0)
        return merak_file_fail(err, "create", owner->path);
    rc = merak_file_write(fd, owner->path, owner->text, strlen(owner->text),
                          err);
    if (rc == MERAK_OK && fsync(fd) != 0)
        rc = merak_file_fail(err, "write", owner->path);
    if (rc != MERAK_OK) {
        close(fd);
        (void)unlink(owner->path);
        return rc;
    }
    owner->fd = fd;
    return MERAK_OK;
}

/* Remove a record, unless it is no longer the one that was judged: then it is
 * put back. */
static void displace(const struct merak_ckpt_owner *owner,
                     const struct record *judged)
{
    char name[200], path[PATH_MAX];
    struct record record;

    snprintf(name, sizeof(name), MERAK_CKPT_OWNER ".%.100s.%" PRId64,
             owner->self.host, owner->self.pid);
    if (rename(owner->path, merak_path(path, owner->dir, name)) != 0)
        return; /* another run was faster */
    if (read_record(path, &record, NULL) == MERAK_OK &&
        strcmp(record.text, judged->text) != 0)
        (void)link(path, owner->path);
    (void)unlink(path);
}

static enum merak_status in_use(const struct merak_ckpt_owner *owner,
                                const struct record *record,
                                struct merak_error *err)
{
    char who[160];

    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%.80s is in use by %s; give --ckpt another directory",
                      owner->dir, name_run(record->text, who, sizeof(who)));
}

/* --- the thread ------------------------------------------------------------
 */

static void *beat(void *arg)
{
    struct merak_ckpt_owner *owner = arg;
    struct timespec next;

    pthread_mutex_lock(&owner->lock);
    clock_gettime(CLOCK_MONOTONIC, &next);
    while (!owner->ends) {
        next.tv_sec += BEAT_S;
        while (!owner->ends &&
               pthread_cond_timedwait(&owner->end, &owner->lock, &next) == 0)
            ;
        /* If the record is another's now, the next check finds out. */
        if (!owner->ends)
            (void)futimens(owner->fd, NULL);
    }
    pthread_mutex_unlock(&owner->lock);
    return NULL;
}

static enum merak_status start_beats(struct merak_ckpt_owner *owner,
                                     struct merak_error *err)
{
    pthread_attr_t attr;
    int code;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    code = merak_thread_create(&owner->thread, &attr, beat, owner);
    pthread_attr_destroy(&attr);
    if (code != 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "cannot start a thread: %s",
                          strerror(code));
    owner->beats = true;
    return MERAK_OK;
}

static void stop_beats(struct merak_ckpt_owner *owner)
{
    if (!owner->beats)
        return;
    pthread_mutex_lock(&owner->lock);
    owner->ends = true;
    pthread_cond_signal(&owner->end);
    pthread_mutex_unlock(&owner->lock);
    pthread_join(owner->thread, NULL);
    owner->beats = false;
}

/* --- all of it --------------------------------------------------------------
 */

enum merak_status merak_ckpt_owner_create(const char *run_dir,
                                          struct merak_ckpt_owner **owner_p,
                                          struct merak_error *err)
{
    struct merak_ckpt_owner *owner;
    pthread_condattr_t attr;
    enum merak_status rc;
    size_t there;

    if (strlen(run_dir) >= MERAK_DIR_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "path too long: %.100s...",
                          run_dir);
    there = merak_dir_existing(run_dir);
    rc = merak_dir_make(run_dir, err);
    if (rc != MERAK_OK)
        return rc;
    owner = calloc(1, sizeof(*owner));
    if (owner == NULL)
        return merak_fail_nomem(err, sizeof(*owner));
    strcpy(owner->dir, run_dir);
    owner->there = there;
    merak_path(owner->path, run_dir, MERAK_CKPT_OWNER);
    owner->fd = -1;
    pthread_mutex_init(&owner->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&owner->end, &attr);
    pthread_condattr_destroy(&attr);
    describe_self(&owner->self);
    rc = print_run(&owner->self, owner->text, err);
    if (rc != MERAK_OK) {
        merak_ckpt_owner_destroy(owner);
        return rc;
    }
    *owner_p = owner;
    return MERAK_OK;
}

enum merak_status merak_ckpt_owner_claim(struct merak_ckpt_owner *owner,
                                         struct merak_error *err)
{
    struct record record = {.text = ""};
    enum merak_status rc = MERAK_IN_PROGRESS;
    enum fate fate = GONE;

    for (int i = 0; i < MAX_TRIES && fate == GONE; i++) {
        rc = write_record(owner, err);
        if (rc == MERAK_OK) {
            rc = start_beats(owner, err);
            return rc == MERAK_OK ? merak_ckpt_remove_debris(owner->dir, err)
                                  : rc;
        }
        if (rc != MERAK_IN_PROGRESS)
            return rc;
        rc = read_record(owner->path, &record, err);
        if (rc == MERAK_ERR_NOT_FOUND)
            continue; /* it has just ended */
        if (rc != MERAK_OK)
            return rc;
        fate = fate_of_run(owner, record.text);
        if (fate == UNKNOWN)
            fate = watch(owner, &record);
        if (fate == GONE)
            displace(owner, &record);
    }
    rc = in_use(owner, &record, err);
    return fate == UNKNOWN ? MERAK_IN_PROGRESS : rc;
}

enum merak_status merak_ckpt_owner_take(const char *run_dir,
                                        struct merak_ckpt_owner **owner_p,
                                        struct merak_error *err)
{
    struct merak_ckpt_owner *owner = NULL;
    enum merak_status rc = merak_ckpt_owner_create(run_dir, &owner, err);

    if (rc != MERAK_OK)
        return rc;
    do {
        rc = merak_ckpt_owner_claim(owner, err);
        if (rc == MERAK_IN_PROGRESS)
            merak_nap(1000000000);
    } while (rc == MERAK_IN_PROGRESS);
    if (rc == MERAK_OK)
        *owner_p = owner;
    else
        merak_ckpt_owner_destroy(owner);
    return rc;
}

enum merak_status merak_ckpt_owner_check(struct merak_ckpt_owner *owner,
                                         struct merak_error *err)
{
    struct record record;
    enum merak_status rc = read_record(owner->path, &record, err);
    char who[160];

    if (rc == MERAK_ERR_NOT_FOUND)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.150s was removed: another run may be in this "
                          "directory now",
                          owner->path);
    if (rc != MERAK_OK || strcmp(record.text, owner->text) == 0)
        return rc;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%.80s was taken over by %s: this run gave no sign of "
                      "life for %d s",
                      owner->dir, name_run(record.text, who, sizeof(who)),
                      STALE_S);
}

void merak_ckpt_owner_destroy(struct merak_ckpt_owner *owner)
{
    int saved = errno;

    if (owner == NULL)
        return;
    stop_beats(owner);
    if (owner->fd >= 0) {
        if (merak_ckpt_owner_check(owner, NULL) == MERAK_OK)
            (void)unlink(owner->path);
        close(owner->fd);
    }
    merak_dir_remove_made(owner->dir, owner->there);
    pthread_cond_destroy(&owner->end);
    pthread_mutex_destroy(&owner->lock);
    free(owner);
    errno = saved;
}

enum merak_status merak_ckpt_owner_probe(const char *run_dir, int rank,
                                         struct merak_error *err)
{
    static const char block[4096] = "merak";
    char name[32], path[PATH_MAX];
    enum merak_status rc;

    if (access(merak_path(path, run_dir, MERAK_CKPT_OWNER), F_OK) != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.150s is not the same directory here as on the "
                          "first rank's node: give --ckpt one that all nodes "
                          "share",
                          run_dir);
    snprintf(name, sizeof(name), ".probe-%05d", rank);
    merak_path(path, run_dir, name);
    rc = merak_durable_write(path, block, sizeof(block), err);
    if (rc == MERAK_OK && unlink(path) != 0)
        rc = merak_file_fail(err, "remove", path);
    return rc;
}
