/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_kinds.c - every kind of tokenizer.json gives Hugging Face's
 * ids, every kind of tokenizer.model SentencePiece's, and no damaged one does
 * harm
 *
 * The vectors are made by vectors/tokenizer/make_kinds.py and make_spm.py. With
 * an argument, a folder that it wrote more texts to, those are compared
 * instead.
 */
#include "config.h"

#include "unit/data_files.h"
#include "unit/data/token_ids.h"

#include "base/clock.h"
#include "base/rng.h"
#include "text/tokenizer/tokenizer.h"

#define VECTORS TEST_SRCDIR "/vectors/tokenizer/"
#define FUZZ_NS 3000000000 /* all kinds together */

static const char *texts = VECTORS;

struct kind {
    const char *name;
    bool gives_back; /* decoding gives every text back */
};
static struct kind kinds[] = {
    {"llama3", true},       {"qwen2", false},         {"smollm", true},
    {"prefix", false},      {"llama2", false},        {"mistral", false},
    {"metaspace", false},   {"gemma", false},         {"spm_bpe", false},
    {"spm_unigram", false}, {"spm_bytes", false},     {"unknown", false},
    {"unigram", false},     {"unigram_bytes", false}, {"smollm2", false},
    {"nfkc", false},        {"nfkd", false},          {"nfd", false},
    {"raw_bytes", false},   {"nul", false},           {"gpt_neox", false},
};
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

static const char *path_of(const char *name)
{
    static char path[1024];

    snprintf(path, sizeof(path), VECTORS "kind_%s.%s", name,
             strncmp(name, "spm", 3) == 0 ? "model" : "json");
    return path;
}

static struct merak_tokenizer *open_kind(const char *name)
{
    struct merak_tokenizer *tok = NULL;
    struct merak_error err = {.text = ""};

    if (merak_tokenizer_open(path_of(name), &tok, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return tok;
}

static size_t parse_text(const char *hex, unsigned char *text)
{
    size_t n = 0;
    unsigned byte;

    for (; *hex != '\0'; hex += 2) {
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        text[n++] = (unsigned char)byte;
    }
    return n;
}

static void parse_ids(char *words, struct ids *ids)
{
    ids->n = 0;
    for (char *p = strtok(words, " \n"); p != NULL; p = strtok(NULL, " \n"))
        ids->id[ids->n++] = (int32_t)strtol(p, NULL, 10);
}

static void same_ids(const struct kind *kind, int line, const char *what,
                     const struct ids *got, const struct ids *want)
{
    size_t i = 0;

    while (i < got->n && i < want->n && got->id[i] == want->id[i])
        i++;
    if (i < got->n || i < want->n)
        fail_msg("%s, line %d, %s: %zu ids, expected %zu; number %zu is %d, "
                 "expected %d",
                 kind->name, line, what, got->n, want->n, i,
                 i < got->n ? got->id[i] : -1, i < want->n ? want->id[i] : -1);
}

static void gives_back(const struct merak_tokenizer *tok, const struct ids *ids,
                       const unsigned char *text, size_t n)
{
    size_t at = 0, bytes;
    const char *part;

    for (size_t i = 0; i < ids->n; i++, at += bytes) {
        assert_int_equal(
            merak_tokenizer_decode(tok, ids->id[i], &part, &bytes, NULL),
            MERAK_OK);
        assert_true(at + bytes <= n);
        assert_memory_equal(text + at, part, bytes);
    }
    assert_int_equal(at, n);
}

static void check_line(const struct kind *kind, struct merak_tokenizer *tok,
                       int number, char *line)
{
    static struct ids got, want;
    static unsigned char text[MAX_TEXT];
    char *plain = strchr(line, '\t'), *whole;
    size_t n;

    assert_non_null(plain);
    *plain++ = '\0';
    n = parse_text(line, text);
    whole = strchr(plain, '\t');
    if (whole != NULL)
        *whole++ = '\0';
    parse_ids(plain, &want);
    got.n = 0;
    assert_int_equal(merak_tokenizer_encode(tok, text, n, collect, &got, NULL),
                     MERAK_OK);
    same_ids(kind, number, "without template", &got, &want);
    if (kind->gives_back)
        gives_back(tok, &got, text, n);
    if (whole != NULL)
        parse_ids(whole, &want);
    got.n = 0;
    assert_int_equal(
        merak_tokenizer_encode_whole(tok, text, n, collect, &got, NULL),
        MERAK_OK);
    same_ids(kind, number, "with template", &got, &want);
}

static void ids_are_those_of_hugging_face(void **state)
{
    static char line[20 * MAX_TEXT];

    (void)state;
    for (size_t k = 0; k < N_KINDS; k++) {
        struct merak_tokenizer *tok = open_kind(kinds[k].name);
        char path[1024];
        FILE *f;
        int lines = 0;

        snprintf(path, sizeof(path), "%s/kind_%s.txt", texts, kinds[k].name);
        f = fopen(path, "r");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f) != NULL)
            check_line(&kinds[k], tok, ++lines, line);
        assert_true(lines > 100);
        fclose(f);
        merak_tokenizer_close(tok);
    }
}

/* Text that comes token by token: characters are whole, the blank in front and
 * special tokens are left out, nothing else is.  (Encoding put a blank behind
 * <s>, too: such is this kind.) */
static void text_comes_in_whole_characters(void **state)
{
    static const char text[] = "\xe4\xbd\xa0 \xf0\x9f\x98\x80x <s>\xff\xe4\xbd";
    static const char want[] = "\xe4\xbd\xa0 \xf0\x9f\x98\x80x  \xff\xe4\xbd";
    static struct ids ids;
    struct merak_tokenizer *tok = open_kind("llama2");
    struct merak_text out;
    char got[100];
    const char *part;
    size_t n, at = 0;

    (void)state;
    ids.n = 0;
    assert_int_equal(merak_tokenizer_encode_whole(tok, text, sizeof(text) - 1,
                                                  collect, &ids, NULL),
                     MERAK_OK);
    merak_text_begin(&out, tok);
    for (size_t i = 0; i < ids.n; i++, at += n) {
        assert_int_equal(merak_text_add(&out, ids.id[i], &part, &n, NULL),
                         MERAK_OK);
        assert_true(n == 0 || ((unsigned char)part[0] & 0xc0) != 0x80);
        assert_true(at + n <= sizeof(got));
        memcpy(got + at, part, n);
    }
    part = merak_text_end(&out, &n);
    assert_int_equal(n, 2);
    memcpy(got + at, part, n);
    assert_int_equal(at + n, sizeof(want) - 1);
    assert_memory_equal(got, want, sizeof(want) - 1);
    merak_text_fini(&out);
    merak_tokenizer_close(tok);
}

/* --- files that are not as they should be ------------------------------- */

static const struct {
    const char *kind, *from, *to;
    enum merak_status status;
    const char *text; /* after the file's name */
} rows[] = {
    {"llama3", "\\\\p{N}{1,3}", "\\\\p{N}{1,4}", MERAK_ERR_UNSUPPORTED,
     "pre_tokenizer.Split is {\"Regex\":"},
    {"llama3", "\"behavior\":\"Isolated\"", "\"behavior\":\"Removed\"",
     MERAK_ERR_UNSUPPORTED, "pre_tokenizer.Split is {\"Regex\":"},
    {"llama3", "\"use_regex\":false", "\"use_regex\":true",
     MERAK_ERR_UNSUPPORTED, "pre_tokenizer.use_regex is true"},
    {"llama3", "\"ids\":[559]", "\"ids\":[999999]", MERAK_ERR_FORMAT,
     "post_processor puts token 999999 around a text, and it does not exist"},
    {"llama3", "\"ids\":[559]", "\"ids\":[]", MERAK_ERR_FORMAT,
     "post_processor names a token that it gives no ids"},
    {"llama3", "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}",
     "{\"Sequence\":{\"id\":\"A\"}},{\"Sequence\":{\"id\":\"A\"}}",
     MERAK_ERR_UNSUPPORTED, "post_processor.single is "},
    {"qwen2", "\"type\":\"NFC\"", "\"type\":\"Nmt\"", MERAK_ERR_UNSUPPORTED,
     "normalizer is \"Nmt\", supported: null, NFC, NFD, NFKC, NFKD, Prepend"},
    {"smollm", "\"type\":\"Digits\"", "\"type\":\"Punctuation\"",
     MERAK_ERR_UNSUPPORTED, "pre_tokenizer is \"Punctuation\", supported: "},
    {"prefix", "\"lstrip\":true", "\"lstrip\":1", MERAK_ERR_FORMAT,
     "lstrip of added token \"<mask>\" is not true or false"},
    {"llama2", "\"byte_fallback\":true", "\"byte_fallback\":false,\"x\":1",
     MERAK_ERR_UNSUPPORTED, "unknown field \"x\" of model"},
    {"llama2", "\"unk_token\":\"<unk>\"", "\"unk_token\":\"<what>\"",
     MERAK_ERR_FORMAT, "unk_token \"<what>\" is not in the vocabulary"},
    {"smollm2", "\"byte_fallback\":false", "\"byte_fallback\":true",
     MERAK_ERR_UNSUPPORTED, "no token for byte 0, and byte_fallback with"},
    {"nul", "\"normalizer\":null",
     "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"\\u0000\"}",
     MERAK_ERR_UNSUPPORTED, "normalizer with a NUL character"},
    {"llama2", "\"type\":\"ByteFallback\"", "\"type\":\"WordPiece\"",
     MERAK_ERR_UNSUPPORTED, "decoder is \"WordPiece\", supported: null, "},
    {"unigram", "\"unk_id\":2", "\"unk_id\":null", MERAK_ERR_UNSUPPORTED,
     "model.unk_id is null, supported: the id of a token of the vocabulary"},
    {"unigram", "\"unk_id\":2", "\"unk_id\":100000", MERAK_ERR_UNSUPPORTED,
     "model.unk_id is 100000, supported: the id"},
    {"unigram", "[\"<pad>\",", "[\"<pad>\",0,", MERAK_ERR_FORMAT,
     "entry 0 of the vocabulary is not a token with a score"},
    {"unigram", "[\"<pad>\",", "[1,", MERAK_ERR_FORMAT,
     "entry 0 of the vocabulary is not a token with a score"},
    {"unigram", "\"type\":\"Unigram\"", "\"type\":\"WordPiece\"",
     MERAK_ERR_UNSUPPORTED,
     "model.type is \"WordPiece\", supported: \"BPE\" or \"Unigram\""},
    {"unigram", "\"type\":\"Strip\"", "\"type\":\"Lowercase\"",
     MERAK_ERR_UNSUPPORTED, "normalizer is \"Lowercase\", supported: null, "},
    {"unigram", "_charsmap\":\"", "_charsmap\":\"/", MERAK_ERR_FORMAT,
     "normalizer Precompiled has no sound precompiled_charsmap"},
    {"unigram", "_charsmap\":\"", "_charsmap\":\"////", MERAK_ERR_FORMAT,
     "normalizer Precompiled has no sound precompiled_charsmap"},
    {"unigram", "\" {2,}\"", "\" {3,}\"", MERAK_ERR_UNSUPPORTED,
     "normalizer.Replace is {"},
    {"unigram_bytes", "\"type\":\"Metaspace\",",
     "\"type\":\"ByteLevel\",\"add_prefix_space\":false,",
     MERAK_ERR_UNSUPPORTED, "pre_tokenizer is {\"type\":\"ByteLevel\","},
    {"mistral", "\"prepend_scheme\":\"first\"", "\"prepend_scheme\":\"last\"",
     MERAK_ERR_UNSUPPORTED, "Metaspace.prepend_scheme is \"last\""},
};

static size_t load_kind(const char *name, char *json)
{
    size_t n = read_file(path_of(name), json, MAX_TEXT - 1);

    json[n] = '\0';
    return n;
}

/* Write t.json: that of a kind with one text in it exchanged. */
static void write_altered(const char *kind, const char *from, const char *to)
{
    static char json[MAX_TEXT + 1000];
    char *p;

    load_kind(kind, json);
    p = strstr(json, from);
    if (p == NULL)
        fail_msg("%s: %s is not there", kind, from);
    memmove(p + strlen(to), p + strlen(from), strlen(p + strlen(from)) + 1);
    memcpy(p, to, strlen(to));
    write_file(at("t.json"), json, strlen(json));
}

static void what_is_not_there_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_tokenizer *tok = NULL;
        struct merak_error err = {.text = ""};

        write_altered(rows[i].kind, rows[i].from, rows[i].to);
        assert_int_equal(merak_tokenizer_open(at("t.json"), &tok, &err),
                         rows[i].status);
        if (strncmp(err.text + strlen(at("t.json")) + 2, rows[i].text,
                    strlen(rows[i].text)) != 0)
            fail_msg("got \"%s\", want \"%s\"", err.text, rows[i].text);
    }
}

/* Bytes without a token are left out, as Hugging Face's library does, and
 * counted; also those of a word that was seen before. */
static void what_is_left_out_is_counted(void **state)
{
    static struct ids ids;
    struct merak_tokenizer *tok = open_kind("smollm2");

    (void)state;
    for (int i = 1; i <= 3; i++) {
        ids.n = 0;
        assert_int_equal(
            merak_tokenizer_encode(tok, "a\004\005b", 4, collect, &ids, NULL),
            MERAK_OK);
        assert_int_equal(ids.n, 2);
        assert_int_equal(merak_tokenizer_left_out(tok), 2 * i);
    }
    merak_tokenizer_close(tok);
    tok = open_kind("llama2");
    ids.n = 0;
    assert_int_equal(
        merak_tokenizer_encode(tok, "a\004\005b", 4, collect, &ids, NULL),
        MERAK_OK);
    assert_int_equal(merak_tokenizer_left_out(tok), 0);
    merak_tokenizer_close(tok);
}

/* Six rules, each of which makes ten letters of one, make a million of one. */
static void a_normalizer_grows_a_text_within_bounds(void **state)
{
#define RULE(from, to)                                      \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from \
    "\"},\"content\":\"" to "\"}"
#define TENFOLD RULE("z", "zzzzzzzzzz")
    static const char sixfold[] =
        "{\"type\":\"Sequence\",\"normalizers\":[" TENFOLD "," TENFOLD
        "," TENFOLD "," TENFOLD "," TENFOLD "," TENFOLD "]}";
    static const char tenfold[] = TENFOLD;
    static struct ids ids;
    static char text[2000];
    struct merak_error err = {.text = ""};
    struct merak_tokenizer *tok = NULL;

    (void)state;
    memset(text, 'z', sizeof(text));
    write_altered("qwen2", "{\"type\":\"NFC\"}", sixfold);
    assert_int_equal(merak_tokenizer_open(at("t.json"), &tok, &err), MERAK_OK);
    assert_int_equal(merak_tokenizer_encode(tok, text, 4, collect, &ids, &err),
                     MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "normalizer, of 4 bytes: a text grows to "
                                     "more than 1088 bytes"));
    merak_tokenizer_close(tok);
    write_altered("qwen2", "{\"type\":\"NFC\"}", tenfold);
    assert_int_equal(merak_tokenizer_open(at("t.json"), &tok, &err), MERAK_OK);
    ids.n = 0;
    assert_int_equal(
        merak_tokenizer_encode(tok, text, sizeof(text), collect, &ids, &err),
        MERAK_OK);
    assert_true(ids.n > 100);
    merak_tokenizer_close(tok);
}

/* How often this process has called read(); 0: this system does not tell. */
static unsigned long long reads(void)
{
    FILE *f = fopen("/proc/self/io", "r");
    unsigned long long n = 0;
    char line[100];

    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        (void)sscanf(line, "syscr: %llu", &n);
    if (f != NULL)
        fclose(f);
    return n;
}

enum { MANY = 30000 };

/* qwen2's with so many added tokens more that begin with the same letters. */
static void write_many_added(void)
{
    static const char list[] = "\"added_tokens\":[";
    static char json[MAX_TEXT];
    FILE *f = fopen(at("t.json"), "w");
    const char *rest;

    load_kind("qwen2", json);
    rest = strstr(json, list) + strlen(list);
    assert_non_null(f);
    fwrite(json, 1, (size_t)(rest - json), f);
    for (int i = 0; i < MANY; i++)
        fprintf(f,
                "{\"id\":%d,\"content\":\"<x%d\",\"normalized\":false,"
                "\"special\":true},",
                10000 + i, i);
    fputs(rest, f);
    assert_int_equal(fclose(f), 0);
}

/* Neither a read() for each byte nor a comparison with each token. */
static void many_added_tokens_cost_little(void **state)
{
    static struct ids ids;
    static char text[MAX_TEXT];
    struct merak_error err = {.text = ""};
    struct merak_tokenizer *tok = NULL;
    unsigned long long before;
    int64_t begin;

    (void)state;
    write_many_added();
    before = reads();
    assert_int_equal(merak_tokenizer_open(at("t.json"), &tok, &err), MERAK_OK);
    assert_true(reads() - before < 3000);
    begin = merak_clock_ns();
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "<x"[i % 2];
    memcpy(text, "<x29999<x1<x12x<x30000", 22);
    for (int i = 0; i < 20; i++) {
        ids.n = 0;
        assert_int_equal(merak_tokenizer_encode(tok, text, sizeof(text),
                                                collect, &ids, &err),
                         MERAK_OK);
    }
    /* the longest that is there: 1, 12, 3000 and a 0 behind it */
    assert_int_equal(ids.id[0], 10000 + 29999);
    assert_int_equal(ids.id[1], 10000 + 1);
    assert_int_equal(ids.id[2], 10000 + 12);
    assert_int_equal(ids.id[4], 10000 + 3000);
    /* 20 x 32768 places x 30000 tokens would take minutes */
    assert_true(merak_clock_ns() - begin < 20 * (int64_t)1000000000);
    merak_tokenizer_close(tok);
}

/* Bytes changed, cut out, doubled, or the file cut short. */
static size_t damage(uint64_t key, char *json, size_t n)
{
    static const char signs[] = "{}[]\",:0123456789-eE.ntf\\ \xe2\x80";
    size_t changes = 1 + merak_rng_mix(key, 0) % 4;

    for (size_t c = 1; c <= changes && n > 100; c++) {
        uint64_t r = merak_rng_mix(key, c);
        /* heads and tails are denser than the vocabulary between */
        size_t at = r % 3 == 0   ? merak_rng_mix(r, 1) % (n < 3000 ? n : 3000)
                    : r % 3 == 1 ? n - 1 - merak_rng_mix(r, 1) % (n / 8)
                                 : merak_rng_mix(r, 1) % n;
        size_t length = merak_rng_mix(r, 2) % 40;

        length = length < n - at ? length : n - at;
        switch (r / 3 % 4) {
        case 0:
            json[at] = signs[merak_rng_mix(r, 3) % (sizeof(signs) - 1)];
            break;
        case 1:
            memmove(json + at, json + at + length, n - at - length);
            n -= length;
            break;
        case 2:
            length = n + length < MAX_TEXT ? length : 0;
            memmove(json + at + length, json + at, n - at);
            n += length;
            break;
        default:
            n = r % 7 == 0 ? at : n;
        }
    }
    return n;
}

/* What a damaged file gives: one clear error, or a tokenizer that works. */
static bool try_file(const char *name, const char *text)
{
    static struct ids ids;
    struct merak_tokenizer *tok = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc = merak_tokenizer_open(at(name), &tok, &err);

    if (rc != MERAK_OK) {
        assert_int_equal(err.status, rc);
        assert_true(strncmp(err.text, at(name), strlen(at(name))) == 0);
        return false;
    }
    ids.n = 0;
    assert_int_equal(merak_tokenizer_encode_whole(tok, text, strlen(text),
                                                  collect, &ids, &err),
                     MERAK_OK);
    for (size_t i = 0; i < ids.n; i++) {
        const char *part;
        size_t n;

        assert_int_equal(
            merak_tokenizer_decode(tok, ids.id[i], &part, &n, &err), MERAK_OK);
    }
    merak_tokenizer_close(tok);
    return true;
}

static void damaged_files_do_no_harm(void **state)
{
    static char whole[MAX_TEXT], json[MAX_TEXT];
    int64_t end = merak_clock_ns() + FUZZ_NS;
    uint64_t tries = 0, opened = 0;

    (void)state;
    while (merak_clock_ns() < end || tries < 5 * N_KINDS) {
        const char *kind = kinds[tries % N_KINDS].name;
        const char *name = strncmp(kind, "spm", 3) == 0 ? "f.model" : "f.json";
        size_t n = load_kind(kind, whole);

        memcpy(json, whole, n);
        n = damage(merak_rng_mix(77, tries++), json, n);
        write_file(at(name), json, n);
        opened +=
            try_file(name, " The caf\xc3\xa9 word <mask> e\xcc\x81 1234\n\n"
                           "\xe4\xbd\xa0 <s>\xff.");
    }
    assert_true(opened < tries);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_hugging_face),
        cmocka_unit_test(text_comes_in_whole_characters),
        cmocka_unit_test(what_is_not_there_is_refused_by_name),
        cmocka_unit_test(what_is_left_out_is_counted),
        cmocka_unit_test(a_normalizer_grows_a_text_within_bounds),
        cmocka_unit_test(many_added_tokens_cost_little),
        cmocka_unit_test(damaged_files_do_no_harm),
    };

    if (argc > 1)
        texts = argv[1];
    return cmocka_run_group_tests_name("tokenizer_kinds", tests, make_scratch,
                                       remove_scratch);
}
