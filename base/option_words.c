/* SPDX-License-Identifier: Apache-2.0 */
/* option_words.c - what other trainers call options of Merak's: suggested, not
 * taken
 */
#include "config.h"

#include "base/nearest.h"

#include <string.h>

/* In the order in which they are tried: a command may have several. */
static const struct {
    const char *other, *ours;
} words[] = {
    {"learning-rate", "lr"},
    {"lr-decay-style", "lr-schedule"},
    {"lr-warmup-iters", "warmup"},
    {"lr-warmup-steps", "warmup"},
    {"warmup-steps", "warmup"},
    {"train-iters", "steps"},
    {"max-steps", "steps"},
    {"num-steps", "steps"},
    {"iterations", "steps"},
    {"seq-length", "seq"},
    {"seq-len", "seq"},
    {"max-length", "seq"},
    {"context-length", "seq"},
    {"batch-size", "global-batch"},
    {"global-batch-size", "global-batch"},
    {"micro-batch-size", "micro-batch"},
    {"per-device-train-batch-size", "micro-batch"},
    {"tensor-model-parallel-size", "tp"},
    {"tensor-parallel-degree", "tp"},
    {"pipeline-model-parallel-size", "pp"},
    {"pipeline-parallel-degree", "pp"},
    {"data-path", "data"},
    {"dataset", "data"},
    {"save", "ckpt"},
    {"load", "ckpt"},
    {"output-dir", "ckpt"},
    {"checkpoint", "ckpt"},
    {"save-interval", "ckpt-every"},
    {"eval-interval", "eval-every"},
    {"log-interval", "log-every"},
    {"clip-grad", "clip"},
    {"max-grad-norm", "clip"},
    {"tensorboard-dir", "tensorboard"},
    {"logging-dir", "tensorboard"},
    {"precision", "dtype"},
    {"bf16", "dtype"},
    {"num-workers", "threads"},
    {"tokenizer-model", "tokenizer"},
    {"tokenizer-name-or-path", "tokenizer"},
    {"model-name-or-path", "model"},
    {"hf-path", "model"},
    {"max-new-tokens", "tokens"},
    {"max-tokens", "tokens"},
    {"gpu", "device"},
    {"num-nodes", "nodes"},
    {"nnodes", "nodes"},
    {"nproc-per-node", "ranks-per-node"},
    {"output", "out"},
    {"input", "data"},
};

const char *merak_option_word(const char *arg, size_t *after)
{
    size_t n;

    arg += strspn(arg, "-");
    n = strcspn(arg, "=");
    for (size_t i = *after; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *other = words[i].other;
        size_t k = 0;

        if (strlen(other) != n)
            continue;
        while (k < n &&
               (arg[k] == other[k] || (arg[k] == '_' && other[k] == '-')))
            k++;
        if (k < n)
            continue;
        *after = i + 1;
        return words[i].ours;
    }
    return NULL;
}
