/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/plan_options.h - options of `merak plan` */
#ifndef MERAK_RUNTIME_PLAN_OPTIONS_H
#define MERAK_RUNTIME_PLAN_OPTIONS_H

#include "io/plan_file.h"
#include "partitioner/device/cost_model.h"
#include "partitioner/device/device.h"
#include "partitioner/device/island_ways.h"
#include "partitioner/plan/choice.h"
#include "partitioner/search/search.h"
#include "runtime/plan/plan_emit.h"
#include "runtime/plan/plan_run.h"
#include "runtime/train/param_rules.h"

/* The most numbers of nodes, devices, or saved plans, in a table. */
enum { PLAN_MOST_NODES = 16, PLAN_MOST_DEVICES = 8, PLAN_MOST_SAVED = 16 };

enum plan_transport {
    PLAN_TRANSPORT_AUTO, /* nccl between GPUs */
    PLAN_TRANSPORT_UCX,
    PLAN_TRANSPORT_NCCL
};

/* A field for each option: the table in plan_options.c points to them. */
struct plan_options {
    const struct merak_plan_program *own; /* the program to plan, or NULL: */
    const char *model;                    /* config.json, or its folder */
    struct {
        int unknown;        /* enum merak_hf_unknown */
        size_t encoder_seq; /* 0: by the decoder's */
    } config;               /* how that is read */
    const char *svg, *html, *json;        /* files, "-" for standard output */
    const char *backend;
    const char *device, *what_if;
    int transport;            /* enum plan_transport */
    bool reduce_fast;         /* NCCL's reductions */
    size_t seq, global_batch; /* 0: not given */
    int nodes, ranks_per_node;
    struct { /* --nodes 4,8, --device a100,h100: all of them */
        int n_nodes, nodes[PLAN_MOST_NODES];
        int n_devices;
        const char *device[PLAN_MOST_DEVICES];
        char *words; /* that they point to */
        struct {     /* --nodes 4:h100,2:a100 */
            int n, nodes[MERAK_MAX_KINDS];
            const char *name[MERAK_MAX_KINDS];
            char *words; /* that they point to */
        } kinds;
    } several;
    double search_seconds; /* 0: as long as it takes */
    int emit;              /* enum plan_emit */
    bool emit_anyway;      /* though the trainer does not have all of it */
    struct plan_cost run;  /* --tokens, --price */
    double expert_load;    /* 0: not given */
    const char *print;     /* --print */
    unsigned phases;       /* that it and --program ask for */
    bool program, help;
    bool print_device;           /* print the device and do nothing else */
    struct merak_choices choice; /* as given; its lists are owned */
    struct merak_plan plan; /* of the choices, unless one is searched for */
    struct merak_param_rules rules;
    struct merak_lora lora;
    struct merak_objective objective;
    bool doc_mask;
    double memory_bytes; /* 0: not given */
    double unit_ms;      /* 0: times of the cost model */
    struct merak_cost_model cost;
    struct {
        bool dtype, cost, nodes, backend;
        bool no_zero1; /* as zero 0 */
        int argc;      /* all words, borrowed */
        char *const *argv;
    } given;
    bool search; /* choices that were not given are searched for */
    struct {     /* but for the first of stages that are listed, whose costs
                    borrow from it; listed.c */
        int rack_nodes;     /* 0: not given */
        const char *levels; /* of links; NULL: not given */
        const char *links;  /* the file of islands; NULL: not given */
        struct merak_islands *islands;
        bool is_known;
        struct merak_device device; /* of several kinds, what all can do: */
        struct merak_device kind[MERAK_MAX_KINDS];
    } machine;
    struct {       /* --plan; plan_saved.c */
        int n, at; /* .. and which one's choices are above */
        const char *path[PLAN_MOST_SAVED];
        struct merak_plan_file *file[PLAN_MOST_SAVED];
        int ranks_per_node; /* the option; 0: not given */
    } saved;
    char *words; /* what_if cut into words */
};

/* MERAK_ERR_CONFIG names the option, what was given and what was expected;
 * plan_options_fini() must be called even then. */
enum merak_status plan_options_parse(int argc, char **argv,
                                     const struct merak_plan_program *own,
                                     struct plan_options *opt,
                                     struct merak_error *err) MERAK_CHECKED;
void plan_options_fini(struct plan_options *opt);
void plan_options_help(const struct merak_plan_program *own);
/* run_cost.c: --tokens. */
enum merak_status plan_tokens_set(void *target, const char *text,
                                  struct merak_error *err) MERAK_CHECKED;
/* uneven_load.c: --expert-load fits the other options. */
enum merak_status plan_load_check(const struct plan_options *opt,
                                  struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_CONFIG if --reduce fast is given to a plan whose transport is not
 * from accelerator to accelerator. */
enum merak_status
plan_options_check_reduce(const struct plan_options *opt, bool direct,
                          struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_CONFIG if `lost` lines said what another trainer does not have, and
 * the options do not take the rest anyway. */
enum merak_status plan_emit_status(const struct plan_options *opt, int lost,
                                   struct merak_error *err) MERAK_CHECKED;
/* Is text printed on standard output?  Not if a file goes there. */
bool plan_options_has_text(const struct plan_options *opt);

#endif
