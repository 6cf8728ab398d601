/* SPDX-License-Identifier: Apache-2.0 */
/* test_boxes.c - a rank reads the box of a sample that it has, and no more */
#include "config.h"

#include "unit/data/array_files.h"

#include "io/samples/sample_set.h"

#ifdef HAVE_HDF5
#include <hdf5.h>
#endif

#include <fcntl.h>
#include <stdint.h>

enum { Z = 6, YS = 5, XS = 4, C = 2, CUBES = 3 };

/* Cube i's number at z, y, x, c. */
static int cube(int i, int z, int y, int x, int c)
{
    return (((i * Z + z) * YS + y) * XS + x) * C + c - 100;
}

/* Bytes that this process has read of files so far, but for those that this
 * takes; -1: nobody counts them. */
static long read_bytes(void)
{
    static long own;
    char text[512] = "";
    int fd = open("/proc/self/io", O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    long all;

    if (fd >= 0)
        close(fd);
    if (n <= 0 || sscanf(text, "rchar: %ld", &all) != 1)
        return -1;
    all -= own;
    own += n;
    return all;
}

/* What a rank of two, cut by z, has of each cube with planes of its neighbour;
 * and of four, cut by z and y. */
static const struct box_row {
    const char *name;
    size_t lo[4], len[4];
} box_rows[] = {
    {"all", {0, 0, 0, 0}, {Z, YS, XS, C}},
    {"cut by z", {2, 0, 0, 0}, {4, YS, XS, C}},
    {"cut by z and y", {2, 1, 0, 0}, {4, 4, XS, C}},
    {"one point", {5, 4, 3, 0}, {1, 1, 1, C}},
    {"one channel", {0, 0, 0, 1}, {Z, YS, XS, 1}},
    {"nothing", {3, 0, 0, 0}, {0, YS, XS, C}},
};

/* Each box has its own numbers; of `item` bytes each, if that is not 0, no
 * others are read. */
static void boxes_are_read(const char *json, size_t item)
{
    const struct merak_wish wish = {.name = "mass",
                                    .dtype = MERAK_F32,
                                    .shape = {4, {Z, YS, XS, C}},
                                    .letter = {'z', 'y', 'x'}};
    const struct merak_samples_options opt = {.path =
                                                  scratch_path("cubes.json"),
                                              .seed = 7,
                                              .n_wishes = 1,
                                              .wish = &wish};
    struct merak_samples *samples = NULL;
    struct merak_error err = {0};

    write_text("cubes.json", json);
    if (merak_samples_open(&opt, &samples, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof(box_rows) / sizeof(*box_rows); i++) {
        const struct box_row *row = &box_rows[i];
        const size_t *lo = row->lo, *len = row->len;
        size_t n = len[0] * len[1] * len[2] * len[3];
        float got[Z * YS * XS * C] = {0}, first;
        long bytes;
        int which;

        /* samples come in an order of their own */
        assert_int_equal(merak_samples_read(
                             samples, 0, MERAK_TRAIN, i, (size_t[]){0, 0, 0, 0},
                             (size_t[]){1, 1, 1, 1}, &first, NULL),
                         MERAK_OK);
        which = (int)(first + 100) / (Z * YS * XS * C);
        bytes = read_bytes();
        assert_int_equal(
            merak_samples_read(samples, 0, MERAK_TRAIN, i, lo, len, got, &err),
            MERAK_OK);
        bytes = bytes < 0 ? -1 : read_bytes() - bytes;
        for (size_t k = 0; k < n; k++) {
            size_t c = k % len[3], x = k / len[3] % len[2];
            size_t y = k / len[3] / len[2] % len[1];
            size_t z = k / len[3] / len[2] / len[1];

            if ((int)got[k] != cube(which, (int)(lo[0] + z), (int)(lo[1] + y),
                                    (int)(lo[2] + x), (int)(lo[3] + c)))
                fail_msg("%s, %s: element %zu is %g", json, row->name, k,
                         got[k]);
        }
        if (item > 0 && bytes >= 0)
            assert_int_equal(bytes, n * item);
    }
    merak_samples_close(samples);
}

static void write_cubes(int16_t *numbers)
{
    for (int i = 0, k = 0; i < CUBES; i++)
        for (int at = 0; at < Z * YS * XS * C; at++, k++)
            numbers[k] = (int16_t)(k - 100);
}

static void boxes_of_npy_are_read(void **state)
{
    int16_t numbers[CUBES * Z * YS * XS * C];

    (void)state;
    write_cubes(numbers);
    write_npy("cubes", DICT("<i2", "3, 6, 5, 4, 2"), numbers, sizeof(numbers));
    boxes_are_read("{\"mass\": \"cubes\"}", sizeof(*numbers));
}

#ifdef HAVE_HDF5
/* A data set of cubes, each if it is not negative alone, with its channels
 * first; chunks of a plane, or none. */
static void make_cubes(hid_t file, const char *name, int alone, bool chunked,
                       hid_t type)
{
    hsize_t dim[5] = {CUBES, Z, YS, XS, C}, chunk[5] = {1, 1, YS, XS, C};
    const hsize_t one[4] = {C, Z, YS, XS};
    int16_t numbers[CUBES * Z * YS * XS * C], moved[Z * YS * XS * C];
    hid_t space, plist = H5Pcreate(H5P_DATASET_CREATE), set;

    write_cubes(numbers);
    for (int k = 0; k < Z * YS * XS * C; k++)
        moved[k % C * (Z * YS * XS) + k / C] =
            numbers[(alone < 0 ? 0 : alone) * (Z * YS * XS * C) + k];
    space = alone < 0 ? H5Screate_simple(5, dim, NULL)
                      : H5Screate_simple(4, one, NULL);
    if (chunked) {
        H5Pset_chunk(plist, 5, chunk);
        H5Pset_deflate(plist, 1);
    }
    set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_INT16, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                         alone < 0 ? numbers : moved) >= 0);
    H5Pclose(plist);
    H5Dclose(set);
    H5Sclose(space);
}
#endif

/* In a file of all samples, contiguous or not, and in a file for each. */
static void boxes_of_hdf5_are_read(void **state)
{
#ifdef HAVE_HDF5
    hid_t file = H5Fcreate(scratch_path("all.h5"), H5F_ACC_TRUNC, H5P_DEFAULT,
                           H5P_DEFAULT);

    (void)state;
    make_cubes(file, "mass", -1, false, H5T_STD_I16LE);
    make_cubes(file, "wide", -1, false, H5T_IEEE_F64BE);
    make_cubes(file, "packed", -1, true, H5T_STD_I16LE);
    H5Fclose(file);
    for (int i = 0; i < CUBES; i++) {
        char name[16];

        snprintf(name, sizeof(name), "cube-%d.h5", i);
        file = H5Fcreate(scratch_path(name), H5F_ACC_TRUNC, H5P_DEFAULT,
                         H5P_DEFAULT);
        make_cubes(file, "full", i, false, H5T_STD_I16LE);
        H5Fclose(file);
    }
    boxes_are_read("{\"mass\": \"all.h5\"}", 2);
    boxes_are_read("{\"mass\": {\"file\": \"all.h5\", \"dataset\": \"wide\"}}",
                   8);
    boxes_are_read(
        "{\"mass\": {\"file\": \"all.h5\", \"dataset\": \"packed\"}}", 0);
    boxes_are_read("{\"mass\": {\"files\": \"cube-*.h5\", \"dataset\": "
                   "\"full\", \"axes\": \"czyx\"}}",
                   2);
#else
    (void)state;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_of_npy_are_read),
        cmocka_unit_test(boxes_of_hdf5_are_read),
    };

    return cmocka_run_group_tests_name("boxes", tests, scratch_make,
                                       scratch_remove);
}
