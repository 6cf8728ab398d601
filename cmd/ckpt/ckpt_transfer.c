/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_transfer.c - `merak ckpt import` and `merak ckpt export`: converting
 * weights
 */
#include "config.h"

#include "cmd/ckpt/ckpt_verbs.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/output.h"
#include "base/size.h"
#include "cmd/finish.h"
#include "io/weights/transfer.h"

#include <stdlib.h>
#include <string.h>

struct transfer {
    const char *out, *model, *base;
    int format, dtype; /* indices of the options' words */
    int unknown;       /* enum merak_hf_unknown */
    uint64_t shard_bytes;
    bool json, merge, has_dtype, has_format;
    const char *verb;
    int64_t start_ns;
    struct merak_progress progress;
};

/* Words of --dtype: those of enum merak_safetensors_type, and one more. */
enum { Q8_0 = MERAK_SAFETENSORS_OTHER };

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

#define UNKNOWN                                                              \
    {                                                                        \
        "config-unknown", MERAK_OPTION_WORD, AT(unknown),                    \
            .about = MERAK_HF_UNKNOWN_ABOUT, .words = MERAK_HF_UNKNOWN_WORDS \
    }
#define JSON                                                  \
    {                                                         \
        "json", MERAK_OPTION_YES, AT(json),                   \
            .about = "report what was done as a line of JSON" \
    }

static const struct merak_option import_rows[] = {
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "the run's directory, which has no checkpoint yet (required)",
     .arg = "RUN"},
    {"init-from", MERAK_OPTION_TEXT, AT(base),
     .about = "where FOLDER has adapters of PEFT: the folder of their base "
              "model (as adapter_config.json has it)",
     .arg = "DIR"},
    UNKNOWN,
    JSON,
};

static const struct merak_option export_rows[] = {
    {"format", MERAK_OPTION_WORD, AT(format),
     .about = "a Hugging Face folder, llm.c's model.bin, adapters as PEFT "
              "has them, or llama.cpp's model.gguf (required)",
     .words = MERAK_EXPORT_WORDS, .given = AT(has_format)},
    {"merge", MERAK_OPTION_YES, AT(merge),
     .about = "of a run that trained adapters: weights with these in them"},
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "a folder that is empty or does not exist (required)",
     .arg = "DIR"},
    {"dtype", MERAK_OPTION_WORD, AT(dtype),
     .about = "of all tensors (as they were imported, else fp32; gguf: fp16)",
     .words = "fp32|bf16|fp16|q8_0", .given = AT(has_dtype)},
    {"shard-size", MERAK_OPTION_CALL, 0,
     .about = "most bytes of tensors in a file, such as 5GB (as they were "
              "imported, else 5GB)",
     .arg = "SIZE", .set = set_size},
    {"model", MERAK_OPTION_TEXT, AT(model),
     .about = "Hugging Face folder, or its config.json (RUN/model)",
     .arg = "DIR"},
    UNKNOWN,
    JSON,
};

const struct merak_option_table ckpt_import_options = {
    import_rows, sizeof(import_rows) / sizeof(import_rows[0])};
const struct merak_option_table ckpt_export_options = {
    export_rows, sizeof(export_rows) / sizeof(export_rows[0])};

/* --- while it runs ---------------------------------------------------------
 */

static enum merak_status tell(void *arg, uint64_t done, uint64_t all,
                              struct merak_error *err)
{
    struct merak_progress *p = &((struct transfer *)arg)->progress;
    enum merak_status rc = merak_cmd_check_stop(err);

    if (rc != MERAK_OK)
        return rc;
    p->total = (double)all;
    merak_progress_add(p, (double)done - p->done);
    return MERAK_OK;
}

/* --- what was done -----------------------------------------------------------
 */

static json_t *json_summary(const struct transfer *t, const char *from,
                            const struct merak_transfer_summary *s)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:f}", "from", from, "out",
                     t->out, "family", s->family, "tensors", s->tensors,
                     "files", s->files, "bytes", (json_int_t)s->bytes,
                     "seconds", merak_clock_since_s(t->start_ns));
}

static void print_summary(const struct transfer *t, const char *from,
                          const struct merak_transfer_summary *s)
{
    char bytes[MERAK_BYTES_TEXT];

    merak_bytes_text((double)s->bytes, bytes);
    printf("%s: %d tensors of a %s in %d file%s, %s, %s in %.1f s\n",
           t->verb[0] == 'i' ? from : t->out, s->tensors, s->family, s->files,
           s->files == 1 ? "" : "s", bytes,
           t->verb[0] == 'i' ? "imported" : "exported",
           merak_clock_since_s(t->start_ns));
}

/* --- the command line
 * ---------------------------------------------------------- */

static int parse(struct transfer *t, const struct merak_option_table *table,
                 int argc, char **argv, struct ckpt_words *words)
{
    int code = ckpt_parse(table, t, argc, argv, 1, 1, "a directory", words);

    struct merak_error err;
    enum merak_status rc;

    if (code == MERAK_EXIT_DONE && t->out == NULL)
        return merak_cmd_misused("ckpt", "%s: no --out given", t->verb);
    rc = code == MERAK_EXIT_DONE
             ? merak_output_folder_check("--out", t->out, &err)
             : MERAK_OK;
    return rc == MERAK_OK ? code : ckpt_failed(t->verb, rc, &err);
}

static int end(struct transfer *t, const char *from, enum merak_status rc,
               const struct merak_transfer_summary *summary,
               const struct merak_error *err)
{
    int code = MERAK_EXIT_DONE;

    merak_progress_clear(&t->progress);
    if (rc != MERAK_OK)
        code = ckpt_failed(t->verb, rc, err);
    else if (!t->json)
        print_summary(t, from, summary);
    if (rc == MERAK_OK && t->json)
        code = ckpt_flushed_json(t->verb, json_summary(t, from, summary), code);
    else
        code = ckpt_flushed(t->verb, code);
    merak_cmd_die_of_stop();
    return code;
}

int ckpt_run_import(int argc, char **argv)
{
    struct transfer t = {.verb = "import", .start_ns = merak_clock_ns()};
    struct merak_transfer_summary summary;
    struct merak_import import;
    char note[MERAK_HF_NOTE_BYTES];
    struct ckpt_words words;
    struct merak_error err;
    enum merak_status rc;
    int code = parse(&t, &ckpt_import_options, argc, argv, &words);

    if (code != MERAK_EXIT_DONE)
        return code;
    import = (struct merak_import){.dir = words.word[0],
                                   .run = t.out,
                                   .base = t.base,
                                   .unknown = (enum merak_hf_unknown)t.unknown,
                                   .progress = tell,
                                   .arg = &t};
    merak_cmd_catch_stops();
    merak_progress_init(&t.progress, stderr, t.verb, "B", 0);
    rc = merak_weights_import(&import, note, &summary, &err);
    merak_progress_clear(&t.progress);
    if (rc == MERAK_OK && note[0] != '\0')
        fprintf(stderr, "merak ckpt import: %s\n", note);
    if (rc == MERAK_OK && summary.not_finite > 0)
        fprintf(stderr,
                "merak ckpt import: warning: %d of the weights have numbers "
                "that are NaN or infinite, the first is %s; a model computes "
                "nothing from those\n",
                summary.not_finite, summary.first_not_finite);
    return end(&t, words.word[0], rc, &summary, &err);
}

int ckpt_run_export(int argc, char **argv)
{
    struct transfer t = {.verb = "export", .start_ns = merak_clock_ns()};
    struct merak_transfer_summary summary;
    struct merak_export export;
    struct ckpt_words words;
    struct merak_error err;
    enum merak_status rc;
    int code = parse(&t, &ckpt_export_options, argc, argv, &words);

    if (code != MERAK_EXIT_DONE)
        return code;
    if (!t.has_format)
        return merak_cmd_misused(
            "ckpt", "export: no --format given, " MERAK_EXPORT_WORDS);
    export = (struct merak_export){.ckpt = words.word[0],
                                   .out = t.out,
                                   .format = (enum merak_export_format)t.format,
                                   .merge = t.merge,
                                   .typed = t.has_dtype,
                                   .blocks = t.dtype == Q8_0,
                                   .type = (enum merak_safetensors_type)t.dtype,
                                   .shard_bytes = t.shard_bytes,
                                   .model = t.model,
                                   .unknown = (enum merak_hf_unknown)t.unknown,
                                   .progress = tell,
                                   .arg = &t};
    merak_cmd_catch_stops();
    merak_progress_init(&t.progress, stderr, t.verb, "B", 0);
    rc = merak_weights_export(&export, &summary, &err);
    return end(&t, words.word[0], rc, &summary, &err);
}
