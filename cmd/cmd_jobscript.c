/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_jobscript.c - `merak jobscript`: a job script for a site; it is refused
 * if Slurm would refuse it, or the run it starts
 */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/jobscript.h"

#include "base/ask.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/options.h"
#include "runtime/runtime.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define AT(field) offsetof(struct merak_jobscript, field)

static enum merak_status add_word(struct merak_job_words *words,
                                  const char *name, const char *text,
                                  struct merak_error *err)
{
    if (words->n == MERAK_JOB_WORDS)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--%s: expected %d at most, got more", name,
                          MERAK_JOB_WORDS);
    words->word[words->n++] = text;
    return MERAK_OK;
}

static enum merak_status set_setup(void *target, const char *text,
                                   struct merak_error *err)
{
    return add_word(&((struct merak_jobscript *)target)->setup, "setup", text,
                    err);
}

static enum merak_status set_variant(void *target, const char *text,
                                     struct merak_error *err)
{
    return add_word(&((struct merak_jobscript *)target)->variant, "variant",
                    text, err);
}

static const struct merak_option rows[] = {
    {"name", MERAK_OPTION_TEXT, AT(name),
     .about = "of the job, and of its run's directory (pretrain)",
     .arg = "NAME", .group = "the allocation"},
    {"partition", MERAK_OPTION_TEXT, AT(partition),
     .about = "Slurm's partition (the site's default)", .arg = "NAME"},
    {"account", MERAK_OPTION_TEXT, AT(account),
     .about = "that is charged (yours)", .arg = "NAME"},
    {"qos", MERAK_OPTION_TEXT, AT(qos), .about = "quality of service (yours)",
     .arg = "NAME"},
    {"constraint", MERAK_OPTION_TEXT, AT(constraint),
     .about = "features that nodes must have (none)", .arg = "LIST"},
    {"reservation", MERAK_OPTION_TEXT, AT(reservation),
     .about = "to run in (none)", .arg = "NAME"},
    {"nodes", MERAK_OPTION_INT, AT(nodes), .about = "that train (4; array: 1)",
     .least = 1, .most = 65533},
    {"tasks", MERAK_OPTION_INT, AT(tasks),
     .about = "of each node (as many as GPUs, or 4)", .least = 1, .most = 4096},
    {"gpus", MERAK_OPTION_INT, AT(gpus),
     .about = "of each node, one a task (none)", .least = 1, .most = 64},
    {"cpus", MERAK_OPTION_INT, AT(cpus), .about = "of each task (8)",
     .least = 1, .most = 4096},
    {"memory-gib", MERAK_OPTION_INT, AT(memory_gib),
     .about = "of each node (the site's default)", .least = 1, .most = 65536},
    {"time", MERAK_OPTION_TEXT, AT(time),
     .about = "limit of a job: MINUTES, H:MM:SS, DAYS-H:MM (12:00:00)",
     .arg = "TIME"},
    {"save-seconds", MERAK_OPTION_INT, AT(save_s),
     .about = "before the limit, at which the run saves and ends (300)",
     .least = 1, .most = 65535},
    {"shared", MERAK_OPTION_YES, AT(shared),
     .about = "other jobs may run on the same nodes"},
    {"mail", MERAK_OPTION_TEXT, AT(mail),
     .about = "notified when the job ends, fails or is requeued (none)",
     .arg = "ADDRESS"},
    {"spares", MERAK_OPTION_INT, AT(spares),
     .about = "spare: nodes in addition to those that train (1)", .least = 1,
     .most = 1000},
    {"array", MERAK_OPTION_TEXT, AT(array),
     .about = "array: elements as Slurm writes them, 0-7%2 (all variants)",
     .arg = "LIST"},
    {"second-partition", MERAK_OPTION_TEXT, AT(second_partition),
     .about = "het: of the second component (the site's default)",
     .arg = "NAME"},
    {"tp", MERAK_OPTION_INT, AT(tp), .about = "tensor-parallel size (auto)",
     .words = "auto", .least = 1, .most = 65535, .group = "the run"},
    {"pp", MERAK_OPTION_INT, AT(pp), .about = "pipeline stages (auto)",
     .words = "auto", .least = 1, .most = 65535},
    {"cp", MERAK_OPTION_INT, AT(cp),
     .about = "tasks that share each sequence (1)", .words = "auto", .least = 1,
     .most = 65535},
    {"run-dir", MERAK_OPTION_TEXT, AT(run_dir),
     .about = "directory of all files of the run (runs/NAME below the "
              "directory of sbatch)",
     .arg = "DIR"},
    {"setup", MERAK_OPTION_CALL,
     .about = "a line of bash before the run, as \"module load merak\"; may "
              "be repeated",
     .arg = "LINE", .set = set_setup},
    {"variant", MERAK_OPTION_CALL,
     .about = "array: options that one element has, as \"--lr 1e-3\"; may be "
              "repeated",
     .arg = "OPTIONS", .set = set_variant},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static const struct {
    const char *name, *about;
} kinds[MERAK_JOB_KINDS] = {
    [MERAK_JOB_SINGLE] = {"single", "one job, which requeues itself"},
    [MERAK_JOB_CHAIN] = {"chain", "a chain of jobs, one after another"},
    [MERAK_JOB_ARRAY] = {"array", "a run for each element of an array"},
    [MERAK_JOB_HET] = {"het",
                       "training, and an evaluation of every checkpoint"},
    [MERAK_JOB_SPARE] = {"spare",
                         "spare nodes: failed runs start again at once, "
                         "without the node"},
};

static void print_help(void)
{
    puts("usage: merak jobscript KIND [OPTION]... [-- PROGRAM [ARG]...]\n"
         "\n"
         "Print a job script for sbatch: it saves before the time limit, "
         "resumes from\n"
         "there, and stops when it is done or makes no progress.  PROGRAM is "
         "what\n"
         "srun starts; the script adds the options for checkpoints and "
         "metrics.\n"
         "\n"
         "kinds:");
    for (int k = 0; k < MERAK_JOB_KINDS; k++)
        printf("  %-8s %s\n", kinds[k].name, kinds[k].about);
    putchar('\n');
    merak_options_help(&table, stdout);
}

/* --- checks of several options -------------------------------------- */

static enum merak_status find_kind(const char *word,
                                   enum merak_jobscript_kind *kind_p,
                                   struct merak_error *err)
{
    struct merak_nearest nearest;

    merak_nearest_init(&nearest, word != NULL ? word : "");
    for (int k = 0; word != NULL && k < MERAK_JOB_KINDS; k++) {
        merak_nearest_offer(&nearest, kinds[k].name);
        if (strcmp(word, kinds[k].name) == 0) {
            *kind_p = (enum merak_jobscript_kind)k;
            return MERAK_OK;
        }
    }
    if (word == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "which kind? single, chain, array, het or spare");
    if (nearest.name != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no kind \"%.40s\" (did you mean %s?)", word,
                          nearest.name);
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "no kind \"%.40s\"; there are single, chain, array, het "
                      "and spare",
                      word);
}

/* A word on a line of #SBATCH: sbatch would take text after a blank for the
 * next word. */
static enum merak_status check_word(const char *option, const char *text,
                                    struct merak_error *err)
{
    if (text == NULL)
        return MERAK_OK;
    for (const char *c = text; *c != '\0'; c++) {
        if (!isgraph((unsigned char)*c) || strchr("\"'\\`#", *c) != NULL)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--%s: expected one word without quotes, got "
                              "\"%.60s\"",
                              option, text);
    }
    return *text != '\0'
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_CONFIG,
                            "--%s: expected a word, got an empty one", option);
}

static enum merak_status check_words(const struct merak_jobscript *job,
                                     struct merak_error *err)
{
    const struct {
        const char *option, *text;
    } word[] = {{"name", job->name},
                {"partition", job->partition},
                {"second-partition", job->second_partition},
                {"account", job->account},
                {"qos", job->qos},
                {"constraint", job->constraint},
                {"reservation", job->reservation},
                {"mail", job->mail},
                {"array", job->array}};
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]) && rc == MERAK_OK;
         i++)
        rc = check_word(word[i].option, word[i].text, err);
    if (rc == MERAK_OK && job->name != NULL && strchr(job->name, '/') != NULL)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "--name: it names a directory, too, so without a /, "
                        "got \"%.60s\"",
                        job->name);
    for (int i = 0; i < job->setup.n && rc == MERAK_OK; i++) {
        if (strchr(job->setup.word[i], '\n') != NULL)
            rc = merak_fail(err, MERAK_ERR_CONFIG,
                            "--setup: expected one line; repeat it for each");
    }
    return rc;
}

/* Seconds of a time in sbatch's format: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; -1
 * if it is not one. */
static double seconds_of(const char *text)
{
    long part[3] = {0, 0, 0}, days = 0;
    bool has_days = strchr(text, '-') != NULL;
    int n = 0;

    for (const char *at = text;; at++) {
        char *end;
        long value = strtol(at, &end, 10);

        if (!isdigit((unsigned char)*at) || end - at > 6)
            return -1;
        if (*end == '-' && n == 0 && days == 0 && at == text) {
            days = value;
        } else {
            if (n == 3)
                return -1;
            part[n++] = value;
            if (*end == '\0')
                break;
            if (*end != ':')
                return -1;
        }
        at = end;
    }
    if (has_days || n == 3)
        return (double)days * 86400 + (double)part[0] * 3600 +
               (double)part[1] * 60 + (double)part[2];
    return (double)part[0] * 60 + (double)part[1];
}

/* USR1 may arrive up to a minute early, and the run needs some time before
 * it. */
static enum merak_status check_time(const struct merak_jobscript *job,
                                    struct merak_error *err)
{
    double limit = job->time != NULL ? seconds_of(job->time) : 12.0 * 3600;
    int save_s = job->save_s > 0 ? job->save_s : 300;

    if (job->time != NULL && (strcasecmp(job->time, "unlimited") == 0))
        return MERAK_OK;
    if (limit <= 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--time: expected minutes, H:MM:SS, DAYS-H:MM or "
                          "unlimited, got \"%.40s\"",
                          job->time);
    if (save_s + 60 >= limit)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--save-seconds %d and the minute that Slurm may be "
                          "early leave nothing of --time %s; %s",
                          save_s, job->time != NULL ? job->time : "12:00:00",
                          job->save_s > 0 ? "save later or ask for more time"
                                          : "give --save-seconds");
    return MERAK_OK;
}

static enum merak_status check_degrees(const struct merak_jobscript *job,
                                       struct merak_error *err)
{
    long nodes = job->nodes > 0 ? job->nodes
                                : merak_jobscript_number(job->kind, "nodes");
    long tasks = job->tasks > 0 ? job->tasks
                 : job->gpus > 0
                     ? job->gpus
                     : merak_jobscript_number(job->kind, "ntasks-per-node");
    long tp = job->tp > 0 ? job->tp : 1, pp = job->pp > 0 ? job->pp : 1;
    long cp = job->cp > 0 ? job->cp : 1;
    char too[32] = "";

    if (cp > 1)
        snprintf(too, sizeof(too), " x --cp %ld", cp);
    if (job->gpus > 0 && job->tasks > 0 && job->gpus != job->tasks)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--tasks %d and --gpus %d: a task has one GPU; leave "
                          "out --tasks",
                          job->tasks, job->gpus);
    if (tasks % (tp * cp) != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--tp %ld%s does not divide the %ld tasks of a node, "
                          "and its groups stay within nodes",
                          tp, too, tasks);
    if (nodes * tasks % (tp * cp * pp) != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--tp %ld%s x --pp %ld does not divide the %ld tasks "
                          "of %ld nodes",
                          tp, too, pp, nodes * tasks, nodes);
    return MERAK_OK;
}

/* The greatest element of "0-7%2,9", or -1 if it is not a list. */
static long last_element(const char *list)
{
    long last = -1;

    for (;;) {
        char *end;
        long value = strtol(list, &end, 10);

        if (!isdigit((unsigned char)*list) || value > 4000000)
            return -1;
        last = value > last ? value : last;
        if (*end == '\0')
            return last;
        if (*end == '%')
            return isdigit((unsigned char)end[1]) &&
                           end[1 + strspn(end + 1, "0123456789")] == '\0'
                       ? last
                       : -1;
        if (*end == ':') { /* the step of a range */
            list = end + 1;
            strtol(list, &end, 10);
            if (end == list || (*end != ',' && *end != '\0'))
                return -1;
            if (*end == '\0')
                return last;
        } else if (*end != ',' && *end != '-') {
            return -1;
        }
        list = end + 1;
    }
}

/* Refuse options of other kinds, and check the elements of an array. */
static enum merak_status check_kind(struct merak_jobscript *job, char all[32],
                                    struct merak_error *err)
{
    const struct {
        const char *option;
        bool said;
        enum merak_jobscript_kind kind;
    } only[] = {
        {"spares", job->spares > 0, MERAK_JOB_SPARE},
        {"array", job->array != NULL, MERAK_JOB_ARRAY},
        {"variant", job->variant.n > 0, MERAK_JOB_ARRAY},
        {"second-partition", job->second_partition != NULL, MERAK_JOB_HET},
    };

    for (size_t i = 0; i < sizeof(only) / sizeof(only[0]); i++) {
        if (only[i].said && job->kind != only[i].kind)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--%s is for %s, not for %s", only[i].option,
                              kinds[only[i].kind].name, kinds[job->kind].name);
    }
    if (job->kind == MERAK_JOB_SPARE) {
        job->spares = job->spares > 0 ? job->spares : 1;
        if (job->nodes == 0)
            job->nodes = (int)merak_jobscript_number(job->kind, "nodes") - 1;
    }
    if (job->array != NULL && last_element(job->array) < 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--array: expected elements as 0-7 or 0-7%%2 or 1,3, "
                          "got \"%.40s\"",
                          job->array);
    if (job->array != NULL && job->variant.n > 0 &&
        last_element(job->array) >= job->variant.n)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--array %.40s, but --variant is given %d times: "
                          "elements are 0 to %d",
                          job->array, job->variant.n, job->variant.n - 1);
    if (job->array == NULL && job->variant.n > 0) {
        snprintf(all, 32, "0-%d", job->variant.n - 1);
        job->array = all;
    }
    return MERAK_OK;
}

static enum merak_status check_program(const struct merak_jobscript *job,
                                       struct merak_error *err)
{
    static const char *const ours[] = {"--ckpt", "--metrics"};

    for (int i = 0; i < job->n_program; i++) {
        for (size_t k = 0; k < 2; k++) {
            size_t n = strlen(ours[k]);

            if (strncmp(job->program[i], ours[k], n) == 0 &&
                (job->program[i][n] == '\0' || job->program[i][n] == '='))
                return merak_fail(err, MERAK_ERR_CONFIG,
                                  "%s is set by the script, below --run-dir",
                                  ours[k]);
        }
        if (i == 0 && strcmp(job->program[0], "srun") == 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "srun is added by the script: give the command "
                              "that it starts");
    }
    return MERAK_OK;
}

/* --- the site ------------------------------------------------------------- */

struct partition {
    char name[96], limit[32];
    long nodes;
};

/* Parse sinfo's "NAME LIMIT NODES", a line per partition, with a star after
 * the default's name: sets *p to the requested one (NULL: the default), or
 * returns false; also lists all names. */
static bool find_partition(char *text, const char *name, struct partition *p,
                           char names[160])
{
    char *rest = NULL;
    size_t n = 0;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *star;

        if (sscanf(line, "%95s %31s %ld", p->name, p->limit, &p->nodes) != 3)
            continue;
        star = strchr(p->name, '*');
        if (star != NULL)
            *star = '\0';
        if (name != NULL ? strcmp(name, p->name) == 0 : star != NULL)
            return true;
        n += (size_t)snprintf(names + n, 160 - n, "%s%s", n > 0 ? ", " : "",
                              p->name);
        n = n < 160 ? n : 159;
    }
    return false;
}

/* Check against Slurm's partitions, if there is a Slurm that answers. */
static enum merak_status check_site(const struct merak_jobscript *job,
                                    struct merak_error *err)
{
    char *const argv[] = {"sinfo", "-h", "-o", "%P %l %D", NULL};
    char text[16384], names[160] = "";
    long want = (job->nodes > 0 ? job->nodes : 0) + job->spares;
    struct partition p;
    double longest;

    if (merak_ask(argv, 5, text, sizeof(text)) != 0)
        return MERAK_OK;
    if (!find_partition(text, job->partition, &p, names)) {
        /* a list of several is left to Slurm */
        if (job->partition == NULL || strchr(job->partition, ',') != NULL)
            return MERAK_OK;
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--partition: there is no \"%.40s\" here; there are "
                          "%s",
                          job->partition, names);
    }
    if (want > p.nodes)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%ld nodes, but partition %.40s has %ld", want,
                          p.name, p.nodes);
    longest = strcmp(p.limit, "infinite") == 0 ? -1 : seconds_of(p.limit);
    if (job->time != NULL && longest > 0 && seconds_of(job->time) > longest)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--time %s, but jobs of partition %.40s end after %s",
                          job->time, p.name, p.limit);
    return MERAK_OK;
}

/* --- the command ---------------------------------------------------------- */

static enum merak_status check(struct merak_jobscript *job, char all[32],
                               struct merak_error *err)
{
    enum merak_status rc = check_kind(job, all, err);

    if (rc == MERAK_OK)
        rc = check_words(job, err);
    if (rc == MERAK_OK)
        rc = check_time(job, err);
    if (rc == MERAK_OK)
        rc = check_degrees(job, err);
    if (rc == MERAK_OK)
        rc = check_program(job, err);
    return rc == MERAK_OK ? check_site(job, err) : rc;
}

/* Words after "--" belong to the program; *argc_p is set to exclude them. */
static void take_program(int *argc_p, char **argv, struct merak_jobscript *job)
{
    for (int i = 1; i < *argc_p; i++) {
        if (strcmp(argv[i], "--") != 0)
            continue;
        job->program = argv + i + 1;
        job->n_program = *argc_p - i - 1;
        *argc_p = i;
        return;
    }
}

int merak_cmd_jobscript(int argc, char **argv)
{
    struct merak_jobscript job = {.tp = MERAK_OPTION_AUTO,
                                  .pp = MERAK_OPTION_AUTO};
    struct merak_error err = {.status = MERAK_OK};
    const char *word;
    char all[32];
    enum merak_status rc;

    take_program(&argc, argv, &job);
    rc = merak_cmd_one_word(&table, argc, argv, &job, &job.help, &err);
    word = argv[1];
    if (rc == MERAK_OK && job.help) {
        print_help();
        return MERAK_EXIT_DONE;
    }
    if (rc == MERAK_OK)
        rc = find_kind(word, &job.kind, &err);
    if (rc == MERAK_OK)
        rc = check(&job, all, &err);
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak jobscript: %s\n", err.text);
        return MERAK_EXIT_CONFIG;
    }
    merak_jobscript_print(&job, stdout);
    if (fflush(stdout) == 0)
        return MERAK_EXIT_DONE;
    fputs("merak jobscript: cannot write the output\n", stderr);
    return MERAK_EXIT_RESOURCE;
}
