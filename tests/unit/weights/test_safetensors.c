/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c - safetensors files: sound ones to the byte, damaged ones
 * by name, and what a seed makes of sound ones
 *
 * MERAK_TEST_SECONDS: how long the last goes on (2).
 */
#include "config.h"

#include "unit/scratch_dir.h"

#include "base/clock.h"
#include "base/rng.h"
#include "base/hub.h"
#include "io/weights/safetensors.h"

#include <float.h>

/* Two tensors, [2, 2] of F32 and [3] of BF16, as the format has them. */
#define GOLDEN                                                              \
    "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\","       \
    "\"shape\":[2,2],\"data_offsets\":[0,16]},\"b.c\":{\"dtype\":\"BF16\"," \
    "\"shape\":[3],\"data_offsets\":[16,22]}}"
static const unsigned char golden_data[22] = {
    0,    0,    0x80, 0x3f, 0,    0,    0, 0xc0, 0, 0, 0, /* 1, -2, */
    0,    0,    0,    0x20, 0x41,                         /* 0, 10 */
    0x80, 0x3f, 0x00, 0xc0, 0x20, 0x41,                   /* 1, -2, 10 */
};

/* A file of a header, as it is, and n bytes of data. */
static size_t make_file(unsigned char *to, const char *header, size_t padded,
                        const unsigned char *data, size_t n)
{
    size_t length = strlen(header);

    memset(to, 0, 8);
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(padded >> (8 * i));
    memset(to + 8, ' ', padded);
    memcpy(to + 8, header, length);
    memcpy(to + 8 + padded, data, n);
    return 8 + padded + n;
}

static size_t golden_file(unsigned char *to)
{
    size_t padded = (strlen(GOLDEN) + 7) / 8 * 8;

    return make_file(to, GOLDEN, padded, golden_data, sizeof(golden_data));
}

static void a_file_is_read_as_it_is_written(void **state)
{
    static const float want[] = {1, -2, 0, 10, 1, -2, 10};
    unsigned char file[1024];
    struct merak_safetensors *st;
    struct merak_error err;
    float got[4];

    (void)state;
    scratch_write(MERAK_SAFETENSORS_FILE, file, golden_file(file));
    if (merak_safetensors_open(scratch_dir, &st, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(st->n, 2);
    assert_false(st->indexed);
    assert_string_equal(st->tensor[0].name, "a");
    assert_string_equal(st->tensor[1].name, "b.c");
    assert_int_equal(st->tensor[0].ndim, 2);
    assert_int_equal(st->tensor[1].type, MERAK_SAFETENSORS_BF16);
    assert_int_equal(
        merak_safetensors_read(st, &st->tensor[0], 0, 4, got, &err), MERAK_OK);
    assert_near(got, want, 4, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(
            merak_safetensors_read(st, &st->tensor[1], i, 3 - i, got, &err),
            MERAK_OK);
        assert_near(got, want + 4 + i, 3 - i, 0, 0);
    }
    assert_int_equal(
        merak_safetensors_read(st, &st->tensor[1], 1, 3, got, &err),
        MERAK_ERR_PARAM);
    merak_safetensors_close(st);
}

static void what_is_written_is_the_same_bytes(void **state)
{
    static const struct merak_safetensors_entry entry[] = {
        {"a", MERAK_SAFETENSORS_F32, 2, {2, 2}},
        {"b.c", MERAK_SAFETENSORS_BF16, 1, {3}},
    };
    static const float x[] = {1, -2, 0, 10, 1, -2, 10};
    struct merak_safetensors_writer *w;
    unsigned char want[1024], *got;
    size_t n, n_want = golden_file(want);
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_safetensors_create(scratch_path("written"), entry, 2,
                                              NULL, &w, &err),
                     MERAK_OK);
    assert_int_equal(merak_safetensors_put(w, x, 3, &err), MERAK_OK);
    assert_int_equal(merak_safetensors_put(w, x + 3, 1, &err), MERAK_OK);
    assert_int_equal(merak_safetensors_put(w, x + 4, 2, &err), MERAK_OK);
    assert_int_equal(merak_safetensors_commit(w, &err), MERAK_ERR_PARAM);
    assert_int_equal(merak_safetensors_put(w, x + 6, 1, &err), MERAK_OK);
    assert_int_not_equal(access(scratch_path("written"), F_OK), 0);
    assert_int_equal(merak_safetensors_commit(w, &err), MERAK_OK);
    merak_safetensors_destroy(w);
    got = read_whole(scratch_path("written"), &n);
    assert_int_equal(n, n_want);
    assert_memory_equal(got, want, n);
    free(got);
}

/* What a type cannot hold is refused by name, and no file is left. */
static void numbers_that_do_not_fit_are_named(void **state)
{
    static const struct {
        enum merak_safetensors_type type;
        float value;
        enum merak_status want;
    } rows[] = {
        {MERAK_SAFETENSORS_F16, 65504.0f, MERAK_OK},
        {MERAK_SAFETENSORS_F16, 65520.0f, MERAK_ERR_MISMATCH},
        {MERAK_SAFETENSORS_F16, INFINITY, MERAK_OK},
        {MERAK_SAFETENSORS_F16, NAN, MERAK_OK},
        {MERAK_SAFETENSORS_BF16, 65520.0f, MERAK_OK},
        {MERAK_SAFETENSORS_BF16, FLT_MAX, MERAK_ERR_MISMATCH},
        {MERAK_SAFETENSORS_F32, FLT_MAX, MERAK_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct merak_safetensors_entry entry = {
            "some.weight", rows[i].type, 1, {2}};
        const float x[] = {1, rows[i].value};
        struct merak_safetensors_writer *w;
        struct merak_error err;

        assert_int_equal(merak_safetensors_create(scratch_path("narrow"),
                                                  &entry, 1, NULL, &w, &err),
                         MERAK_OK);
        assert_int_equal(merak_safetensors_put(w, x, 2, &err), rows[i].want);
        if (rows[i].want != MERAK_OK)
            assert_non_null(strstr(err.text, "some.weight: element 1 is"));
        merak_safetensors_destroy(w);
        assert_int_not_equal(access(scratch_path("narrow.tmp"), F_OK), 0);
    }
}

/* --- what is wrong ---------------------------------------------------------
 */

#define ONE(dtype, shape, offsets)                       \
    "{\"x.w\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
    ",\"data_offsets\":" offsets "}}"

static const struct {
    const char *header; /* in front of 8 bytes of data */
    const char *says;   /* "": it is sound */
} headers[] = {
    {ONE("F32", "[2]", "[0,8]"), ""},
    {ONE("F32", "[]", "[0,4]"), "end at byte"},
    {ONE("I64", "[1]", "[0,8]"), ""},
    {ONE("F4", "[16]", "[0,8]"), ""},
    {ONE("F32", "[0]", "[0,0]"), "end at byte"},
    {"{}", "end at byte"},
    {"", "not valid JSON"},
    {"[]", "not a JSON object"},
    {"{\"x\":", "not valid JSON"},
    {"{\"x\":1}", "tensor x is 1, expected dtype, shape and data_offsets"},
    {"{\"x\":{}}", "tensor x is {}"},
    {ONE("F32", "2", "[0,8]"), "tensor x.w is"},
    {ONE("Q32", "[2]", "[0,8]"), "tensor x.w has dtype Q32"},
    {ONE("F32", "[2.0]", "[0,8]"), "x.w: dim 0 of its shape"},
    {ONE("F32", "[-2]", "[0,8]"), "x.w: dim 0 of its shape"},
    {ONE("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "x.w has 9 dims"},
    {ONE("F32", "[4294967296,4294967296,4294967296]", "[0,8]"),
     "x.w: the product of its shape"},
    {ONE("F32", "[2305843009213693952]", "[0,8]"),
     "x.w: the product of its shape"},
    {ONE("F32", "[2]", "[0,8,9]"), "x.w: data_offsets are not two"},
    {ONE("F32", "[2]", "[8,0]"), "x.w: data_offsets are not two"},
    {ONE("F32", "[2]", "[-1,7]"), "x.w: data_offsets are not two"},
    {ONE("F32", "[2]", "[\"0\",8]"), "x.w: data_offsets are not two"},
    {ONE("F32", "[3]", "[0,12]"), "x.w ends at byte 12 of the data, of which"},
    {ONE("F32", "[2]", "[0,9223372036854775807]"), "x.w ends at byte"},
    {ONE("F32", "[2]", "[0,92233720368547758080]"), "not valid JSON"},
    {ONE("F32", "[1]", "[0,8]"),
     "x.w: data_offsets [0, 8] are 8 bytes, expected 4"},
    {ONE("F6_E2M3", "[3]", "[0,2]"), "x.w: data_offsets"},
    {ONE("F32", "[1]", "[4,8]"), "x.w begins at byte"},
    {ONE("F32", "[1]", "[0,4]"), "the tensors end at byte"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     "tensor b begins at byte"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     "duplicate"},
};

static void a_header_that_is_wrong_is_told_by_tensor(void **state)
{
    static const unsigned char data[8] = {0};
    unsigned char file[1024];

    (void)state;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        struct merak_safetensors *st = NULL;
        struct merak_error err = {.text = ""};
        enum merak_status rc;
        size_t n = make_file(file, headers[i].header, strlen(headers[i].header),
                             data, sizeof(data));

        scratch_write(MERAK_SAFETENSORS_FILE, file, n);
        rc = merak_safetensors_open(scratch_dir, &st, &err);
        if ((rc == MERAK_OK) != (headers[i].says[0] == '\0') ||
            strstr(err.text, headers[i].says) == NULL)
            fail_msg("%s: \"%s\", expected \"%s\"", headers[i].header, err.text,
                     headers[i].says);
        if (rc != MERAK_OK)
            assert_non_null(strstr(err.text, MERAK_SAFETENSORS_FILE));
        merak_safetensors_close(st);
    }
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    unsigned char file[1024];
    size_t n = golden_file(file);

    (void)state;
    for (size_t cut = 0; cut < n; cut++) {
        struct merak_safetensors *st = NULL;
        struct merak_error err;
        enum merak_status rc;

        scratch_write(MERAK_SAFETENSORS_FILE, file, cut);
        rc = merak_safetensors_open(scratch_dir, &st, &err);
        assert_int_equal(rc, MERAK_ERR_CORRUPT);
        assert_non_null(strstr(err.text, MERAK_SAFETENSORS_FILE));
    }
    memset(file, 0xff, 8); /* a header of 2^64 - 1 bytes */
    scratch_write(MERAK_SAFETENSORS_FILE, file, n);
    assert_int_equal(merak_safetensors_open(scratch_dir,
                                            &(struct merak_safetensors *){NULL},
                                            NULL),
                     MERAK_ERR_FORMAT);
}

static void a_tensor_of_other_numbers_is_not_read(void **state)
{
    static const unsigned char data[8] = {0};
    struct merak_safetensors *st;
    unsigned char file[1024];
    struct merak_error err;
    float x;

    (void)state;
    scratch_write(MERAK_SAFETENSORS_FILE, file,
                  make_file(file, ONE("F64", "[1]", "[0,8]"),
                            strlen(ONE("F64", "[1]", "[0,8]")), data, 8));
    assert_int_equal(merak_safetensors_open(scratch_dir, &st, &err), MERAK_OK);
    assert_int_equal(merak_safetensors_read(st, &st->tensor[0], 0, 1, &x, &err),
                     MERAK_ERR_FORMAT);
    assert_non_null(
        strstr(err.text, "x.w is of F64, expected F32, BF16 or F16"));
    merak_safetensors_close(st);
}

/* --- several files ---------------------------------------------------------
 */

static const struct {
    const char *index, *says; /* "": it is sound */
} indices[] = {
    {"{\"weight_map\":{\"a\":\"one\",\"b.c\":\"one\"}}", ""},
    {"{\"weight_map\":{\"a\":\"one\",\"x.w\":\"two\"}}", ""},
    {"{\"weight_map\":{\"a\":\"two\"}}", "tensor a is not in two"},
    {"{\"weight_map\":{\"a\":\"one\",\"z\":\"one\"}}",
     "tensor z is not in one"},
    {"{\"weight_map\":{\"a\":\"one\",\"b\":\"three\"}}",
     "lacks three, which model.safetensors.index.json names: the model is not "
     "there as a whole; hf download NAME --local-dir /"},
    {"{\"weight_map\":{\"a\":\"one\",\"b\":\"same\"}}", "tensor a is in"},
    {"{\"weight_map\":{\"a\":\"../one\"}}", "expected a file of the folder"},
    {"{\"weight_map\":{\"a\":\"/dev/zero\"}}", "expected a file of the folder"},
    {"{\"weight_map\":{\"a\":\"\"}}", "expected a file of the folder"},
    {"{\"weight_map\":{\"a\":1}}", "expected a file of the folder"},
    {"{\"weight_map\":{}}", "has no weight_map"},
    {"{\"weight_map\":[]}", "has no weight_map"},
    {"[]", "has no weight_map"},
    {"{", "is not valid JSON"},
    {"", "is not valid JSON"},
};

static void an_index_means_the_files_beside_it(void **state)
{
    static const unsigned char data[8] = {0};
    unsigned char file[1024];

    (void)state;
    unlink(scratch_path(MERAK_SAFETENSORS_FILE));
    scratch_write("one", file, golden_file(file));
    scratch_write("same", file, golden_file(file));
    scratch_write("two", file,
                  make_file(file, ONE("F32", "[2]", "[0,8]"),
                            strlen(ONE("F32", "[2]", "[0,8]")), data, 8));
    for (size_t i = 0; i < sizeof(indices) / sizeof(indices[0]); i++) {
        struct merak_safetensors *st = NULL;
        struct merak_error err = {.text = ""};
        enum merak_status rc;

        scratch_write(MERAK_SAFETENSORS_INDEX, indices[i].index,
                      strlen(indices[i].index));
        rc = merak_safetensors_open(scratch_dir, &st, &err);
        if ((rc == MERAK_OK) != (indices[i].says[0] == '\0') ||
            strstr(err.text, indices[i].says) == NULL)
            fail_msg("%s: \"%s\", expected \"%s\"", indices[i].index, err.text,
                     indices[i].says);
        assert_true(rc != MERAK_OK || st->indexed);
        merak_safetensors_close(st);
    }
    unlink(scratch_path(MERAK_SAFETENSORS_INDEX));
}

/* The command for a folder of the hub's cache has the model's name. */
static void a_download_goes_on_by_name(void **state)
{
    static const struct {
        const char *dir, *text;
    } row[] = {
        {"/h/models--org--a-b/snapshots/0f", "hf download org/a-b"},
        {"models--gpt2/snapshots/0f/", "hf download gpt2"},
        {"/h/snapshots/0f", "hf download NAME --local-dir /h/snapshots/0f"},
        {"x", "hf download NAME --local-dir x"},
    };
    char room[128];

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++)
        assert_string_equal(merak_hub_download(row[i].dir, room, sizeof(room)),
                            row[i].text);
}

static void a_folder_without_any_says_what_is_wanted(void **state)
{
    struct merak_safetensors *st;
    struct merak_error err;

    (void)state;
    unlink(scratch_path(MERAK_SAFETENSORS_FILE));
    assert_int_equal(merak_safetensors_open(scratch_dir, &st, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_null(strstr(err.text, "pytorch_model.bin"));
    scratch_write("pytorch_model.bin", "", 0);
    assert_int_equal(merak_safetensors_open(scratch_dir, &st, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "pytorch_model.bin is not read"));
}

/* --- what a seed makes of them -----------------------------------------------
 */

struct dice {
    uint64_t key, at;
};

static uint64_t roll(struct dice *d, uint64_t n)
{
    return merak_rng_mix(d->key, d->at++) % n;
}

/* One change: of a bit, a byte, a digit, the length; a part left out, put in
 * twice, or cut off. */
static size_t mutate(struct dice *d, unsigned char *file, size_t n, size_t most)
{
    size_t at, len;

    if (n == 0)
        return n;
    at = roll(d, n);
    len = 1 + roll(d, n - at < 40 ? n - at : 40);
    switch (roll(d, 7)) {
    case 0:
        file[at] ^= (unsigned char)(1u << roll(d, 8));
        return n;
    case 1:
        file[at] = (unsigned char)roll(d, 256);
        return n;
    case 2:
        for (size_t i = 0; i < n && at + i < n; i++) {
            if (file[at + i] >= '0' && file[at + i] <= '9') {
                file[at + i] = (unsigned char)('0' + roll(d, 10));
                break;
            }
        }
        return n;
    case 3:
        file[roll(d, n < 8 ? n : 8)] = (unsigned char)roll(d, 256);
        return n;
    case 4:
        memmove(file + at, file + at + len, n - at - len);
        return n - len;
    case 5:
        if (n + len > most)
            return n;
        memmove(file + at + len, file + at, n - at);
        return n + len;
    default:
        return at + 1;
    }
}

/* Whatever it is, it is read to its end or refused with a reason. */
static bool opens(void)
{
    static float x[1 << 16];
    struct merak_safetensors *st = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc = merak_safetensors_open(scratch_dir, &st, &err);

    if (rc != MERAK_OK) {
        assert_true(rc == MERAK_ERR_CORRUPT || rc == MERAK_ERR_FORMAT ||
                    rc == MERAK_ERR_NOT_FOUND);
        assert_non_null(strstr(err.text, scratch_dir));
        return false;
    }
    for (int i = 0; i < st->n; i++) {
        const struct merak_safetensor *t = &st->tensor[i];

        if (t->type == MERAK_SAFETENSORS_OTHER)
            continue;
        assert_in_range(t->count, 0, 1 << 16);
        assert_int_equal(merak_safetensors_read(st, t, 0, t->count, x, &err),
                         MERAK_OK);
    }
    merak_safetensors_close(st);
    return true;
}

static void what_a_seed_makes_of_a_file_is_read_or_refused(void **state)
{
    const char *text = getenv("MERAK_TEST_SECONDS");
    double seconds = text != NULL ? strtod(text, NULL) : 2;
    int64_t end = merak_clock_ns() + (int64_t)(seconds * 1e9);
    size_t most = 1 << 17, n_file, n_index, n, opened = 0, tried = 0;
    unsigned char *file, *index, *mutant = malloc(most);
    char path[512];

    (void)state;
    assert_non_null(mutant);
    snprintf(path, sizeof(path), "%s/vectors/weights/%s", TEST_SRCDIR,
             "llama.model-00002-of-00004.safetensors");
    file = read_whole(path, &n_file);
    snprintf(path, sizeof(path), "%s/vectors/weights/%s", TEST_SRCDIR,
             "llama.model.safetensors.index.json");
    index = read_whole(path, &n_index);
    for (; tried < 100 || merak_clock_ns() < end; tried++) {
        struct dice d = {merak_rng_key(tried, "safetensors"), 0};
        bool whole = tried % 8 != 0;

        memcpy(mutant, whole ? file : index, whole ? n_file : n_index);
        n = whole ? n_file : n_index;
        for (uint64_t k = 1 + roll(&d, 4); k > 0; k--)
            n = mutate(&d, mutant, n, most);
        scratch_write(whole ? MERAK_SAFETENSORS_FILE : MERAK_SAFETENSORS_INDEX,
                      mutant, n);
        opened += opens();
        unlink(scratch_path(whole ? MERAK_SAFETENSORS_FILE
                                  : MERAK_SAFETENSORS_INDEX));
    }
    print_message("# %zu files, %zu of them sound\n", tried, opened);
    /* a changed number is a sound file, a changed header hardly ever */
    assert_true(opened > 0 && opened < tried);
    free(mutant);
    free(index);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_as_it_is_written),
        cmocka_unit_test(what_is_written_is_the_same_bytes),
        cmocka_unit_test(numbers_that_do_not_fit_are_named),
        cmocka_unit_test(a_header_that_is_wrong_is_told_by_tensor),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_tensor_of_other_numbers_is_not_read),
        cmocka_unit_test(an_index_means_the_files_beside_it),
        cmocka_unit_test(a_download_goes_on_by_name),
        cmocka_unit_test(a_folder_without_any_says_what_is_wanted),
        cmocka_unit_test(what_a_seed_makes_of_a_file_is_read_or_refused),
    };

    return cmocka_run_group_tests_name("safetensors", tests, scratch_make,
                                       scratch_remove);
}
