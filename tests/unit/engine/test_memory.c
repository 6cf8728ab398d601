/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - what a node and its cgroups leave to a task, from files like
 * those of the kernel
 */
#include "config.h"

#include "unit/near.h"

#include "runtime/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB ((size_t)1 << 20)
#define MAX_FILES 12

/* With every directory above it. */
static void write_file(const char *root, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *c = path + strlen(root) + 1; *c != '\0'; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        mkdir(path, 0700);
        *c = '/';
    }
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const struct memory_row {
    const char *says;
    const char *file[MAX_FILES][2]; /* name, text */
    size_t left;
} rows[] = {
    {"nothing", {{NULL, NULL}}, SIZE_MAX},
    {"a node without groups",
     {{"proc/meminfo", "MemTotal: 99 kB\nMemAvailable:    2048 kB\n"}},
     2 * MIB},
    {"a group without a bound",
     {{"proc/meminfo", "MemAvailable: 8192 kB\n"},
      {"proc/self/cgroup", "0::/job\n"},
      {"sys/fs/cgroup/job/memory.max", "max\n"},
      {"sys/fs/cgroup/job/memory.current", "1048576\n"}},
     8 * MIB},
    {"a bound less what is used",
     {{"proc/meminfo", "MemAvailable: 8192 kB\n"},
      {"proc/self/cgroup", "0::/job\n"},
      {"sys/fs/cgroup/job/memory.max", "4194304\n"},
      {"sys/fs/cgroup/job/memory.current", "1048576\n"}},
     3 * MIB},
    {"pages of files give way",
     {{"proc/self/cgroup", "0::/job\n"},
      {"sys/fs/cgroup/job/memory.max", "4194304\n"},
      {"sys/fs/cgroup/job/memory.current", "3145728\n"},
      {"sys/fs/cgroup/job/memory.stat",
       "anon 1048576\nfile 2097152\ninactive_file 2097152\n"}},
     3 * MIB},
    {"more file pages than are used",
     {{"proc/self/cgroup", "0::/job\n"},
      {"sys/fs/cgroup/job/memory.max", "4194304\n"},
      {"sys/fs/cgroup/job/memory.current", "1048576\n"},
      {"sys/fs/cgroup/job/memory.stat", "inactive_file 2097152\n"}},
     4 * MIB},
    {"the group is full",
     {{"proc/self/cgroup", "0::/job\n"},
      {"sys/fs/cgroup/job/memory.max", "4194304\n"},
      {"sys/fs/cgroup/job/memory.current", "5242880\n"}},
     0},
    {"a group further up leaves less",
     {{"proc/self/cgroup", "0::/slurm/job_7/step_0\n"},
      {"sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n"},
      {"sys/fs/cgroup/slurm/job_7/step_0/memory.current", "1048576\n"},
      {"sys/fs/cgroup/slurm/job_7/memory.max", "6291456\n"},
      {"sys/fs/cgroup/slurm/job_7/memory.current", "1048576\n"},
      {"sys/fs/cgroup/slurm/memory.max", "8388608\n"},
      {"sys/fs/cgroup/slurm/memory.current", "6291456\n"}},
     2 * MIB},
    {"the root itself",
     {{"proc/self/cgroup", "0::/\n"},
      {"sys/fs/cgroup/memory.max", "2097152\n"},
      {"sys/fs/cgroup/memory.current", "1048576\n"}},
     MIB},
    {"version 1, other controllers beside",
     {{"proc/self/cgroup",
       "5:cpuset:/none\n4:memory:/slurm/uid_0\n0::/other\n"},
      {"sys/fs/cgroup/memory/slurm/uid_0/memory.limit_in_bytes", "4194304\n"},
      {"sys/fs/cgroup/memory/slurm/uid_0/memory.usage_in_bytes", "2097152\n"},
      {"sys/fs/cgroup/memory/slurm/uid_0/memory.stat",
       "inactive_file 4096\ntotal_inactive_file 1048576\n"}},
     3 * MIB},
    {"version 1, bounded by the group above",
     {{"proc/self/cgroup", "4:memory:/slurm/uid_0\n"},
      {"sys/fs/cgroup/memory/slurm/uid_0/memory.limit_in_bytes",
       "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/slurm/uid_0/memory.usage_in_bytes", "4096\n"},
      {"sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "2097152\n"},
      {"sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "1048576\n"}},
     MIB},
    {"a group that has no files of memory",
     {{"proc/meminfo", "MemAvailable: 4096 kB\n"},
      {"proc/self/cgroup", "0::/job\n3:freezer:/x\nnonsense\n"}},
     4 * MIB},
};

static void files_tell_what_is_left(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char root[] = "/tmp/merak-memory-XXXXXX", command[64];
        size_t left;

        assert_non_null(mkdtemp(root));
        for (int f = 0; f < MAX_FILES && rows[i].file[f][0] != NULL; f++)
            write_file(root, rows[i].file[f][0], rows[i].file[f][1]);
        left = merak_memory_left(root);
        snprintf(command, sizeof(command), "rm -r %s", root);
        assert_int_equal(system(command), 0);
        if (left != rows[i].left)
            fail_msg("%s: %zu bytes left, not %zu", rows[i].says, left,
                     rows[i].left);
    }
}

/* Tasks of a node share it. */
static void tasks_get_a_share_each(void **state)
{
    struct merak_boot one = {.local_size = 1}, four = {.local_size = 4};
    size_t all = merak_memory_available(&one);
    size_t share = merak_memory_available(&four);

    (void)state;
    assert_true(all > 0);
    if (all != SIZE_MAX) /* others use memory in between */
        assert_true(share > all / 8 && share < all / 2);
}

static bool is_near(size_t a, size_t b)
{
    return a < b + 4 * MIB && b < a + 4 * MIB;
}

/* What every step reports is what /proc/self/status says. */
static void resident_memory_is_known(void **state)
{
    size_t bytes = 48 * MIB, now, peak;
    char *block = malloc(bytes);

    (void)state;
    assert_non_null(block);
    memset(block, 1, bytes);
    merak_resident_bytes(&now, &peak);
    assert_true(now > bytes &&
                is_near(now, merak_resident_kib("VmRSS:") << 10));
    free(block);
    merak_resident_bytes(&now, &peak);
    assert_true(now < bytes && peak > bytes);
    assert_true(is_near(peak, merak_resident_kib("VmHWM:") << 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_tell_what_is_left),
        cmocka_unit_test(tasks_get_a_share_each),
        cmocka_unit_test(resident_memory_is_known),
    };

    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
