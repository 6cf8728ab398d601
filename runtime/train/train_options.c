/* SPDX-License-Identifier: Apache-2.0 */
/* train_options.c - the trainer's options: one table parses and documents them
 */
#include "config.h"

#include "runtime/train/train_options.h"
#include "runtime/train/phases.h"

#include "base/error.h"
#include "base/options.h"
#include "base/rng.h"
#include "io/h5_built_in.h"
#include "io/lora_record.h"
#include "kernels/kernels.h"
#include "partitioner/search/search.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct merak_train_options, field)

/* The choices of a run; cuts are even, and the launch orders ranks. */
#define CHOICES(first, last) MERAK_CHOICE_ROWS(run, first, last, AT(choice))
/* The first row of a group in the help. */
#define GROUP_OF(first, last, heading) \
    MERAK_CHOICE_GROUP(run, first, last, AT(choice), heading)

static enum merak_status set_rule(void *target, enum merak_param_rule_kind kind,
                                  const char *text, struct merak_error *err)
{
    struct merak_train_options *o = target;

    return merak_param_rules_add(&o->optimizer.rules, kind, text, err);
}

static enum merak_status set_no_decay(void *target, const char *text,
                                      struct merak_error *err)
{
    return set_rule(target, MERAK_NO_DECAY, text, err);
}

static enum merak_status set_lr_scale(void *target, const char *text,
                                      struct merak_error *err)
{
    return set_rule(target, MERAK_LR_SCALE, text, err);
}

static enum merak_status set_freeze(void *target, const char *text,
                                    struct merak_error *err)
{
    return set_rule(target, MERAK_FREEZE, text, err);
}

static const struct merak_option rows[] = {
    {"data", MERAK_OPTION_TEXT, AT(data.files),
     .about = "token files: PREFIX, or \"W1 PREFIX1 W2 PREFIX2 ..\" (required)",
     .arg = "PREFIX", .group = "data"},
    {"seq", MERAK_OPTION_SIZE, AT(seq),
     .about = "tokens of a sequence (256, or the model's if fewer)", .least = 1,
     .most = INT_MAX, .given = AT(given.seq)},
    {"valid-fraction", MERAK_OPTION_REAL, AT(data.valid_fraction),
     .about = "tail of the data held out for validation (0.05)"},
    {"packing", MERAK_OPTION_WORD, AT(data.packing),
     .about = "documents into sequences: whole ones that fit best, or laid end "
              "to end (auto: best-fit where `merak data pack` marked answers)",
     .words = "auto|stream|best-fit"},
    {"doc-mask", MERAK_OPTION_YES, AT(data.doc_mask),
     .about = "documents of a sequence do not see each other, and each begins "
              "at position 0"},
    {"corrupt", MERAK_OPTION_TEXT, AT(data.corrupt_as),
     .about = "hide tokens to be predicted: mask:0.15, this share of single "
              "ones; spans:0.15,3, in spans of a mean length (auto: as the "
              "model's inputs ask for)",
     .arg = "KIND"},
    {"mask-id", MERAK_OPTION_INT, AT(data.mask_id),
     .about = "id of the token that hides others (auto: that of --model's "
              "tokenizer)",
     .words = "auto", .most = INT_MAX},
    {"sentinel-id", MERAK_OPTION_INT, AT(data.sentinel_id),
     .about = "id of the token in the place of the first span; that of the "
              "next is one less (auto: likewise)",
     .words = "auto", .most = INT_MAX},
    MERAK_OBJECTIVE_OPTIONS(AT(optimizer.objective)),
    {"eval-every", MERAK_OPTION_INT, AT(data.eval_every),
     .about = "steps between validations; 0: only at the end (0)", .most = 1e9},
    {"eval-samples", MERAK_OPTION_COUNT, AT(data.eval_samples),
     .about = "held-out sequences of a validation; 0: no validation (64)"},
    GROUP_OF(MICRO_BATCH, MICRO_BATCH, "batch and length"),
    {"global-batch", MERAK_OPTION_SIZE, AT(global_batch),
     .about = "sequences in a step, over all replicas (8)", .least = 1,
     .most = INT_MAX, .given = AT(given.global_batch)},
    {"steps", MERAK_OPTION_COUNT, AT(steps),
     .about = "total optimizer steps (100)", .least = 1},
    {"max-seconds", MERAK_OPTION_REAL, AT(max_seconds),
     .about = "save and exit 75 after this time; 0: never (0)"},
    {"lr", MERAK_OPTION_FLOAT, AT(optimizer.lr),
     .about = "peak learning rate (3e-4)", .group = "optimizer"},
    {"min-lr", MERAK_OPTION_FLOAT, AT(optimizer.min_lr),
     .about = "last learning rate (lr / 10)"},
    {"warmup", MERAK_OPTION_COUNT, AT(optimizer.warmup),
     .about = "warm-up steps (0)"},
    {"lr-schedule", MERAK_OPTION_WORD, AT(optimizer.lr_shape),
     .about = "learning rate after warm-up (cosine)",
     .words = "cosine|linear|constant|wsd"},
    {"decay-share", MERAK_OPTION_REAL, AT(optimizer.decay_share),
     .about = "wsd: part of all steps, at their end, in which the learning "
              "rate decays (0.1)",
     .most = 1, .positive = true},
    {"no-decay", MERAK_OPTION_CALL,
     .about = "no weight decay of parameters whose names match, as *.wte.*; "
              "may be repeated",
     .arg = "PATTERN", .set = set_no_decay},
    {"lr-scale", MERAK_OPTION_CALL,
     .about = "their learning rate times X; may be repeated, the last counts",
     .arg = "PATTERN=X", .set = set_lr_scale},
    {"freeze", MERAK_OPTION_CALL,
     .about = "do not train them: no gradient, no optimizer state; may be "
              "repeated",
     .arg = "PATTERN", .set = set_freeze},
    MERAK_LORA_OPTIONS(AT(lora)),
    MERAK_ROUTER_OPTIONS(AT(optimizer.objective)),
    {"beta1", MERAK_OPTION_FLOAT, AT(optimizer.beta1),
     .about = "AdamW, below 1 (0.9)"},
    {"beta2", MERAK_OPTION_FLOAT, AT(optimizer.beta2),
     .about = "AdamW, below 1 (0.95)"},
    {"eps", MERAK_OPTION_FLOAT, AT(optimizer.eps),
     .about = "AdamW, above 0 (1e-8)", .positive = true},
    {"weight-decay", MERAK_OPTION_FLOAT, AT(optimizer.weight_decay),
     .about = "of matrices; norms and biases get none (0.1)"},
    {"clip", MERAK_OPTION_FLOAT, AT(optimizer.clip),
     .about = "global gradient norm clipped to this; 0: no clipping (1.0)"},
    {"seed", MERAK_OPTION_COUNT, AT(seed),
     .about = "weights, dropout, order (1234)"},
    GROUP_OF(TP, STAGES, "parallelism"),
    {"plan", MERAK_OPTION_TEXT, AT(plan),
     .about = "run the plan that `merak plan` saved there (MERAK_PLAN_FILE)",
     .arg = "FILE"},
    {"device", MERAK_OPTION_TEXT, AT(device),
     .about = "that auto degrees are planned for and emu emulates: cpu, a file "
              "of `merak calibrate`, .. (cpu)",
     .arg = "NAME"},
    {"links", MERAK_OPTION_TEXT, AT(links),
     .about = "islands of nodes and the links between them, as for `merak "
              "plan` (MERAK_LINKS)",
     .arg = "FILE"},
    {"search-seconds", MERAK_OPTION_REAL, AT(search_seconds),
     .about = "that a search for auto degrees may take before it uses the best "
              "plan so far; 0: to the end (60)",
     .most = 1e9},
    CHOICES(SCHEDULE, CHUNKS),
    GROUP_OF(RECOMPUTE, RECOMPUTE, "memory"),
    {"memory-gib", MERAK_OPTION_REAL, AT(memory_gib),
     .about = "memory a task may use, for --recompute auto (7/8 of the "
              "available)",
     .most = 1e6},
    CHOICES(SUB_PIPELINE, OFFLOAD),
    MERAK_CHOICE_ROWS(alias, ZERO, ZERO, AT(choice)),
    CHOICES(SP, SP),
    CHOICES(TP_BATCH, COUNT - 1),
    {"dtype", MERAK_OPTION_WORD, AT(dtype), .about = "compute dtype (fp32)",
     .words = "fp32|bf16", .given = AT(given.dtype),
     .group = "kernels and launch"},
    {"backend", MERAK_OPTION_TEXT, AT(backend),
     .about = "kernels: cuda, cpu, ref, emu or fake (auto: cuda where "
              "there are GPUs, else cpu)",
     .arg = "NAME"},
    {"emu-unit-ms", MERAK_OPTION_REAL, AT(emu_unit_ms),
     .about = "emu: a stage's forward takes this, its backward twice; 0: as "
              "predicted "
              "(0)",
     .most = 1e9},
    {"transport", MERAK_OPTION_WORD, AT(transport),
     .about = "ucx: through host memory; nccl: GPU to GPU; self: one task "
              "(auto: nccl where usable)",
     .words = "auto|self|ucx|nccl"},
    {"reduce", MERAK_OPTION_BOOL, AT(reduce_fast),
     .about = "order of sums over tasks: that of the tasks, or, with nccl, "
              "whichever is fast (ordered)",
     .words = "ordered|fast"},
    {"threads", MERAK_OPTION_INT, AT(threads),
     .about = "per task (SLURM_CPUS_PER_TASK, or the available cores)",
     .least = 1, .most = 65535},
    {"deadline", MERAK_OPTION_REAL, AT(deadline_s),
     .about = "seconds any wait may take (300)", .most = 1e9, .positive = true},
    {"straggler-percent", MERAK_OPTION_REAL, AT(straggler_percent),
     .about = "warn about a rank whose compute takes this many percent longer "
              "than its peers'; 0: never (25)",
     .most = 1e6},
    {"straggler-steps", MERAK_OPTION_INT, AT(straggler_steps),
     .about = "steps whose median is compared (50)", .least = 4, .most = 1e6},
    {"ckpt", MERAK_OPTION_TEXT, AT(ckpt.dir),
     .about = "checkpoint directory (none)", .arg = "DIR",
     .group = "checkpoints"},
    {"ckpt-every", MERAK_OPTION_COUNT, AT(ckpt.every),
     .about = "steps between checkpoints; 0: only at the end (0)"},
    {"keep", MERAK_OPTION_INT, AT(ckpt.keep),
     .about = "committed checkpoints to keep, at least 2; 0: all (2)",
     .most = 1e9},
    {"ckpt-keep-every", MERAK_OPTION_COUNT, AT(ckpt.keep_every),
     .about = "also keep those at multiples of this many steps; 0: none (0)"},
    {"ckpt-async", MERAK_OPTION_WORD, AT(ckpt.async),
     .about = "save while training goes on, from a copy of the state (auto: "
              "where memory allows)",
     .words = "auto|no|yes"},
    {"ckpt-writers", MERAK_OPTION_WORD, AT(ckpt.writers),
     .about = "who writes shard files: each rank its own, or one rank of each "
              "node one for all of its ranks (rank)",
     .words = "rank|node"},
    {"resume", MERAK_OPTION_WORD, AT(ckpt.resume),
     .about = "resume from the newest checkpoint in --ckpt (auto)",
     .words = "auto|must|no"},
    {"init-from", MERAK_OPTION_TEXT, AT(ckpt.init_from),
     .about = "initial weights: a Hugging Face folder's, or those of another "
              "run's checkpoint (random, by --seed)",
     .arg = "DIR"},
    {"lora-from", MERAK_OPTION_TEXT, AT(ckpt.lora_from),
     .about = "go on from adapters that PEFT has saved, beside the weights of "
              "--init-from (none)",
     .arg = "DIR"},
    {"data-changed", MERAK_OPTION_BOOL, AT(data.changed),
     .about = "resume although the data, or how they are cut and held out, "
              "have changed (no)",
     .words = "no|yes"},
    {"model-changed", MERAK_OPTION_BOOL, AT(ckpt.model_changed),
     .about = "resume although the model computes otherwise, as with another "
              "rope_theta, or train on pairs whose reference is of another "
              "model (no)",
     .words = "no|yes"},
    {"trace", MERAK_OPTION_TEXT, AT(output.trace),
     .about = "trace directory (none)", .arg = "DIR", .group = "output"},
    {"trace-every", MERAK_OPTION_INT, AT(output.trace_every),
     .about = "steps between those in the trace (100)", .least = 1,
     .most = 1e9},
    {"metrics", MERAK_OPTION_TEXT, AT(output.metrics),
     .about = "file with one JSON line a step (none)", .arg = "FILE"},
    {"tensorboard", MERAK_OPTION_TEXT, AT(output.tensorboard),
     .about =
         "event files for TensorBoard; yes: in tensorboard/ of --ckpt (no)",
     .arg = "DIR|yes"},
    {"openmetrics", MERAK_OPTION_TEXT, AT(output.openmetrics),
     .about = "file with the run's state, for node exporter (none)",
     .arg = "FILE.prom"},
    {"config", MERAK_OPTION_TEXT, AT(config),
     .about = "lines `option = value`; the command line wins (none)",
     .arg = "FILE"},
    {"print", MERAK_OPTION_TEXT, AT(output.print),
     .about = "phases of the plan, before training: any of graph, layouts, "
              "blocks, stages, schedule, program (none)",
     .arg = "LIST"},
    {"dump-grads", MERAK_OPTION_TEXT, AT(output.dump_grads),
     .about = "write the gradients of the first and last step there (none)",
     .arg = "DIR"},
    {"log-every", MERAK_OPTION_COUNT, AT(output.log_every),
     .about = "steps between progress lines (10)"},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static void set_defaults(struct merak_train_options *o)
{
    memset(o, 0, sizeof(*o));
    o->seq = MERAK_DEFAULT_SEQ;
    o->data.valid_fraction = 0.05;
    o->data.eval_samples = 64;
    o->data.mask_id = o->data.sentinel_id = MERAK_OPTION_AUTO;
    o->global_batch = 8;
    o->steps = 100;
    o->optimizer.lr = 3e-4f;
    o->optimizer.min_lr = -1.0f;
    o->optimizer.decay_share = 0.1;
    o->optimizer.beta1 = 0.9f;
    o->optimizer.beta2 = 0.95f;
    o->optimizer.eps = 1e-8f;
    o->optimizer.weight_decay = 0.1f;
    o->optimizer.clip = 1.0f;
    o->optimizer.objective.balance = MERAK_BALANCE_OF_MODEL;
    o->seed = 1234;
    o->choice.branches = MERAK_BRANCHES_AUTO;
    o->backend = "auto";
    o->deadline_s = 300;
    o->search_seconds = MERAK_SEARCH_SECONDS;
    o->straggler_percent = 25;
    o->straggler_steps = 50;
    o->ckpt.keep = 2;
    o->output.trace_every = 100;
    o->output.log_every = 10;
}

static enum merak_status check_below_one(const char *name, double value,
                                         struct merak_error *err)
{
    return value < 1 ? MERAK_OK
                     : merak_fail(err, MERAK_ERR_CONFIG,
                                  "--%s: expected a number below 1, got %g",
                                  name, value);
}

/* Check the stored floats: a text just below 1 may become 1, and the moments'
 * bias correction would divide by 0. */
static enum merak_status check_fractions(const struct merak_train_options *opt,
                                         struct merak_error *err)
{
    enum merak_status rc =
        check_below_one("valid-fraction", opt->data.valid_fraction, err);

    if (rc == MERAK_OK)
        rc = check_below_one("beta1", (double)opt->optimizer.beta1, err);
    if (rc == MERAK_OK)
        rc = check_below_one("beta2", (double)opt->optimizer.beta2, err);
    return rc;
}

/* The option that needs HDF5, or NULL. */
static const char *needs_hdf5(const struct merak_train_options *opt)
{
    return opt->ckpt.dir != NULL            ? "ckpt"
           : opt->output.trace != NULL      ? "trace"
           : opt->output.dump_grads != NULL ? "dump-grads"
                                            : NULL;
}

/* Pairs of answers are documents that do not see each other, and none of them
 * is cut; the reference is the model that training starts from. */
static enum merak_status check_objective(struct merak_train_options *opt,
                                         struct merak_error *err)
{
    enum merak_status rc =
        merak_objective_settle(&opt->optimizer.objective, err);

    if (rc != MERAK_OK || opt->optimizer.objective.kind != MERAK_DPO)
        return rc;
    if (opt->data.packing == MERAK_PACKING_STREAM)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--objective dpo needs whole pairs of answers: "
                          "expected --packing best-fit or auto, got stream");
    if (opt->ckpt.init_from == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--objective dpo needs --init-from DIR: the model "
                          "that `merak eval --reference` was run with");
    opt->data.doc_mask = true;
    return MERAK_OK;
}

/* Adapters that are read have all but the dropout. */
static enum merak_status check_lora(struct merak_train_options *opt,
                                    struct merak_error *err)
{
    const struct merak_lora *lora = &opt->lora;

    if (opt->ckpt.lora_from == NULL)
        return merak_lora_settle(&opt->lora, err);
    if (lora->rank > 0 || lora->alpha > 0 || lora->by_root ||
        lora->targets != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--lora-from has --lora-rank, --lora-alpha, "
                          "--lora-scale and --lora-targets: leave them out");
    return MERAK_OK;
}

/* Checks of several options together. */
static enum merak_status check(struct merak_train_options *opt,
                               struct merak_error *err)
{
    if (merak_choices_settle(&opt->choice, err) != MERAK_OK ||
        merak_choices_settle_stages(&opt->choice, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
    if (opt->data.files == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no data: give --data PREFIX (`merak data pack` "
                          "makes token files)");
    if (check_fractions(opt, err) != MERAK_OK ||
        (opt->data.corrupt_as != NULL &&
         merak_corrupt_parse(opt->data.corrupt_as, &opt->data.corrupt, err) !=
             MERAK_OK))
        return MERAK_ERR_CONFIG;
    if (opt->optimizer.min_lr < 0)
        opt->optimizer.min_lr = opt->optimizer.lr / 10;
    if (opt->ckpt.keep == 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--keep: expected 0 (all) or at least 2, got 1");
    if (check_lora(opt, err) != MERAK_OK ||
        check_objective(opt, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
    if ((opt->lora.rank > 0 || opt->ckpt.lora_from != NULL) &&
        opt->ckpt.init_from == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--lora-%s needs --init-from DIR: the weights "
                          "beside the adapters are not trained",
                          opt->lora.rank > 0 ? "rank" : "from");
    if (needs_hdf5(opt) != NULL && !merak_h5_is_built_in())
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--%s needs HDF5, and this Merak was built without "
                          "it: leave the option out, or build Merak with HDF5",
                          needs_hdf5(opt));
    if (opt->output.tensorboard != NULL &&
        strcmp(opt->output.tensorboard, "no") == 0)
        opt->output.tensorboard = NULL;
    if (opt->output.tensorboard != NULL &&
        strcmp(opt->output.tensorboard, "yes") == 0 && opt->ckpt.dir == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--tensorboard yes needs --ckpt DIR, where the files "
                          "are put; or give a directory of their own: "
                          "--tensorboard DIR");
    if (opt->ckpt.resume == MERAK_RESUME_MUST && opt->ckpt.dir == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--resume must needs --ckpt DIR");
    if (opt->emu_unit_ms > 0 && !merak_backend_is_emulated(opt->backend))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--emu-unit-ms needs --backend emu, not %s",
                          opt->backend);
    if (opt->reduce_fast && opt->transport != MERAK_TRANSPORT_NCCL &&
        opt->transport != MERAK_TRANSPORT_AUTO)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--reduce fast needs --transport nccl: others add in "
                          "the tasks' order");
    if (opt->output.log_every == 0)
        opt->output.log_every = 1;
    return opt->output.print != NULL
               ? merak_phases_parse(opt->output.print, &opt->output.phases, err)
               : MERAK_OK;
}

enum merak_status merak_train_options_parse(int argc, char **argv,
                                            size_t positions,
                                            struct merak_train_options *opt,
                                            struct merak_error *err)
{
    enum merak_status rc;

    set_defaults(opt);
    opt->seq = merak_default_seq(positions);
    rc = merak_options_parse(&table, argc, argv, opt, &opt->help, err);
    return rc != MERAK_OK || opt->help ? rc : check(opt, err);
}

const struct merak_option_table *merak_train_options_table(void)
{
    return &table;
}

void merak_train_options_help(void)
{
    merak_options_help(&table, stdout);
    puts("\nexit codes: 0 finished; 75 stopped early: resubmit to continue;\n"
         "66 configuration; 67 data or checkpoint; 68 launcher; 69 memory or "
         "disk;\nelse a crash");
}

float merak_learning_rate(const struct merak_train_optimizer *opt,
                          uint64_t steps, uint64_t step)
{
    double span, at;

    if (step < opt->warmup)
        return (float)(opt->lr * (double)(step + 1) / (double)opt->warmup);
    if (opt->lr_shape == MERAK_LR_CONSTANT || steps <= opt->warmup)
        return opt->lr;
    span = (double)(steps - opt->warmup);
    if (opt->lr_shape == MERAK_LR_WSD)
        span = fmin(span, fmax(1, round(opt->decay_share * (double)steps)));
    at = (double)step - ((double)steps - span) + 1;
    at = fmin(1.0, fmax(0.0, at / span));
    if (opt->lr_shape == MERAK_LR_COSINE)
        at = 0.5 - 0.5 * cos(M_PI * at);
    return (float)(opt->lr + (opt->min_lr - (double)opt->lr) * at);
}

void merak_train_recipe(const struct merak_train_options *opt,
                        char text[MERAK_RECIPE_BYTES])
{
    static const char *const shape[] = {"cosine", "linear", "constant", "wsd"};
    char all[MERAK_PARAM_RULES * (MERAK_PATTERN_BYTES + 48) + 512];
    size_t n = (size_t)snprintf(all, sizeof(all),
                                "--lr %g --min-lr %g --warmup %llu "
                                "--lr-schedule %s",
                                (double)opt->optimizer.lr,
                                (double)opt->optimizer.min_lr,
                                (unsigned long long)opt->optimizer.warmup,
                                shape[opt->optimizer.lr_shape]);

    if (opt->optimizer.lr_shape == MERAK_LR_WSD)
        n += (size_t)snprintf(all + n, sizeof(all) - n, " --decay-share %g",
                              opt->optimizer.decay_share);
    n += merak_lora_print(&opt->lora, all + n, sizeof(all) - n);
    if (opt->reduce_fast)
        n += (size_t)snprintf(all + n, sizeof(all) - n, " --reduce fast");
    if (opt->optimizer.objective.kind == MERAK_DPO)
        n += (size_t)snprintf(all + n, sizeof(all) - n,
                              " --objective dpo --dpo-beta %g",
                              (double)opt->optimizer.objective.beta);
    if (opt->data.doc_mask)
        n += (size_t)snprintf(all + n, sizeof(all) - n, " --doc-mask");
    n += merak_balance_print(&opt->optimizer.objective.balance, all + n,
                             sizeof(all) - n);
    if (opt->optimizer.objective.capacity > 0)
        n += (size_t)snprintf(all + n, sizeof(all) - n, " --expert-capacity %g",
                              opt->optimizer.objective.capacity);
    n += merak_param_rules_print(&opt->optimizer.rules, all + n,
                                 sizeof(all) - n);
    if (n < MERAK_RECIPE_BYTES)
        memcpy(text, all, n + 1);
    else
        snprintf(text, MERAK_RECIPE_BYTES, "%.*s .. %016llx",
                 MERAK_RECIPE_BYTES - 32, all,
                 (unsigned long long)merak_rng_key(0, all));
}
