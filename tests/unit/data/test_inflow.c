/* SPDX-License-Identifier: Apache-2.0 */
/* test_inflow.c - compressed texts are read whole, or what is wrong is named */
#include "config.h"

#include "unit/data_files.h"

#include "io/tokens/documents.h"

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

/* Of a member or frame: the n bytes of text, compressed; returns its bytes. */
typedef size_t (*pack_fn)(const char *text, size_t n, unsigned char *to,
                          size_t room);

#ifdef HAVE_ZLIB
static size_t pack_gzip(const char *text, size_t n, unsigned char *to,
                        size_t room)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)text,
                  .avail_in = (uInt)n,
                  .next_out = to,
                  .avail_out = (uInt)room};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, 0), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}
#endif

#ifdef HAVE_ZSTD
/* With a checksum, as zstd(1) makes it. */
static size_t pack_zstd(const char *text, size_t n, unsigned char *to,
                        size_t room)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    size_t bytes;

    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    bytes = ZSTD_compress2(c, to, room, text, n);
    assert_false(ZSTD_isError(bytes));
    ZSTD_freeCCtx(c);
    return bytes;
}
#endif

static const struct {
    const char *name;
    pack_fn pack;
} kinds[] = {
#ifdef HAVE_ZLIB
    {"gzip", pack_gzip},
#endif
#ifdef HAVE_ZSTD
    {"Zstandard", pack_zstd},
#endif
    {NULL, NULL},
};

struct got {
    char *text;
    size_t n, room, documents;
};

static enum merak_status take_text(void *arg, const char *text, size_t n,
                                   struct merak_error *err)
{
    struct got *got = arg;

    (void)err;
    assert_true(got->n + n <= got->room);
    memcpy(got->text + got->n, text, n);
    got->n += n;
    got->documents++;
    return MERAK_OK;
}

static enum merak_status read_all(const char *name, struct got *got,
                                  struct merak_error *err)
{
    const struct merak_document_reader reader = {take_text, NULL, got, NULL};

    got->n = got->documents = 0;
    return merak_documents_read(at(name), NULL, &reader, err);
}

/* n lines of JSON that do not compress to nothing. */
static size_t write_lines(char *to, int n)
{
    uint64_t x = 88172645463325252u;
    char *end = to;

    for (int i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        end += sprintf(end, "{\"text\": \"%016llx\"}\n", (unsigned long long)x);
    }
    return (size_t)(end - to);
}

/* Longer than any buffer, in members that follow each other, one of them
 * without text; as a text and as lines. */
static void members_are_one_text(void **state)
{
    enum { LINES = 40000, ROOM = LINES * 64 };
    char *text = malloc(ROOM), *room = malloc(ROOM);
    unsigned char *file = malloc(ROOM);
    struct got got = {.text = room, .room = ROOM};
    struct merak_error err = {.text = ""};
    size_t n = write_lines(text, LINES), half = n / 2 + 5, bytes;

    (void)state;
    for (size_t i = 0; kinds[i].pack != NULL; i++) {
        pack_fn pack = kinds[i].pack;

        bytes = pack(text, half, file, ROOM);
        bytes += pack("", 0, file + bytes, ROOM - bytes);
        bytes += pack(text + half, n - half, file + bytes, ROOM - bytes);
        write_file(at("x"), file, bytes);
        if (read_all("x", &got, &err) != MERAK_OK)
            fail_msg("%s: %s", kinds[i].name, err.text);
        assert_int_equal(got.documents, LINES);
        assert_int_equal(got.n, LINES * 16);
        assert_memory_equal(got.text + got.n - 16, text + n - 19, 16);
        bytes = pack("not JSON\n", 9, file, ROOM);
        bytes += pack(text, n, file + bytes, ROOM - bytes);
        write_file(at("x"), file, bytes);
        assert_int_equal(read_all("x", &got, &err), MERAK_OK);
        assert_int_equal(got.documents, 1);
        assert_int_equal(got.n, n + 9);
        assert_memory_equal(got.text + 9, text, n);
        assert_true(merak_documents_bytes(at("x")) == 0);
    }
    free(text);
    free(room);
    free(file);
}

/* Cut off at every byte, and with every byte changed: refused with the place,
 * or the same text; never another, also not a line more or less. */
static void damage_is_named(void **state)
{
    enum { LINES = 20, ROOM = 4096 };
    char text[ROOM], room[ROOM], all[ROOM];
    unsigned char file[ROOM];
    struct got got = {.text = room, .room = ROOM};
    size_t n = write_lines(text, LINES);

    (void)state;
    for (size_t k = 0; kinds[k].pack != NULL; k++) {
        struct merak_error err = {.text = ""};
        size_t first = kinds[k].pack(text, n, file, ROOM);
        size_t bytes =
            first + kinds[k].pack(text, n, file + first, ROOM - first);

        write_file(at("y.jsonl"), file, bytes);
        assert_int_equal(read_all("y.jsonl", &got, &err), MERAK_OK);
        assert_int_equal(got.documents, 2 * LINES);
        memcpy(all, room, got.n);
        for (size_t i = 4; i < bytes; i++) {
            char place[60];

            write_file(at("y.jsonl"), file, i);
            if (i == first) {
                assert_int_equal(read_all("y.jsonl", &got, &err), MERAK_OK);
                continue;
            }
            snprintf(place, sizeof(place), "y.jsonl ends at byte %zu", i);
            if (read_all("y.jsonl", &got, &err) != MERAK_ERR_CORRUPT ||
                strstr(err.text, place) == NULL ||
                strstr(err.text, kinds[k].name) == NULL)
                fail_msg("%s cut at %zu: %s", kinds[k].name, i, err.text);
        }
        for (size_t i = 4; i < bytes; i++) {
            enum merak_status rc;

            file[i] ^= 0x41;
            write_file(at("y.jsonl"), file, bytes);
            rc = read_all("y.jsonl", &got, &err);
            file[i] ^= 0x41;
            if (rc == MERAK_OK && got.n == 2 * LINES * 16 &&
                memcmp(room, all, got.n) == 0)
                continue; /* such as the time in a header */
            if (rc != MERAK_ERR_CORRUPT ||
                strstr(err.text, "y.jsonl") == NULL ||
                strstr(err.text, "byte ") == NULL)
                fail_msg("%s changed at %zu: %d %s", kinds[k].name, i, (int)rc,
                         err.text);
        }
    }
}

/* What is behind the last member. */
static void what_follows_is_judged(void **state)
{
    static const struct {
        const char *kind, *tail;
        size_t n;
        enum merak_status want;
    } row[] = {
        {"gzip", "\0\0\0\0\0", 5, MERAK_OK},
        {"gzip", "\0\0x", 3, MERAK_ERR_CORRUPT},
        {"gzip", "more", 4, MERAK_ERR_CORRUPT},
        {"Zstandard", "\0", 1, MERAK_ERR_CORRUPT},
        {"Zstandard", "more", 4, MERAK_ERR_CORRUPT},
        {"Zstandard", "\x5a\x2a\x4d\x18\2\0\0\0xy", 10, MERAK_OK},
        {"Zstandard", "\x5a\x2a\x4d\x18\2\0\0\0x", 9, MERAK_ERR_CORRUPT},
    };
    char room[64];
    struct got got = {.text = room, .room = sizeof(room)};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        for (size_t k = 0; kinds[k].pack != NULL; k++) {
            struct merak_error err = {.text = ""};
            unsigned char file[256];
            size_t n;

            if (strcmp(kinds[k].name, row[i].kind) != 0)
                continue;
            n = kinds[k].pack("hello", 5, file, 200);
            memcpy(file + n, row[i].tail, row[i].n);
            write_file(at("z"), file, n + row[i].n);
            if (read_all("z", &got, &err) != row[i].want)
                fail_msg("row %zu: %s", i, err.text);
            if (row[i].want == MERAK_OK)
                assert_memory_equal(room, "hello", 5);
        }
    }
}

/* What is compressed may be no text either. */
static void what_is_inside_is_judged(void **state)
{
    char tar[512] = "a.jsonl", room[64];
    struct got got = {.text = room, .room = sizeof(room)};

    (void)state;
    memcpy(tar + 257, "ustar", 6);
    for (size_t k = 0; kinds[k].pack != NULL; k++) {
        struct merak_error err = {.text = ""};
        unsigned char once[256], file[512];
        size_t n = kinds[k].pack("hello", 5, once, sizeof(once));

        n = kinds[k].pack((const char *)once, n, file, sizeof(file));
        write_file(at("z"), file, n);
        assert_int_equal(read_all("z", &got, &err), MERAK_ERR_FORMAT);
        assert_non_null(strstr(err.text, kinds[k].name));
        n = kinds[k].pack(tar, sizeof(tar), file, sizeof(file));
        write_file(at("a.tar.gz"), file, n);
        assert_int_equal(read_all("a.tar.gz", &got, &err), MERAK_ERR_FORMAT);
        assert_non_null(strstr(err.text, "holds tar data"));
    }
}

/* By name, where Merak was built without the library. */
static void what_cannot_be_read_is_refused(void **state)
{
    char room[64];
    struct got got = {.text = room, .room = sizeof(room)};
    struct merak_error err = {.text = ""};

    (void)state;
#ifndef HAVE_ZLIB
    write_file(at("x.gz"), "\x1f\x8b\x08\0\0", 5);
    assert_int_equal(read_all("x.gz", &got, &err), MERAK_ERR_FORMAT);
    assert_non_null(strstr(err.text, "x.gz holds gzip data"));
#endif
#ifndef HAVE_ZSTD
    write_file(at("x.zst"), "\x28\xb5\x2f\xfdx", 5);
    assert_int_equal(read_all("x.zst", &got, &err), MERAK_ERR_FORMAT);
    assert_non_null(strstr(err.text, "x.zst holds Zstandard data"));
#endif
    write_file(at("x.xz"),
               "\xfd"
               "7zXZ\0",
               6);
    assert_int_equal(read_all("x.xz", &got, &err), MERAK_ERR_FORMAT);
    assert_non_null(strstr(err.text, "x.xz holds xz data"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_one_text),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(what_follows_is_judged),
        cmocka_unit_test(what_is_inside_is_judged),
        cmocka_unit_test(what_cannot_be_read_is_refused),
    };

    return cmocka_run_group_tests_name("inflow", tests, make_scratch,
                                       remove_scratch);
}
