/* SPDX-License-Identifier: Apache-2.0 */
/* event_file.c - scalars of steps in the files that TensorBoard reads
 *
 * TensorBoard reads all files of a directory whose names have "tfevents" in
 * them, in the order of the names, as one run.  Each start of a run begins one,
 *
 *   events.out.tfevents.SECONDS.HOST.merak
 *
 * SECONDS being the time since 1970, or one more than that of the newest file
 * where clocks differ.  A file is records, as TensorFlow's TFRecord frames them
 * (integers are little-endian):
 *
 *   u64 n    u32 masked CRC32C of these 8 bytes    n bytes    u32 theirs
 *
 * where a CRC c is masked as (c >> 15 | c << 17) + 0xa282ead8.  The bytes are a
 * protocol buffer, tensorflow.Event, with these fields:
 *
 *   1  double  wall_time, seconds since 1970
 *   2  int64   step
 *   3  string  file_version, "brain.Event:2": the first record has it alone
 *   5  Summary, field 1 of which repeats a Value: 1 string tag, 2 float
 *   7  SessionLog, field 1 of which is a status: 1 START
 *
 * The second record is a START with the first step that the file may have: a
 * TensorBoard that has read later steps of an earlier file forgets them.
 *
 * A run that was killed has written steps that the next start does again: they
 * are taken out of the earlier files, as is a record that was not finished.  A
 * file of which nothing is left stays: a TensorBoard that was reading it would
 * not go on to the next.
 */
#include "config.h"

#include "io/event_file.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/open.h"
#include "io/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "events.out.tfevents."
#define SUFFIX ".merak"

/* Wire types of protocol buffers. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
/* Fields, see above. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { EVENT_SESSION = 7, SESSION_STATUS = 1, SESSION_START = 1 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

struct merak_event_file {
    FILE *out;
    char path[PATH_MAX];
};

/* --- records -------------------------------------------------------------- */

/* The remainders of the 16 values of half a byte. */
static const uint32_t half_byte[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
    0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
    0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t merak_crc32c(const void *data, size_t n)
{
    const unsigned char *byte = data;
    uint32_t crc = ~UINT32_C(0);

    for (size_t i = 0; i < n; i++) {
        crc ^= byte[i];
        crc = crc >> 4 ^ half_byte[crc & 15];
        crc = crc >> 4 ^ half_byte[crc & 15];
    }
    return ~crc;
}

static uint32_t masked_crc(const void *data, size_t n)
{
    uint32_t crc = merak_crc32c(data, n);

    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* More than any record of ours has. */
enum { RECORD_BYTES = 2048 };

struct record {
    size_t n;
    unsigned char at[RECORD_BYTES];
};

static void put_bytes(struct record *r, const void *data, size_t n)
{
    assert(n <= sizeof(r->at) - r->n);
    memcpy(r->at + r->n, data, n);
    r->n += n;
}

static void put_fixed(struct record *r, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++, value >>= 8)
        put_bytes(r, &(unsigned char){(unsigned char)value}, 1);
}

static void put_varint(struct record *r, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_fixed(r, value | 0x80, 1);
    put_fixed(r, value, 1);
}

static void put_key(struct record *r, unsigned field, unsigned wire)
{
    put_varint(r, field << 3 | wire);
}

static void put_string(struct record *r, unsigned field, const void *data,
                       size_t n)
{
    put_key(r, field, BYTES);
    put_varint(r, n);
    put_bytes(r, data, n);
}

/* The fields that every event begins with. */
static void put_event(struct record *r, double time, uint64_t step)
{
    uint64_t bits;

    memcpy(&bits, &time, sizeof(bits));
    put_key(r, EVENT_TIME, FIXED64);
    put_fixed(r, bits, 8);
    put_key(r, EVENT_STEP, VARINT);
    put_varint(r, step);
}

static void put_scalar(struct record *summary, const struct merak_scalar *s)
{
    struct record value = {.n = 0};
    float number = (float)s->value;
    uint32_t bits;

    memcpy(&bits, &number, sizeof(bits));
    put_string(&value, VALUE_TAG, s->tag, strlen(s->tag));
    put_key(&value, VALUE_SIMPLE, FIXED32);
    put_fixed(&value, bits, 4);
    put_string(summary, SUMMARY_VALUE, value.at, value.n);
}

static enum merak_status write_record(struct merak_event_file *file,
                                      const struct record *r,
                                      struct merak_error *err)
{
    struct record head = {.n = 0}, tail = {.n = 0};

    put_fixed(&head, r->n, 8);
    put_fixed(&head, masked_crc(head.at, 8), 4);
    put_fixed(&tail, masked_crc(r->at, r->n), 4);
    if (fwrite(head.at, head.n, 1, file->out) == 1 &&
        fwrite(r->at, r->n, 1, file->out) == 1 &&
        fwrite(tail.at, tail.n, 1, file->out) == 1 && fflush(file->out) == 0)
        return MERAK_OK;
    return merak_fail(err, errno == ENOSPC ? MERAK_ERR_NOSPACE : MERAK_ERR_IO,
                      "cannot write %.150s: %s", file->path, strerror(errno));
}

/* --- taking out steps ----------------------------------------------------- */

static uint64_t fixed(const unsigned char *at, size_t n)
{
    uint64_t value = 0;

    while (n-- > 0)
        value = value << 8 | at[n];
    return value;
}

/* False at the end, and where what follows is no whole record of ours. */
static bool read_record(FILE *in, struct record *r)
{
    unsigned char head[12], tail[4];
    uint64_t n;

    if (fread(head, sizeof(head), 1, in) != 1 ||
        fixed(head + 8, 4) != masked_crc(head, 8))
        return false;
    n = fixed(head, 8);
    if (n == 0 || n > sizeof(r->at) || fread(r->at, (size_t)n, 1, in) != 1 ||
        fread(tail, sizeof(tail), 1, in) != 1)
        return false;
    r->n = (size_t)n;
    return fixed(tail, 4) == masked_crc(r->at, r->n);
}

static bool get_varint(const struct record *r, size_t *at, uint64_t *value_p)
{
    uint64_t value = 0;

    for (unsigned shift = 0; *at < r->n && shift < 64; shift += 7) {
        unsigned char byte = r->at[(*at)++];

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value_p = value;
            return true;
        }
    }
    return false;
}

/* The event's step, 0 without one; false if it is no event. */
static bool step_of(const struct record *r, uint64_t *step_p)
{
    uint64_t key, value;

    *step_p = 0;
    for (size_t at = 0; at < r->n;) {
        if (!get_varint(r, &at, &key))
            return false;
        value = (key & 7) == FIXED64 ? 8 : 4;
        if (((key & 7) == VARINT || (key & 7) == BYTES) &&
            !get_varint(r, &at, &value))
            return false;
        if ((key & 7) == VARINT) {
            if (key >> 3 == EVENT_STEP)
                *step_p = value;
            continue;
        }
        if (((key & 7) != FIXED64 && (key & 7) != BYTES &&
             (key & 7) != FIXED32) ||
            value > r->n - at)
            return false;
        at += (size_t)value;
    }
    return true;
}

/* The bytes of the records before the first that has a later step or is not
 * whole. */
static size_t find_end(FILE *in, uint64_t step)
{
    struct record r;
    uint64_t its;
    size_t end = 0;

    while (read_record(in, &r) && step_of(&r, &its) && its <= step)
        end += 12 + r.n + 4;
    return end;
}

static bool copy_bytes(FILE *in, FILE *out, size_t n)
{
    char part[4096];

    rewind(in);
    while (n > 0) {
        size_t some = n < sizeof(part) ? n : sizeof(part);

        if (fread(part, some, 1, in) != 1 || fwrite(part, some, 1, out) != 1)
            return false;
        n -= some;
    }
    return true;
}

/* Let a file have its first `end` bytes; returns NULL or why not. */
static const char *shorten(const char *dir, const char *path, FILE *in,
                           size_t end)
{
    char part[PATH_MAX];
    FILE *out = NULL;
    const char *why;
    bool fine;

    /* TensorBoard does not read one of this name. */
    snprintf(part, sizeof(part), "%s/cut" SUFFIX ".part", dir);
    why = merak_fopen_new(part, &out);
    if (why != NULL)
        return why;
    fine = copy_bytes(in, out, end);
    if (fclose(out) == 0 && fine && rename(part, path) == 0)
        return NULL;
    why = strerror(errno);
    (void)unlink(part);
    return why;
}

static const char *cut_file(const char *dir, const char *path, uint64_t step)
{
    FILE *in = NULL;
    const char *why = merak_fopen_own(path, MERAK_ANY_OWNER, &in);
    size_t end;
    long bytes;

    /* Somebody else's, behind a link, stays as it is. */
    if (why != NULL)
        return errno == 0 ? NULL : why;
    end = find_end(in, step);
    bytes = fseek(in, 0, SEEK_END) == 0 ? ftell(in) : -1;
    if (bytes < 0 || (size_t)bytes != end)
        why = shorten(dir, path, in, end);
    fclose(in);
    return why;
}

/* --- files ---------------------------------------------------------------- */

/* Is it the name of a file of ours, and of when? */
static bool is_ours(const char *name, uint64_t *seconds_p)
{
    size_t n = strlen(name), end = strlen(SUFFIX);

    return n > end && strcmp(name + n - end, SUFFIX) == 0 &&
           sscanf(name, PREFIX "%18" SCNu64 ".", seconds_p) == 1;
}

/* Set *newest_p to the time of the newest file, 0 without one, and cut them. */
static enum merak_status look_at_files(const char *dir, uint64_t step, bool cut,
                                       uint64_t *newest_p,
                                       struct merak_error *err)
{
    DIR *list = opendir(dir);
    const struct dirent *entry;
    const char *why = NULL;
    char path[PATH_MAX];
    uint64_t seconds;

    *newest_p = 0;
    if (list == NULL)
        return merak_fail(err, MERAK_ERR_IO, "cannot read %.150s: %s", dir,
                          strerror(errno));
    while (why == NULL && (entry = readdir(list)) != NULL) {
        if (!is_ours(entry->d_name, &seconds))
            continue;
        if (seconds > *newest_p)
            *newest_p = seconds;
        snprintf(path, sizeof(path), "%.3800s/%.255s", dir, entry->d_name);
        if (cut)
            why = cut_file(dir, path, step);
    }
    closedir(list);
    return why == NULL ? MERAK_OK : merak_file_fail_redone(err, path, why);
}

static enum merak_status write_head(struct merak_event_file *file,
                                    uint64_t step, struct merak_error *err)
{
    static const char version[] = "brain.Event:2";
    struct record r = {.n = 0}, session = {.n = 0};
    double now = merak_clock_wall_s();
    enum merak_status rc;

    put_event(&r, now, 0);
    put_string(&r, EVENT_VERSION, version, strlen(version));
    rc = write_record(file, &r, err);
    if (rc != MERAK_OK)
        return rc;
    r.n = 0;
    put_event(&r, now, step + 1);
    put_key(&session, SESSION_STATUS, VARINT);
    put_varint(&session, SESSION_START);
    put_string(&r, EVENT_SESSION, session.at, session.n);
    return write_record(file, &r, err);
}

enum merak_status merak_event_file_open(const char *dir, uint64_t step,
                                        bool cut,
                                        struct merak_event_file **file_p,
                                        struct merak_error *err)
{
    struct merak_event_file *file = calloc(1, sizeof(*file));
    uint64_t now = (uint64_t)merak_clock_wall_s(), newest;
    char host[256] = "localhost";
    const char *why;
    enum merak_status rc;

    if (file == NULL)
        return merak_fail_nomem(err, sizeof(*file));
    rc = look_at_files(dir, step, cut, &newest, err);
    if (rc != MERAK_OK)
        goto out;
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(file->path, sizeof(file->path),
             "%.3800s/" PREFIX "%010" PRIu64 ".%.200s" SUFFIX, dir,
             now > newest ? now : newest + 1, host);
    why = merak_fopen_new(file->path, &file->out);
    if (why != NULL)
        rc = merak_fail(err, MERAK_ERR_IO, "cannot write %.150s: %s",
                        file->path, why);
    else
        rc = write_head(file, step, err);
out:
    if (rc == MERAK_OK)
        *file_p = file;
    else
        merak_event_file_close(file);
    return rc;
}

enum merak_status merak_event_file_add(struct merak_event_file *file,
                                       double time, uint64_t step,
                                       const struct merak_scalar *scalars,
                                       size_t n, struct merak_error *err)
{
    struct record r = {.n = 0}, summary = {.n = 0};

    for (size_t i = 0; i < n; i++) {
        if (!isnan(scalars[i].value))
            put_scalar(&summary, &scalars[i]);
    }
    put_event(&r, time, step);
    put_string(&r, EVENT_SUMMARY, summary.at, summary.n);
    return write_record(file, &r, err);
}

void merak_event_file_close(struct merak_event_file *file)
{
    if (file == NULL)
        return;
    if (file->out != NULL)
        fclose(file->out);
    free(file);
}
