/* SPDX-License-Identifier: Apache-2.0 */
/* io/hf_names.h - our parameters and the tensors of Hugging Face folders */
#ifndef MERAK_IO_HF_NAMES_H
#define MERAK_IO_HF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "io/hf_config.h"

enum { MERAK_HF_NAME_BYTES = 128 };

/*
 * Where a parameter of merak_hf_describe() is in a Hugging Face folder.
 *
 * Parameters are [out.., in..], row-major. [rows, cols] is that shape with all
 * out dims and all in dims merged (a vector: cols 1).  The parameter is rows
 * first_row .. first_row + rows - 1 of the tensor, which has `of_rows` rows:
 * more than `rows` if it holds several parameters.  Where these alternate, by
 * heads, the rows of one come in runs of `run`, which begin `step` rows apart;
 * else run is rows.  The first `turned` rows of a run are the tensor's last
 * ones of it, where `interleaved` ones alternate between the first half and the
 * second.  A transposed tensor is stored as [cols, rows].
 */
struct merak_hf_tensor {
    char name[MERAK_HF_NAME_BYTES];
    bool transposed;
    bool vector; /* the tensor has one dim, [rows] */
    size_t rows, cols, first_row, of_rows, run, step;
    /* The parameter has one more dim in front, and a tensor for each of its
     * `count` experts, whose number is in the place of the name's star. */
    bool each;
    size_t count; /* of tensors */
    /* The tensor has that dim, too: one such matrix for each expert. */
    bool stacked;
    size_t stack; /* of matrices in a tensor */
    size_t turned;
    bool interleaved;
};

/* The row of the tensor that row i of the parameter is. */
static inline size_t merak_hf_tensor_row(const struct merak_hf_tensor *t,
                                         size_t i)
{
    size_t first = t->first_row + i / t->run * t->step, at = i % t->run;

    if (at >= t->turned)
        return first + at - t->turned;
    if (t->interleaved)
        at = at % (t->turned / 2) * 2 + at / (t->turned / 2);
    return first + t->run - t->turned + at;
}

/* Are its rows in the tensor one after the other, in their order? */
static inline bool merak_hf_tensor_is_run(const struct merak_hf_tensor *t)
{
    return t->run == t->rows && t->turned == 0;
}

/* The name of tensor n of `count`. */
void merak_hf_tensor_name(const struct merak_hf_tensor *tensor, size_t n,
                          char name[MERAK_HF_NAME_BYTES]);

/*
 * Find the tensor of parameter `param`, in a folder that has experts in tensors
 * of their own or, `stacked`, of all experts, as transformers 5 saves them with
 * save_original_format=False; or, `stacked`, in one with a family's older names.  MERAK_ERR_NOT_FOUND: the family has no such
 * parameter.
 */
enum merak_status merak_hf_tensor_find(const struct merak_hf_config *config,
                                       const char *param, bool stacked,
                                       struct merak_hf_tensor *tensor,
                                       struct merak_error *err) MERAK_CHECKED;
/*
 * A tensor's name without the prefix that some writers put in front of all
 * of a family's names ("transformer.wte.weight" is "wte.weight").
 */
const char *merak_hf_tensor_base(const struct merak_hf_config *config,
                                 const char *name);
/* Is this the tensor of an output layer, which may be tied? */
bool merak_hf_tensor_is_head(const struct merak_hf_config *config,
                             const char *name);
/* The prefix of a base name in files that have prefixes; "" for an output
 * layer. */
const char *merak_hf_tensor_prefix(const struct merak_hf_config *config,
                                   const char *base);
/* Has only a folder with stacked experts, or with older names, a tensor of this
 * base name? */
bool merak_hf_tensor_is_stacked(const struct merak_hf_config *config,
                                const char *base);
/* Is the tensor with this base name not a weight, or a copy of one: a mask or
 * frequencies that are computed, or a tied output layer? */
bool merak_hf_tensor_is_spare(const struct merak_hf_config *config,
                              const char *name);
/* Is it of a module of transformers that PEFT has no adapters for? */
bool merak_hf_tensor_is_unadapted(const struct merak_hf_config *config,
                                  const char *base);

#endif
