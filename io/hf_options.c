/* SPDX-License-Identifier: Apache-2.0 */
/* hf_options.c - the options of a model that fields of config.json determine */
#include "config.h"

#include "io/hf_family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The words for activations; of several, the first is suggested. */
static const struct {
    const char *word;
    enum merak_hf_act act;
} acts[] = {
    {"silu", MERAK_HF_SILU},
    {"swish", MERAK_HF_SILU},
    {"gelu_pytorch_tanh", MERAK_HF_GELU_TANH},
    {"gelu_new", MERAK_HF_GELU_TANH},
    {"gelu_fast", MERAK_HF_GELU_TANH},
    {"gelu", MERAK_HF_GELU},
    {"relu2", MERAK_HF_RELU2},
    {"relu", MERAK_HF_RELU},
};

enum { N_ACTS = sizeof(acts) / sizeof(acts[0]) };

/* "silu or gelu": a word for each of the bits. */
static void list_acts(unsigned bits, char *text, size_t bytes)
{
    size_t at = 0;

    for (int i = 0; i < N_ACTS && at < bytes; i++) {
        if ((bits & 1u << acts[i].act) == 0)
            continue;
        bits &= ~(1u << acts[i].act);
        at += (size_t)snprintf(text + at, bytes - at, "%s%s",
                               at == 0     ? ""
                               : bits == 0 ? " or "
                                           : ", ",
                               acts[i].word);
    }
}

static enum merak_hf_act read_act(struct merak_hf_reader *r,
                                  const struct merak_hf_option *o)
{
    const char *word = merak_hf_word(r, o->name, o->word);
    char want[80] = "";

    if ((o->acts & MERAK_HF_GELU_IS_TANH) != 0 && strcmp(word, "gelu") == 0)
        return MERAK_HF_GELU_TANH;
    for (int i = 0; i < N_ACTS; i++) {
        if (strcmp(word, acts[i].word) == 0 && (o->acts & 1u << acts[i].act))
            return acts[i].act;
    }
    list_acts(o->acts & ~MERAK_HF_GELU_IS_TANH, want, sizeof(want));
    merak_hf_refuse(r, o->name, want);
    return MERAK_HF_SILU;
}

/* A number; null means off. */
static float read_cap(struct merak_hf_reader *r, const char *name,
                      double or_else)
{
    if (merak_hf_field(r, name) == NULL &&
        json_object_get(r->root, name) != NULL)
        return 0;
    return or_else > 0 || merak_hf_field(r, name) != NULL
               ? merak_hf_positive(r, name, or_else)
               : 0;
}

void merak_hf_options_read(struct merak_hf_reader *r,
                           const struct merak_hf_option *options,
                           struct merak_hf_config *c)
{
    for (const struct merak_hf_option *o = options; o->kind != MERAK_HF_END;
         o++) {
        void *at = (char *)c + o->at;

        switch (o->kind) {
        case MERAK_HF_END:
            break;
        case MERAK_HF_ALWAYS:
            *(bool *)at = true;
            break;
        case MERAK_HF_FLAG:
            *(bool *)at = merak_hf_bool(r, o->name, o->or_else != 0);
            break;
        case MERAK_HF_NEVER:
            merak_hf_require_bool(r, o->name, false);
            break;
        case MERAK_HF_ZERO:
            if (merak_hf_real(r, o->name, 0) != 0)
                merak_hf_refuse(r, o->name, "0");
            break;
        case MERAK_HF_ABSENT:
            merak_hf_require_absent(r, o->name);
            break;
        case MERAK_HF_POSITIVE:
            *(float *)at = merak_hf_positive(r, o->name, o->or_else);
            break;
        case MERAK_HF_CAP:
            *(float *)at = read_cap(r, o->name, o->or_else);
            break;
        case MERAK_HF_RSQRT:
            *(float *)at = 1 / sqrtf(merak_hf_positive(r, o->name, o->or_else));
            break;
        case MERAK_HF_DROPOUT:
            *(float *)at = merak_hf_dropout(r, o->name, o->or_else);
            break;
        case MERAK_HF_ACT:
            *(enum merak_hf_act *)at = read_act(r, o);
            break;
        }
    }
}
