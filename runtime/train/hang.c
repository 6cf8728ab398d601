/* SPDX-License-Identifier: Apache-2.0 */
/* hang.c - the report of who waits for whom when a deadline has passed */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/open.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void merak_trainer_tell(void *arg, char *text, size_t size)
{
    const struct merak_trainer *t = arg;
    char wait[128] = "";

    if (t->failure.running != NULL) {
        merak_engine_tell(t->failure.running, text, size);
        return;
    }
    if (t->tr != NULL)
        merak_transport_describe_wait(t->tr, wait, sizeof(wait));
    snprintf(text, size, "%s after %" PRIu64 " steps%s%s", t->failure.doing,
             t->step, wait[0] != '\0' ? ", " : "", wait);
}

/* Next to the metrics, or in the checkpoint directory; NULL: there is
 * neither. */
static FILE *open_page(const struct merak_trainer *t, char *path, size_t size)
{
    const char *slash, *in = t->run_dir;
    FILE *page;
    size_t length;

    if (t->opt.output.metrics != NULL) {
        slash = strrchr(t->opt.output.metrics, '/');
        in = slash == NULL ? "." : t->opt.output.metrics;
        length = slash == NULL ? 1 : (size_t)(slash - t->opt.output.metrics);
    } else if (in != NULL) {
        length = strlen(in);
    } else {
        return NULL;
    }
    snprintf(path, size, "%.*s/hang-%08" PRIu64 ".txt", (int)length, in,
             t->step);
    return merak_fopen_new(path, &page) == NULL ? page : NULL;
}

static const char *host_of(const struct merak_boot *boot, int peer)
{
    return boot->hosts[boot->node_of[peer]];
}

/* The logical rank to name first of those that gave no answer: one of whose
 * process something is known; -1: all answered. */
static int first_silent(const struct merak_boot *boot,
                        const int *transport_rank,
                        const struct merak_told *told)
{
    int first = -1;

    for (int r = boot->size - 1; r >= 0; r--) {
        const struct merak_told *its = &told[transport_rank[r]];

        if (!its->heard && (first < 0 || its->text[0] != '\0' ||
                            told[transport_rank[first]].text[0] == '\0'))
            first = r;
    }
    return first;
}

/* Who makes the others wait, if all answer. */
static void name_busy(const struct merak_boot *boot, const int *transport_rank,
                      const struct merak_told *told,
                      char text[MERAK_CULPRIT_BYTES])
{
    int busy = -1, n = 0;

    for (int r = 0; r < boot->size; r++) {
        if (strstr(told[transport_rank[r]].text, MERAK_TELL_COMPUTES) == NULL)
            continue;
        if (n++ == 0)
            busy = r;
    }
    if (n == 1)
        snprintf(text, MERAK_CULPRIT_BYTES,
                 "rank %d on %s computes and the others wait for it", busy,
                 host_of(boot, transport_rank[busy]));
}

void merak_hang_culprit(const struct merak_boot *boot,
                        const int *transport_rank,
                        const struct merak_told *told,
                        char text[MERAK_CULPRIT_BYTES])
{
    int first = first_silent(boot, transport_rank, told), silent = 0;
    int on_node = 0, peer;
    const char *why;
    char others[48] = "";

    text[0] = '\0';
    if (first < 0) {
        name_busy(boot, transport_rank, told, text);
        return;
    }
    peer = transport_rank[first];
    why = told[peer].text;
    for (int r = 0; r < boot->size; r++) {
        silent += !told[r].heard;
        if (boot->node_of[r] == boot->node_of[peer])
            on_node += told[r].heard ? boot->size : 1;
    }
    if (why[0] == '\0' && silent > 1 && silent == on_node) {
        snprintf(text, MERAK_CULPRIT_BYTES,
                 "none of the %d ranks on %s answers", silent,
                 host_of(boot, peer));
        return;
    }
    if (silent > 1)
        snprintf(others, sizeof(others), ", nor do%s %d other%s",
                 silent == 2 ? "es" : "", silent - 1, silent == 2 ? "" : "s");
    snprintf(text, MERAK_CULPRIT_BYTES, "rank %d on %s %s%s%.100s%s", first,
             host_of(boot, peer),
             strstr(why, "has ended") != NULL ? "is gone" : "does not answer",
             why[0] != '\0' ? ": " : "", why, others);
}

static void print_rank(const struct merak_trainer *t, int rank,
                       const struct merak_told *told, FILE *out)
{
    int peer = t->ranks.transport_rank[rank];
    const char *host = t->boot->hosts[t->boot->node_of[peer]];

    if (told[peer].heard)
        fprintf(out, "  rank %d on %s: %s\n", rank, host, told[peer].text);
    else
        fprintf(out, "  rank %d on %s gave no answer%s%s\n", rank, host,
                told[peer].text[0] != '\0' ? ": " : "", told[peer].text);
}

/* Ranks that gave no answer come first. */
static void print_page(const struct merak_trainer *t,
                       const struct merak_told *told,
                       const struct merak_error *err, FILE *out)
{
    char now[32] = "";
    time_t seconds = time(NULL);
    struct tm tm;

    if (localtime_r(&seconds, &tm) != NULL)
        strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%S", &tm);
    fprintf(out,
            "merak: hang report of rank %d, %s, after %" PRIu64 " steps: %s\n",
            t->ranks.logical, now, t->step, err->text);
    for (int heard = 0; heard < 2; heard++) {
        for (int r = 0; r < t->boot->size; r++) {
            if (told[t->ranks.transport_rank[r]].heard == (heard == 1))
                print_rank(t, r, told, out);
        }
    }
    fflush(out);
}

/* Add an incident with the page and the ranks that gave no answer. */
static void tell_incident(const struct merak_trainer *t,
                          const struct merak_told *told, const char *path)
{
    const char *slash = strrchr(path, '/');
    json_t *list = json_array();

    for (int r = 0; r < t->boot->size; r++) {
        int peer = t->ranks.transport_rank[r];

        if (!told[peer].heard)
            json_array_append_new(
                list,
                json_pack("[i, s]", r, t->boot->hosts[t->boot->node_of[peer]]));
    }
    merak_run_files_incident(
        t, json_pack("{s: s, s: s, s: o}", "kind", "hang", "page",
                     slash != NULL ? slash + 1 : path, "ranks", list));
}

bool merak_hang_report(struct merak_trainer *t, const struct merak_error *err,
                       char culprit[MERAK_CULPRIT_BYTES])
{
    struct merak_told *told;
    char path[PATH_MAX];
    bool ours;
    FILE *page;

    culprit[0] = '\0';
    if (t->tr == NULL || t->tr->ops->survey == NULL)
        return true;
    told = calloc((size_t)t->boot->size, sizeof(*told));
    if (told == NULL)
        return true;
    ours = t->tr->ops->survey(t->tr, told);
    if (ours) {
        merak_hang_culprit(t->boot, t->ranks.transport_rank, told, culprit);
        print_page(t, told, err, stderr);
        page = open_page(t, path, sizeof(path));
        if (page != NULL) {
            print_page(t, told, err, page);
            fclose(page);
            tell_incident(t, told, path);
        }
    }
    free(told);
    return ours;
}
