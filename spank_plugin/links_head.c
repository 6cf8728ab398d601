/* SPDX-License-Identifier: Apache-2.0 */
/* links_head.c - read the nodes of islands of a file of links, in srun
 *
 * The file is JSON, {"islands": [{"name": "a", "nodes": "n[1-4]"}, ..], ..}
 * (partitioner/device/island_ways.h), and the plugin only links libc: it looks
 * for the strings "nodes" of the objects in the list "islands".  The program
 * checks the rest of the file.
 */
#include "config.h"

#include "spank_plugin/plugin.h"

#include "base/error.h"
#include "base/open.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 65536 };

/* Behind the string whose opening quote is at `at`; NULL: it has no end. */
static const char *end_of_string(const char *at)
{
    for (at++; *at != '\0'; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '"')
            return at + 1;
    }
    return NULL;
}

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* The value of a key, if the string from `at` to `end` is one; else NULL. */
static const char *value_of(const char *at, const char *end, const char *key)
{
    const char *behind = skip_space(end);

    return (size_t)(end - at) == strlen(key) + 2 &&
                   strncmp(at + 1, key, strlen(key)) == 0 && *behind == ':'
               ? skip_space(behind + 1)
               : NULL;
}

/* Add the string that begins at `at` to a list with ";" between; false: it is
 * none, or there is no room. */
static bool add(const char *at, char *islands, size_t bytes)
{
    size_t have = strlen(islands), n;
    const char *end = *at == '"' ? end_of_string(at) : NULL;

    if (end == NULL || end - at <= 2)
        return false;
    n = (size_t)(end - at) - 2;
    if (have + n + 2 > bytes)
        return false;
    if (have > 0)
        islands[have++] = ';';
    memcpy(islands + have, at + 1, n);
    islands[have + n] = '\0';
    return true;
}

/* How many islands have their nodes' names; -1: one has not. */
static int find_nodes(const char *text, char *islands, size_t bytes)
{
    bool inside = false;
    int depth = 0, found = 0;

    for (const char *at = text, *end, *value; *at != '\0'; at = end) {
        end = at + 1;
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        inside = inside && !(*at == ']' && depth == 1);
        if (*at != '"')
            continue;
        end = end_of_string(at);
        if (end == NULL)
            return found;
        inside = inside || (depth == 1 && value_of(at, end, "islands") != NULL);
        value = inside && depth == 3 ? value_of(at, end, "nodes") : NULL;
        if (value == NULL)
            continue;
        if (!add(value, islands, bytes))
            return -1;
        found++;
    }
    return found;
}

enum merak_status links_head_read(const char *path, char *islands, size_t bytes,
                                  struct merak_error *err)
{
    static char text[MOST_BYTES];
    const char *why;
    FILE *in;
    size_t n;
    int found;

    why = merak_fopen_regular(path, &in);
    if (why != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG, "--merak-links: %s: %s", path,
                          why);
    n = fread(text, 1, sizeof(text) - 1, in);
    fclose(in);
    text[n] = '\0';
    islands[0] = '\0';
    found = find_nodes(text, islands, bytes);
    if (found >= 2)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG, "--merak-links: %s %s", path,
                      found < 0 ? "has an island without the names of its "
                                  "nodes, \"nodes\": \"n[1-4]\""
                                : "has no list \"islands\" of two or more, as "
                                  "for `merak plan --links`");
}
