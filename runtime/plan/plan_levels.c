/* SPDX-License-Identifier: Apache-2.0 */
/* plan_levels.c - the levels of links that `merak plan --levels` names */
#include "config.h"

#include "runtime/plan/plan_levels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of the list. */
struct given {
    char name[sizeof((struct merak_level){0}.name)];
    long ranks;
    double reduced; /* what leaves is 1 part in so many; 0: not given */
};

static enum merak_status bad_text(const char *at, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--levels: expected NAME:RANKS[:N],.., a node first, up "
                      "to %d levels with names of up to %zu characters, as in "
                      "node:8,leaf:256:2; got \"%.60s\"",
                      MERAK_LEVELS - 1,
                      sizeof((struct given){.ranks = 0}.name) - 1, at);
}

/* Read one and move *at_p to the comma or the end behind it. */
static bool next(const char **at_p, struct given *given)
{
    const char *at = *at_p, *colon = strchr(at, ':');
    size_t n = colon != NULL ? (size_t)(colon - at) : 0;
    char *end;

    *given = (struct given){.ranks = 0};
    if (n == 0 || n >= sizeof(given->name) || memchr(at, ',', n) != NULL)
        return false;
    memcpy(given->name, at, n);
    given->ranks = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || given->ranks < 1 || given->ranks > 65535)
        return false;
    if (*end == ':') {
        at = end + 1;
        given->reduced = strtod(at, &end);
        if (end == at || !(given->reduced >= 1 && given->reduced <= 1e12))
            return false;
    }
    *at_p = end;
    return *end == '\0' || *end == ',';
}

/* Levels that a device without one of this name may have, too, as fast as its
 * first or its last. */
static const struct {
    const char *name;
    bool first;
} usual[] = {{"node", true},  {"link", true},   {"nvl", true}, {"rack", true},
             {"leaf", false}, {"spine", false}, {"pod", false}};

/* The device's level whose rates one of this name has, or NULL. */
static const struct merak_level *find(const struct merak_links *links,
                                      const char *name)
{
    int last = merak_links_last(links);

    for (int l = 0; l <= last; l++) {
        if (strcmp(links->level[l].name, name) == 0)
            return &links->level[l];
    }
    for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++) {
        if (strcmp(usual[i].name, name) == 0)
            return &links->level[usual[i].first ? 0 : last];
    }
    return NULL;
}

static enum merak_status no_level(const struct merak_device *device,
                                  const char *name, struct merak_error *err)
{
    char names[96] = "";
    int last = merak_links_last(&device->links);

    for (int l = 0; l <= last; l++) {
        size_t n = strlen(names);

        snprintf(names + n, sizeof(names) - n, "%s%s", l > 0 ? ", " : "",
                 device->links.level[l].name);
    }
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--levels: %s has no level \"%s\"; expected one of its "
                      "own, %s, or node, nvl or rack, as fast as its first, or "
                      "leaf, pod or spine, as fast as its last",
                      device->name, name, names);
}

/* A level of this device as it was given. */
static enum merak_status make(const struct merak_device *device,
                              const struct given *given, int at,
                              struct merak_level *level,
                              struct merak_error *err)
{
    const struct merak_links *links = &device->links;
    const struct merak_level *like =
        at == 0 ? &links->level[0] : find(links, given->name);

    if (like == NULL)
        return no_level(device, given->name, err);
    *level = *like;
    if (like->ranks > 0)
        level->way_bytes_per_s *= (double)given->ranks / like->ranks;
    memcpy(level->name, given->name, sizeof(level->name));
    level->ranks = (int)given->ranks;
    return MERAK_OK;
}

/* What domains can send out.  Where levels are as fast as inside a node, that
 * of nodes is what their adapters do, which all of a domain use together. */
static void take_ways(struct merak_links *links, int n, const double *reduced)
{
    int near = merak_links_near(links);

    for (int l = 0; l < n; l++) {
        struct merak_level *level = &links->level[l];

        if (l > 0 && l < near && reduced[l - 1] == 0 &&
            level[-1].way_bytes_per_s > 0) {
            level->way_bytes_per_s =
                level[-1].way_bytes_per_s * level->ranks / level[-1].ranks;
            level[-1].way_bytes_per_s = 0;
        }
        if (reduced[l] > 0)
            level->way_bytes_per_s =
                level->ranks * level[1].bytes_per_s / reduced[l];
    }
}

enum merak_status plan_levels_set(const char *text, struct merak_device *device,
                                  struct merak_error *err)
{
    struct merak_links links = device->links;
    double reduced[MERAK_LEVELS];
    const char *at = text;
    int n = 0;

    memset(links.level, 0, sizeof(links.level));
    for (;;) {
        const char *from = at;
        struct given given;

        if (n == MERAK_LEVELS - 1 || !next(&at, &given))
            return bad_text(from, err);
        if (make(device, &given, n, &links.level[n], err) != MERAK_OK)
            return MERAK_ERR_CONFIG;
        reduced[n++] = given.reduced;
        if (*at == '\0')
            break;
        at++;
    }
    links.level[n] = device->links.level[merak_links_last(&device->links)];
    take_ways(&links, n, reduced);
    if (merak_error_as_config(merak_links_check(&links, err), err) !=
        MERAK_OK) {
        merak_error_wrap(err, "--levels");
        return MERAK_ERR_CONFIG;
    }
    device->links = links;
    return MERAK_OK;
}

const char *plan_levels_text(const struct merak_device *device,
                             char text[PLAN_LEVELS_TEXT])
{
    const struct merak_links *links = &device->links;
    int last = merak_links_last(links) - (links->islands != NULL);
    size_t n = 0;

    text[0] = '\0';
    for (int l = 0; last > 1 && l < last; l++) {
        const struct merak_level *level = &links->level[l];
        double most = level->ranks * level[1].bytes_per_s;

        n += (size_t)snprintf(text + n, PLAN_LEVELS_TEXT - n, "%s%s:%d",
                              l > 0 ? "," : "", level->name, level->ranks);
        if (level->way_bytes_per_s > 0 && level->way_bytes_per_s <= most)
            n += (size_t)snprintf(text + n, PLAN_LEVELS_TEXT - n, ":%.17g",
                                  most / level->way_bytes_per_s);
    }
    return text;
}
