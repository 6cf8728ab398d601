/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - limits, memory, clocks and accelerators of one machine */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/open.h"
#include "base/size.h"
#include "kernels/kernels.h"
#include "runtime/runtime.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

/* File descriptors of a task: its own files and UCX's devices; and per peer a
 * watched process, a connection and a mapped arena. */
enum { OWN_FILES = 128, FILES_PER_PEER = 3 };
/* UCX's queues between tasks of one node, in /dev/shm. */
#define SHM_PER_TASK_BYTES (UINT64_C(8) << 20)
/* A trace reads the clock twice per instruction. */
#define SLOW_CLOCK_S 1e-6
#define CLOCK_CALLS 2000

/* --- gathering ------------------------------------------------------------ */

/* The first line of a file below root; "" if there is none. */
static void read_line(const char *root, const char *path, char *line,
                      size_t size)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof(full), "%s%s", root, path);

    line[0] = '\0';
    if (n > 0 && (size_t)n < sizeof(full))
        merak_first_line(full, line, size);
}

/* "always [madvise] never": the word in brackets. */
static void read_choice(const char *root, const char *path, char *word,
                        size_t size)
{
    char line[128], *from, *to;

    read_line(root, path, line, sizeof(line));
    from = strchr(line, '[');
    to = from != NULL ? strchr(from, ']') : NULL;
    snprintf(word, size, "%.*s", to != NULL ? (int)(to - from - 1) : 0,
             to != NULL ? from + 1 : "");
}

static int count_entries(const char *root, const char *path)
{
    char full[PATH_MAX];
    const struct dirent *entry;
    int n = 0;
    DIR *dir;

    snprintf(full, sizeof(full), "%s%s", root, path);
    dir = opendir(full);
    if (dir == NULL)
        return 0;
    while ((entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static uint64_t soft_limit(int which)
{
    struct rlimit limit;

    if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

static void gather_limits(struct merak_machine *m)
{
    struct rlimit files;

    m->memlock_bytes = soft_limit(RLIMIT_MEMLOCK);
    m->address_space_bytes = soft_limit(RLIMIT_AS);
    m->open_files = soft_limit(RLIMIT_NOFILE);
    m->most_open_files = m->open_files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        m->most_open_files =
            files.rlim_max == RLIM_INFINITY ? UINT64_MAX : files.rlim_max;
}

/* The smallest limit of this process's cgroup and its parents, version 2 only:
 * it has one tree, so the path in /proc/self/cgroup is below the mount. */
static uint64_t cgroup_limit(const char *root)
{
    char line[PATH_MAX], path[PATH_MAX + 64], text[64], *slash;
    uint64_t least = UINT64_MAX;

    read_line(root, "/proc/self/cgroup", line, sizeof(line));
    if (strncmp(line, "0::/", 4) != 0)
        return least;
    for (;;) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
        read_line(root, path, text, sizeof(text));
        if (text[0] >= '0' && text[0] <= '9') {
            uint64_t bytes = strtoull(text, NULL, 10);

            least = bytes < least ? bytes : least;
        }
        slash = strrchr(line + 3, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

static void gather_memory(const char *root, struct merak_machine *m)
{
    char path[PATH_MAX], line[128];
    struct statvfs shm;
    uint64_t kib = 0;

    read_line(root, "/proc/meminfo", line, sizeof(line));
    if (sscanf(line, "MemTotal: %" SCNu64, &kib) == 1)
        m->memory_bytes = kib << 10;
    m->cgroup_bytes = cgroup_limit(root);
    snprintf(path, sizeof(path), "%s/dev/shm", root);
    m->shm_free_bytes = statvfs(path, &shm) == 0
                            ? (uint64_t)shm.f_bavail * shm.f_frsize
                            : UINT64_MAX;
    read_choice(root, "/sys/kernel/mm/transparent_hugepage/enabled",
                m->huge_pages, sizeof(m->huge_pages));
    read_choice(root, "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                m->huge_shm, sizeof(m->huge_shm));
}

static void gather_clocks(const char *root, struct merak_machine *m)
{
    struct timex now = {.modes = 0};
    int state = adjtimex(&now);
    int64_t start;

    m->clock_known = state >= 0;
    m->clock_kept = state >= 0 && (now.status & STA_UNSYNC) == 0;
    read_line(root,
              "/sys/devices/system/clocksource/clocksource0/"
              "current_clocksource",
              m->clock_source, sizeof(m->clock_source));
    start = merak_clock_ns();
    for (int i = 0; i < CLOCK_CALLS; i++)
        (void)merak_clock_ns();
    m->clock_call_s = merak_clock_since_s(start) / (CLOCK_CALLS + 1);
}

/* From the driver's /proc file of the first GPU. */
static void read_gpu_name(const char *root, struct merak_machine *m)
{
    char full[PATH_MAX], line[128];
    const struct dirent *entry;
    FILE *page = NULL;
    DIR *dir;

    snprintf(full, sizeof(full), "%s/proc/driver/nvidia/gpus", root);
    dir = opendir(full);
    if (dir == NULL)
        return;
    while (page == NULL && (entry = readdir(dir)) != NULL) {
        snprintf(full, sizeof(full),
                 "%s/proc/driver/nvidia/gpus/%.64s/information", root,
                 entry->d_name);
        if (entry->d_name[0] != '.')
            page = fopen(full, "re");
    }
    closedir(dir);
    if (page == NULL)
        return;
    while (fgets(line, sizeof(line), page) != NULL) {
        if (strncmp(line, "Model:", 6) == 0) {
            char *name = line + 6 + strspn(line + 6, " \t");

            name[strcspn(name, "\n")] = '\0';
            snprintf(m->gpu_name, sizeof(m->gpu_name), "%.63s", name);
        }
    }
    fclose(page);
}

/* The word of digits and dots in "NVRM version: NVIDIA UNIX x86_64 Kernel
 * Module  550.54.15  Tue ..". */
static void read_gpu_driver(const char *root, struct merak_machine *m)
{
    char line[256], *rest = NULL;

    read_line(root, "/proc/driver/nvidia/version", line, sizeof(line));
    for (const char *word = strtok_r(line, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        if (strchr(word, '.') != NULL &&
            strspn(word, "0123456789.") == strlen(word)) {
            snprintf(m->gpu_driver, sizeof(m->gpu_driver), "%.31s", word);
            return;
        }
    }
}

/* Only for this machine, not for one that a test made up. */
static void ask_backend(struct merak_machine *m)
{
    struct merak_accel_device device[16];
    const struct merak_backend *cuda = NULL;
    struct merak_error err = {.status = MERAK_OK};
    int n = 0;
    enum merak_status rc = merak_backend_find("cuda", &cuda, &err);

    if (rc == MERAK_OK)
        rc = cuda->accel->devices(device, 16, &n, &err);
    if (rc != MERAK_OK)
        snprintf(m->gpu_refusal, sizeof(m->gpu_refusal), "%.255s", err.text);
    else if (cuda->accel->facts != NULL)
        cuda->accel->facts(device[0].number, m->gpu_facts, sizeof(m->gpu_facts),
                           m->gpu_warning, sizeof(m->gpu_warning));
    if (rc == MERAK_OK && m->gpu_warning[0] == '\0' && err.text[0] != '\0')
        snprintf(m->gpu_warning, sizeof(m->gpu_warning), "not used: %.240s",
                 err.text);
}

void merak_machine_gather(const char *root, struct merak_machine *m)
{
    char text[32];

    memset(m, 0, sizeof(*m));
    gather_limits(m);
    gather_memory(root, m);
    gather_clocks(root, m);
    m->rdma_devices = count_entries(root, "/sys/class/infiniband");
    m->gpus = count_entries(root, "/proc/driver/nvidia/gpus");
    read_gpu_name(root, m);
    read_gpu_driver(root, m);
    if (m->gpus > 0 && root[0] == '\0')
        ask_backend(m);
    read_line(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
              m->governor, sizeof(m->governor));
    read_line(root, "/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text));
    m->ptrace_scope = text[0] != '\0' ? atoi(text) : -1;
}

/* --- judging -------------------------------------------------------------- */

static void judge_memlock(const struct merak_machine *m,
                          struct merak_findings *found)
{
    struct merak_finding *f;
    char bytes[MERAK_BYTES_TEXT];

    if (m->memlock_bytes == UINT64_MAX || m->rdma_devices == 0)
        return;
    merak_bytes_text((double)m->memlock_bytes, bytes);
    f = merak_find(found, MERAK_FINDING_WARNING, "limits",
                   "%s of memory may be locked; RDMA (%d device%s) needs its "
                   "buffers locked",
                   bytes, m->rdma_devices, m->rdma_devices == 1 ? "" : "s");
    merak_find_fix(f, "LimitMEMLOCK=infinity in slurmd's unit and "
                      "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; "
                      "alone: ulimit -l unlimited");
}

static void judge_files(const struct merak_machine *m, int tasks,
                        struct merak_findings *found)
{
    uint64_t need = OWN_FILES + (uint64_t)FILES_PER_PEER * (uint64_t)tasks;
    struct merak_finding *f;

    if (m->open_files >= need)
        return;
    f = merak_find(found, MERAK_FINDING_WARNING, "limits",
                   "%" PRIu64
                   " files may be open, a task among %d needs %" PRIu64,
                   m->open_files, tasks, need);
    if (m->most_open_files >= need)
        merak_find_fix(f,
                       "ulimit -n %" PRIu64 " where the job is submitted, "
                       "or before srun in its script",
                       need);
    else
        merak_find_fix(f, "LimitNOFILE=1048576 in slurmd's unit and "
                          "PropagateResourceLimitsExcept=NOFILE in slurm.conf");
}

static void judge_limits(const struct merak_machine *m, int tasks,
                         struct merak_findings *found)
{
    char bytes[MERAK_BYTES_TEXT];
    int before = found->n;

    judge_memlock(m, found);
    judge_files(m, tasks, found);
    if (m->address_space_bytes != UINT64_MAX) {
        merak_bytes_text((double)m->address_space_bytes, bytes);
        merak_find_fix(merak_find(found, MERAK_FINDING_WARNING, "limits",
                                  "a process may map %s; a task maps its node "
                                  "peers' memory, too",
                                  bytes),
                       "ulimit -v unlimited where the job is submitted");
    }
    if (found->n > before)
        return;
    if (m->memlock_bytes == UINT64_MAX)
        snprintf(bytes, sizeof(bytes), "any");
    else
        merak_bytes_text((double)m->memlock_bytes, bytes);
    merak_find(found, MERAK_FINDING_OK, "limits",
               "%" PRIu64 " files may be open, %s memory locked", m->open_files,
               bytes);
}

static void judge_memory(const struct merak_machine *m, int local_tasks,
                         struct merak_findings *found)
{
    uint64_t want = SHM_PER_TASK_BYTES * (uint64_t)local_tasks;
    uint64_t usable =
        m->cgroup_bytes < m->memory_bytes ? m->cgroup_bytes : m->memory_bytes;
    char bytes[MERAK_BYTES_TEXT], all[MERAK_BYTES_TEXT];
    struct merak_finding *f;

    merak_bytes_text((double)usable, bytes);
    merak_bytes_text((double)m->memory_bytes, all);
    if (usable < m->memory_bytes / 2) {
        f = merak_find(found, MERAK_FINDING_NOTE, "memory",
                       "%s of the machine's %s may be used", bytes, all);
        merak_find_fix(f, "--mem=0 or --exclusive, where the job is to have "
                          "whole nodes");
    } else {
        merak_find(found, MERAK_FINDING_OK, "memory", "%s", bytes);
    }
    if (m->shm_free_bytes < want) {
        merak_bytes_text((double)m->shm_free_bytes, bytes);
        merak_bytes_text((double)want, all);
        f = merak_find(found, MERAK_FINDING_WARNING, "memory",
                       "%s are free in /dev/shm, %d task%s on a node may need "
                       "%s for UCX's queues",
                       bytes, local_tasks, local_tasks == 1 ? "" : "s", all);
        merak_find_fix(f, "remove what is left over there, or mount a larger "
                          "one (size= of tmpfs)");
    }
}

static void judge_pages(const struct merak_machine *m,
                        struct merak_findings *found)
{
    const char *word = m->huge_shm;
    struct merak_finding *f;

    if (word[0] == '\0')
        return;
    if (strcmp(word, "never") == 0 || strcmp(word, "deny") == 0) {
        f = merak_find(found, MERAK_FINDING_NOTE, "hugepages",
                       "shared memory, which has a task's arena, gets small "
                       "pages (%s)",
                       word);
        merak_find_fix(f, "as root: echo advise > /sys/kernel/mm/"
                          "transparent_hugepage/shmem_enabled");
    } else {
        merak_find(found, MERAK_FINDING_OK, "hugepages",
                   "shared memory: %s, other memory: %s", word,
                   m->huge_pages[0] != '\0' ? m->huge_pages : "unknown");
    }
}

static void judge_clocks(const struct merak_machine *m,
                         struct merak_findings *found)
{
    struct merak_finding *f;
    int before = found->n;

    if (m->clock_known && !m->clock_kept) {
        f = merak_find(found, MERAK_FINDING_NOTE, "clocks",
                       "no time service keeps this clock right");
        merak_find_fix(f, "run chronyd or another NTP client: the owner of a "
                          "run is found by file times, and logs are compared");
    }
    if (m->clock_call_s > SLOW_CLOCK_S) {
        f = merak_find(found, MERAK_FINDING_WARNING, "clocks",
                       "reading the clock takes %.1f us (clock source %s): "
                       "traces slow steps down",
                       m->clock_call_s * 1e6,
                       m->clock_source[0] != '\0' ? m->clock_source
                                                  : "unknown");
        merak_find_fix(f, "let the kernel use tsc (boot option tsc=reliable "
                          "where the hardware is)");
    }
    if (found->n == before)
        merak_find(
            found, MERAK_FINDING_OK, "clocks", "%s, %.0f ns to read the clock",
            m->clock_source[0] != '\0' ? m->clock_source : "source unknown",
            m->clock_call_s * 1e9);
}

static void judge_cpu(const struct merak_machine *m, int local_tasks,
                      struct merak_findings *found)
{
    struct merak_finding *f;

    if (strcmp(m->governor, "powersave") == 0 ||
        strcmp(m->governor, "conservative") == 0) {
        f = merak_find(found, MERAK_FINDING_NOTE, "cpu",
                       "the frequency governor is %s", m->governor);
        merak_find_fix(f, "srun --cpu-freq=performance, or cpupower "
                          "frequency-set -g performance as root");
    }
    if (m->ptrace_scope > 1 && local_tasks > 1) {
        f = merak_find(found, MERAK_FINDING_NOTE, "cpu",
                       "Yama's ptrace_scope is %d: UCX cannot copy from one "
                       "task's memory to another's (cma)",
                       m->ptrace_scope);
        merak_find_fix(f, "as root: sysctl kernel.yama.ptrace_scope=1; without "
                          "it copies go through /dev/shm");
    }
}

static void judge_gpus(const struct merak_machine *m,
                       struct merak_findings *found)
{
    if (m->gpus == 0)
        return;
    if (m->gpu_refusal[0] != '\0')
        merak_find(found, MERAK_FINDING_WARNING, "gpu", "%s", m->gpu_refusal);
    else if (m->gpu_facts[0] != '\0')
        merak_find(found, MERAK_FINDING_OK, "gpu", "%d, %s", m->gpus,
                   m->gpu_facts);
    else
        merak_find(found, MERAK_FINDING_NOTE, "gpu", "%d x %s, driver %s",
                   m->gpus, m->gpu_name[0] != '\0' ? m->gpu_name : "NVIDIA",
                   m->gpu_driver[0] != '\0' ? m->gpu_driver : "unknown");
    if (m->gpu_warning[0] != '\0')
        merak_find(found, MERAK_FINDING_WARNING, "gpu", "%s", m->gpu_warning);
}

void merak_machine_judge(const struct merak_machine *m, int tasks,
                         int local_tasks, struct merak_findings *found)
{
    judge_limits(m, tasks, found);
    judge_memory(m, local_tasks, found);
    judge_pages(m, found);
    judge_clocks(m, found);
    judge_cpu(m, local_tasks, found);
    judge_gpus(m, found);
}
