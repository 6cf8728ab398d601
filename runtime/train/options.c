/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the trainer's options: one table parses and documents them */
#include "config.h"

#include "runtime/train/options.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_type {
    TYPE_STRING, /* const char * */
    TYPE_SIZE,   /* size_t, >= 1 */
    TYPE_COUNT,  /* uint64_t */
    TYPE_INT,    /* int, >= 0 */
    TYPE_DEGREE, /* int, 1..65535 */
    TYPE_FLOAT,  /* float, >= 0 */
    TYPE_DOUBLE, /* double, >= 0 */
    TYPE_WORD,   /* enum, one of `words` */
    TYPE_NAME,   /* char[32] */
};

struct option_row {
    const char *name;
    enum option_type type;
    size_t offset;
    const char *words; /* TYPE_WORD: "a|b|c", values 0, 1, 2 */
    const char *about;
};

#define AT(field) offsetof(struct merak_train_options, field)

static const struct option_row rows[] = {
    {"data", TYPE_STRING, AT(data), NULL,
     "token files: PREFIX, or \"W1 PREFIX1 W2 PREFIX2 ..\" (required)"},
    {"seq", TYPE_SIZE, AT(seq), NULL, "sequence length (256)"},
    {"valid-fraction", TYPE_DOUBLE, AT(valid_fraction), NULL,
     "tail of the data held out for validation (0.05)"},
    {"eval-every", TYPE_INT, AT(eval_every), NULL,
     "steps between validations; 0: only at the end (0)"},
    {"eval-samples", TYPE_COUNT, AT(eval_samples), NULL,
     "held-out sequences of a validation; 0: no validation (64)"},
    {"micro-batch", TYPE_SIZE, AT(micro_batch), NULL,
     "sequences in a micro-batch (1)"},
    {"global-batch", TYPE_SIZE, AT(global_batch), NULL,
     "sequences in a step, over all replicas (8)"},
    {"steps", TYPE_COUNT, AT(steps), NULL, "optimizer steps in all (100)"},
    {"max-seconds", TYPE_DOUBLE, AT(max_seconds), NULL,
     "save and exit 75 after this time; 0: never (0)"},
    {"lr", TYPE_FLOAT, AT(lr), NULL, "peak learning rate (3e-4)"},
    {"min-lr", TYPE_FLOAT, AT(min_lr), NULL, "last learning rate (lr / 10)"},
    {"warmup", TYPE_COUNT, AT(warmup), NULL, "warm-up steps (0)"},
    {"lr-schedule", TYPE_WORD, AT(lr_shape), "cosine|linear|constant",
     "learning rate after warm-up (cosine)"},
    {"beta1", TYPE_FLOAT, AT(beta1), NULL, "AdamW (0.9)"},
    {"beta2", TYPE_FLOAT, AT(beta2), NULL, "AdamW (0.95)"},
    {"eps", TYPE_FLOAT, AT(eps), NULL, "AdamW (1e-8)"},
    {"weight-decay", TYPE_FLOAT, AT(weight_decay), NULL,
     "of matrices; norms and biases get none (0.1)"},
    {"clip", TYPE_FLOAT, AT(clip), NULL,
     "global gradient norm clipped to this; 0: not (1.0)"},
    {"seed", TYPE_COUNT, AT(seed), NULL, "weights, dropout, order (1234)"},
    {"tp", TYPE_DEGREE, AT(tp), NULL,
     "tensor-parallel degree (MERAK_TP, or 1)"},
    {"pp", TYPE_DEGREE, AT(pp), NULL, "pipeline stages (MERAK_PP, or 1)"},
    {"dp", TYPE_DEGREE, AT(dp), NULL, "replicas (what the tasks leave)"},
    {"schedule", TYPE_NAME, AT(schedule), NULL,
     "pipeline schedule; a wrong name lists them (1f1b)"},
    {"chunks", TYPE_DEGREE, AT(chunks), NULL,
     "model parts per task, for interleaved schedules (1)"},
    {"recompute", TYPE_WORD, AT(recompute), "none|full|selective|auto",
     "drop activations and compute them again: all, attention's, or per stage "
     "the least that fits (none)"},
    {"memory-gib", TYPE_DOUBLE, AT(memory_gib), NULL,
     "what a task may use, for --recompute auto (7/8 of what is available)"},
    {"sub-pipeline", TYPE_WORD, AT(sub_pipeline), "no|yes",
     "micro-batches in two halves, exchanges of one behind the other (no)"},
    {"zero1", TYPE_WORD, AT(zero1), "no|yes",
     "optimizer state split over replicas (yes)"},
    {"sp", TYPE_WORD, AT(sp), "auto|off|on", "sequence parallelism (auto)"},
    {"dtype", TYPE_WORD, AT(dtype), "fp32|bf16", "compute dtype (fp32)"},
    {"backend", TYPE_STRING, AT(backend), NULL,
     "kernels: cpu, ref or emu (cpu)"},
    {"emu-unit-ms", TYPE_DOUBLE, AT(emu_unit_ms), NULL,
     "emu: a stage's forward takes this, its backward twice; 0: as predicted "
     "(0)"},
    {"transport", TYPE_STRING, AT(transport), NULL,
     "self or ucx (ucx with more than one task)"},
    {"threads", TYPE_INT, AT(threads), NULL,
     "per task (SLURM_CPUS_PER_TASK, or the cores there are)"},
    {"deadline", TYPE_DOUBLE, AT(deadline_s), NULL,
     "seconds any wait may take (300)"},
    {"ckpt", TYPE_STRING, AT(ckpt), NULL, "checkpoint directory (none)"},
    {"ckpt-every", TYPE_COUNT, AT(ckpt_every), NULL,
     "steps between checkpoints; 0: only at the end (0)"},
    {"keep", TYPE_INT, AT(keep), NULL,
     "committed checkpoints to keep, at least 2; 0: all (2)"},
    {"resume", TYPE_WORD, AT(resume), "auto|must|no",
     "go on from the newest checkpoint in --ckpt (auto)"},
    {"data-changed", TYPE_WORD, AT(data_changed), "no|yes",
     "resume although --data is not what it was (no)"},
    {"trace", TYPE_STRING, AT(trace), NULL, "trace directory (none)"},
    {"metrics", TYPE_STRING, AT(metrics), NULL,
     "file with one JSON line a step (none)"},
    {"dump-grads", TYPE_STRING, AT(dump_grads), NULL,
     "write the gradients of the first and last step there (none)"},
    {"log-every", TYPE_COUNT, AT(log_every), NULL,
     "steps between progress lines (10)"},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static void set_defaults(struct merak_train_options *o)
{
    memset(o, 0, sizeof(*o));
    o->seq = 256;
    o->valid_fraction = 0.05;
    o->eval_samples = 64;
    o->micro_batch = 1;
    o->global_batch = 8;
    o->steps = 100;
    o->lr = 3e-4f;
    o->min_lr = -1.0f;
    o->beta1 = 0.9f;
    o->beta2 = 0.95f;
    o->eps = 1e-8f;
    o->weight_decay = 0.1f;
    o->clip = 1.0f;
    o->seed = 1234;
    snprintf(o->schedule, sizeof(o->schedule), "1f1b");
    o->chunks = 1;
    o->zero1 = true;
    o->backend = "cpu";
    o->deadline_s = 300;
    o->keep = 2;
    o->log_every = 10;
}

static enum merak_status bad_value(const struct option_row *row,
                                   const char *text, const char *expected,
                                   struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG, "--%s: expected %s, got \"%.60s\"",
                      row->name, expected, text);
}

static bool parse_unsigned(const char *text, unsigned long long *value_p)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *value_p = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static enum merak_status store_integer(const struct option_row *row,
                                       const char *text, void *field,
                                       struct merak_error *err)
{
    unsigned long long v;
    bool ok = parse_unsigned(text, &v);

    switch (row->type) {
    case TYPE_SIZE:
        if (!ok || v < 1 || v > SIZE_MAX / 2)
            return bad_value(row, text, "a positive integer", err);
        *(size_t *)field = (size_t)v;
        return MERAK_OK;
    case TYPE_COUNT:
        if (!ok)
            return bad_value(row, text, "an integer from 0", err);
        *(uint64_t *)field = v;
        return MERAK_OK;
    case TYPE_INT:
        if (!ok || v > 1000000000)
            return bad_value(row, text, "an integer from 0", err);
        *(int *)field = (int)v;
        return MERAK_OK;
    default:
        if (!ok || v < 1 || v > 65535)
            return bad_value(row, text, "an integer 1..65535", err);
        *(int *)field = (int)v;
        return MERAK_OK;
    }
}

static enum merak_status store_real(const struct option_row *row,
                                    const char *text, void *field,
                                    struct merak_error *err)
{
    char *end;
    double v;

    errno = 0;
    v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v) || v < 0)
        return bad_value(row, text, "a number from 0", err);
    if (row->type == TYPE_FLOAT)
        *(float *)field = (float)v;
    else
        *(double *)field = v;
    return MERAK_OK;
}

static enum merak_status store_word(const struct option_row *row,
                                    const char *text, void *field,
                                    struct merak_error *err)
{
    const char *word = row->words;
    size_t n = strlen(text);

    for (int i = 0; *word != '\0'; i++) {
        size_t len = strcspn(word, "|");

        if (len == n && strncmp(word, text, n) == 0) {
            if (row->offset == AT(zero1) || row->offset == AT(sub_pipeline) ||
                row->offset == AT(data_changed))
                *(bool *)field = i != 0;
            else
                *(int *)field = i; /* our enums are ints */
            return MERAK_OK;
        }
        word += len + (word[len] == '|');
    }
    return bad_value(row, text, row->words, err);
}

static enum merak_status store(const struct option_row *row, const char *text,
                               struct merak_train_options *opt,
                               struct merak_error *err)
{
    void *field = (char *)opt + row->offset;

    switch (row->type) {
    case TYPE_STRING:
        *(const char **)field = text;
        return MERAK_OK;
    case TYPE_NAME:
        if (strlen(text) >= sizeof(opt->schedule))
            return bad_value(row, text, "a short name", err);
        strcpy(field, text);
        return MERAK_OK;
    case TYPE_WORD:
        return store_word(row, text, field, err);
    case TYPE_FLOAT:
    case TYPE_DOUBLE:
        return store_real(row, text, field, err);
    default:
        return store_integer(row, text, field, err);
    }
}

static const struct option_row *find_row(const char *arg, size_t n)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strlen(rows[i].name) == n && strncmp(rows[i].name, arg, n) == 0)
            return &rows[i];
    }
    return NULL;
}

/* What single options cannot know of each other. */
static enum merak_status check(struct merak_train_options *opt,
                               struct merak_error *err)
{
    if (opt->data == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no data: give --data PREFIX (`merak data pack` "
                          "makes token files)");
    if (opt->valid_fraction >= 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--valid-fraction: expected a number below 1, got "
                          "%g",
                          opt->valid_fraction);
    if (opt->min_lr < 0)
        opt->min_lr = opt->lr / 10;
    if (opt->keep == 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--keep: expected 0 (all) or at least 2, got 1");
    if (opt->resume == MERAK_RESUME_MUST && opt->ckpt == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--resume must needs --ckpt DIR");
    if (opt->memory_gib > 0 && opt->recompute != MERAK_RECOMPUTE_AUTO)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--memory-gib is what --recompute auto fits; it "
                          "needs that");
    if (opt->emu_unit_ms > 0 && strcmp(opt->backend, "emu") != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--emu-unit-ms needs --backend emu, not %s",
                          opt->backend);
    if (opt->log_every == 0)
        opt->log_every = 1;
    return MERAK_OK;
}

enum merak_status merak_train_options_parse(int argc, char **argv,
                                            struct merak_train_options *opt,
                                            struct merak_error *err)
{
    enum merak_status rc;

    set_defaults(opt);
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        const struct option_row *row = NULL;
        size_t n = 0;

        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            opt->help = true;
            return MERAK_OK;
        }
        if (strncmp(arg, "--", 2) == 0) {
            n = strcspn(arg + 2, "=");
            row = find_row(arg + 2, n);
        }
        if (row == NULL)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "unknown option \"%.60s\"; --help lists them",
                              arg);
        if (arg[2 + n] != '=' && i + 1 == argc)
            return merak_fail(err, MERAK_ERR_CONFIG, "--%s needs a value",
                              row->name);
        rc = store(row, arg[2 + n] == '=' ? arg + 3 + n : argv[++i], opt, err);
        if (rc != MERAK_OK)
            return rc;
    }
    return check(opt, err);
}

void merak_train_options_help(void)
{
    for (size_t i = 0; i < N_ROWS; i++)
        printf("  --%-15s %s\n", rows[i].name, rows[i].about);
}

float merak_learning_rate(const struct merak_train_options *opt, uint64_t step)
{
    double span, at;

    if (step < opt->warmup)
        return (float)(opt->lr * (double)(step + 1) / (double)opt->warmup);
    if (opt->lr_shape == MERAK_LR_CONSTANT || opt->steps <= opt->warmup)
        return opt->lr;
    span = (double)(opt->steps - opt->warmup);
    at = fmin(1.0, (double)(step - opt->warmup + 1) / span);
    if (opt->lr_shape == MERAK_LR_COSINE)
        at = 0.5 - 0.5 * cos(M_PI * at);
    return (float)(opt->lr + (opt->min_lr - (double)opt->lr) * at);
}
