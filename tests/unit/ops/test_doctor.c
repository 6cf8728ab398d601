/* SPDX-License-Identifier: Apache-2.0 */
/* test_doctor.c - what `merak doctor` gathers and how it judges */
#include "config.h"

#include "unit/near.h"

#include "base/ask.h"
#include "runtime/doctor/doctor.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A machine with nothing to mend. */
static const struct merak_machine sound = {
    .memlock_bytes = UINT64_MAX,
    .address_space_bytes = UINT64_MAX,
    .open_files = 4096,
    .most_open_files = 4096,
    .shm_free_bytes = UINT64_C(1) << 34,
    .memory_bytes = UINT64_C(1) << 35,
    .cgroup_bytes = UINT64_MAX,
    .rdma_devices = 1,
    .huge_pages = "madvise",
    .huge_shm = "advise",
    .clock_source = "tsc",
    .clock_known = true,
    .clock_kept = true,
    .clock_call_s = 20e-9,
    .governor = "performance",
    .ptrace_scope = 1,
};

/* The finding whose text has `text`; NULL: there is none. */
static const struct merak_finding *with(const struct merak_findings *found,
                                        const char *text)
{
    for (int i = 0; i < found->n; i++) {
        if (strstr(found->one[i].text, text) != NULL)
            return &found->one[i];
    }
    return NULL;
}

/* Nothing is in everything. */
static bool has_text(const char *in, const char *text)
{
    return text == NULL || strstr(in, text) != NULL;
}

static int above(const struct merak_findings *found,
                 enum merak_finding_level level)
{
    int n = 0;

    for (int i = 0; i < found->n; i++)
        n += found->one[i].level > level;
    return n;
}

static void a_sound_machine_is_in_order(void **state)
{
    struct merak_findings found = {.n = 0};

    (void)state;
    merak_machine_judge(&sound, 64, 8, &found);
    assert_true(found.n >= 4);
    assert_int_equal(above(&found, MERAK_FINDING_OK), 0);
}

struct machine_row {
    void (*spoil)(struct merak_machine *m);
    enum merak_finding_level level;
    const char *text, *fix;
};

static void lock_little(struct merak_machine *m)
{
    m->memlock_bytes = 64 << 10;
}

static void open_few(struct merak_machine *m)
{
    m->open_files = 256;
}

static void open_few_ever(struct merak_machine *m)
{
    m->open_files = m->most_open_files = 256;
}

static void map_little(struct merak_machine *m)
{
    m->address_space_bytes = 1 << 30;
}

static void have_no_shm(struct merak_machine *m)
{
    m->shm_free_bytes = 16 << 20;
}

static void have_a_small_share(struct merak_machine *m)
{
    m->cgroup_bytes = m->memory_bytes / 4;
}

static void have_small_pages(struct merak_machine *m)
{
    strcpy(m->huge_shm, "never");
}

static void keep_no_time(struct merak_machine *m)
{
    m->clock_kept = false;
}

static void have_a_slow_clock(struct merak_machine *m)
{
    strcpy(m->clock_source, "acpi_pm");
    m->clock_call_s = 3.5e-6;
}

static void save_power(struct merak_machine *m)
{
    strcpy(m->governor, "powersave");
}

static void forbid_cma(struct merak_machine *m)
{
    m->ptrace_scope = 3;
}

static void have_gpus(struct merak_machine *m)
{
    m->gpus = 8;
    strcpy(m->gpu_name, "NVIDIA H200");
    strcpy(m->gpu_driver, "550.54.15");
}

static void have_gpus_that_are_refused(struct merak_machine *m)
{
    have_gpus(m);
    strcpy(m->gpu_refusal, "the NVIDIA driver on this node is for CUDA 12.4");
}

static void have_gpus_without_ecc(struct merak_machine *m)
{
    have_gpus(m);
    strcpy(m->gpu_facts, "GPU 0 at 0000:1b:00.0, NVIDIA H200");
    strcpy(m->gpu_warning, "GPU 0 has ECC off");
}

static const struct machine_row machine_rows[] = {
    {lock_little, MERAK_FINDING_WARNING, "64 KiB of memory may be locked",
     "LimitMEMLOCK=infinity"},
    {open_few, MERAK_FINDING_WARNING, "256 files may be open", "ulimit -n 320"},
    {open_few_ever, MERAK_FINDING_WARNING, "256 files may be open",
     "LimitNOFILE"},
    {map_little, MERAK_FINDING_WARNING, "a process may map 1 GiB",
     "ulimit -v unlimited"},
    {have_no_shm, MERAK_FINDING_WARNING, "16 MiB are free in /dev/shm",
     "size="},
    {have_a_small_share, MERAK_FINDING_NOTE, "8 GiB of the machine's 32 GiB",
     "--mem=0"},
    {have_small_pages, MERAK_FINDING_NOTE, "small pages (never)",
     "shmem_enabled"},
    {keep_no_time, MERAK_FINDING_NOTE, "no time service", "chronyd"},
    {have_a_slow_clock, MERAK_FINDING_WARNING, "3.5 us (clock source acpi_pm)",
     "tsc"},
    {save_power, MERAK_FINDING_NOTE, "governor is powersave",
     "--cpu-freq=performance"},
    {forbid_cma, MERAK_FINDING_NOTE, "ptrace_scope is 3", "ptrace_scope=1"},
    {have_gpus, MERAK_FINDING_NOTE, "8 x NVIDIA H200, driver 550.54.15", NULL},
    {have_gpus_that_are_refused, MERAK_FINDING_WARNING, "for CUDA 12.4", NULL},
    {have_gpus_without_ecc, MERAK_FINDING_WARNING, "ECC off", NULL},
};

static void what_is_wrong_is_told_with_its_fix(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(machine_rows) / sizeof(machine_rows[0]);
         i++) {
        const struct machine_row *row = &machine_rows[i];
        struct merak_findings found = {.n = 0};
        struct merak_machine m = sound;
        const struct merak_finding *f;

        row->spoil(&m);
        merak_machine_judge(&m, 64, 8, &found);
        f = with(&found, row->text);
        if (f == NULL)
            fail_msg("row %zu: nothing says \"%s\"", i, row->text);
        assert_int_equal(f->level, row->level);
        assert_true(has_text(f->fix, row->fix));
        assert_int_equal(above(&found, MERAK_FINDING_OK), 1);
    }
}

static void locking_is_of_no_concern_without_rdma(void **state)
{
    struct merak_findings found = {.n = 0};
    struct merak_machine m = sound;

    (void)state;
    m.memlock_bytes = 64 << 10;
    m.rdma_devices = 0;
    merak_machine_judge(&m, 64, 8, &found);
    assert_int_equal(above(&found, MERAK_FINDING_OK), 0);
}

/* --- a machine made of files ---------------------------------------------- */

static void write_text(const char *dir, const char *path, const char *text)
{
    char full[PATH_MAX];
    FILE *file;

    snprintf(full, sizeof(full), "%s/%s", dir, path);
    for (char *slash = strchr(full + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(full, 0700) != 0)
            assert_int_equal(errno, EEXIST);
        *slash = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void make_dir(char *dir)
{
    strcpy(dir, "/tmp/merak-doctor-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void remove_dir(const char *dir)
{
    char command[PATH_MAX];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void facts_are_read_from_files(void **state)
{
    struct merak_machine m;
    char root[32];

    (void)state;
    make_dir(root);
    write_text(root, "proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1");
    write_text(root, "proc/self/cgroup", "0::/system.slice/slurmstepd/job_7\n");
    write_text(root, "sys/fs/cgroup/system.slice/slurmstepd/job_7/memory.max",
               "max\n");
    write_text(root, "sys/fs/cgroup/system.slice/slurmstepd/memory.max",
               "4294967296\n");
    write_text(root, "sys/kernel/mm/transparent_hugepage/enabled",
               "always [madvise] never\n");
    write_text(root, "sys/kernel/mm/transparent_hugepage/shmem_enabled",
               "always within_size advise [never] deny force\n");
    write_text(
        root, "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "hpet\n");
    write_text(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
               "schedutil\n");
    write_text(root, "proc/sys/kernel/yama/ptrace_scope", "2\n");
    write_text(root, "sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
    write_text(root, "sys/class/infiniband/mlx5_1/node_type", "1: CA\n");
    write_text(root, "proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue "
               "Mar  5\nGCC version:  gcc version 12.2.0\n");
    write_text(root, "proc/driver/nvidia/gpus/0000:18:00.0/information",
               "Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\n");
    write_text(root, "proc/driver/nvidia/gpus/0000:2a:00.0/information",
               "Model: \t\t NVIDIA H200\nIRQ:   \t\t 17\n");
    merak_machine_gather(root, &m);
    remove_dir(root);
    assert_int_equal(m.memory_bytes, UINT64_C(16) << 30);
    assert_int_equal(m.cgroup_bytes, UINT64_C(4) << 30);
    assert_string_equal(m.huge_pages, "madvise");
    assert_string_equal(m.huge_shm, "never");
    assert_string_equal(m.clock_source, "hpet");
    assert_string_equal(m.governor, "schedutil");
    assert_int_equal(m.ptrace_scope, 2);
    assert_int_equal(m.rdma_devices, 2);
    assert_int_equal(m.gpus, 2);
    assert_string_equal(m.gpu_name, "NVIDIA H200");
    assert_string_equal(m.gpu_driver, "550.54.15");
}

static void an_empty_machine_has_no_facts(void **state)
{
    struct merak_machine m;
    char root[32];

    (void)state;
    make_dir(root);
    merak_machine_gather(root, &m);
    remove_dir(root);
    assert_int_equal(m.memory_bytes, 0);
    assert_int_equal(m.cgroup_bytes, UINT64_MAX);
    assert_string_equal(m.huge_shm, "");
    assert_string_equal(m.clock_source, "");
    assert_int_equal(m.ptrace_scope, -1);
    assert_int_equal(m.rdma_devices + m.gpus, 0);
}

/* --- cores ---------------------------------------------------------------- */

struct cores_row {
    const char *task[4]; /* their cores */
    int threads;
    const char *text, *fix;
};

static const struct cores_row cores_rows[] = {
    {{"0-3", "4-7"}, 4, "2 tasks, 8 cores (0-7), each with its own", NULL},
    {{"0-7"}, 4, "1 task, 8 cores (0-7)", NULL},
    {{"0-7", "0-7"}, 1, "2 of 2 tasks are not bound", "--cpus-per-task=4"},
    {{"0-3", "3-7", "8"}, 1, "2 of 3 tasks are not bound", "--cpu-bind=cores"},
    {{"0", "0"}, 1, "2 tasks on 1 core: they take turns", "fewer tasks"},
    {{"0-1", "2-3"},
     4,
     "asks for 4 threads (SLURM_CPUS_PER_TASK) and may use 2",
     "--cpus-per-task=4"},
};

static void tasks_that_share_cores_are_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cores_rows) / sizeof(cores_rows[0]); i++) {
        const struct cores_row *row = &cores_rows[i];
        struct merak_findings found = {.n = 0};
        struct merak_cores cores[4];
        const struct merak_finding *f;
        int n = 0;

        for (; n < 4 && row->task[n] != NULL; n++)
            assert_true(merak_cores_parse(row->task[n], &cores[n]));
        merak_cores_judge(cores, n, row->threads, &found);
        f = with(&found, row->text);
        if (f == NULL)
            fail_msg("row %zu: nothing says \"%s\"", i, row->text);
        assert_true(has_text(f->fix, row->fix));
        assert_int_equal(f->level != MERAK_FINDING_OK, row->fix != NULL);
    }
}

static void cores_are_told_as_they_are_read(void **state)
{
    static const char *const good[] = {"0", "0-3", "0,2,4", "1-2,8-63,4095",
                                       ""};
    static const char *const bad[] = {"x",    "-1",  "3-1",      "0-",
                                      "4096", "1 2", "0-999999", "1,,2"};
    struct merak_cores cores;
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(merak_cores_parse(good[i], &cores));
        merak_cores_text(&cores, text, sizeof(text));
        assert_string_equal(text, good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (merak_cores_parse(bad[i], &cores))
            fail_msg("\"%s\" was read", bad[i]);
    }
    assert_true(merak_cores_gather(&cores));
    assert_in_range(merak_cores_count(&cores), 1,
                    sysconf(_SC_NPROCESSORS_CONF));
}

/* --- the rest ------------------------------------------------------------- */

static void a_directory_is_tried_and_left_as_it_was(void **state)
{
    struct merak_findings found = {.n = 0};
    struct merak_directory d;
    char dir[32], below[64];

    (void)state;
    make_dir(dir);
    snprintf(below, sizeof(below), "%s/not/there", dir);
    merak_directory_gather(below, &d);
    assert_string_equal(d.path, dir);
    assert_int_equal(d.access_errno, 0);
    assert_int_equal(d.flock_errno, 0);
    assert_true(d.replaces);
    assert_true(d.write_bytes_per_s > 0);
    assert_true(d.free_bytes > 0);
    merak_directory_judge(&d, &found);
    assert_int_equal(above(&found, MERAK_FINDING_WARNING), 0);
    assert_non_null(with(&found, "above the one named"));
    assert_int_equal(rmdir(dir), 0); /* nothing is left in it */
}

static void a_directory_that_takes_no_file_is_an_error(void **state)
{
    struct merak_findings found = {.n = 0};
    struct merak_directory d;

    (void)state;
    merak_directory_gather("/proc/self", &d);
    merak_directory_judge(&d, &found);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.one[0].level, MERAK_FINDING_ERROR);
    assert_int_equal(found.one[0].code, MERAK_EXIT_RESOURCE);
    assert_non_null(strstr(found.one[0].text, "cannot write in /proc/self"));
}

static void a_directory_without_renames_is_an_error(void **state)
{
    struct merak_directory d = {.path = "/scratch",
                                .asked = "/scratch",
                                .free_bytes = 64 << 20,
                                .free_files = UINT64_MAX,
                                .flock_errno = ENOLCK,
                                .rename_errno = EPERM,
                                .dir_sync_errno = EINVAL};
    struct merak_findings found = {.n = 0};

    (void)state;
    merak_directory_judge(&d, &found);
    assert_int_equal(with(&found, "does not replace a file")->code,
                     MERAK_EXIT_RESOURCE);
    assert_int_equal(with(&found, "64 MiB are free")->level,
                     MERAK_FINDING_WARNING);
    assert_int_equal(with(&found, "fsync of directory")->level,
                     MERAK_FINDING_WARNING);
    assert_non_null(
        strstr(with(&found, "no file locks")->fix, "HDF5_USE_FILE_LOCKING"));
}

static void a_command_is_heard_and_timed(void **state)
{
    char *const echo[] = {"sh", "-c", "echo out; echo err >&2; exit 3", NULL};
    char *const slow[] = {"sh", "-c", "echo first; sleep 60", NULL};
    char *const much[] = {"sh", "-c", "yes | head -c 100000", NULL};
    char *const none[] = {"/nonexistent/command", NULL};
    char text[64];

    (void)state;
    assert_int_equal(merak_ask(echo, 30, text, sizeof(text)), 3);
    assert_string_equal(text, "out\nerr\n");
    assert_int_equal(merak_ask(slow, 0.2, text, sizeof(text)), -1);
    assert_int_equal(merak_ask(much, 30, text, sizeof(text)), 0);
    assert_int_equal(strlen(text), sizeof(text) - 1);
    assert_int_equal(merak_ask(none, 30, text, sizeof(text)), -1);
}

static size_t read_plugin(char **data_p)
{
    FILE *in = fopen("../spank_plugin/.libs/spank_merak.so", "rb");
    char *data = malloc(1 << 20);
    size_t n = in != NULL && data != NULL ? fread(data, 1, 1 << 20, in) : 0;

    if (in != NULL)
        fclose(in);
    *data_p = data;
    return n;
}

/* Cut anywhere it is no plugin, or one of the same release. */
static void a_plugin_tells_its_release(void **state)
{
    char *data, dir[32], path[64];
    size_t n = read_plugin(&data);
    uint32_t release;

    (void)state;
    if (n == 0) {
        free(data);
        skip(); /* built without it */
    }
    release = merak_plugin_release("../spank_plugin/.libs/spank_merak.so");
    assert_in_range(release >> 16, 20, 99);
    assert_in_range(release >> 8 & 255, 1, 12);
    make_dir(dir);
    snprintf(path, sizeof(path), "%s/cut.so", dir);
    for (size_t cut = 0; cut < n; cut += 1 + n / 150) {
        FILE *out = fopen(path, "wb");
        uint32_t got;

        assert_non_null(out);
        assert_int_equal(fwrite(data, 1, cut, out), cut);
        assert_int_equal(fclose(out), 0);
        got = merak_plugin_release(path);
        assert_true(got == 0 || got == release);
    }
    remove_dir(dir);
    free(data);
    assert_int_equal(merak_plugin_release("/nonexistent"), 0);
    assert_int_equal(merak_plugin_release("/bin/sh"), 0);
}

static void too_many_findings_do_no_harm(void **state)
{
    struct merak_findings found = {.n = 0};

    (void)state;
    for (int i = 0; i < MERAK_MAX_FINDINGS + 5; i++)
        merak_find(&found, MERAK_FINDING_NOTE, "area", "number %d", i);
    assert_int_equal(found.n, MERAK_MAX_FINDINGS);
    assert_string_equal(found.one[0].text, "number 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_machine_is_in_order),
        cmocka_unit_test(what_is_wrong_is_told_with_its_fix),
        cmocka_unit_test(locking_is_of_no_concern_without_rdma),
        cmocka_unit_test(facts_are_read_from_files),
        cmocka_unit_test(an_empty_machine_has_no_facts),
        cmocka_unit_test(tasks_that_share_cores_are_told),
        cmocka_unit_test(cores_are_told_as_they_are_read),
        cmocka_unit_test(a_directory_is_tried_and_left_as_it_was),
        cmocka_unit_test(a_directory_that_takes_no_file_is_an_error),
        cmocka_unit_test(a_directory_without_renames_is_an_error),
        cmocka_unit_test(a_command_is_heard_and_timed),
        cmocka_unit_test(a_plugin_tells_its_release),
        cmocka_unit_test(too_many_findings_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
