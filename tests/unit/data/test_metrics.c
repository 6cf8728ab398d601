/* SPDX-License-Identifier: Apache-2.0 */
/* test_metrics.c - what others' programs read of a run: OpenMetrics pages,
 * TensorBoard's event files */
#include "config.h"

#include "unit/near.h"
#include "unit/scratch_dir.h"

#include "io/event_file.h"
#include "io/openmetrics.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- OpenMetrics ---------------------------------------------------------- */

static const struct {
    const char *before, *key, *value, *labels;
    size_t size;
} labels[] = {
    {"", "job_id", "7", "job_id=\"7\"", 64},
    {"a=\"1\"", "job_id", "7", "a=\"1\",job_id=\"7\"", 64},
    {"", "job_name", NULL, "", 64},
    {"a=\"1\"", "job_name", "", "a=\"1\"", 64},
    {"", "k", "say \"x\" \\ y", "k=\"say \\\"x\\\" \\\\ y\"", 64},
    {"", "k", "two\nlines", "k=\"two lines\"", 64},
    {"", "k", "caf\xc3\xa9", "k=\"caf\xc3\xa9\"", 64},
    /* neither UTF-8 nor printable: a reader would refuse the whole page */
    {"", "k", "caf\xe9\x1b", "k=\"caf??\"", 64},
    /* the whole label or none of it */
    {"", "k", "value", "k=\"value\"", 10},
    {"", "k", "value", "", 9},
    {"a=\"1\"", "k", "value", "a=\"1\",k=\"value\"", 16},
    {"a=\"1\"", "k", "value", "a=\"1\"", 15},
    {"", "k", "\"\"\"\"", "k=\"\\\"\\\"\\\"\\\"\"", 13},
    {"", "k", "\"\"\"\"", "", 12},
};

static void labels_are_escaped_or_left_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(labels) / sizeof(*labels); i++) {
        /* of that size, so that a sanitizer sees a byte too many */
        size_t size = labels[i].size;
        char *text = malloc(size);

        assert_non_null(text);
        snprintf(text, size, "%s", labels[i].before);
        merak_openmetrics_label(text, size, labels[i].key, labels[i].value);
        assert_string_equal(text, labels[i].labels);
        free(text);
    }
}

static const struct {
    double value;
    const char *text;
} numbers[] = {
    {0, "0"},
    {-1.5, "-1.5"},
    {0.1, "0.1"},
    {1e6, "1e+06"},
    {1234567, "1234567"},
    {1795708895.2963035, "1795708895.2963035"},
    {9007199254740993.0, "9007199254740992"},
    {5.2068592412397265, "5.2068592412397265"},
    {INFINITY, "+Inf"},
    {-INFINITY, "-Inf"},
};

static void numbers_keep_every_bit(void **state)
{
    const struct merak_openmetric m = {"m", .help = "H."};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        char want[64], *text = NULL;
        size_t n;
        FILE *out = open_memstream(&text, &n);

        assert_non_null(out);
        merak_openmetrics_sample(out, &m, "", NULL, numbers[i].value);
        assert_int_equal(fclose(out), 0);
        snprintf(want, sizeof(want), "m %s\n", numbers[i].text);
        assert_string_equal(text, want);
        free(text);
    }
}

static void a_page_is_as_the_format_has_it(void **state)
{
    const struct merak_openmetric seconds = {"step_seconds", .unit = "seconds",
                                             .help = "Time of a step."};
    const struct merak_openmetric count = {"incidents", .type = "counter",
                                           .help = "Incidents."};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    (void)state;
    assert_non_null(out);
    merak_openmetrics_one(out, &seconds, "job=\"7\"", 0.25);
    merak_openmetrics_one(out, &seconds, "job=\"7\"", NAN); /* nothing */
    merak_openmetrics_family(out, &count);
    merak_openmetrics_sample(out, &count, "job=\"7\"", "kind=\"hang\"", 2);
    merak_openmetrics_sample(out, &count, "", "kind=\"hang\"", 0);
    merak_openmetrics_end(out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "# TYPE step_seconds gauge\n"
                              "# UNIT step_seconds seconds\n"
                              "# HELP step_seconds Time of a step.\n"
                              "step_seconds{job=\"7\"} 0.25\n"
                              "# TYPE incidents counter\n"
                              "# HELP incidents Incidents.\n"
                              "incidents_total{job=\"7\",kind=\"hang\"} 2\n"
                              "incidents_total{kind=\"hang\"} 0\n"
                              "# EOF\n");
    free(text);
}

/* --- event files ---------------------------------------------------------- */

/* A CRC bit by bit, as it is defined. */
static uint32_t crc_by_bits(const unsigned char *data, size_t n)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < 8 * n; i++) {
        crc ^= data[i / 8] >> i % 8 & 1;
        crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* RFC 3720, B.4, whose bytes are those of the CRC from the lowest. */
static void crcs_are_the_published_ones(void **state)
{
    static const unsigned char read_pdu[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0,    0, 0, 0, 0,
        0x14, 0,    0, 0, 0, 0, 4, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0,    0, 0, 0, 0,
    };
    unsigned char bytes[32];

    (void)state;
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(merak_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(merak_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(merak_crc32c(bytes, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(merak_crc32c(bytes, 32), 0x113fdb5c);
    assert_int_equal(merak_crc32c(read_pdu, 48), 0xd9963a56);
    assert_int_equal(merak_crc32c("", 0), 0);
    for (size_t n = 0; n <= 32; n++)
        assert_int_equal(merak_crc32c(bytes, n), crc_by_bits(bytes, n));
}

static uint32_t masked(const unsigned char *data, size_t n)
{
    uint32_t crc = crc_by_bits(data, n);

    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void begin(uint64_t step, bool cut, struct merak_event_file **file_p)
{
    struct merak_error err;

    if (merak_event_file_open(scratch_dir, step, cut, file_p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
}

/* Add a loss that tells its step, and a tag without a value. */
static void add(struct merak_event_file *file, uint64_t step)
{
    const struct merak_scalar s[] = {{"train/loss", (double)step / 2},
                                     {"valid/loss", NAN}};
    struct merak_error err;

    assert_int_equal(
        merak_event_file_add(file, 1.5e9 + (double)step, step, s, 2, &err),
        MERAK_OK);
}

static void add_start(uint64_t after, uint64_t last, bool cut)
{
    struct merak_event_file *file = NULL;

    begin(after, cut, &file);
    for (uint64_t step = after + 1; step <= last; step++)
        add(file, step);
    merak_event_file_close(file);
}

static int is_event_file(const struct dirent *entry)
{
    return strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
}

/* Bytes that precede and follow the step, of one byte, in the record of
 * add(): fields 1 and 2; then field 5, the summary, of a value (1) of a tag (1)
 * and a float (2). */
static const unsigned char to_step[] = {0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10};
static const unsigned char after_step[] =
    "\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15";

/* Check a record's bytes; its step, 0: of the start of a file. */
static uint64_t check_record(const unsigned char *at, size_t n, bool first)
{
    const unsigned char *rest = at + sizeof(to_step) + 1;
    uint64_t step = at[sizeof(to_step)];
    size_t left = n - sizeof(to_step) - 1;
    double time;
    float loss;

    assert_in_range(n, sizeof(to_step) + 1, 128);
    assert_int_equal(at[0], to_step[0]);
    assert_int_equal(at[9], to_step[9]);
    if (first) {
        assert_int_equal(step, 0);
        assert_int_equal(left, 15);
        assert_memory_equal(rest,
                            "\x1a\x0d"
                            "brain.Event:2",
                            15);
        return 0;
    }
    if (rest[0] == 0x3a) { /* a session's START */
        assert_int_equal(left, 4);
        assert_memory_equal(rest, "\x3a\x02\x08\x01", 4);
        return 0;
    }
    assert_int_equal(left, sizeof(after_step) - 1 + 4);
    assert_memory_equal(rest, after_step, sizeof(after_step) - 1);
    memcpy(&time, at + 1, 8); /* tests run on little-endian machines */
    memcpy(&loss, rest + sizeof(after_step) - 1, 4);
    assert_true(time == 1.5e9 + (double)step && loss == (float)step / 2);
    return step;
}

/* Add the steps of a file to the text. */
static void read_file(const char *name, char *text, size_t size)
{
    size_t n;
    unsigned char *data = read_whole(scratch_path(name), &n), *at = data;

    while (at < data + n) {
        uint64_t bytes, step;
        uint32_t crc;

        assert_true((size_t)(data + n - at) > 16);
        memcpy(&bytes, at, 8);
        memcpy(&crc, at + 8, 4);
        assert_int_equal(crc, masked(at, 8));
        assert_true(bytes <= (size_t)(data + n - at) - 16);
        memcpy(&crc, at + 12 + bytes, 4);
        assert_int_equal(crc, masked(at + 12, bytes));
        step = check_record(at + 12, bytes, at == data);
        if (step > 0)
            snprintf(text + strlen(text), size - strlen(text), "%d ",
                     (int)step);
        at += 16 + bytes;
    }
    free(data);
}

/* The steps of all files, in the order of their names, are these; "|" begins a
 * file. */
static void expect_steps(const char *want)
{
    struct dirent **entry;
    char text[512] = "";
    int n = scandir(scratch_dir, &entry, is_event_file, alphasort);

    for (int i = 0; i < n; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "|");
        read_file(entry[i]->d_name, text, sizeof(text));
        free(entry[i]);
    }
    free(entry);
    assert_string_equal(text, want);
}

static void a_step_is_there_once(void **state)
{
    (void)state;
    add_start(0, 4, true);
    add_start(4, 5, true);
    expect_steps("|1 2 3 4 |5 ");
    add_start(3, 6, true); /* as after a kill: 4 and 5 are done again */
    expect_steps("|1 2 3 ||4 5 6 ");
    add_start(6, 7, true); /* nothing is done again */
    expect_steps("|1 2 3 ||4 5 6 |7 ");
    add_start(0, 2, false); /* another run, in a directory of several */
    expect_steps("|1 2 3 ||4 5 6 |7 |1 2 ");
    add_start(0, 1, true);
    expect_steps("||||||1 ");
    assert_int_equal(access(scratch_path("cut.merak.part"), F_OK), -1);
}

/* The only event file. */
static const char *only_file(void)
{
    static char name[256];
    struct dirent **entry;

    assert_int_equal(scandir(scratch_dir, &entry, is_event_file, alphasort), 1);
    snprintf(name, sizeof(name), "%s", entry[0]->d_name);
    free(entry[0]);
    free(entry);
    return name;
}

/* Whatever a kill left of the last record goes, and so does what follows a
 * damaged one: readers stop there. */
static void what_is_not_whole_is_taken_out(void **state)
{
    const char *name;
    unsigned char *data;
    size_t n, record = 16 + 11 + sizeof(after_step) - 1 + 4;

    (void)state;
    add_start(0, 3, true);
    name = only_file();
    data = read_whole(scratch_path(name), &n);
    for (size_t less = 1; less < record; less++) {
        scratch_write(name, data, n - less);
        add_start(9, 9, true);
        expect_steps("|1 2 |");
        assert_int_equal(scratch_remove(NULL), 0);
        assert_int_equal(mkdir(scratch_dir, 0700), 0);
    }
    for (size_t at = n - record; at < n; at++) {
        data[at] ^= 0x10;
        scratch_write(name, data, n);
        data[at] ^= 0x10;
        add_start(9, 9, true);
        expect_steps("|1 2 |");
        assert_int_equal(scratch_remove(NULL), 0);
        assert_int_equal(mkdir(scratch_dir, 0700), 0);
    }
    free(data);
}

/* Others' event files, and what others put behind a link, stay. */
static void what_others_wrote_stays(void **state)
{
    const char *link = scratch_path("events.out.tfevents.1700000000.x.merak");
    const char *theirs = "events.out.tfevents.1700000001.x.v2";
    struct merak_event_file *file = NULL;
    unsigned char *data;
    size_t n;

    (void)state;
    scratch_write("precious", "keep me", 7);
    scratch_write(theirs, "keep me", 7);
    assert_int_equal(symlink("precious", link), 0);
    begin(0, true, &file);
    merak_event_file_close(file);
    data = read_whole(scratch_path("precious"), &n);
    assert_int_equal(n, 7);
    free(data);
    data = read_whole(scratch_path(theirs), &n);
    assert_int_equal(n, 7);
    free(data);
}

#define OWN_DIR_TEST(f) \
    cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_escaped_or_left_out),
        cmocka_unit_test(numbers_keep_every_bit),
        cmocka_unit_test(a_page_is_as_the_format_has_it),
        cmocka_unit_test(crcs_are_the_published_ones),
        OWN_DIR_TEST(a_step_is_there_once),
        OWN_DIR_TEST(what_is_not_whole_is_taken_out),
        OWN_DIR_TEST(what_others_wrote_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
