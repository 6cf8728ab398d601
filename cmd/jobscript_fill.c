/* SPDX-License-Identifier: Apache-2.0 */
/* jobscript_fill.c - making a job script from its template
 *
 * Templates are working scripts (jobscripts/).  Filled in are: values in the
 * lines "#SBATCH --KEY=VALUE" of the first component; lines after the job's
 * name, for keys that the template lacks; and the lines that begin with
 * program=(, variants=(, degrees=(, SPARES= and RUN_DIR=, up to the closing
 * bracket.
 */
#include "config.h"

#include "cmd/jobscript.h"

#include "base/options.h"
#include "base/shell_word.h"
#include "cmd/jobscript_texts.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 78 };

static const char *const *const texts[MERAK_JOB_KINDS] = {
    [MERAK_JOB_SINGLE] = text_pretrain, [MERAK_JOB_CHAIN] = text_chain,
    [MERAK_JOB_ARRAY] = text_array,     [MERAK_JOB_HET] = text_het,
    [MERAK_JOB_SPARE] = text_spare,
};

static bool begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* VALUE of "#SBATCH --KEY=VALUE", or NULL. */
static const char *value_of(const char *line, const char *key)
{
    size_t n = strlen(key);

    if (!begins(line, "#SBATCH --") || strncmp(line + 10, key, n) != 0 ||
        line[10 + n] != '=')
        return NULL;
    return line + 11 + n;
}

long merak_jobscript_number(enum merak_jobscript_kind kind, const char *key)
{
    for (const char *const *line = texts[kind]; *line != NULL; line++) {
        const char *value = value_of(*line, key);

        if (value != NULL)
            return strtol(value, NULL, 10);
    }
    return 0;
}

/* --- words of bash -------------------------------------------------------- */

/* name=(WORD...), on as many lines as needed. */
static void put_array(const char *name, const char *const *word, int n,
                      FILE *out)
{
    size_t at = (size_t)fprintf(out, "%s=(", name);

    for (int i = 0; i < n; i++) {
        size_t length = strlen(word[i]) + 1;

        if (i > 0 && at + length > WIDTH) {
            fputs("\n   ", out);
            at = 3;
        }
        if (i > 0)
            fputc(' ', out);
        merak_put_shell_word(out, word[i]);
        at += length;
    }
    fputs(")\n", out);
}

/* --- the parts ------------------------------------------------------------ */

static void put_text(const char *key, const char *value, FILE *out)
{
    if (value != NULL)
        fprintf(out, "#SBATCH --%s=%s\n", key, value);
}

/* Lines that templates do not have. */
static void put_more(const struct merak_jobscript *job, FILE *out)
{
    put_text("partition", job->partition, out);
    put_text("account", job->account, out);
    put_text("qos", job->qos, out);
    put_text("constraint", job->constraint, out);
    put_text("reservation", job->reservation, out);
    if (job->gpus > 0)
        fprintf(out, "#SBATCH --gpus-per-node=%d\n", job->gpus);
    if (job->memory_gib > 0)
        fprintf(out, "#SBATCH --mem=%dG\n", job->memory_gib);
    if (job->mail != NULL)
        fprintf(out,
                "#SBATCH --mail-user=%s\n"
                "#SBATCH --mail-type=END,FAIL,REQUEUE\n",
                job->mail);
}

static int tasks_of(const struct merak_jobscript *job)
{
    return job->tasks > 0 ? job->tasks : job->gpus;
}

/* A line of the first component's header, with its value replaced if one is
 * given. */
static void put_header(const struct merak_jobscript *job, const char *line,
                       FILE *out)
{
    const struct {
        const char *key;
        const char *text;
        int number;
    } rows[] = {
        {"job-name", job->name, 0},
        {"nodes", NULL, job->nodes + (job->nodes > 0 ? job->spares : 0)},
        {"ntasks-per-node", NULL, tasks_of(job)},
        {"cpus-per-task", NULL, job->cpus},
        {"time", job->time, 0},
        {"array", job->array, 0},
    };

    if (job->shared && strcmp(line, "#SBATCH --exclusive") == 0)
        return;
    if (job->save_s > 0 && value_of(line, "signal") != NULL) {
        fprintf(out, "#SBATCH --signal=B:USR1@%d\n", job->save_s);
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (value_of(line, rows[i].key) == NULL)
            continue;
        if (rows[i].text != NULL)
            fprintf(out, "#SBATCH --%s=%s\n", rows[i].key, rows[i].text);
        else if (rows[i].number > 0)
            fprintf(out, "#SBATCH --%s=%d\n", rows[i].key, rows[i].number);
        else
            fprintf(out, "%s\n", line);
        if (i == 0)
            put_more(job, out);
        return;
    }
    fprintf(out, "%s\n", line);
}

static void put_degree(const char *name, const char *variable, int degree,
                       FILE *out)
{
    char text[16] = "auto";

    if (degree > 0)
        snprintf(text, sizeof(text), "%d", degree);
    fprintf(out, "%s=\"${%s:-%s}\"", name, variable, text);
}

static void put_degrees(const struct merak_jobscript *job, FILE *out)
{
    put_degree("degrees=(--merak-tp", "MERAK_TP", job->tp, out);
    put_degree(" --merak-pp", "MERAK_PP", job->pp, out);
    if (job->cp != 0)
        put_degree(" --merak-cp", "MERAK_CP", job->cp, out);
    fputs(")\n", out);
}

/* If this line, after the header, begins a part to be filled in, print that
 * part. */
static bool put_part(const struct merak_jobscript *job, const char *line,
                     FILE *out)
{
    if (begins(line, "program=(") && job->n_program > 0)
        put_array("program", (const char *const *)job->program, job->n_program,
                  out);
    else if (begins(line, "variants=(") && job->variant.n > 0)
        put_array("variants", job->variant.word, job->variant.n, out);
    else if (begins(line, "degrees=("))
        put_degrees(job, out);
    else if (begins(line, "SPARES=") && job->spares > 0)
        fprintf(out, "SPARES=${SPARES:-%d}\n", job->spares);
    else if (begins(line, "RUN_DIR=") && job->run_dir != NULL) {
        fputs("RUN_DIR=${RUN_DIR:-", out);
        merak_put_shell_word(out, job->run_dir);
        fputs("}\n", out);
    } else
        return false;
    return true;
}

static void put_setup(const struct merak_jobscript *job, FILE *out)
{
    for (int i = 0; i < job->setup.n; i++)
        fprintf(out, "%s\n", job->setup.word[i]);
    if (job->setup.n > 0)
        fputc('\n', out);
}

/* The line with an array's closing bracket. */
static const char *const *end_of_array(const char *const *line)
{
    while ((*line)[strlen(*line) - 1] != ')')
        line++;
    return line;
}

void merak_jobscript_print(const struct merak_jobscript *job, FILE *out)
{
    const char *const *line = texts[job->kind];
    bool second = false;

    for (; *line != NULL; line++) {
        if (begins(*line, "#SBATCH hetjob"))
            second = true;
        if (begins(*line, "#SBATCH --") && !second) {
            put_header(job, *line, out);
        } else if (put_part(job, *line, out)) {
            if (strstr(*line, "=(") != NULL)
                line = end_of_array(line);
        } else {
            fprintf(out, "%s\n", *line);
        }
        if (begins(*line, "# ---- edit: the run"))
            put_setup(job, out);
        if (second && value_of(*line, "cpus-per-task") != NULL)
            put_text("partition", job->second_partition, out);
    }
}
