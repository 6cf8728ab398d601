/* SPDX-License-Identifier: Apache-2.0 */
/* test_masks.c - answers that are to be predicted, and documents in samples
 *
 * What a pack with a mask gives when it is read again, how documents are packed
 * into sequences, and masks that do not fit their tokens.
 */
#include "config.h"

#include "unit/data_files.h"

#include "io/tokens/beside.h"
#include "io/tokens/bigram.h"
#include "io/tokens/pack.h"
#include "io/tokens/packing.h"
#include "io/tokens/reference.h"
#include "io/tokens/token_file.h"
#include "io/tokens/tokens.h"
#include "merak/types.h"

#define NO MERAK_NO_TARGET

/* A document a word: its letters are ids, big ones are to be predicted. */
static void write_documents(const char *prefix, const char *words, bool pairs)
{
    struct merak_pack *pack = NULL;
    struct merak_error err;

    if (merak_pack_create(prefix, MERAK_PACK_MEGATRON, 200, &pack, &err) !=
            MERAK_OK ||
        merak_pack_add_mask(pack, prefix, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    if (pairs)
        merak_pack_set_pairs(pack);
    for (; *words != '\0'; words++) {
        int32_t id = *words;

        merak_pack_set_counted(pack, id < 'a');
        assert_int_equal(*words == ' ' ? merak_pack_end_document(pack, &err)
                                       : merak_pack_tokens(pack, &id, 1, &err),
                         MERAK_OK);
    }
    if (merak_pack_commit(pack, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_pack_destroy(pack);
}

static void write_words(const char *prefix, const char *words)
{
    write_documents(prefix, words, false);
}

static struct merak_data *open_data(const char *prefix, size_t seq,
                                    enum merak_packing_kind packing,
                                    bool documents)
{
    const struct merak_data_options opt = {.spec = prefix,
                                           .seq = seq,
                                           .vocab = 200,
                                           .packing = packing,
                                           .documents = documents};
    struct merak_data *data = NULL;
    struct merak_error err;

    if (merak_data_open(&opt, &data, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return data;
}

/* All samples in the order of their first token: "abc|BCD|000 " each, tokens,
 * targets ('.': none) and, of documents, starts. */
static void print_samples(const struct merak_data *data, size_t seq,
                          bool documents, char *text)
{
    uint64_t n = merak_data_samples(data, MERAK_TRAIN), counted = 0;
    char line[16][64] = {""};

    assert_in_range(n, 1, 16);
    for (uint64_t s = 0; s < n; s++) {
        int32_t x[16], y[16], start[16];
        char *to = line[s];

        assert_int_equal(merak_data_sample(data, MERAK_TRAIN, s, x, y, NULL),
                         MERAK_OK);
        for (size_t i = 0; i < seq; i++)
            *to++ = x[i] == 0 ? '_' : (char)x[i];
        *to++ = '|';
        for (size_t i = 0; i < seq; i++) {
            *to++ = y[i] == NO ? '.' : (char)y[i];
            counted += y[i] != NO;
        }
        if (!documents)
            continue;
        assert_int_equal(merak_data_starts(data, MERAK_TRAIN, s, start, NULL),
                         MERAK_OK);
        *to++ = '|';
        for (size_t i = 0; i < seq; i++)
            *to++ = (char)('0' + start[i]);
    }
    assert_int_equal(merak_data_counted(data, MERAK_TRAIN, 0, n), counted);
    for (uint64_t k = 0; k < n; k++) { /* samples come in a random order */
        size_t least = 0;

        for (size_t s = 1; s < n; s++) {
            if (line[least][0] == '\0' ||
                (line[s][0] != '\0' && strcmp(line[s], line[least]) < 0))
                least = s;
        }
        text += sprintf(text, "%s ", line[least]);
        line[least][0] = '\0';
    }
}

static void samples_are_what_documents_say(void **state)
{
    static const struct {
        const char *words;
        size_t seq;
        enum merak_packing_kind packing;
        bool documents;
        const char *want;
    } row[] = {
        /* an end to end stream: the mask alone, and documents */
        {"abCD efGH ", 4, MERAK_PACKING_STREAM, false, "abCD|.CD. "},
        {"abCD EfGH ", 7, MERAK_PACKING_STREAM, true,
         "abCDEfG|.CD..GH|0000444 "},
        {"abCD EfGH ", 7, MERAK_PACKING_STREAM, false, "abCDEfG|.CDE.GH "},
        /* a document takes one place less than it has tokens; the longest
         * first, each where the least is left */
        {"abCD efGH ", 6, MERAK_PACKING_AUTO, true, "abCefG|.CD.GH|000333 "},
        {"abCD efGH ", 7, MERAK_PACKING_AUTO, false, "abCefG_|.CD.GH. "},
        {"abCD efGH ", 7, MERAK_PACKING_AUTO, true, "abCefG_|.CD.GH.|0003336 "},
        {"aB cDEF gHI kLMNO ", 6, MERAK_PACKING_AUTO, true,
         "acDE__|BDEF..|011145 gHkLMN|HILMNO|002222 "},
        /* what is behind the last answer is left out, and so is what has
         * none; the first token is nobody's target */
        {"aBcd efgh Xy ijK ", 4, MERAK_PACKING_AUTO, false, "aij_|B.K. "},
        /* two answers that do not fit together: the second with what is
         * between */
        {"abCdeF ", 3, MERAK_PACKING_AUTO, false, "ab_|.C. de_|.F. "},
        {"abCdeF ", 4, MERAK_PACKING_AUTO, false, "abde|.C.F "},
        /* a question that is too long loses its beginning */
        {"abcdefGH ", 4, MERAK_PACKING_AUTO, false, "defG|..GH "},
        /* an answer that is too long is cut; no token is lost or twice */
        {"abCDEFGH ", 3, MERAK_PACKING_AUTO, false, "EFG|FGH bCD|CDE "},
        {"ABCDEFGH ", 4, MERAK_PACKING_AUTO, false, "ABCD|BCDE EFG_|FGH. "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct merak_data *data;
        char text[512];

        write_words(at("w"), row[i].words);
        data = open_data(at("w"), row[i].seq, row[i].packing, row[i].documents);
        assert_true(merak_data_is_masked(data));
        print_samples(data, row[i].seq, row[i].documents, text);
        assert_string_equal(text, row[i].want);
        merak_data_close(data);
    }
}

/* 2000 documents of 1 to 60 tokens: no sequence is left that two could share,
 * every target is there once, and little room is wasted. */
static void best_fit_fills_sequences(void **state)
{
    struct merak_packing p = {0};
    struct merak_error err;
    uint64_t want = 0, counted = 0, places = 0;
    size_t seq = 128;

    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        struct merak_packed_document doc = {.at = 100 * i,
                                            .n = 1 + i * 7919 % 60};

        want += doc.n - 1;
        assert_int_equal(merak_packing_add(&p, &doc, seq, &err), MERAK_OK);
    }
    assert_int_equal(merak_packing_finish(&p, seq, &err), MERAK_OK);
    for (size_t s = 0; s < p.n_samples; s++) {
        size_t n = 0;

        for (size_t i = p.first[s]; i < p.first[s + 1]; i++) {
            n += p.piece[i].n;
            assert_true(i == p.first[s] || p.piece[i].at > p.piece[i - 1].at);
        }
        assert_in_range(n, 1, seq);
        counted += p.counted[s];
        places += n;
    }
    assert_int_equal(counted, want);
    assert_int_equal(places, want);
    assert_true(p.n_samples * seq < want + want / 50);
    merak_packing_fini(&p);
}

static void a_tail_of_documents_is_held_out(void **state)
{
    struct merak_data_options opt = {
        .seq = 4, .vocab = 200, .valid_fraction = 0.3};
    struct merak_data *data;
    int32_t x[4], y[4];
    struct merak_error err;

    (void)state;
    write_words(at("w"), "aBC dEF gHI jKL ");
    opt.spec = at("w");
    assert_int_equal(merak_data_open(&opt, &data, &err), MERAK_OK);
    assert_int_equal(merak_data_samples(data, MERAK_TRAIN), 2);
    assert_int_equal(merak_data_samples(data, MERAK_VALID), 1);
    assert_int_equal(merak_data_sample(data, MERAK_VALID, 0, x, y, &err),
                     MERAK_OK);
    assert_memory_equal(x, ((int32_t[4]){'j', 'K', 0, 0}), sizeof(x));
    assert_memory_equal(y, ((int32_t[4]){'K', 'L', NO, NO}), sizeof(y));
    merak_data_close(data);
    opt.valid_fraction = 0.01;
    assert_int_equal(merak_data_open(&opt, &data, &err), MERAK_ERR_MISMATCH);
    assert_non_null(strstr(err.text, "validation"));
}

/* Other data have other names, and a run does not go on with them. */
static void masks_and_packing_are_in_the_id(void **state)
{
    struct merak_data *a, *b, *c;

    (void)state;
    write_words(at("w"), "abCD efGH ");
    a = open_data(at("w"), 4, MERAK_PACKING_STREAM, false);
    b = open_data(at("w"), 4, MERAK_PACKING_AUTO, false);
    write_words(at("w"), "aBCD efGH ");
    c = open_data(at("w"), 4, MERAK_PACKING_STREAM, false);
    assert_string_not_equal(merak_data_id(a), merak_data_id(b));
    assert_string_not_equal(merak_data_id(a), merak_data_id(c));
    merak_data_close(a);
    merak_data_close(b);
    merak_data_close(c);
}

static void bigrams_count_what_is_predicted(void **state)
{
    struct merak_data_options opt = {
        .seq = 4, .vocab = 200, .valid_fraction = 0.4};
    struct merak_bigram_result r;
    struct merak_data *data;

    (void)state;
    write_words(at("w"), "aBCd aBCd aBCd aBCd aBCd ");
    opt.spec = at("w");
    assert_int_equal(merak_data_open(&opt, &data, NULL), MERAK_OK);
    assert_int_equal(merak_bigram_evaluate(data, &opt, &r, NULL), MERAK_OK);
    assert_int_equal(r.train_tokens, 6);
    assert_int_equal(r.valid_tokens, 4);
    merak_data_close(data);
}

static void expect_refusal(const char *path, enum merak_status want,
                           const char *text)
{
    struct merak_token_file *files = NULL;
    struct merak_error err = {.text = ""};
    size_t n = 0;

    assert_int_equal(merak_token_files_open(path, &files, &n, &err), want);
    if (strstr(err.text, text) == NULL)
        fail_msg("\"%s\" has no \"%s\"", err.text, text);
}

static void a_mask_must_be_of_its_tokens(void **state)
{
    static const struct {
        int at; /* of the byte that is changed; -1: one is cut off */
        enum merak_status want;
        const char *text;
    } row[] = {{0, MERAK_ERR_FORMAT, "MERAKMSK"},
               {8, MERAK_ERR_FORMAT, "version"},
               {16, MERAK_ERR_MISMATCH, "pack them again"},
               {24, MERAK_ERR_MISMATCH, "pack them again"},
               {32, MERAK_ERR_MISMATCH, "was not made with"},
               {48, MERAK_ERR_CORRUPT, "damaged"},
               {-1, MERAK_ERR_CORRUPT, "expected 49 for 8 tokens"}};
    unsigned char bytes[64];
    size_t n;

    (void)state;
    write_words(at("w"), "abCD efGH ");
    n = read_file(at("w.mask"), bytes, sizeof(bytes));
    assert_int_equal(n, 49);
    assert_int_equal(bytes[48], 0xcc); /* C, D, G and H of eight */
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (row[i].at >= 0)
            bytes[row[i].at] ^= 0x40;
        write_file(at("w.mask"), bytes, row[i].at >= 0 ? n : n - 1);
        expect_refusal(at("w"), row[i].want, row[i].text);
        if (row[i].at >= 0)
            bytes[row[i].at] ^= 0x40;
    }
    write_file(at("w.mask"), bytes, 10);
    expect_refusal(at("w"), MERAK_ERR_CORRUPT, "header");
}

/* Of the same sizes: the sum of the index is another. */
static void a_mask_of_other_documents_is_refused(void **state)
{
    unsigned char bytes[64];
    size_t n;

    (void)state;
    write_words(at("w"), "abCD efGH ");
    n = read_file(at("w.mask"), bytes, sizeof(bytes));
    write_words(at("w"), "abC DefGH ");
    write_file(at("w.mask"), bytes, n);
    expect_refusal(at("w"), MERAK_ERR_MISMATCH, "was not made with");
}

/* Overwrite a file's bytes from `at` on. */
static void patch(const char *path, long at, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "r+b");

    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A pack never writes an empty document, other programs may: here one of the
 * two becomes so, in the index and in the checksum that the mask has of it. */
static void pairs_have_tokens_in_both_documents(void **state)
{
    static const float loss[5] = {0};
    struct merak_data_options opt = {.seq = 4, .vocab = 200, .pairs = true};
    struct merak_token_file *file;
    const struct merak_reference_model model = {1, "w"};
    struct merak_reference_writer *writer;
    struct merak_data *data = NULL;
    struct merak_error err;

    (void)state;
    for (int which = 0; which < 3; which++) {
        const uint32_t length[][2] = {{2, 3}, {5, 0}, {0, 5}};
        uint64_t place[2] = {0, 2 * length[which][0]}, sum;
        size_t n;

        write_documents(at("w"), "aB aBC", true);
        patch(at("w.idx"), 34, length[which], 8);
        patch(at("w.idx"), 42, place, sizeof(place));
        assert_int_equal(merak_beside_index(at("w"), &sum, &err), MERAK_OK);
        patch(at("w.mask"), 32, &sum, sizeof(sum));
        assert_int_equal(merak_token_files_open(at("w"), &file, &n, &err),
                         MERAK_OK);
        assert_int_equal(merak_reference_create(file, &model, &writer, &err),
                         MERAK_OK);
        assert_int_equal(merak_reference_put(writer, loss, 5, &err), MERAK_OK);
        assert_int_equal(merak_reference_commit(writer, 5, &err), MERAK_OK);
        merak_reference_destroy(writer);
        merak_token_files_close(file, n);
        opt.spec = at("w");
        if (which == 0) {
            assert_int_equal(merak_data_open(&opt, &data, &err), MERAK_OK);
            merak_data_close(data);
            continue;
        }
        assert_int_equal(merak_data_open(&opt, &data, &err), MERAK_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "pair 0 has a document without"));
    }
}

static void old_masks_do_not_outlive_their_tokens(void **state)
{
    struct merak_pack *pack;
    struct merak_data *data;

    (void)state;
    write_words(at("w"), "abCD efGH ");
    assert_int_equal(
        merak_pack_create(at("w"), MERAK_PACK_MEGATRON, 200, &pack, NULL),
        MERAK_OK);
    assert_int_equal(
        merak_pack_tokens(pack, (int32_t[]){1, 2, 3, 4, 5, 6, 7, 8}, 8, NULL),
        MERAK_OK);
    assert_int_equal(merak_pack_commit(pack, NULL), MERAK_OK);
    merak_pack_destroy(pack);
    assert_int_not_equal(access(at("w.mask"), F_OK), 0);
    data = open_data(at("w"), 4, MERAK_PACKING_AUTO, false);
    assert_false(merak_data_is_masked(data));
    merak_data_close(data);
}

static void documents_need_an_index(void **state)
{
    struct merak_data_options opt = {.seq = 4, .documents = true};
    struct merak_data *data;
    struct merak_error err;

    (void)state;
    write_llmc_u16(at("c.bin"), 1, 20);
    opt.spec = at("c.bin");
    assert_int_equal(merak_data_open(&opt, &data, &err), MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "llm.c"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_what_documents_say),
        cmocka_unit_test(best_fit_fills_sequences),
        cmocka_unit_test(a_tail_of_documents_is_held_out),
        cmocka_unit_test(masks_and_packing_are_in_the_id),
        cmocka_unit_test(bigrams_count_what_is_predicted),
        cmocka_unit_test(a_mask_must_be_of_its_tokens),
        cmocka_unit_test(a_mask_of_other_documents_is_refused),
        cmocka_unit_test(pairs_have_tokens_in_both_documents),
        cmocka_unit_test(old_masks_do_not_outlive_their_tokens),
        cmocka_unit_test(documents_need_an_index),
    };

    return cmocka_run_group_tests_name("masks", tests, make_scratch,
                                       remove_scratch);
}
