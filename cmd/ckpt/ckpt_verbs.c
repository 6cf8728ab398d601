/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_verbs.c - functions shared by the verbs of `merak ckpt` */
#include "config.h"

#include "cmd/ckpt/ckpt_verbs.h"

#include "base/error.h"
#include "cmd/finish.h"
#include "cmd/json_line.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* --- command lines ----------------------------------------------------------
 */

int ckpt_parse(const struct merak_option_table *table, void *target, int argc,
               char **argv, int least, int most, const char *what,
               struct ckpt_words *words)
{
    const char *verb = argv[0];
    struct merak_error err;
    bool help = false;
    int n;

    *words = (struct ckpt_words){{NULL}};
    if (merak_options_words(table, false, &argc, argv, target, &help, &err) !=
        MERAK_OK)
        return merak_cmd_misused("ckpt", "%s: %s", verb, err.text);
    n = argc - 1;
    if (n < least)
        return merak_cmd_misused("ckpt", "%s needs %s", verb, what);
    if (n > most)
        return merak_cmd_misused("ckpt", "%s: one argument too many, \"%s\"",
                                 verb, argv[1 + most]);
    for (int i = 0; i < n; i++) {
        words->word[i] = argv[1 + i];
        if (strlen(words->word[i]) >= MERAK_DIR_MAX)
            return merak_cmd_misused("ckpt", "%s: path too long", verb);
    }
    return MERAK_EXIT_DONE;
}

/* --- output -----------------------------------------------------------------
 */

static const char *name_of(const char *verb, char name[32])
{
    snprintf(name, 32, "ckpt %s", verb);
    return name;
}

int ckpt_failed(const char *verb, enum merak_status rc,
                const struct merak_error *err)
{
    char name[32];
    int code = merak_cmd_failed(name_of(verb, name), rc, err);

    /* the file needs something unsupported */
    return rc == MERAK_ERR_UNSUPPORTED ? MERAK_EXIT_DATA : code;
}

int ckpt_flushed(const char *verb, int code)
{
    char name[32];

    return merak_cmd_flush(name_of(verb, name), code);
}

int ckpt_flushed_json(const char *verb, json_t *root, int code)
{
    char name[32];

    return merak_cmd_flush_json(name_of(verb, name), root, code);
}

const char *ckpt_size_text(char *buf, uint64_t bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    int u = 0;

    while (value >= 999.5 && u < 5) {
        value /= 1000;
        u++;
    }
    snprintf(buf, 16, u == 0 || value >= 99.5 ? "%.0f %s" : "%.1f %s", value,
             unit[u]);
    return buf;
}

uint64_t ckpt_total_bytes(const struct merak_ckpt_manifest *mf)
{
    uint64_t total = mf->master.bytes;

    for (int i = 0; i < mf->n_shards; i++)
        total += mf->shard[i].bytes;
    return total;
}

const char *ckpt_time_text(char *buf, const char *dir, bool iso)
{
    char path[PATH_MAX];
    struct stat st;
    struct tm tm;

    if (stat(merak_path(path, dir, MERAK_CKPT_COMMITTED), &st) != 0 ||
        (iso ? gmtime_r(&st.st_mtime, &tm) : localtime_r(&st.st_mtime, &tm)) ==
            NULL ||
        strftime(buf, 32, iso ? "%Y-%m-%dT%H:%M:%SZ" : "%Y-%m-%d %H:%M", &tm) ==
            0)
        return "?";
    return buf;
}
