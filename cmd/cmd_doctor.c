/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c - `merak doctor`: is this machine, or this allocation, fit for
 * a run, and how to fix it
 */
#include "config.h"

#include "cmd/cmd.h"

#include "base/error.h"
#include "base/options.h"
#include "base/output.h"
#include "runtime/boot/boot.h"
#include "runtime/doctor/doctor.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct doctor {
    const char *dir, *json;
    double deadline_s;
    bool help;
};

#define AT(field) offsetof(struct doctor, field)

static const struct merak_option rows[] = {
    {"dir", MERAK_OPTION_TEXT, AT(dir),
     .about = "directory for checkpoints; a test file is written there and "
              "removed (the working directory)",
     .arg = "DIR"},
    {"json", MERAK_OPTION_FILE, AT(json),
     .about = "findings as JSON, there or on standard output"},
    {"deadline", MERAK_OPTION_REAL, AT(deadline_s),
     .about = "seconds to wait for the other tasks (30)", .positive = true,
     .most = 1e6},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static void print_help(void)
{
    puts("usage: merak doctor [OPTION]...\n"
         "       srun .. merak doctor [OPTION]...     the nodes of a step\n"
         "\n"
         "Examine this machine, or the nodes of a job: Slurm's PMIx and SPANK\n"
         "plugins, switches, binding, links, a directory, clocks, limits.  "
         "Each\n"
         "problem is printed with its fix.\n");
    merak_options_help(&table, stdout);
    puts("\nexit codes: 0 no error; 66 options; else what a run would end "
         "with:\n68 launcher, 69 memory or disk, 1 links");
}

static enum merak_status write_json(const struct merak_examination *ex,
                                    const char *path, struct merak_error *err)
{
    json_t *object = merak_examination_json(ex);
    struct merak_output out;
    enum merak_status rc;

    if (object == NULL)
        return merak_fail_nomem(err, 1);
    rc = merak_output_open(&out, path, err);
    if (rc == MERAK_OK)
        rc = merak_output_close(
            &out,
            json_dumpf(object, out.file, JSON_INDENT(2)) == 0 &&
                fputc('\n', out.file) != EOF,
            err);
    json_decref(object);
    return rc;
}

/* On rank 0 only. */
static enum merak_status report(const struct doctor *d,
                                const struct merak_examination *ex,
                                struct merak_error *err)
{
    const char *plain = getenv("NO_COLOR");
    bool color = isatty(1) && (plain == NULL || plain[0] == '\0');

    if (d->json == NULL || strcmp(d->json, "-") != 0) {
        merak_examination_print(ex, color, stdout);
        if (fflush(stdout) != 0)
            return merak_fail(err, MERAK_ERR_IO, "cannot write the output: %m");
    }
    return d->json != NULL ? write_json(ex, d->json, err) : MERAK_OK;
}

/* All tasks end with the same code. */
static int run(const struct doctor *d, struct merak_boot *boot)
{
    struct merak_examination ex = {.tasks = 0};
    struct merak_error err = {.status = MERAK_OK};
    int code = MERAK_EXIT_DONE;
    enum merak_status rc = MERAK_OK;

    if (boot->rank == 0) /* which writes it */
        rc = merak_output_check("--json", d->json, &err);
    rc = merak_boot_agree(boot, rc, &err);
    if (rc == MERAK_OK)
        rc = merak_examine(boot, d->dir, &ex, &err);
    if (rc == MERAK_OK && boot->rank == 0) {
        rc = report(d, &ex, &err);
        code = merak_examination_code(&ex);
    }
    merak_examination_fini(&ex);
    if (rc != MERAK_ERR_TIMEOUT)
        rc = merak_boot_agree(boot, rc, &err);
    if (rc == MERAK_OK)
        rc = boot->ops->broadcast(boot, &code, sizeof(code), &err);
    if (rc == MERAK_OK)
        return code;
    if (boot->rank == 0 || rc == MERAK_ERR_TIMEOUT)
        fprintf(stderr, "merak doctor: %s\n", err.text);
    code = rc == MERAK_ERR_TIMEOUT ? MERAK_EXIT_LAUNCH : MERAK_EXIT_RESOURCE;
    if (rc == MERAK_ERR_TIMEOUT)
        boot->ops->abort(boot, code, err.text);
    return code;
}

int merak_cmd_doctor(int argc, char **argv)
{
    struct doctor d = {.dir = ".", .deadline_s = 30};
    struct merak_boot *boot = NULL;
    struct merak_error err = {.status = MERAK_OK};
    enum merak_status rc =
        merak_options_parse(&table, argc, argv, &d, &d.help, &err);
    int code;

    if (rc != MERAK_OK) {
        fprintf(stderr, "merak doctor: %s\n", err.text);
        return MERAK_EXIT_CONFIG;
    }
    if (d.help) {
        print_help();
        return MERAK_EXIT_DONE;
    }
    rc = merak_boot_open(&boot, &err);
    if (rc != MERAK_OK) {
        if (merak_boot_is_first())
            fprintf(stderr, "merak doctor: %s\n", err.text);
        return MERAK_EXIT_LAUNCH;
    }
    boot->deadline_s = d.deadline_s;
    code = run(&d, boot);
    merak_boot_close(boot);
    return code;
}
