/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/language_model.h - shared by `merak generate` and `merak eval`: a
 * checkpoint's model, ready to run, and its tokenizer */
#ifndef MERAK_CMD_LANGUAGE_MODEL_H
#define MERAK_CMD_LANGUAGE_MODEL_H

#include "io/hf_config.h"
#include "text/tokenizer/tokenizer.h"
#include "runtime/infer/decoder.h"

#include <limits.h>

struct merak_lm_options {
    const char *ckpt, *model, *tokenizer;
    int unknown; /* enum merak_hf_unknown */
    int dtype;   /* index of "fp32|bf16" */
    int threads; /* 0: all available cores */
};

/* Rows of a table of options whose target has a merak_lm_options called lm. */
#define MERAK_LM_ROWS(type)                                                 \
    {"ckpt", MERAK_OPTION_TEXT, offsetof(type, lm.ckpt),                    \
     .about = "Hugging Face folder, checkpoint, or a run: its newest "      \
              "(required)",                                                 \
     .arg = "DIR"},                                                         \
        {"model", MERAK_OPTION_TEXT, offsetof(type, lm.model),              \
         .about = "Hugging Face folder, or its config.json (of --ckpt)",    \
         .arg = "DIR"},                                                     \
        {"config-unknown", MERAK_OPTION_WORD, offsetof(type, lm.unknown),   \
         .about = MERAK_HF_UNKNOWN_ABOUT, .words = MERAK_HF_UNKNOWN_WORDS}, \
        {"tokenizer", MERAK_OPTION_TEXT, offsetof(type, lm.tokenizer),      \
         .about =                                                           \
             "byte, tokenizer.json, tokenizer.model, or a folder (of the "  \
             "model)",                                                      \
         .arg = "T"},                                                       \
        {"dtype", MERAK_OPTION_WORD, offsetof(type, lm.dtype),              \
         .about = "compute dtype (fp32)", .words = "fp32|bf16"},            \
    {                                                                       \
        "threads", MERAK_OPTION_INT, offsetof(type, lm.threads),            \
            .about = "(SLURM_CPUS_PER_TASK, or the available cores)",       \
            .most = 65535                                                   \
    }

struct merak_lm {
    struct merak_hf_config config;
    struct merak_tokenizer *tokenizer; /* NULL: none was found */
    struct merak_decoder *decoder;     /* merak_lm_load() */
    char folder[PATH_MAX];             /* of the model's files; "": none */
};

/*
 * Read the configuration, and the tokenizer if there is one.
 *
 *   need_tokenizer  it is an error if there is none
 */
enum merak_status merak_lm_open(const struct merak_lm_options *opt,
                                bool need_tokenizer, struct merak_lm *lm,
                                struct merak_error *err) MERAK_CHECKED;
/*
 * Load the weights, for sequences of up to `positions` tokens.
 *
 *   grows  if the scaling of rotary positions depends on the sequence's
 *          length, use the current length; else `positions`
 */
enum merak_status merak_lm_load(struct merak_lm *lm,
                                const struct merak_lm_options *opt,
                                size_t positions, bool grows,
                                struct merak_error *err) MERAK_CHECKED;
void merak_lm_close(struct merak_lm *lm);

/* A growing list of ids, filled by a merak_ids_fn. */
struct merak_ids {
    int32_t *id;
    size_t n, room;
};
enum merak_status merak_ids_add(void *ids, const int32_t *id, size_t n,
                                struct merak_error *err) MERAK_CHECKED;

#endif
