/* SPDX-License-Identifier: Apache-2.0 */
/* test_samples.c - arrays in files, their order, what is said of bad ones */
#include "config.h"

#include "unit/data/array_files.h"

#include "io/samples/array.h"
#include "io/samples/sample_set.h"

#ifdef HAVE_HDF5
#include "io/h5.h"
#endif

#include <stdint.h>

static void compress(const char *name)
{
    char command[256];

    snprintf(command, sizeof(command), "gzip -f %s", scratch_path(name));
    assert_int_equal(system(command), 0);
}

/* --- arrays ----------------------------------------------------------------
 */

/* Two rows of two elements: 1, 2, 3, -4, or 252 where there is no sign. */
static const struct array_row {
    const char *name;
    int idx;         /* type, or 0: npy */
    const char *npy; /* header */
    unsigned char bytes[32];
    size_t n;
    double last;
} array_rows[] = {
    {"idx u8", 8, NULL, {1, 2, 3, 252}, 4, 252},
    {"idx i8", 9, NULL, {1, 2, 3, 252}, 4, -4},
    {"idx i16", 11, NULL, {0, 1, 0, 2, 0, 3, 255, 252}, 8, -4},
    {"idx i32",
     12,
     NULL,
     {0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 255, 255, 255, 252},
     16,
     -4},
    {"idx f32",
     13,
     NULL,
     {0x3f, 0x80, 0, 0, 0x40, 0, 0, 0, 0x40, 0x40, 0, 0, 0xc0, 0x80, 0, 0},
     16,
     -4},
    {"idx f64",
     14,
     NULL,
     {0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x40, 0,    0, 0, 0, 0, 0, 0,
      0x40, 0x08, 0, 0, 0, 0, 0, 0, 0xc0, 0x10, 0, 0, 0, 0, 0, 0},
     32,
     -4},
    {"npy u8", 0, DICT("|u1", "2, 2"), {1, 2, 3, 252}, 4, 252},
    {"npy bool", 0, DICT("|b1", "2, 2"), {1, 2, 3, 4}, 4, 4},
    {"npy i8", 0, DICT("|i1", "2, 2"), {1, 2, 3, 252}, 4, -4},
    {"npy u16", 0, DICT("<u2", "2, 2"), {1, 0, 2, 0, 3, 0, 252, 0}, 8, 252},
    {"npy i16, big-endian",
     0,
     DICT(">i2", "2,2"),
     {0, 1, 0, 2, 0, 3, 255, 252},
     8,
     -4},
    {"npy u32",
     0,
     DICT("<u4", "2, 2"),
     {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 252, 0, 0, 0},
     16,
     252},
    {"npy i64",
     0,
     DICT("<i8", "2, 2"),
     {1, 0, 0, 0, 0, 0, 0, 0, 2,   0,   0,   0,   0,   0,   0,   0,
      3, 0, 0, 0, 0, 0, 0, 0, 252, 255, 255, 255, 255, 255, 255, 255},
     32,
     -4},
    {"npy f16",
     0,
     DICT("<f2", "2, 2"),
     {0, 0x3c, 0, 0x40, 0, 0x42, 0, 0xc4},
     8,
     -4},
    {"npy f32",
     0,
     DICT("<f4", "2, 2"),
     {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0xc0},
     16,
     -4},
};

static void read_array(const char *name, const char *set, double last)
{
    struct merak_array array;
    struct merak_error err = {0};
    double got[2], want[2] = {3, last};

    if (merak_array_open(scratch_path(name), set, &array, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(array.shape.ndim, 2);
    assert_int_equal(array.row, 2);
    assert_int_equal(merak_array_read(&array, 1, 1, got, NULL), MERAK_OK);
    assert_near(got, want, 2, 0, 0);
    assert_int_equal(merak_array_read(&array, 0, 1, got, NULL), MERAK_OK);
    want[0] = 1;
    want[1] = 2;
    assert_near(got, want, 2, 0, 0);
    merak_array_close(&array);
}

static void types_of_elements_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(array_rows) / sizeof(*array_rows); i++) {
        const struct array_row *r = &array_rows[i];

        if (r->idx != 0)
            write_idx("a", r->idx, 2, (int[]){2, 2}, r->bytes, r->n);
        else
            write_npy("a", r->npy, r->bytes, r->n);
        read_array("a", NULL, r->last);
#ifdef HAVE_ZLIB
        compress("a");
        read_array("a.gz", NULL, r->last);
#endif
    }
}

#ifdef HAVE_HDF5
static bool make_set(hid_t file, void *arg)
{
    const hsize_t dim[] = {2, 2};
    const int16_t x[] = {1, 2, 3, -4};
    hid_t space = H5Screate_simple(2, dim, NULL), set, plist;

    (void)arg;
    plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 2, (const hsize_t[]){1, 2});
    set = H5Dcreate2(file, "images", H5T_STD_I16BE, space, H5P_DEFAULT, plist,
                     H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_INT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, x);
    H5Pclose(plist);
    H5Dclose(set);
    H5Sclose(space);
    return set >= 0;
}
#endif

static void sets_of_hdf5_are_read(void **state)
{
#ifdef HAVE_HDF5
    struct merak_array array;
    struct merak_error err = {0};
    hid_t file;

    (void)state;
    file = H5Fcreate(scratch_path("a.h5"), H5F_ACC_TRUNC, H5P_DEFAULT,
                     H5P_DEFAULT);
    assert_true(file >= 0 && make_set(file, NULL));
    H5Fclose(file);
    read_array("a.h5", "images", -4);
    assert_int_not_equal(
        merak_array_open(scratch_path("a.h5"), "labels", &array, &err),
        MERAK_OK);
    assert_non_null(strstr(err.text, "data set labels"));
#else
    (void)state;
    skip();
#endif
}

/* --- samples ----------------------------------------------------------------
 */

enum { N = 12, CLASSES = 3 };

/* Image i has numbers 10 i .. 10 i + 5, label i mod 3. */
static void write_images(void)
{
    unsigned char pixels[N * 6], label[N];

    for (int i = 0; i < N; i++) {
        label[i] = (unsigned char)(i % CLASSES);
        for (int k = 0; k < 6; k++)
            pixels[6 * i + k] = (unsigned char)(10 * i + k);
    }
    write_idx("pixels", 8, 3, (int[]){N, 2, 3}, pixels, sizeof(pixels));
    write_idx("label", 8, 1, (int[]){N}, label, sizeof(label));
    write_text("data.json",
               "{\"pixels\": {\"file\": \"pixels\", \"scale\": 0.5, \"shift\": "
               "-1}, \"label\": \"label\"}");
}

static const struct merak_wish wishes[] = {
    {.name = "pixels",
     .dtype = MERAK_F32,
     .shape = {3, {2, 3, 1}},
     .letter = {'y', 'x'}},
    {.name = "label", .dtype = MERAK_I32, .classes = CLASSES},
};

static enum merak_status open_samples(const char *json, double fraction,
                                      const struct merak_wish *wish, int n,
                                      struct merak_samples **samples_p,
                                      struct merak_error *err)
{
    const struct merak_samples_options opt = {.path = scratch_path(json),
                                              .seed = 7,
                                              .valid_fraction = fraction,
                                              .n_wishes = n,
                                              .wish = wish};

    return merak_samples_open(&opt, samples_p, err);
}

static struct merak_samples *opened(double fraction)
{
    struct merak_samples *samples = NULL;
    struct merak_error err = {0};

    write_images();
    if (open_samples("data.json", fraction, wishes, 2, &samples, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    return samples;
}

/* The image that a sample is, by its first number. */
static int image_of(const struct merak_samples *samples, enum merak_split split,
                    uint64_t index)
{
    float pixels[6];
    int32_t label;
    int image;

    assert_int_equal(
        merak_samples_read(samples, 0, split, index, NULL, NULL, pixels, NULL),
        MERAK_OK);
    assert_int_equal(
        merak_samples_read(samples, 1, split, index, NULL, NULL, &label, NULL),
        MERAK_OK);
    image = (int)((pixels[0] + 1) / 5);
    for (int k = 0; k < 6; k++)
        assert_float_equal(pixels[k], 0.5 * (10 * image + k) - 1, 0);
    assert_int_equal(label, image % CLASSES);
    return image;
}

static void an_epoch_has_each_image_once(void **state)
{
    struct merak_samples *samples = opened(0.25);
    int order[2][9];

    (void)state;
    assert_int_equal(merak_samples_count(samples, MERAK_TRAIN), 9);
    assert_int_equal(merak_samples_count(samples, MERAK_VALID), 3);
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[N] = {0};

        for (int i = 0; i < 9; i++) {
            order[epoch][i] =
                image_of(samples, MERAK_TRAIN, (uint64_t)(9 * epoch + i));
            assert_in_range(order[epoch][i], 0, 8);
            assert_int_equal(seen[order[epoch][i]]++, 0);
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof(order[0]));
    for (int i = 0; i < 6; i++)
        assert_int_equal(image_of(samples, MERAK_VALID, (uint64_t)i),
                         9 + i % 3);
    merak_samples_close(samples);
}

static void a_part_of_a_sample_is_read(void **state)
{
    struct merak_samples *samples = opened(0.25);
    const size_t lo[] = {0, 1, 0}, len[] = {2, 2, 1};
    const float want[] = {44.5, 45, 46, 46.5};
    float got[4];

    (void)state;
    assert_int_equal(
        merak_samples_read(samples, 0, MERAK_VALID, 0, lo, len, got, NULL),
        MERAK_OK);
    for (int i = 0; i < 4; i++)
        assert_float_equal(got[i], want[i], 0);
    merak_samples_close(samples);
}

static void labels_that_count_are_counted(void **state)
{
    static const int32_t label[] = {0, -1, 2, 1, -1, -1};
    struct merak_samples *samples = opened(0), *masked = NULL;
    uint64_t counted = 0;

    (void)state;
    assert_false(merak_samples_is_masked(samples, 1));
    assert_int_equal(merak_samples_counted(samples, 1, MERAK_TRAIN, 5, 20), 20);
    merak_samples_close(samples);
    write_npy("label", DICT("<i4", "6,"), label, sizeof(label));
    write_text("data.json", "{\"label\": \"label\"}");
    assert_int_equal(open_samples("data.json", 0, wishes + 1, 1, &masked, NULL),
                     MERAK_OK);
    assert_true(merak_samples_is_masked(masked, 0));
    assert_int_equal(merak_samples_counted(masked, 0, MERAK_TRAIN, 6, 12), 6);
    for (uint64_t i = 0; i < 6; i++) {
        int32_t got;

        assert_int_equal(merak_samples_read(masked, 0, MERAK_TRAIN, i, NULL,
                                            NULL, &got, NULL),
                         MERAK_OK);
        counted += merak_samples_counted(masked, 0, MERAK_TRAIN, i, 1);
        assert_int_equal(merak_samples_counted(masked, 0, MERAK_TRAIN, i, 1),
                         got >= 0);
    }
    assert_int_equal(counted, 3);
    merak_samples_close(masked);
}

/* A file may have another name, not other numbers. */
static void contents_tell_data_apart(void **state)
{
    char first[MERAK_DATA_CONTENT], moved[MERAK_DATA_CONTENT];
    char scaled[MERAK_DATA_CONTENT];
    struct merak_samples *samples = opened(0);

    (void)state;
    merak_samples_content(samples, first);
    assert_non_null(strstr(first, "12 samples of pixels, label, "));
    merak_samples_close(samples);
    assert_int_equal(rename(scratch_path("label"), scratch_path("l")), 0);
    write_text("data.json",
               "{\"pixels\": {\"file\": \"pixels\", \"scale\": 0.5, \"shift\": "
               "-1}, \"label\": \"l\"}");
    assert_int_equal(open_samples("data.json", 0, wishes, 2, &samples, NULL),
                     MERAK_OK);
    merak_samples_content(samples, moved);
    assert_string_equal(first, moved);
    merak_samples_close(samples);
    write_text("data.json", "{\"pixels\": {\"file\": \"pixels\", \"scale\": "
                            "0.25, \"shift\": -1}, \"label\": \"l\"}");
    assert_int_equal(open_samples("data.json", 0, wishes, 2, &samples, NULL),
                     MERAK_OK);
    merak_samples_content(samples, scaled);
    assert_string_not_equal(first, scaled);
    merak_samples_close(samples);
}

/* --- refusals ----------------------------------------------------------------
 */

static const struct bad_row {
    const char *json, *says;
    double fraction;
    enum merak_status status;
} bad_rows[] = {
    {"{\"pixels\": \"pixels\"", "expected a JSON object", 0, MERAK_ERR_CONFIG},
    {"[1]", "expected a JSON object", 0, MERAK_ERR_CONFIG},
    {"{\"pixels\": \"pixels\"}", "no file for input \"label\"", 0,
     MERAK_ERR_CONFIG},
    {"{\"pixels\": \"pixels\", \"label\": \"label\", \"lable\": \"label\"}",
     "no input \"lable\"", 0, MERAK_ERR_CONFIG},
    {"{\"pixels\": {\"path\": \"pixels\"}, \"label\": \"label\"}",
     "\"pixels\": expected a path, or an object", 0, MERAK_ERR_CONFIG},
    {"{\"pixels\": {\"file\": \"pixels\", \"scale\": \"2\"}, \"label\": "
     "\"label\"}",
     "\"pixels\": expected a path, or an object", 0, MERAK_ERR_CONFIG},
    {"{\"pixels\": {\"file\": \"pixels\", \"files\": \"*\"}, \"label\": "
     "\"label\"}",
     "\"pixels\": expected a path, or an object", 0, MERAK_ERR_CONFIG},
    {"{\"pixels\": {\"files\": \"no*\"}, \"label\": \"label\"}",
     "no file is called ", 0, MERAK_ERR_NOT_FOUND},
    {"{\"pixels\": {\"files\": \"page-*\"}, \"label\": {\"files\": "
     "\"mark-*\"}}",
     "page-2 is [3,2] of u8, expected [2,3] of u8 as ", 0, MERAK_ERR_MISMATCH},
    {"{\"pixels\": {\"file\": \"pixels\", \"axes\": \"xy\"}, \"label\": "
     "\"label\"}",
     "is [2,3] with axes \"xy\", and the model expects [2,3,1], \"yxc\"", 0,
     MERAK_ERR_MISMATCH},
    {"{\"pixels\": \"nowhere\", \"label\": \"label\"}", "nowhere", 0,
     MERAK_ERR_NOT_FOUND},
    {"{\"pixels\": \"label\", \"label\": \"label\"}",
     "label is [], and the model expects [2,3,1]", 0, MERAK_ERR_MISMATCH},
    {"{\"pixels\": \"pixels\", \"label\": \"float\"}",
     "float has f32, and the model expects i32", 0, MERAK_ERR_MISMATCH},
    {"{\"pixels\": \"pixels\", \"label\": {\"file\": \"label\", \"scale\": 2}}",
     "label has u8, scaled, and the model expects i32", 0, MERAK_ERR_MISMATCH},
    {"{\"pixels\": \"pixels\", \"label\": \"few\"}", "has 12 samples and ", 0,
     MERAK_ERR_MISMATCH},
    {"{\"pixels\": \"pixels\", \"label\": \"outside\"}",
     "label 3 of sample 7, expected 0 to 2, or -1", 0, MERAK_ERR_MISMATCH},
    {"{\"pixels\": \"short\", \"label\": \"label\"}",
     "short has 20 bytes, expected 88 by its header", 0, MERAK_ERR_CORRUPT},
    {"{\"pixels\": \"data.json\", \"label\": \"label\"}", "is not an array", 0,
     MERAK_ERR_FORMAT},
    {"{\"pixels\": \"fortran\", \"label\": \"label\"}", "in Fortran's order", 0,
     MERAK_ERR_FORMAT},
    {"{\"pixels\": \"complex\", \"label\": \"label\"}",
     "expected integers or floats", 0, MERAK_ERR_FORMAT},
    {"{\"pixels\": \"pixels\", \"label\": \"label\"}",
     "12 samples for validation 0.05", 0.05, MERAK_ERR_MISMATCH},
    {"{\"pixels\": \"pixels\", \"label\": \"label\"}",
     "validation fraction 1, expected", 1, MERAK_ERR_CONFIG},
};

static void write_bad_files(void)
{
    unsigned char outside[N] = {0}, zeros[N * 8] = {0};

    write_images();
    outside[7] = CLASSES;
    write_idx("page-1", 8, 2, (int[]){2, 3}, zeros, 6);
    write_idx("page-2", 8, 2, (int[]){3, 2}, zeros, 6);
    write_idx("mark-1", 8, 1, (int[]){1}, zeros, 1);
    write_idx("mark-2", 8, 1, (int[]){1}, zeros, 1);
    write_idx("few", 8, 1, (int[]){N - 1}, outside, N - 1);
    write_idx("outside", 8, 1, (int[]){N}, outside, N);
    write_npy("float", DICT("<f4", "12,"), zeros, 4 * N);
    write_idx("short", 8, 3, (int[]){N, 2, 3}, outside, 4);
    write_npy("fortran",
              "{'descr': '|u1', 'fortran_order': True, 'shape': "
              "(12, 1), }",
              zeros, N);
    write_npy("complex", DICT("<c8", "12,"), zeros, 8 * N);
}

static void bad_data_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(*bad_rows); i++) {
        const struct bad_row *row = &bad_rows[i];
        struct merak_samples *samples = NULL;
        struct merak_error err = {0};
        enum merak_status rc;

        write_bad_files();
        write_text("data.json", row->json);
        rc =
            open_samples("data.json", row->fraction, wishes, 2, &samples, &err);
        if (rc != row->status || strstr(err.text, row->says) == NULL)
            fail_msg("%s: %d \"%s\", expected %d \"%s\"", row->json, rc,
                     err.text, row->status, row->says);
        assert_null(samples);
    }
}

/* Any cut of a header is refused, none is read beyond its end. */
static void cut_headers_are_refused(void **state)
{
    static const unsigned char pixel[6] = {0};
    struct merak_array array;
    size_t n;

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        unsigned char *whole;

        if (kind == 0)
            write_idx("a", 8, 3, (int[]){1, 2, 3}, pixel, sizeof(pixel));
        else
            write_npy("a", DICT("|u1", "1, 2, 3"), pixel, sizeof(pixel));
        whole = read_whole(scratch_path("a"), &n);
        for (size_t cut = 0; cut < n; cut++) {
            scratch_write("b", whole, cut);
            assert_int_not_equal(
                merak_array_open(scratch_path("b"), NULL, &array, NULL),
                MERAK_OK);
        }
        free(whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_of_elements_are_read),
        cmocka_unit_test(sets_of_hdf5_are_read),
        cmocka_unit_test(an_epoch_has_each_image_once),
        cmocka_unit_test(a_part_of_a_sample_is_read),
        cmocka_unit_test(labels_that_count_are_counted),
        cmocka_unit_test(contents_tell_data_apart),
        cmocka_unit_test(bad_data_are_refused),
        cmocka_unit_test(cut_headers_are_refused),
    };

    return cmocka_run_group_tests_name("samples", tests, scratch_make,
                                       scratch_remove);
}
