/* SPDX-License-Identifier: Apache-2.0 */
/* island_ways_file.c - read files of islands, as island_ways.h describes them
 */
#include "config.h"

#include "partitioner/device/island_ways.h"

#include "base/open.h"
#include "base/output.h"

#include <ctype.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *path;
    bool bare; /* no ways are needed */
    struct merak_islands *islands;
    struct merak_error *err;
};

static const char *const file_fields[] = {"islands", "between", "notes", NULL};
static const char *const island_fields[] = {"name", "nodes", NULL};
static const char *const way_fields[] = {"bytes_per_s", "latency_s", NULL};

/* A misspelled field would otherwise be ignored. */
static enum merak_status check_fields(const struct reader *r, const json_t *in,
                                      const char *where,
                                      const char *const *fields)
{
    json_t *object = (json_t *)(uintptr_t)in, *value;
    const char *name;

    if (!json_is_object(in))
        return merak_fail(r->err, MERAK_ERR_FORMAT, "%s: %s is not an object",
                          r->path, where);
    json_object_foreach(object, name, value)
    {
        int i = 0;

        while (fields[i] != NULL && strcmp(fields[i], name) != 0)
            i++;
        if (fields[i] == NULL)
            return merak_fail(r->err, MERAK_ERR_FORMAT,
                              "%s: unknown field \"%.40s\" in %s", r->path,
                              name, where);
    }
    return MERAK_OK;
}

/* --- islands -------------------------------------------------------------- */

static int find(const struct merak_islands *islands, const char *name)
{
    for (int i = 0; name != NULL && i < islands->n; i++) {
        if (strcmp(islands->island[i].name, name) == 0)
            return i;
    }
    return -1;
}

/* How many names "a[1-3,7],b" has, as far as a count needs it; 0: it is not
 * one.  Who places ranks expands it. */
static int count_hosts(const char *text)
{
    long n = 0, inside = 0, range;
    const char *at = text;

    while (*at != '\0' && n <= 65535) {
        bool named = false;

        for (inside = 1; *at != '\0' && *at != ','; at++) {
            named = true;
            if (*at != '[') {
                if (!isalnum((unsigned char)*at) && strchr("-._", *at) == NULL)
                    return 0;
                continue;
            }
            range = 0;
            do {
                char *end;
                long from = strtol(at + 1, &end, 10), to = from;

                if (!isdigit((unsigned char)at[1]))
                    return 0;
                if (*end == '-' && isdigit((unsigned char)end[1]))
                    to = strtol(end + 1, &end, 10);
                if (to < from || to - from > 65535)
                    return 0;
                range += to - from + 1;
                at = end;
            } while (*at == ',');
            if (*at != ']')
                return 0;
            inside *= range;
        }
        if (!named || inside > 65535)
            return 0;
        n += inside;
        if (*at == ',' && *++at == '\0')
            return 0;
    }
    return n <= 65535 ? (int)n : 0;
}

static enum merak_status read_nodes(const struct reader *r, const json_t *in,
                                    struct merak_island *island)
{
    const json_t *nodes = json_object_get(in, "nodes");
    const char *hosts = json_string_value(nodes);
    json_int_t n = json_integer_value(nodes);

    if (hosts != NULL && strlen(hosts) > MERAK_ISLAND_HOSTS)
        return merak_fail(r->err, MERAK_ERR_FORMAT,
                          "%s: names of nodes of island \"%s\" are %zu "
                          "characters; expected up to %d",
                          r->path, island->name, strlen(hosts),
                          MERAK_ISLAND_HOSTS);
    if (hosts != NULL)
        n = count_hosts(hosts);
    if (n < 1 || n > 65535)
        return merak_fail(r->err, MERAK_ERR_FORMAT,
                          "%s: nodes of island \"%s\" are %s%.60s%s; expected "
                          "their number, or their names as \"n[1-4]\"",
                          r->path, island->name, hosts != NULL ? "\"" : "",
                          hosts != NULL   ? hosts
                          : nodes == NULL ? "missing"
                                          : "of another kind or out of range",
                          hosts != NULL ? "\"" : "");
    island->nodes = (int)n;
    if (hosts != NULL)
        island->hosts = strdup(hosts);
    return hosts != NULL && island->hosts == NULL
               ? merak_fail_nomem(r->err, strlen(hosts))
               : MERAK_OK;
}

static enum merak_status read_island(const struct reader *r, const json_t *in)
{
    struct merak_island *island = &r->islands->island[r->islands->n];
    const char *name = json_string_value(json_object_get(in, "name"));
    enum merak_status rc = check_fields(r, in, "an island", island_fields);

    if (rc != MERAK_OK)
        return rc;
    if (name == NULL || *name == '\0' || strlen(name) >= sizeof(island->name))
        return merak_fail(r->err, MERAK_ERR_FORMAT,
                          "%s: name of an island is %.40s; expected a string "
                          "of 1 to %zu characters",
                          r->path, name == NULL ? "not a string" : name,
                          sizeof(island->name) - 1);
    if (find(r->islands, name) >= 0)
        return merak_fail(r->err, MERAK_ERR_FORMAT,
                          "%s: two islands are called \"%s\"", r->path, name);
    memcpy(island->name, name, strlen(name) + 1);
    rc = read_nodes(r, in, island);
    r->islands->n++; /* its hosts are freed with the others */
    return rc;
}

static enum merak_status read_islands(const struct reader *r, const json_t *in)
{
    const json_t *list = json_object_get(in, "islands");
    size_t n = json_array_size(list);
    enum merak_status rc = MERAK_OK;

    if (n < 2 || n > MERAK_MOST_ISLANDS)
        return merak_fail(r->err, MERAK_ERR_FORMAT,
                          "%s: field \"islands\": expected a list of 2 to %d "
                          "objects",
                          r->path, MERAK_MOST_ISLANDS);
    for (size_t i = 0; i < n && rc == MERAK_OK; i++)
        rc = read_island(r, json_array_get(list, i));
    return rc;
}

/* --- ways ----------------------------------------------------------------- */

static enum merak_status read_number(const struct reader *r, const json_t *in,
                                     const char *name, const char *const *pair,
                                     double least, double *value)
{
    const json_t *number = json_object_get(in, name);

    *value = json_number_value(number);
    if (json_is_number(number) && *value >= least && *value <= 1e30)
        return MERAK_OK;
    return merak_fail(r->err, MERAK_ERR_FORMAT,
                      "%s: %s between \"%s\" and \"%s\" is %s; expected a "
                      "number %s",
                      r->path, name, pair[0], pair[1],
                      number == NULL            ? "missing"
                      : !json_is_number(number) ? "of another kind"
                                                : "out of range",
                      least > 0 ? "above 0" : "not below 0");
}

static enum merak_status read_way(const struct reader *r, const json_t *in)
{
    struct merak_islands *islands = r->islands;
    const json_t *rates = json_array_get(in, 2);
    struct merak_island_way way;
    const char *pair[2];
    int at[2];
    enum merak_status rc;

    for (int i = 0; i < 2; i++) {
        pair[i] = json_string_value(json_array_get(in, (size_t)i));
        at[i] = find(islands, pair[i]);
        if (pair[i] == NULL || json_array_size(in) != 3)
            return merak_fail(r->err, MERAK_ERR_FORMAT,
                              "%s: a row of \"between\" is not [\"a\", \"b\", "
                              "{\"bytes_per_s\": .., \"latency_s\": ..}]",
                              r->path);
        if (at[i] < 0)
            return merak_fail(r->err, MERAK_ERR_FORMAT,
                              "%s: \"between\" names \"%.40s\", which is none "
                              "of \"islands\"",
                              r->path, pair[i]);
    }
    if (at[0] == at[1] || islands->way[at[0]][at[1]].bytes_per_s > 0)
        return merak_fail(r->err, MERAK_ERR_FORMAT,
                          "%s: the pair \"%s\", \"%s\" %s", r->path, pair[0],
                          pair[1],
                          at[0] == at[1] ? "is one island"
                                         : "is given twice; once is for both "
                                           "directions");
    rc = check_fields(r, rates, "the rates of a pair", way_fields);
    if (rc == MERAK_OK)
        rc =
            read_number(r, rates, "bytes_per_s", pair, 1e-30, &way.bytes_per_s);
    if (rc == MERAK_OK)
        rc = read_number(r, rates, "latency_s", pair, 0, &way.latency_s);
    if (rc == MERAK_OK)
        islands->way[at[0]][at[1]] = islands->way[at[1]][at[0]] = way;
    return rc;
}

static enum merak_status read_ways(const struct reader *r, const json_t *in)
{
    const json_t *list = json_object_get(in, "between");
    struct merak_islands *islands = r->islands;
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < json_array_size(list) && rc == MERAK_OK; i++)
        rc = read_way(r, json_array_get(list, i));
    for (int a = 0; a < islands->n && rc == MERAK_OK; a++) {
        islands->at[a] = a;
        for (int b = 0; b < a && rc == MERAK_OK; b++) {
            if (islands->way[a][b].bytes_per_s > 0 || r->bare)
                continue;
            rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                            "%s: \"between\" has no row of \"%s\" and \"%s\"; "
                            "there is no default",
                            r->path, islands->island[b].name,
                            islands->island[a].name);
        }
    }
    return rc;
}

/* --- the file ------------------------------------------------------------- */

static enum merak_status load(const char *path, bool bare,
                              struct merak_islands **islands_p,
                              struct merak_error *err)
{
    struct reader r = {.path = path, .bare = bare, .err = err};
    json_error_t why;
    json_t *in = NULL;
    FILE *file;
    const char *closed = merak_fopen_regular(path, &file);
    enum merak_status rc;

    if (closed != NULL)
        return merak_fail(err, MERAK_ERR_FORMAT, "%s: %s", path, closed);
    in = json_loadf(file, JSON_REJECT_DUPLICATES, &why);
    fclose(file);
    if (in == NULL)
        return merak_fail(err, MERAK_ERR_FORMAT, "%s: %s (line %d)", path,
                          why.text, why.line);
    r.islands = calloc(1, sizeof(*r.islands));
    if (r.islands == NULL) {
        rc = merak_fail_nomem(err, sizeof(*r.islands));
        goto out;
    }
    rc = check_fields(&r, in, "the file", file_fields);
    if (rc == MERAK_OK)
        rc = read_islands(&r, in);
    if (rc == MERAK_OK)
        rc = read_ways(&r, in);
    if (rc != MERAK_OK)
        goto out;
    *islands_p = r.islands;
    r.islands = NULL; /* the caller's now */
out:
    merak_islands_destroy(r.islands);
    json_decref(in);
    return rc;
}

enum merak_status merak_islands_load(const char *path,
                                     struct merak_islands **islands_p,
                                     struct merak_error *err)
{
    return load(path, false, islands_p, err);
}

enum merak_status merak_islands_load_bare(const char *path,
                                          struct merak_islands **islands_p,
                                          struct merak_error *err)
{
    return load(path, true, islands_p, err);
}

static json_t *island_object(const struct merak_island *island)
{
    return json_pack("{s:s, s:o}", "name", island->name, "nodes",
                     island->hosts != NULL ? json_string(island->hosts)
                                           : json_integer(island->nodes));
}

static json_t *file_object(const struct merak_islands *islands)
{
    json_t *list = json_array(), *between = json_array();

    for (int a = 0; a < islands->n; a++) {
        json_array_append_new(list, island_object(&islands->island[a]));
        for (int b = a + 1; b < islands->n; b++)
            json_array_append_new(
                between,
                json_pack("[s, s, {s:f, s:f}]", islands->island[a].name,
                          islands->island[b].name, "bytes_per_s",
                          islands->way[a][b].bytes_per_s, "latency_s",
                          islands->way[a][b].latency_s));
    }
    return json_pack("{s:o, s:o}", "islands", list, "between", between);
}

enum merak_status merak_islands_save(const struct merak_islands *islands,
                                     const char *path, struct merak_error *err)
{
    json_t *object = file_object(islands);
    struct merak_output out;
    enum merak_status rc = MERAK_OK;
    bool fine;

    if (object == NULL)
        return merak_fail_nomem(err, sizeof(*islands));
    rc = merak_output_open(&out, path, err);
    if (rc == MERAK_OK) {
        fine = json_dumpf(object, out.file,
                          JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0 &&
               fputc('\n', out.file) != EOF;
        rc = merak_output_close(&out, fine, err);
    }
    json_decref(object);
    return rc;
}

void merak_islands_destroy(struct merak_islands *islands)
{
    if (islands == NULL)
        return;
    for (int i = 0; i < islands->n; i++)
        free(islands->island[i].hosts);
    free(islands);
}
