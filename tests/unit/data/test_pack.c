/* SPDX-License-Identifier: Apache-2.0 */
/* test_pack.c - token files are written as others write them, whole or not at
 * all */
#include "config.h"

#include "unit/data_files.h"

#include "io/tokens/pack.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static struct merak_pack *create(const char *prefix,
                                 enum merak_pack_format format, size_t vocab)
{
    struct merak_pack *pack = NULL;
    struct merak_error err = {.text = ""};

    if (merak_pack_create(prefix, format, vocab, &pack, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return pack;
}

static void add_document(struct merak_pack *pack, const int32_t *ids, size_t n)
{
    assert_int_equal(merak_pack_tokens(pack, ids, n, NULL), MERAK_OK);
    assert_int_equal(merak_pack_end_document(pack, NULL), MERAK_OK);
}

static void write_two(const char *prefix, enum merak_pack_format format,
                      size_t vocab, int32_t last)
{
    struct merak_pack *pack = create(prefix, format, vocab);
    struct merak_pack_totals totals;

    add_document(pack, (const int32_t[]){1, 2, 3}, 3);
    add_document(pack, NULL, 0); /* left out */
    add_document(pack, (const int32_t[]){4, last}, 2);
    assert_int_equal(merak_pack_commit(pack, NULL), MERAK_OK);
    totals = merak_pack_totals(pack);
    assert_int_equal(totals.tokens, 5);
    assert_int_equal(totals.documents, 2);
    merak_pack_destroy(pack);
}

static int files_in_scratch(void)
{
    char pattern[80];
    glob_t found = {0};
    int n;

    snprintf(pattern, sizeof(pattern), "%s/*", scratch);
    n = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return n;
}

static int clear_scratch(void **state)
{
    return remove_scratch(state) != 0 || make_scratch(state) != 0;
}

static void bytes_are_those_of_megatron(void **state)
{
    unsigned char got[100];

    (void)state;
    write_two(at("g"), MERAK_PACK_MEGATRON, 257, 5);
    assert_int_equal(read_file(at("g.bin"), got, sizeof(got)), 10);
    assert_memory_equal(got, golden_bin, 10);
    assert_int_equal(read_file(at("g.idx"), got, sizeof(got)), 82);
    assert_memory_equal(got, golden_idx, 82);
    assert_int_equal(files_in_scratch(), 2);
}

static const struct {
    enum merak_pack_format format;
    size_t vocab;
    const char *name, *path, *type;
    int32_t last;
} widths[] = {
    {MERAK_PACK_MEGATRON, 65499, "w", "w", "u16", 65498},
    {MERAK_PACK_MEGATRON, 65500, "w", "w", "i32", 65499},
    {MERAK_PACK_MEGATRON, 1 << 24, "w", "w", "i32", 0xabcdef},
    {MERAK_PACK_LLMC, 50257, "l", "l.bin", "u16", 50256},
    {MERAK_PACK_LLMC, 128256, "l", "l.bin", "u32", 128255},
};

static void the_vocabulary_chooses_the_type(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
        const int32_t want[] = {1, 2, 3, 4, widths[i].last};
        struct merak_token_file *f = NULL;
        int32_t got[5];
        size_t n = 0;

        write_two(at(widths[i].name), widths[i].format, widths[i].vocab,
                  widths[i].last);
        assert_int_equal(
            merak_token_files_open(at(widths[i].path), &f, &n, NULL), MERAK_OK);
        assert_string_equal(merak_token_type_name(f->type), widths[i].type);
        assert_int_equal(f->tokens, 5);
        assert_int_equal(
            merak_token_file_read(f, 0, 5, widths[i].vocab, got, NULL),
            MERAK_OK);
        assert_memory_equal(got, want, sizeof(want));
        merak_token_files_close(f, n);
    }
}

/* More than any buffer holds, in documents of many lengths. */
static void long_files_are_whole(void **state)
{
    static int32_t ids[50000];
    struct merak_pack *pack = create(at("long"), MERAK_PACK_MEGATRON, 50000);
    struct merak_token_file *f = NULL;
    uint64_t total = 0, seen = 0;
    size_t n = 0;

    (void)state;
    for (int32_t i = 0; i < 50000; i++)
        ids[i] = i;
    for (size_t length = 1; length < 50000; length = length * 2 + 7) {
        add_document(pack, ids, length);
        total += length;
    }
    assert_int_equal(merak_pack_commit(pack, NULL), MERAK_OK);
    merak_pack_destroy(pack);
    assert_int_equal(merak_token_files_open(at("long"), &f, &n, NULL),
                     MERAK_OK);
    assert_int_equal(f->tokens, total);
    for (size_t length = 1; length < 50000; length = length * 2 + 7) {
        static int32_t got[50000];

        assert_int_equal(merak_token_file_read(f, seen, length, 0, got, NULL),
                         MERAK_OK);
        assert_memory_equal(got, ids, length * sizeof(*got));
        seen += length;
    }
    merak_token_files_close(f, n);
}

static void what_is_not_committed_leaves_nothing(void **state)
{
    unsigned char got[100];
    struct merak_pack *pack;

    (void)state;
    write_two(at("kept"), MERAK_PACK_MEGATRON, 257, 5);
    pack = create(at("kept"), MERAK_PACK_MEGATRON, 257);
    add_document(pack, (const int32_t[]){9}, 1);
    assert_int_equal(files_in_scratch(), 4);
    merak_pack_destroy(pack);
    assert_int_equal(files_in_scratch(), 2);
    assert_int_equal(read_file(at("kept.bin"), got, sizeof(got)), 10);
    assert_memory_equal(got, golden_bin, 10);
}

/* A write that fails half way: here the limit of a file's size. */
static void a_failed_write_leaves_the_old_data(void **state)
{
    static int32_t ids[65536];
    struct rlimit old, small;
    struct merak_pack *pack;
    struct merak_error err;
    unsigned char got[100];
    enum merak_status rc = MERAK_OK;

    (void)state;
    write_two(at("f"), MERAK_PACK_MEGATRON, 257, 5);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pack = create(at("f"), MERAK_PACK_MEGATRON, 257);
    for (int i = 0; i < 4 && rc == MERAK_OK; i++)
        rc = merak_pack_tokens(pack, ids, 65536, &err);
    merak_pack_destroy(pack);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, MERAK_ERR_IO);
    assert_non_null(strstr(err.text, "f.bin: File too large"));
    assert_int_equal(files_in_scratch(), 2);
    assert_int_equal(read_file(at("f.bin"), got, sizeof(got)), 10);
    assert_memory_equal(got, golden_bin, 10);
}

static void bad_requests_are_refused(void **state)
{
    struct merak_pack *pack = NULL;
    struct merak_error err;

    (void)state;
    assert_int_equal(
        merak_pack_create(at("no/such"), MERAK_PACK_MEGATRON, 9, &pack, &err),
        MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "cannot create "));
    pack = create(at("p"), MERAK_PACK_MEGATRON, 9);
    assert_int_equal(merak_pack_tokens(pack, (const int32_t[]){9}, 1, &err),
                     MERAK_ERR_PARAM);
    assert_string_equal(err.text, "id 9 is outside the vocabulary of 9");
    merak_pack_destroy(pack);
    write_two(at("p"), MERAK_PACK_MEGATRON, 257, 5);
    assert_int_equal(
        merak_pack_create(at("p"), MERAK_PACK_LLMC, 9, &pack, &err),
        MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "p.idx exists and would be taken for"));
}

/* Of a process that is gone, on this host; not of one that lives, of another
 * host's, or of another data set. */
static void what_a_killed_one_left_is_removed(void **state)
{
    char host[64], path[6][300];
    pid_t gone = fork();

    (void)state;
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    assert_int_equal(gethostname(host, sizeof(host)), 0);
    snprintf(path[0], sizeof(path[0]), "%s/p.bin.tmp-%s-%ld", scratch, host,
             (long)gone);
    snprintf(path[1], sizeof(path[0]), "%s/p.mask.tmp-%s-%ld", scratch, host,
             (long)gone);
    snprintf(path[2], sizeof(path[0]), "%s/p.ref.tmp-%s-%ld", scratch, host,
             (long)gone);
    snprintf(path[3], sizeof(path[0]), "%s/p.bin.tmp-%s-%ld", scratch, host,
             (long)getppid());
    snprintf(path[4], sizeof(path[0]), "%s/p.bin.tmp-x%s-%ld", scratch, host,
             (long)gone);
    snprintf(path[5], sizeof(path[0]), "%s/pp.bin.tmp-%s-%ld", scratch, host,
             (long)gone);
    for (int i = 0; i < 6; i++)
        write_file(path[i], "x", 1);
    merak_pack_destroy(create(at("p"), MERAK_PACK_MEGATRON, 9));
    for (int i = 0; i < 6; i++)
        assert_int_equal(access(path[i], F_OK) == 0, i >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(bytes_are_those_of_megatron, clear_scratch),
        cmocka_unit_test_setup(the_vocabulary_chooses_the_type, clear_scratch),
        cmocka_unit_test_setup(long_files_are_whole, clear_scratch),
        cmocka_unit_test_setup(what_is_not_committed_leaves_nothing,
                               clear_scratch),
        cmocka_unit_test_setup(a_failed_write_leaves_the_old_data,
                               clear_scratch),
        cmocka_unit_test_setup(what_a_killed_one_left_is_removed,
                               clear_scratch),
        cmocka_unit_test_setup(bad_requests_are_refused, clear_scratch),
    };

    return cmocka_run_group_tests_name("pack", tests, make_scratch,
                                       remove_scratch);
}
