/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/doctor/doctor.h - what `merak doctor` looks at, and what it finds
 *
 * Facts are gathered by one function and judged by another, so that the
 * judgements can be tested on healthy machines.  A finding states a fact and,
 * where something is wrong, the fix.
 */
#ifndef MERAK_RUNTIME_DOCTOR_DOCTOR_H
#define MERAK_RUNTIME_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "merak/status.h"
#include "runtime/boot/boot.h"

enum merak_finding_level {
    MERAK_FINDING_OK,
    MERAK_FINDING_NOTE,    /* worth knowing */
    MERAK_FINDING_WARNING, /* runs are slower than necessary, or may fail */
    MERAK_FINDING_ERROR,   /* a run would end with the finding's exit code */
};

struct merak_finding {
    enum merak_finding_level level;
    int code; /* of an error: enum merak_exit */
    char area[16];
    char text[256];
    char fix[256]; /* "" if there is nothing to fix */
};

enum { MERAK_MAX_FINDINGS = 48 };
struct merak_findings {
    int n;
    struct merak_finding one[MERAK_MAX_FINDINGS];
};

/* Add a finding; when there are too many the last is overwritten. */
struct merak_finding *merak_find(struct merak_findings *found,
                                 enum merak_finding_level level,
                                 const char *area, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Set the fix. */
void merak_find_fix(struct merak_finding *finding, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Make it an error, with the exit code that a run would end with. */
void merak_find_code(struct merak_finding *finding, int code);

/* --- one machine (machine.c) ---------------------------------------------- */

struct merak_machine {
    uint64_t memlock_bytes, address_space_bytes; /* UINT64_MAX: no limit */
    uint64_t open_files, most_open_files;
    uint64_t shm_free_bytes;
    uint64_t memory_bytes, cgroup_bytes; /* cgroup: UINT64_MAX if unlimited */
    int rdma_devices;
    char huge_pages[16];   /* "always", "madvise", "never"; "": unknown */
    char huge_shm[16];     /* the same for shared memory */
    char clock_source[32]; /* "tsc"; "": unknown */
    bool clock_known;      /* the kernel reports whether it is synchronized */
    bool clock_kept;
    double clock_call_s; /* seconds that reading the clock takes */
    char governor[32];   /* of cpu 0's frequency; "": none */
    int ptrace_scope;    /* of Yama; -1: there is none */
    int gpus;
    char gpu_name[64], gpu_driver[32];
    /* What backend cuda reports of the first GPU that it may use: a
     * description and what is wrong with it; or why it can use none.  "": not
     * asked. */
    char gpu_facts[384], gpu_warning[256], gpu_refusal[256];
};

/* `root` is put in front of /proc, /sys and /dev; "" except in tests. */
void merak_machine_gather(const char *root, struct merak_machine *m);
/* For a run of `tasks` tasks, `local_tasks` of them on this machine. */
void merak_machine_judge(const struct merak_machine *m, int tasks,
                         int local_tasks, struct merak_findings *found);

/* --- a directory (directory.c) -------------------------------------------- */

struct merak_directory {
    char asked[256], path[256]; /* path: the nearest one that exists */
    int access_errno;           /* 0: a file can be made there; else why not */
    const char *fs;             /* "ext4"; NULL: unknown */
    bool remote;                /* a network file system */
    uint64_t free_bytes, free_files; /* files UINT64_MAX: not counted */
    int flock_errno, fcntl_errno, rename_errno, dir_sync_errno;
    bool replaces;                    /* a rename replaced the older file */
    double write_bytes_per_s, sync_s; /* fsync included; 0: not measured */
};

/* Try what checkpoints need of a directory, with a file that is removed
 * afterwards; failures are recorded in *d as errno values. */
void merak_directory_gather(const char *path, struct merak_directory *d);
/* Add what is wrong, with the fixes. */
void merak_directory_judge(const struct merak_directory *d,
                           struct merak_findings *found);

/* --- Slurm (slurm.c) ------------------------------------------------------ */

/*
 * Ask srun and scontrol, with one second each.  `nodes` are the step's, to be
 * looked up in the topology, or NULL.
 */
void merak_slurm_check(const char *const *nodes, int n_nodes,
                       struct merak_findings *found);
/* The environment of a task or a batch script. */
void merak_slurm_environment(struct merak_findings *found);

/* SLURM_VERSION_NUMBER of the release that a plugin file was built for; 0: it
 * does not exist or is no plugin. */
uint32_t merak_plugin_release(const char *path);

/* --- cores (cores.c) ------------------------------------------------------ */

enum { MERAK_MOST_CORES = 4096 };
struct merak_cores {
    unsigned char has[MERAK_MOST_CORES / 8];
};

/* The cores that this process may use; false if that is unknown. */
bool merak_cores_gather(struct merak_cores *cores);
/* "0-3,8"; false if text is not of that form. */
bool merak_cores_parse(const char *text, struct merak_cores *cores);
void merak_cores_text(const struct merak_cores *cores, char *text, size_t size);
int merak_cores_count(const struct merak_cores *cores);
/* Judge the cores of a node's n tasks, in local order, all with `threads`
 * threads. */
void merak_cores_judge(const struct merak_cores *cores, int n, int threads,
                       struct merak_findings *found);

/* --- links (links_alone.c, links_step.c) ---------------------------------- */

/* UCX on one machine: which of its transports it chooses, and their rate. */
void merak_links_alone(struct merak_findings *found);
/* Rates between tasks of a node and between nodes, and clock offsets between
 * nodes.  Collective; findings are about this task's node. */
void merak_links_step(struct merak_boot *boot, struct merak_findings *found);

/* --- all of it (examine.c) ------------------------------------------------ */

/* A finding and the nodes it holds for. */
struct merak_placed_finding {
    struct merak_finding finding;
    int n_nodes; /* 0: it is not about single nodes */
    int *node;   /* [n_nodes] */
};

struct merak_examination {
    int tasks, n_nodes;
    const char *const *hosts; /* [n_nodes], the boot's */
    int n;
    struct merak_placed_finding *placed;
};

/*
 * Examine everything, for the tasks that were started together.  `dir` may be
 * NULL.  Collective; the result is on rank 0, and empty on the others.
 */
enum merak_status merak_examine(struct merak_boot *boot, const char *dir,
                                struct merak_examination *ex,
                                struct merak_error *err) MERAK_CHECKED;
void merak_examination_fini(struct merak_examination *ex);
/* 0, or the exit code of the first error. */
int merak_examination_code(const struct merak_examination *ex);
void merak_examination_print(const struct merak_examination *ex, bool color,
                             FILE *out);
/* NULL when out of memory. */
json_t *merak_examination_json(const struct merak_examination *ex);

#endif
