/* SPDX-License-Identifier: Apache-2.0 */
/* start_time.c - when Slurm would start a job, by `sbatch --test-only`
 *
 * Slurm answers without starting anything:
 *
 *   sbatch: Job 3 to start at 2026-11-26T11:32:31 using 2 processors on ..
 *   sbatch: error: .. or "allocation failure: .."
 *
 * It is an estimate: jobs end before their time limit, and others come.
 */
#include "config.h"

#include "runtime/plan/start_time.h"

#include "base/ask.h"
#include "base/error.h"
#include "base/printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_S 5.0

enum { MOST_WORDS = 32, ANSWER = 1024 };

/* `env` sets the form of times, and says if there is no sbatch. */
#define ENV "env"
#define TIME_FORM "SLURM_TIME_FORMAT=standard"
#define NAME "sbatch: " /* in front of what it says */

enum merak_status plan_start_check(const struct plan_options *opt,
                                   struct merak_error *err)
{
    char *const argv[] = {ENV, "sbatch", "--version", NULL};
    char text[ANSWER];

    if (opt->run.sbatch == NULL)
        return MERAK_OK;
    if (opt->several.n_nodes < 2 || opt->several.n_devices > 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--sbatch compares jobs of several counts of nodes: "
                          "give --nodes 4,8,16 and one --device");
    if (opt->run.tokens <= 0)
        return merak_fail(
            err, MERAK_ERR_CONFIG,
            "--sbatch says when a run is done: give its --tokens");
    if (merak_ask(argv, PATIENCE_S, text, sizeof(text)) != 0)
        return merak_fail(
            err, MERAK_ERR_CONFIG,
            "--sbatch asks sbatch, which does not run here: %.100s"
            "; start it on a node that submits jobs",
            text[0] != '\0' ? text : "no answer");
    return MERAK_OK;
}

/* The words of a text, separated by blanks; it is written to. */
static int split(char *text, char **word, int most)
{
    char *rest = NULL;
    int n = 0;

    for (char *w = strtok_r(text, " \t", &rest); w != NULL && n < most;
         w = strtok_r(NULL, " \t", &rest))
        word[n++] = w;
    return n;
}

/* The time in an answer; 0: it has none. */
static time_t start_in(const char *answer)
{
    const char *at = strstr(answer, " to start at ");
    struct tm tm = {.tm_isdst = -1};
    int read = 0;

    if (at == NULL ||
        sscanf(at, " to start at %d-%d-%dT%d:%d:%d%n", &tm.tm_year, &tm.tm_mon,
               &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &read) != 6 ||
        read == 0)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return mktime(&tm);
}

/* What sbatch says, without its name in front of it: the last line. */
static void take_reason(char *answer, struct plan_start *start)
{
    char *end = answer + strlen(answer), *line;

    while (end > answer && end[-1] == '\n')
        *--end = '\0';
    line = strrchr(answer, '\n');
    line = line != NULL ? line + 1 : answer;
    if (strncmp(line, NAME, strlen(NAME)) == 0)
        line += strlen(NAME);
    snprintf(start->why, sizeof(start->why), "%.150s",
             line[0] != '\0' ? line : "no answer within 5 s");
    merak_keep_to_a_line(start->why);
}

void plan_start_ask(const struct plan_options *opt, int nodes,
                    int ranks_per_node, struct plan_start *start)
{
    char *argv[MOST_WORDS + 8] = {ENV, TIME_FORM, "sbatch", "--test-only"};
    char *given = strdup(opt->run.sbatch), count[24], tasks[48], answer[ANSWER];
    int n = 4, rc;

    *start = (struct plan_start){.at = 0};
    if (given != NULL)
        n += split(given, argv + n, MOST_WORDS);
    snprintf(count, sizeof(count), "-N%d", nodes);
    snprintf(tasks, sizeof(tasks), "--ntasks-per-node=%d", ranks_per_node);
    argv[n++] = count;
    argv[n++] = tasks;
    argv[n++] = "--wrap=:";
    rc = merak_ask(argv, PATIENCE_S, answer, sizeof(answer));
    free(given);
    if (rc == 0)
        start->at = start_in(answer);
    if (start->at <= 0) {
        start->at = 0;
        take_reason(answer, start);
    }
}

const char *plan_start_text(time_t at, char text[PLAN_START_TEXT])
{
    struct tm tm;

    if (localtime_r(&at, &tm) == NULL ||
        strftime(text, PLAN_START_TEXT, "%Y-%m-%d %H:%M", &tm) == 0)
        snprintf(text, PLAN_START_TEXT, "-");
    return text;
}
