/* SPDX-License-Identifier: Apache-2.0 */
/* examination.c - prints the findings as text and as JSON */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "placement/hostlist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The column where texts begin, and the last column. */
enum { TEXT_COLUMN = 25, LAST_COLUMN = 79 };

static const char *const words[] = {"ok", "note", "warning", "error"};
/* Green, none, yellow, red. */
static const char *const colors[] = {"\033[32m", "", "\033[33m", "\033[31m"};

/* Print words from `column` on; lines after the first are indented. */
static void print_wrapped(const char *text, int column, int indent, FILE *out)
{
    bool first = true;

    while (*text != '\0') {
        int n = (int)strcspn(text, " ");

        if (!first && column + 1 + n > LAST_COLUMN) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            column += fprintf(out, " ");
        }
        column += fprintf(out, "%.*s", n, text);
        text += n + (text[n] == ' ');
        first = false;
    }
    fputc('\n', out);
}

/* " (n[1-2])"; "" if it holds for all nodes. */
static void nodes_text(const struct merak_examination *ex,
                       const struct merak_placed_finding *p, char *text,
                       size_t size)
{
    FILE *out;
    char **name;

    text[0] = '\0';
    if (p->n_nodes == ex->n_nodes || p->n_nodes == 0)
        return;
    name = calloc((size_t)p->n_nodes, sizeof(*name));
    out = fmemopen(text, size, "w");
    if (name != NULL && out != NULL) {
        for (int i = 0; i < p->n_nodes; i++)
            name[i] = (char *)(uintptr_t)ex->hosts[p->node[i]];
        fputs(" (", out);
        merak_hostlist_fold(out, name, p->n_nodes);
        fputc(')', out);
    }
    if (out != NULL)
        fclose(out);
    text[size - 1] = '\0';
    free(name);
}

/* Healthy nodes are not listed one by one: of an area's OK findings only those
 * of the first node are printed. */
static bool is_repeated(const struct merak_examination *ex, int at)
{
    const struct merak_finding *f = &ex->placed[at].finding;
    const struct merak_placed_finding *p = &ex->placed[at];

    for (int i = 0; i < at && f->level == MERAK_FINDING_OK; i++) {
        const struct merak_placed_finding *q = &ex->placed[i];

        if (q->finding.level == f->level &&
            strcmp(q->finding.area, f->area) == 0 && q->node[0] != p->node[0])
            return true;
    }
    return false;
}

static void print_one(const struct merak_examination *ex, int at, bool color,
                      FILE *out)
{
    const struct merak_finding *f = &ex->placed[at].finding;
    char nodes[1024], text[sizeof(f->text) + sizeof(nodes)];

    nodes_text(ex, &ex->placed[at], nodes, sizeof(nodes));
    snprintf(text, sizeof(text), "%s%s", f->text, nodes);
    fprintf(out, "  %s%-8s%s %-14s", color ? colors[f->level] : "",
            words[f->level], color ? "\033[0m" : "", f->area);
    print_wrapped(text, TEXT_COLUMN, TEXT_COLUMN, out);
    if (f->fix[0] != '\0') {
        fprintf(out, "%*s", TEXT_COLUMN, "fix: ");
        print_wrapped(f->fix, TEXT_COLUMN, TEXT_COLUMN, out);
    }
}

static int count_level(const struct merak_examination *ex,
                       enum merak_finding_level level)
{
    int n = 0;

    for (int i = 0; i < ex->n; i++)
        n += ex->placed[i].finding.level == level;
    return n;
}

void merak_examination_print(const struct merak_examination *ex, bool color,
                             FILE *out)
{
    int errors = count_level(ex, MERAK_FINDING_ERROR);
    int warnings = count_level(ex, MERAK_FINDING_WARNING);

    fprintf(out, "%d task%s on ", ex->tasks, ex->tasks == 1 ? "" : "s");
    merak_hostlist_fold(out, (char *const *)(uintptr_t)ex->hosts, ex->n_nodes);
    fputc('\n', out);
    for (int level = MERAK_FINDING_ERROR; level >= MERAK_FINDING_OK; level--) {
        for (int i = 0; i < ex->n; i++) {
            if ((int)ex->placed[i].finding.level == level &&
                !is_repeated(ex, i))
                print_one(ex, i, color, out);
        }
    }
    fprintf(out, "%d error%s, %d warning%s\n", errors, errors == 1 ? "" : "s",
            warnings, warnings == 1 ? "" : "s");
}

static json_t *finding_json(const struct merak_examination *ex,
                            const struct merak_placed_finding *p)
{
    const struct merak_finding *f = &p->finding;
    json_t *nodes = json_array(), *object;

    for (int i = 0; i < p->n_nodes; i++)
        json_array_append_new(nodes, json_string(ex->hosts[p->node[i]]));
    object = json_pack("{s: s, s: s, s: s, s: o}", "level", words[f->level],
                       "area", f->area, "text", f->text, "nodes", nodes);
    if (f->fix[0] != '\0')
        json_object_set_new(object, "fix", json_string(f->fix));
    return object;
}

json_t *merak_examination_json(const struct merak_examination *ex)
{
    json_t *nodes = json_array(), *found = json_array();

    for (int i = 0; i < ex->n_nodes; i++)
        json_array_append_new(nodes, json_string(ex->hosts[i]));
    for (int i = 0; i < ex->n; i++)
        json_array_append_new(found, finding_json(ex, &ex->placed[i]));
    return json_pack("{s: s, s: s, s: i, s: o, s: o, s: i}", "format",
                     "merak-doctor", "version", PACKAGE_VERSION, "tasks",
                     ex->tasks, "nodes", nodes, "findings", found, "exit_code",
                     merak_examination_code(ex));
}
