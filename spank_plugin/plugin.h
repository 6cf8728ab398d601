/* SPDX-License-Identifier: Apache-2.0 */
/* spank_plugin/plugin.h - internal to the plugin */
#ifndef MERAK_SPANK_PLUGIN_H
#define MERAK_SPANK_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/placement.h"

/* srun's exit code for a refused request, the same as the runtime's
 * MERAK_EXIT_CONFIG (the plugin does not link the runtime). */
enum { EXIT_REFUSED = 66 };

/* From srun to slurmstepd.  The prefix preserves it under --export=NONE. */
#define PLAN_VARIABLE "SLURM_MERAK_PLAN"
/* The same for the requested settings ("wishes"): SLURM_MERAK_TP and the like.
 * A task without a plan gets these instead. */
#define WISH_PREFIX "SLURM_"
/* Instead of a plan: every task exits with EXIT_REFUSED at once. */
#define PLAN_REFUSED "refused"

enum setting {
    SET_TP,
    SET_EP,
    SET_PP,
    SET_DP,
    SET_CP,
    SET_ORDER,
    SET_TP_DOMAIN,
    SET_PLAN,
    SET_LINKS,
    SET_MAP,
    SET_ENV,
    SET_COUNT
};

/* Where a setting comes from; a later source overrides an earlier one. */
enum source {
    FROM_NOWHERE,
    FROM_SITE,      /* plugstack.conf */
    FROM_ENV,       /* MERAK_* */
    FROM_INHERITED, /* sbatch or salloc, through the environment */
    FROM_LINE,
};

enum {
    NAME_LONGEST = 64,     /* a variable */
    VALUE_MAX = 1024,      /* a path, for --merak-plan and --merak-map */
    LONGEST_PLAN = 240000, /* Slurm's environment buffer is 256 KiB */
};

struct settings {
    struct {
        enum source source;
        char text[VALUE_MAX];
    } value[SET_COUNT];
    bool active;  /* something other than the site's defaults was given; if
                     not, the plugin does nothing at all */
    bool refused; /* error has the first mistake, reported when that is safe */
    struct merak_error error;
};

/* --- settings.c -------------------------------------------------------------
 */

/* "merak-tp" and the like; usage as for spank_option. */
const char *setting_option(enum setting setting);
const char *setting_arginfo(enum setting setting);
const char *setting_usage(enum setting setting);
/* "MERAK_TP" and the like; NULL if there is none. */
const char *setting_variable(enum setting setting);
/* "SLURM_MERAK_TP" and the like, for a setting that has a variable. */
void setting_wish(enum setting setting, char name[NAME_LONGEST]);

/* Store a value; a mistake in it is recorded, not returned.  once: a second
 * value from the same source must be the same. */
void settings_note(struct settings *s, enum setting setting, enum source source,
                   const char *text, bool once);
/* "tp=8", from plugstack.conf. */
void settings_note_site(struct settings *s, const char *argument);
/* MERAK_TP and the like. */
void settings_note_environment(struct settings *s);
/* The text of a setting, "" if it is not given. */
const char *settings_text(const struct settings *s, enum setting setting);
/* The degrees and the order; *is_auto: tp or pp is left to the program. */
void settings_input(const struct settings *s,
                    struct merak_placement_input *input, bool *is_auto);
/* In sbatch and salloc: export options of the command line as MERAK_*, for the
 * script or the shell. */
void settings_export(const struct settings *s);

/* In srun: export the settings as wishes, for all tasks of all components of a
 * step, and empty those left over from another step. */
void settings_pass(const struct settings *s);

/* Use a plan file's degrees and order.  MERAK_ERR_CONFIG if a setting from the
 * same or a stronger source differs. */
struct plan_head;
enum merak_status settings_apply_plan(const struct settings *s,
                                      const struct plan_head *head,
                                      struct merak_placement_input *input,
                                      struct merak_error *err) MERAK_CHECKED;

/* --- plan_head.c ------------------------------------------------------------
 */

struct plan_head {
    int tp, pp, dp, cp, ep; /* dp 0: what the tasks leave */
    enum merak_order order;
    uint64_t pp_bytes, dp_bytes; /* 0: not known */
    char ranks[512]; /* of unlike stages, "2x4-8x1"; else "" */
    char islands[2048]; /* of nodes, "n[5-8];n[1-4]"; else "" */
};

/* MERAK_ERR_CONFIG if there is no plan at `path`. */
enum merak_status plan_head_read(const char *path, struct plan_head *head,
                                 struct merak_error *err) MERAK_CHECKED;

/* links_head.c: the nodes of a file's islands, in its order, "n[1-4];n[5-8]".
 * MERAK_ERR_CONFIG if it has none, or not their names. */
enum merak_status links_head_read(const char *path, char *islands, size_t bytes,
                                  struct merak_error *err) MERAK_CHECKED;

/* --- request.c --------------------------------------------------------------
 */

struct request {
    bool in_allocation; /* of somebody else: this srun does not make the job */
    int tasks;          /* 0: not known */
    int per_node;       /* all nodes have so many; 0: not known */
    int nodes;          /* that each get a task; 0: not known */
};

/* Ask srun, once it has read its options, and before it makes an allocation. */
void request_read(struct request *request);

/* --- site.c -----------------------------------------------------------------
 */

/*
 * The layout of an existing step, and the switch tree, from slurmctld.
 * MERAK_ERR_UNSUPPORTED if this Slurm does not provide it; without a tree the
 * paths are "".
 */
enum merak_status site_of_step(uint32_t job, uint32_t step,
                               struct merak_site *site,
                               struct merak_error *err) MERAK_CHECKED;

#endif
