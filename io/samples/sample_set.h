/* SPDX-License-Identifier: Apache-2.0 */
/* io/samples/sample_set.h - the samples of a data set, whatever they are made
 * of
 *
 * Token files (io/tokens) are one kind, also with tokens hidden (corrupted.h);
 * arrays in files are the other: a file for each input of a model, row i of all
 * of them is sample i.  FILE.json has their names:
 *
 *     {"pixels": {"file": "train-images-idx3-ubyte.gz", "scale": 0.00392157},
 *      "label": "train-labels-idx1-ubyte.gz"}
 *
 * A path is relative to the folder of FILE.json.  Numbers are multiplied by
 * "scale" (1), and "shift" (0) is added; "dataset" names a data set of an HDF5
 * file, by default the input.  "files" in the place of "file" is a pattern for
 * names, of a file for each sample; "axes" has a letter for each dim of a sample
 * in the file, where they are in another order than the model's:
 *
 *     {"mass": {"files": "train/cube-*.h5", "dataset": "full", "axes": "czyx"},
 *      "truth": {"files": "train/cube-*.h5", "dataset": "numbers"}}
 *
 * The last samples, a fraction of all, are held out.  The order of the others
 * is a function of (seed, epoch), so the position in the data is a single
 * number, and any rank can read any sample.
 */
#ifndef MERAK_IO_SAMPLES_SAMPLE_SET_H
#define MERAK_IO_SAMPLES_SAMPLE_SET_H

#include "io/tokens/tokens.h"
#include "merak/types.h"

struct merak_samples;

/* What a model reads of each sample. */
struct merak_wish {
    const char *name;
    enum merak_dtype dtype;   /* f32, bf16 or i32 */
    struct merak_shape shape; /* of one sample */
    char letter[MERAK_MAX_DIMS]; /* of each dim, as merak_input() has them */
    size_t classes; /* labels: they are below it, or MERAK_NO_TARGET; 0: they
                       are none */
};

struct merak_samples_options {
    const char *path; /* FILE.json */
    uint64_t seed;    /* of the order */
    double valid_fraction;
    int n_wishes;
    const struct merak_wish *wish; /* borrowed for the call, names too */
};

/*
 * Open arrays, and look at all labels.
 *
 * MERAK_ERR_CONFIG: FILE.json and the inputs do not have the same names;
 * MERAK_ERR_MISMATCH: dims or types of a file and of its input do not fit, a
 * file has fewer samples than another, a label is outside its classes, a split
 * has no sample.
 */
enum merak_status merak_samples_open(const struct merak_samples_options *opt,
                                     struct merak_samples **samples_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* The samples of token files; data is borrowed. */
enum merak_status
merak_samples_of_tokens(struct merak_data *data,
                        struct merak_samples **samples_p,
                        struct merak_error *err) MERAK_CHECKED;
void merak_samples_close(struct merak_samples *samples);

/* As merak_data_samples(), merak_data_id() and merak_data_content() have it. */
uint64_t merak_samples_count(const struct merak_samples *samples,
                             enum merak_split split);
const char *merak_samples_id(const struct merak_samples *samples);
void merak_samples_content(const struct merak_samples *samples,
                           char text[MERAK_DATA_CONTENT]);

/* May a label of this wish be MERAK_NO_TARGET?  -1: a target of tokens. */
bool merak_samples_is_masked(const struct merak_samples *samples, int wish);
/* How many are not, in samples [index, index + n), without reading. */
uint64_t merak_samples_counted(const struct merak_samples *samples, int wish,
                               enum merak_split split, uint64_t index,
                               uint64_t n);
/*
 * A part of one sample; indices are as for merak_data_sample().  Not of
 * merak_samples_of_tokens().
 *
 *   lo, len  of each dim of the wish's shape; NULL: all of it
 *   out      out  the part, row-major, in the wish's dtype
 *
 * MERAK_ERR_CORRUPT names file and sample of a number that an i32 cannot have.
 * One thread at a time.
 */
enum merak_status merak_samples_read(const struct merak_samples *samples,
                                     int wish, enum merak_split split,
                                     uint64_t index, const size_t *lo,
                                     const size_t *len, void *out,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
