/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/transfer.h - importing and exporting weights
 *
 * One tensor is in memory at a time.  Numbers are preserved exactly: f32, bf16
 * and fp16 are widened to f32, and narrowed to their old type again.
 */
#ifndef MERAK_IO_WEIGHTS_TRANSFER_H
#define MERAK_IO_WEIGHTS_TRANSFER_H

#include <stdint.h>

#include "io/hf_config.h"
#include "io/weights/safetensors.h"
#include "merak/status.h"

/* Called after each tensor; a failure ends the transfer and removes its
 * output. */
typedef enum merak_status (*merak_transfer_fn)(void *arg, uint64_t done_bytes,
                                               uint64_t all_bytes,
                                               struct merak_error *err);

struct merak_transfer_summary {
    const char *family;
    int tensors, files; /* of the folder that is read or written */
    uint64_t bytes;     /* of their data */
    /* Of an import: parameters with numbers that are NaN or infinite, and the
     * first of them. */
    int not_finite;
    char first_not_finite[128];
};

/*
 * Import a Hugging Face folder into a run's directory without checkpoints:
 * makes RUN/step-00000000, without moments, and RUN/model.  `dir` may have
 * adapters of PEFT instead, beside the weights of `base`.
 *
 *   base     the folder of the base model; NULL: as the adapters have it
 *   unknown  as in merak_hf_config_read()
 *   note     out  its note; [MERAK_HF_NOTE_BYTES]
 */
struct merak_import {
    const char *dir, *run, *base;
    enum merak_hf_unknown unknown;
    merak_transfer_fn progress;
    void *arg;
};

enum merak_status merak_weights_import(const struct merak_import *import,
                                       char *note,
                                       struct merak_transfer_summary *summary,
                                       struct merak_error *err) MERAK_CHECKED;

enum merak_export_format {
    MERAK_EXPORT_HF,
    MERAK_EXPORT_LLMC,
    MERAK_EXPORT_PEFT,
    MERAK_EXPORT_GGUF,
};
#define MERAK_EXPORT_WORDS "hf|llmc|peft|gguf"

/*
 * Export a run's newest checkpoint, or a given one, to a folder that is empty
 * or absent. hf: config.json, safetensors, and an index if there are several;
 * llmc: only model.bin; peft: only adapters; gguf: only model.gguf.
 */
struct merak_export {
    const char *ckpt, *out;
    enum merak_export_format format;
    bool merge; /* add adapters to the weights that they are beside */
    bool typed; /* write numbers as `type`; else as imported, or f32 */
    enum merak_safetensors_type type;
    bool blocks;          /* gguf: q8_0 instead */
    uint64_t shard_bytes; /* the most of a file, except for a single tensor; 0:
                             as imported, else 5 GB */
    const char *model;    /* with the config.json; NULL: RUN/model */
    enum merak_hf_unknown unknown;
    merak_transfer_fn progress;
    void *arg;
};

enum merak_status merak_weights_export(const struct merak_export *export,
                                       struct merak_transfer_summary *summary,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
