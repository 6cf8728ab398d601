/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokens_file.c - reading Megatron's and llm.c's token files, and refusing
 * every damaged one by name */
#include "config.h"

#include "unit/data_files.h"

static enum merak_status open_data(const char *path,
                                   struct merak_token_file **files_p,
                                   struct merak_error *err)
{
    size_t n = 0;
    enum merak_status rc = merak_token_files_open(path, files_p, &n, err);

    if (rc == MERAK_OK)
        assert_int_equal(n, 1);
    return rc;
}

static void golden_megatron_is_read(void **state)
{
    static const char *const names[] = {"gold", "gold.bin", "gold.idx"};
    const int32_t want[] = {1, 2, 3, 4, 5};
    int32_t got[5];

    (void)state;
    write_file(at("gold.bin"), golden_bin, sizeof(golden_bin));
    write_file(at("gold.idx"), golden_idx, sizeof(golden_idx));
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct merak_token_file *f = NULL;

        assert_int_equal(open_data(at(names[i]), &f, NULL), MERAK_OK);
        assert_int_equal(f->tokens, 5);
        assert_int_equal(f->documents, 2);
        assert_string_equal(merak_token_type_name(f->type), "u16");
        assert_int_equal(merak_token_file_read(f, 0, 5, 6, got, NULL),
                         MERAK_OK);
        assert_memory_equal(got, want, sizeof(want));
        merak_token_files_close(f, 1);
    }
}

/* The golden pair with one change, and what is said about it. */
static const struct damage {
    enum { IDX, BIN } file;
    size_t at; /* byte changed.. */
    int value; /* ..to this; -1: cut (or grow) the file to `at` bytes */
    enum merak_status status;
    const char *text; /* after the scratch folder */
} damages[] = {
    {IDX, 0, -1, MERAK_ERR_CORRUPT, "d.idx: 0 bytes, expected a header of 34"},
    {IDX, 33, -1, MERAK_ERR_CORRUPT,
     "d.idx: 33 bytes, expected a header of 34"},
    {IDX, 81, -1, MERAK_ERR_CORRUPT,
     "d.idx: 81 bytes, expected 82 for 2 sequences and 3 document entries"},
    {IDX, 83, -1, MERAK_ERR_CORRUPT,
     "d.idx: 83 bytes, expected 82 for 2 sequences and 3 document entries"},
    {IDX, 0, 'X', MERAK_ERR_FORMAT,
     "d.idx: not a Megatron index, it does not start with MMIDIDX"},
    {IDX, 8, 1, MERAK_ERR_FORMAT,
     "d.idx: not a Megatron index, it does not start with MMIDIDX"},
    {IDX, 9, 2, MERAK_ERR_FORMAT, "d.idx: version 2, expected 1"},
    {IDX, 17, 6, MERAK_ERR_FORMAT,
     "d.idx: tokens are of type f64, expected an integer type"},
    {IDX, 17, 7, MERAK_ERR_FORMAT,
     "d.idx: tokens are of type f32, expected an integer type"},
    {IDX, 17, 9, MERAK_ERR_FORMAT,
     "d.idx: unknown token type code 9, expected 1-5 or 8"},
    {IDX, 17, 4, MERAK_ERR_CORRUPT,
     "d.idx: sequence 1 has its pointer at byte 6, expected 12 from the "
     "lengths before it"},
    {IDX, 25, 0xff, MERAK_ERR_CORRUPT,
     "d.idx: 82 bytes cannot hold the 18374686479671623682 sequences and 3 "
     "document entries of its header"},
    {IDX, 18, 1, MERAK_ERR_CORRUPT,
     "d.idx: 82 bytes, expected 70 for 1 sequences and 3 document entries"},
    {IDX, 37, 0x80, MERAK_ERR_CORRUPT,
     "d.idx: sequence 0 has length -2147483645"},
    {IDX, 34, 4, MERAK_ERR_CORRUPT,
     "d.idx: sequence 1 has its pointer at byte 6, expected 8 from the lengths "
     "before it"},
    {IDX, 42, 2, MERAK_ERR_CORRUPT,
     "d.idx: sequence 0 has its pointer at byte 2, expected 0 from the lengths "
     "before it"},
    {IDX, 38, 3, MERAK_ERR_CORRUPT,
     "d.bin: 10 bytes, expected 12 for the 6 u16 tokens of its .idx"},
    {IDX, 58, 1, MERAK_ERR_CORRUPT,
     "d.idx: the first document starts at sequence 1, expected 0"},
    {IDX, 66, 3, MERAK_ERR_CORRUPT,
     "d.idx: document entry 1 is 3, expected 0 to 2"},
    {IDX, 74, 1, MERAK_ERR_CORRUPT,
     "d.idx: the last document entry is 1, expected the 2 sequences"},
    {BIN, 9, -1, MERAK_ERR_CORRUPT,
     "d.bin: 9 bytes, expected 10 for the 5 u16 tokens of its .idx"},
    {BIN, 12, -1, MERAK_ERR_CORRUPT,
     "d.bin: 12 bytes, expected 10 for the 5 u16 tokens of its .idx"},
};

static void write_damaged(const struct damage *d)
{
    unsigned char idx[96] = {0}, bin[96] = {0};
    size_t idx_bytes = sizeof(golden_idx), bin_bytes = sizeof(golden_bin);

    memcpy(idx, golden_idx, idx_bytes);
    memcpy(bin, golden_bin, bin_bytes);
    if (d->value >= 0)
        (d->file == IDX ? idx : bin)[d->at] = (unsigned char)d->value;
    else if (d->file == IDX)
        idx_bytes = d->at;
    else
        bin_bytes = d->at;
    write_file(at("d.idx"), idx, idx_bytes);
    write_file(at("d.bin"), bin, bin_bytes);
}

static void every_damage_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
        struct merak_token_file *f = NULL;
        struct merak_error err;

        write_damaged(&damages[i]);
        assert_int_equal(open_data(at("d"), &f, &err), damages[i].status);
        assert_string_equal(err.text + strlen(scratch) + 1, damages[i].text);
    }
}

/* S more bytes at the end are modes: text is read, pictures are not. */
static void multimodal_files_are_read_only_as_text(void **state)
{
    unsigned char idx[84] = {0};
    struct merak_token_file *f = NULL;
    struct merak_error err;

    (void)state;
    memcpy(idx, golden_idx, sizeof(golden_idx));
    write_file(at("mm.bin"), golden_bin, sizeof(golden_bin));
    write_file(at("mm.idx"), idx, sizeof(idx));
    assert_int_equal(open_data(at("mm"), &f, &err), MERAK_OK);
    merak_token_files_close(f, 1);
    idx[83] = 1;
    write_file(at("mm.idx"), idx, sizeof(idx));
    assert_int_equal(open_data(at("mm"), &f, &err), MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "sequence 1 has mode 1"));
}

static const struct {
    unsigned char code;
    size_t bytes;
    unsigned char raw[16];
    int32_t want[2];
    const char *name;
} types[] = {
    {1, 1, {200, 7}, {200, 7}, "u8"},
    {2, 1, {100, 7}, {100, 7}, "i8"},
    {3, 2, {0x34, 0x12, 7, 0}, {0x1234, 7}, "i16"},
    {8, 2, {0xff, 0xff, 7, 0}, {65535, 7}, "u16"},
    {4, 4, {0x51, 0xc3, 0, 0, 7}, {50001, 7}, "i32"},
    {5, 8, {0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 7}, {INT32_MAX, 7}, "i64"},
};

static void every_integer_type_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        unsigned char idx[62] = {0}; /* one document of two tokens */
        struct merak_token_file *f = NULL;
        int32_t got[2];

        memcpy(idx, golden_idx, 34);
        idx[17] = types[i].code;
        idx[18] = 1;
        idx[26] = 2;
        idx[34] = 2;
        idx[54] = 1;
        write_file(at("t.idx"), idx, sizeof(idx));
        write_file(at("t.bin"), types[i].raw, 2 * types[i].bytes);
        assert_int_equal(open_data(at("t"), &f, NULL), MERAK_OK);
        assert_string_equal(merak_token_type_name(f->type), types[i].name);
        assert_int_equal(merak_token_file_read(f, 0, 2, 0, got, NULL),
                         MERAK_OK);
        assert_memory_equal(got, types[i].want, sizeof(got));
        merak_token_files_close(f, 1);
    }
}

/* Ids that are no ids: beyond the vocabulary, negative, over 31 bits. */
static void ids_outside_the_vocabulary_are_named(void **state)
{
    const int32_t length = 3;
    struct merak_token_file *f = NULL;
    struct merak_error err;
    char want[200];
    int32_t got[3];

    (void)state;
    write_megatron(at("v"), 9, &length, 1);
    assert_int_equal(open_data(at("v"), &f, NULL), MERAK_OK);
    assert_int_equal(merak_token_file_read(f, 0, 3, 12, got, &err), MERAK_OK);
    assert_int_equal(merak_token_file_read(f, 1, 2, 11, got, &err),
                     MERAK_ERR_CORRUPT);
    snprintf(want, sizeof(want),
             "%s/v.bin: token 2 is 11, outside the vocabulary of 11", scratch);
    assert_string_equal(err.text, want);
    merak_token_files_close(f, 1);

    write_megatron(at("v"), -1, &length, 1);
    assert_int_equal(open_data(at("v"), &f, NULL), MERAK_OK);
    assert_int_equal(merak_token_file_read(f, 0, 3, 0, got, &err),
                     MERAK_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "token 0 is -1, expected 0 to"));
    merak_token_files_close(f, 1);
}

/* A file that was cut after it was opened is an error, not a crash. */
static void a_file_that_shrinks_is_an_error(void **state)
{
    struct merak_token_file *f = NULL;
    struct merak_error err;
    int32_t got[100];

    (void)state;
    write_llmc_u16(at("s.bin"), 0, 100);
    assert_int_equal(open_data(at("s.bin"), &f, NULL), MERAK_OK);
    assert_int_equal(truncate(at("s.bin"), 1024 + 2 * 60), 0);
    assert_int_equal(merak_token_file_read(f, 0, 60, 0, got, &err), MERAK_OK);
    assert_int_equal(merak_token_file_read(f, 0, 100, 0, got, &err),
                     MERAK_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "ends at byte 1144, expected 1224"));
    merak_token_files_close(f, 1);
}

static void llmc_files_of_both_widths_are_read(void **state)
{
    unsigned char big[1024 + 8] = {0};
    const int32_t head[3] = {20240801, 7, 2};
    const uint32_t ids[2] = {128255, 1};
    struct merak_token_file *f = NULL;
    int32_t got[3];

    (void)state;
    write_llmc_u16(at("small.bin"), 50255, 3);
    assert_int_equal(open_data(at("small.bin"), &f, NULL), MERAK_OK);
    assert_int_equal(f->tokens, 3);
    assert_int_equal(merak_token_file_read(f, 0, 3, 0, got, NULL), MERAK_OK);
    assert_int_equal(got[2], 50257);
    merak_token_files_close(f, 1);

    memcpy(big, head, sizeof(head));
    memcpy(big + 1024, ids, sizeof(ids));
    write_file(at("big.bin"), big, sizeof(big));
    assert_int_equal(open_data(at("big.bin"), &f, NULL), MERAK_OK);
    assert_int_equal(merak_token_file_read(f, 0, 2, 0, got, NULL), MERAK_OK);
    assert_int_equal(got[0], 128255);
    merak_token_files_close(f, 1);
}

static const struct {
    int32_t head[3];
    size_t bytes;
    enum merak_status status;
    const char *text;
} llmc_damages[] = {
    {{20240520, 1, 3},
     1029,
     MERAK_ERR_CORRUPT,
     "1029 bytes, expected 1030 for the 3 u16 tokens of its header"},
    {{20240520, 1, 3},
     1031,
     MERAK_ERR_CORRUPT,
     "1031 bytes, expected 1030 for the 3 u16 tokens of its header"},
    {{20240801, 7, 3},
     1030,
     MERAK_ERR_CORRUPT,
     "1030 bytes, expected 1036 for the 3 u32 tokens of its header"},
    {{20240520, 1, 3},
     900,
     MERAK_ERR_CORRUPT,
     "900 bytes, too few for llm.c's header of 1024"},
    {{20240520, 2, 3}, 1030, MERAK_ERR_FORMAT, "llm.c version 2, expected 1"},
    {{20240520, 1, -3}, 1030, MERAK_ERR_CORRUPT, "its header gives -3 tokens"},
    {{20240326, 3, 3},
     1030,
     MERAK_ERR_FORMAT,
     "is an llm.c model, expected tokens"},
    {{12345, 1, 3},
     1030,
     MERAK_ERR_FORMAT,
     "not a token file, it starts with 12345, expected 20240520 or"},
};

static void damaged_llmc_files_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(llmc_damages) / sizeof(*llmc_damages); i++) {
        unsigned char bytes[1036] = {0};
        struct merak_token_file *f = NULL;
        struct merak_error err;

        memcpy(bytes, llmc_damages[i].head, 12);
        write_file(at("l.bin"), bytes, llmc_damages[i].bytes);
        assert_int_equal(open_data(at("l.bin"), &f, &err),
                         llmc_damages[i].status);
        assert_non_null(strstr(err.text, "/l.bin"));
        assert_non_null(strstr(err.text, llmc_damages[i].text));
    }
}

static void patterns_give_shards_in_order(void **state)
{
    const int32_t length = 4;
    struct merak_token_file *f = NULL;
    int32_t first;
    size_t n = 0;

    (void)state;
    write_llmc_u16(at("shard_000002.bin"), 20, 4);
    write_llmc_u16(at("shard_000000.bin"), 0, 4);
    write_llmc_u16(at("shard_000001.bin"), 10, 4);
    write_megatron(at("shard_000003"), 30, &length, 1); /* .bin and .idx */
    assert_int_equal(merak_token_files_open(at("shard_*"), &f, &n, NULL),
                     MERAK_OK);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(merak_token_file_read(&f[i], 0, 1, 0, &first, NULL),
                         MERAK_OK);
        assert_int_equal(first, 10 * i);
    }
    merak_token_files_close(f, n);
}

static void what_is_not_there_is_told(void **state)
{
    struct merak_token_file *f = NULL;
    struct merak_error err;

    (void)state;
    assert_int_equal(open_data(at("absent"), &f, &err), MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "absent: no such data set"));
    assert_int_equal(open_data(at("no*ne"), &f, &err), MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no file matches"));
    write_file(at("lone.bin"), golden_bin, sizeof(golden_bin));
    assert_int_equal(open_data(at("lone"), &f, &err), MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "lone.bin has no"));
    assert_int_equal(open_data(at("lone.bin"), &f, &err), MERAK_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "no Megatron .idx is beside it"));
    write_file(at("alone.idx"), golden_idx, sizeof(golden_idx));
    assert_int_equal(open_data(at("alone"), &f, &err), MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "alone.bin: No such file"));
    assert_int_equal(open_data(scratch, &f, &err), MERAK_ERR_FORMAT);
    assert_non_null(strstr(err.text, "is a directory, not a file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_megatron_is_read),
        cmocka_unit_test(every_damage_is_named),
        cmocka_unit_test(multimodal_files_are_read_only_as_text),
        cmocka_unit_test(every_integer_type_is_read),
        cmocka_unit_test(ids_outside_the_vocabulary_are_named),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(llmc_files_of_both_widths_are_read),
        cmocka_unit_test(damaged_llmc_files_are_named),
        cmocka_unit_test(patterns_give_shards_in_order),
        cmocka_unit_test(what_is_not_there_is_told),
    };

    return cmocka_run_group_tests_name("tokens_file", tests, make_scratch,
                                       remove_scratch);
}
