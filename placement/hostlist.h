/* SPDX-License-Identifier: Apache-2.0 */
/* placement/hostlist.h - Slurm's hostlist expressions, "n[1-4,07],login"
 *
 * Every name has at most MERAK_NAME_MAX characters.  Safe on hostile text.
 */
#ifndef MERAK_PLACEMENT_HOSTLIST_H
#define MERAK_PLACEMENT_HOSTLIST_H

#include <stdio.h>

#include "merak/status.h"

enum { MERAK_NAME_MAX = 255 };

struct merak_hostlist {
    int n;
    char **name;
};

/*
 * Expand text, in its order, duplicates kept.
 *
 *   max   in   more names than this are an error
 *   list  out  freed by merak_hostlist_fini(); unchanged on failure
 *
 * MERAK_ERR_FORMAT describes what is wrong with the text.
 */
enum merak_status merak_hostlist_expand(const char *text, int max,
                                        struct merak_hostlist *list,
                                        struct merak_error *err) MERAK_CHECKED;
void merak_hostlist_fini(struct merak_hostlist *list);

/* Write the hostlist of n names to out, in their order; it expands to exactly
 * name[].  Errors are left to ferror(out). */
void merak_hostlist_fold(FILE *out, char *const *name, int n);

/* As strcmp(), but runs of digits compare as numbers: n9 < n10. */
int merak_name_compare(const char *a, const char *b);

#endif
