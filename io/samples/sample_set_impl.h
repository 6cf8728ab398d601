/* SPDX-License-Identifier: Apache-2.0 */
/* sample_set_impl.h - what kinds of samples have in common */
#ifndef MERAK_IO_SAMPLES_SAMPLE_SET_IMPL_H
#define MERAK_IO_SAMPLES_SAMPLE_SET_IMPL_H

#include "io/samples/array.h"
#include "io/samples/sample_set.h"

struct merak_samples_ops {
    uint64_t (*count)(const struct merak_samples *samples,
                      enum merak_split split);
    const char *(*id)(const struct merak_samples *samples);
    void (*content)(const struct merak_samples *samples,
                    char text[MERAK_DATA_CONTENT]);
    bool (*is_masked)(const struct merak_samples *samples, int wish);
    uint64_t (*counted)(const struct merak_samples *samples, int wish,
                        enum merak_split split, uint64_t index, uint64_t n);
    /* NULL: tokens, which merak_data_sample() reads. */
    enum merak_status (*read)(const struct merak_samples *samples, int wish,
                              enum merak_split split, uint64_t index,
                              const size_t *lo, const size_t *len, void *out,
                              struct merak_error *err);
    void (*close)(struct merak_samples *samples);
};

struct merak_samples {
    const struct merak_samples_ops *ops;
};

/* The file of an input, and what is made of its numbers. */
struct samples_source {
    char *name, *file, *set; /* of the input; of the file as given; in HDF5 */
    bool each;               /* file is a pattern: of a file for each sample */
    char *axes;              /* letters of the file's dims, or NULL */
    double scale, shift;
    enum merak_dtype dtype;
    struct merak_shape shape; /* of a sample */
    char letter[MERAK_MAX_DIMS];
    size_t classes;
    struct merak_array array;
    /* By dim of the array, from 1 on, which of the sample's it is; -1: it is
     * of extent 1, and none of them. */
    int8_t dim_of[MERAK_MAX_DIMS];
    uint32_t *counted; /* labels of each sample that count; NULL: all do */
};

/* sources.c: read FILE.json, and find the source of each wish in it. */
enum merak_status samples_sources_open(const struct merak_samples_options *opt,
                                       struct samples_source *source,
                                       struct merak_error *err) MERAK_CHECKED;
void samples_source_close(struct samples_source *source);

#endif
