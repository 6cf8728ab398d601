/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_arrays.c - idx and npy files, plain and compressed, and the file that
 * names them */
#include "config.h"

#include "fuzz/fuzz.h"

#include "io/samples/array.h"
#include "io/samples/sample_set.h"

#include <stdlib.h>
#include <string.h>

enum { ARRAY, NAMES };

static const uint8_t idx[] = {0, 0, 8, 2, 0, 0, 0, 3, 0,
                              0, 0, 2, 1, 2, 3, 4, 5, 6};
static const char header[] = "{'descr': '<i2', 'fortran_order': False, "
                             "'shape': (3, 2), }\n";
static const uint8_t gzip[] = {
    31, 139, 8,  0,  0,  0,   0,  0,  2,  3, 99, 96, 224, 96,  98, 96, 96, 96,
    6,  98,  38, 70, 38, 102, 22, 86, 54, 0, 60, 64, 199, 130, 18, 0,  0,  0};

void fuzz_seeds(void)
{
    uint8_t npy[10 + sizeof(header) - 1 + 12] = "\x93NUMPY\1\0";

    npy[8] = sizeof(header) - 1;
    memcpy(npy + 10, header, sizeof(header) - 1);
    fuzz_add_kind(ARRAY, idx, sizeof(idx));
    fuzz_add_kind(ARRAY, npy, sizeof(npy));
    fuzz_add_kind(ARRAY, gzip, sizeof(gzip));
    fuzz_add_kind(NAMES, "{\"x\": \"array\"}", 14);
    fuzz_add_kind(NAMES,
                  "{\"x\": {\"file\": \"array\", \"dataset\": \"x\", "
                  "\"scale\": 2, \"shift\": 1}}",
                  64);
}

/* Every number that a file says it has is there. */
static void read_array(const char *path)
{
    struct merak_error err = {.text = ""};
    struct merak_array array;
    enum merak_status rc = merak_array_open(path, "x", &array, &err);
    double *row;

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return;
    }
    row = malloc(array.row * sizeof(*row));
    fuzz_must(row != NULL, "a row of a file fits into memory");
    for (size_t i = 0; i < array.shape.dim[0]; i++) {
        rc = merak_array_read(&array, i, 1, row, &err);
        fuzz_must(rc == MERAK_OK, "each row of an array is there");
    }
    free(row);
    merak_array_close(&array);
}

static void read_names(const char *path)
{
    const struct merak_wish wish = {
        .name = "x", .dtype = MERAK_F32, .shape = {1, {2}}};
    const struct merak_samples_options opt = {
        .path = path, .n_wishes = 1, .wish = &wish};
    struct merak_error err = {.text = ""};
    struct merak_samples *samples = NULL;
    enum merak_status rc;
    float x[2];

    fuzz_file("array", idx, sizeof(idx));
    rc = merak_samples_open(&opt, &samples, &err);
    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return;
    }
    rc = merak_samples_read(samples, 0, MERAK_TRAIN, 2, NULL, NULL, x, &err);
    fuzz_must(rc == MERAK_OK, "each sample is there");
    merak_samples_close(samples);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    if (data[0] == ARRAY)
        read_array(fuzz_file("input", data + 1, n - 1));
    else
        read_names(fuzz_file("names.json", data + 1, n - 1));
    return 0;
}
