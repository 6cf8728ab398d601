/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/transfer.h - weights of others in, ours out
 *
 * One tensor is in memory at a time.  Numbers are carried as they are: f32,
 * bf16 and fp16 become f32, and these again what they were.
 */
#ifndef MERAK_IO_WEIGHTS_TRANSFER_H
#define MERAK_IO_WEIGHTS_TRANSFER_H

#include <stdint.h>

#include "io/hf_config.h"
#include "io/weights/safetensors.h"
#include "merak/status.h"

/* Called after each tensor; a failure ends it all, and what was made goes. */
typedef enum merak_status (*merak_transfer_fn)(void *arg, uint64_t done_bytes,
                                               uint64_t all_bytes,
                                               struct merak_error *err);

struct merak_transfer_summary {
    const char *family;
    int tensors, files; /* of the folder that is read or written */
    uint64_t bytes;     /* of their data */
};

/*
 * A Hugging Face folder to a run's directory that holds no checkpoint yet:
 * RUN/step-00000000, without moments, and RUN/model.
 *
 *   unknown  as of merak_hf_config_read()
 *   note     out  what that said; [MERAK_HF_NOTE_BYTES]
 */
struct merak_import {
    const char *dir, *run;
    enum merak_hf_unknown unknown;
    merak_transfer_fn progress;
    void *arg;
};

enum merak_status merak_weights_import(const struct merak_import *import,
                                       char *note,
                                       struct merak_transfer_summary *summary,
                                       struct merak_error *err) MERAK_CHECKED;

enum merak_export_format { MERAK_EXPORT_HF, MERAK_EXPORT_LLMC };

/*
 * A run's newest checkpoint, or one of them, to a folder that is empty or not
 * there.  hf: config.json, safetensors, and an index where they are several;
 * llmc: model.bin alone.
 */
struct merak_export {
    const char *ckpt, *out;
    enum merak_export_format format;
    bool typed; /* numbers are of `type`, else as they were imported, or f32 */
    enum merak_safetensors_type type;
    uint64_t shard_bytes; /* of a file at most, but for one tensor; 0: as it was
                             imported, else 5 GB */
    const char *model;    /* whose config.json it is; NULL: RUN/model */
    enum merak_hf_unknown unknown;
    merak_transfer_fn progress;
    void *arg;
};

enum merak_status merak_weights_export(const struct merak_export *export,
                                       struct merak_transfer_summary *summary,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
