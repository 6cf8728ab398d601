/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_transfer.c - `merak ckpt import` and `merak ckpt export`: weights of
 * others in, ours out
 */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/finish.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/progress.h"
#include "base/size.h"
#include "io/weights/transfer.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct transfer {
    const char *out, *model;
    int format, dtype; /* by the options' words */
    int unknown;       /* enum merak_hf_unknown */
    uint64_t shard_bytes;
    bool json, has_dtype, has_format;
    const char *verb;
    int64_t start_ns;
    struct merak_progress progress;
};

#define AT(field) offsetof(struct transfer, field)

/* "5GB", "2GiB", "1000". */
static enum merak_status set_size(void *target, const char *text,
                                  struct merak_error *err)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},         {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
                 {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
    struct transfer *t = target;
    char *end;
    double value = strtod(text, &end);

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (end == text || strcmp(end, units[i].name) != 0)
            continue;
        value *= units[i].bytes;
        if (!(value >= 1 && value < 1e18))
            break;
        t->shard_bytes = (uint64_t)value;
        return MERAK_OK;
    }
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--shard-size: expected a size such as 5GB or 2GiB, got "
                      "\"%.60s\"",
                      text);
}

#define UNKNOWN                                                        \
    {                                                                  \
        "config-unknown", MERAK_OPTION_WORD, AT(unknown),              \
            .about = "fields of config.json that nothing is known of " \
                     "(refuse)",                                       \
            .words = "refuse|ignore"                                   \
    }
#define JSON                                               \
    {                                                      \
        "json", MERAK_OPTION_YES, AT(json),                \
            .about = "say what was done as a line of JSON" \
    }

static const struct merak_option import_rows[] = {
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "the run's directory, which has no checkpoint yet (required)",
     .arg = "RUN"},
    UNKNOWN,
    JSON,
};

static const struct merak_option export_rows[] = {
    {"format", MERAK_OPTION_WORD, AT(format),
     .about = "a Hugging Face folder, or llm.c's model.bin (required)",
     .words = "hf|llmc", .given = AT(has_format)},
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "a folder that is empty or not there (required)", .arg = "DIR"},
    {"dtype", MERAK_OPTION_WORD, AT(dtype),
     .about = "of all tensors (as they were imported, else fp32)",
     .words = "fp32|bf16|fp16", .given = AT(has_dtype)},
    {"shard-size", MERAK_OPTION_CALL, 0,
     .about = "a file's tensors have at most so many bytes, such as 5GB (as "
              "they were imported, else 5GB)",
     .arg = "SIZE", .set = set_size},
    {"model", MERAK_OPTION_TEXT, AT(model),
     .about = "whose config.json it is (that of RUN/model)", .arg = "DIR"},
    UNKNOWN,
    JSON,
};

static const struct merak_option_table import_table = {
    import_rows, sizeof(import_rows) / sizeof(import_rows[0])};
static const struct merak_option_table export_table = {
    export_rows, sizeof(export_rows) / sizeof(export_rows[0])};

void merak_ckpt_transfer_help(FILE *out)
{
    fputs("\nimport:\n", out);
    merak_options_help(&import_table, out);
    fputs("\nexport:\n", out);
    merak_options_help(&export_table, out);
}

/* --- while it runs ---------------------------------------------------------
 */

static enum merak_status tell(void *arg, uint64_t done, uint64_t all,
                              struct merak_error *err)
{
    struct merak_progress *p = &((struct transfer *)arg)->progress;

    if (merak_cmd_check_stop(err) != MERAK_OK)
        return MERAK_ERR_SYSTEM;
    p->total = (double)all;
    merak_progress_add(p, (double)done - p->done);
    return MERAK_OK;
}

/* --- what was done -----------------------------------------------------------
 */

static void print_json(const struct transfer *t, const char *from,
                       const struct merak_transfer_summary *s)
{
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:f}", "from", from, "out",
                  t->out, "family", s->family, "tensors", s->tensors, "files",
                  s->files, "bytes", (json_int_t)s->bytes, "seconds",
                  (double)(merak_clock_ns() - t->start_ns) * 1e-9);
    char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);

    if (text != NULL)
        puts(text);
    free(text);
    json_decref(root);
}

static void print_summary(const struct transfer *t, const char *from,
                          const struct merak_transfer_summary *s)
{
    char bytes[MERAK_BYTES_TEXT];

    if (t->json) {
        print_json(t, from, s);
        return;
    }
    merak_bytes_text((double)s->bytes, bytes);
    printf("%s: %d tensors of a %s in %d file%s, %s, %s in %.1f s\n",
           t->verb[0] == 'i' ? from : t->out, s->tensors, s->family, s->files,
           s->files == 1 ? "" : "s", bytes,
           t->verb[0] == 'i' ? "imported" : "exported",
           (double)(merak_clock_ns() - t->start_ns) * 1e-9);
}

/* --- the command line
 * ---------------------------------------------------------- */

static int misused(const struct transfer *t, const char *what)
{
    fprintf(stderr, "merak ckpt %s: %s; see `merak ckpt --help`\n", t->verb,
            what);
    return MERAK_EXIT_CONFIG;
}

/* argv[0] is the verb, argv[1] the directory. */
static int parse(struct transfer *t, const struct merak_option_table *table,
                 int argc, char **argv)
{
    struct merak_error err;
    bool help = false;

    if (argc < 2 || argv[1][0] == '-')
        return misused(t, "a directory is missing behind it");
    if (merak_options_parse(table, argc - 1, argv + 1, t, &help, &err) !=
        MERAK_OK)
        return misused(t, err.text);
    if (t->out == NULL)
        return misused(t, "no --out given");
    return MERAK_EXIT_DONE;
}

static int end(struct transfer *t, const char *from, enum merak_status rc,
               const struct merak_transfer_summary *summary,
               const struct merak_error *err)
{
    int code = MERAK_EXIT_DONE;
    char name[32];

    snprintf(name, sizeof(name), "ckpt %s", t->verb);
    merak_progress_clear(&t->progress);
    if (rc == MERAK_OK)
        print_summary(t, from, summary);
    else
        code = merak_cmd_failed(name, rc, err);
    if (rc == MERAK_ERR_UNSUPPORTED)
        code = MERAK_EXIT_DATA; /* it is the file that asks for it */
    code = merak_cmd_flush(name, code);
    merak_cmd_die_of_stop();
    return code;
}

int merak_ckpt_import(int argc, char **argv)
{
    struct transfer t = {.verb = "import", .start_ns = merak_clock_ns()};
    struct merak_transfer_summary summary;
    struct merak_import import;
    char note[MERAK_HF_NOTE_BYTES];
    struct merak_error err;
    enum merak_status rc;
    int code = parse(&t, &import_table, argc, argv);

    if (code != MERAK_EXIT_DONE)
        return code;
    import = (struct merak_import){.dir = argv[1],
                                   .run = t.out,
                                   .unknown = (enum merak_hf_unknown)t.unknown,
                                   .progress = tell,
                                   .arg = &t};
    merak_cmd_catch_stops();
    merak_progress_init(&t.progress, stderr, t.verb, "B", 0);
    rc = merak_weights_import(&import, note, &summary, &err);
    merak_progress_clear(&t.progress);
    if (rc == MERAK_OK && note[0] != '\0')
        fprintf(stderr, "merak ckpt import: %s\n", note);
    return end(&t, argv[1], rc, &summary, &err);
}

int merak_ckpt_export(int argc, char **argv)
{
    struct transfer t = {.verb = "export", .start_ns = merak_clock_ns()};
    struct merak_transfer_summary summary;
    struct merak_export export;
    struct merak_error err;
    enum merak_status rc;
    int code = parse(&t, &export_table, argc, argv);

    if (code != MERAK_EXIT_DONE)
        return code;
    if (!t.has_format)
        return misused(&t, "no --format given, hf or llmc");
    export = (struct merak_export){.ckpt = argv[1],
                                   .out = t.out,
                                   .format = (enum merak_export_format)t.format,
                                   .typed = t.has_dtype,
                                   .type = (enum merak_safetensors_type)t.dtype,
                                   .shard_bytes = t.shard_bytes,
                                   .model = t.model,
                                   .unknown = (enum merak_hf_unknown)t.unknown,
                                   .progress = tell,
                                   .arg = &t};
    merak_cmd_catch_stops();
    merak_progress_init(&t.progress, stderr, t.verb, "B", 0);
    rc = merak_weights_export(&export, &summary, &err);
    return end(&t, argv[1], rc, &summary, &err);
}
