/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_jsonl.c - lines of JSON: texts to be packed, and what a run writes of
 * itself */
#include "config.h"

#include "fuzz/fuzz.h"

#include "io/run_log.h"
#include "io/tokens/documents.h"

#include <string.h>

enum { TEXTS, METRICS, STARTS };

void fuzz_seeds(void)
{
    static const char texts[] =
        "{\"text\": \"first\\nline \\u00e9\", \"id\": 1}\n\n"
        "{\"id\": [1, {\"text\": \"not this\"}], \"text\": \"second\"}\n"
        "{\"text\": \"\"}\n";
    static const char talk[] =
        "{\"prompt\": \"one\", \"completion\": \"two\"}\n"
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"},"
        " {\"role\": \"user\", \"content\": \"u\"},"
        " {\"role\": \"assistant\", \"content\": \"a\"}]}\n";
    static const char list[] =
        "[{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"},"
        " {\"from\": \"gpt\", \"value\": \"a\"}], \"system\": \"s\"},\n"
        "{\"instruction\": \"i\", \"input\": \"]\\\"\", \"output\": \"o\"},\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"u\"}],"
        " \"completion\": [{\"role\": \"assistant\", \"content\": \"a\"}]}]";
    /* two lines of JSON, as gzip(1) and zstd(1) write them */
    static const unsigned char gzip[] = {
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03,
        0xab, 0x56, 0x2a, 0x49, 0xad, 0x28, 0x51, 0xb2, 0x52, 0x50,
        0x4a, 0x54, 0xaa, 0xe5, 0xaa, 0x86, 0xf3, 0x92, 0x80, 0x3c,
        0x00, 0x3d, 0xbd, 0xe6, 0x10, 0x1c, 0x00, 0x00, 0x00};
    static const unsigned char zstd[] = {
        0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x1c, 0xc5, 0x00, 0x00, 0x90,
        0x7b, 0x22, 0x74, 0x65, 0x78, 0x74, 0x22, 0x3a, 0x20, 0x22,
        0x61, 0x22, 0x7d, 0x0a, 0x62, 0x22, 0x7d, 0x0a, 0x01, 0x00,
        0xb1, 0x4d, 0x25, 0x78, 0x7d, 0x3d, 0x1a};
    static const char metrics[] =
        "{\"step\": 1, \"loss\": 5.5, \"grad_norm\": 1.5, \"lr\": 0.001,"
        " \"step_s\": 0.25, \"tokens_per_s\": 4096, \"time\": 1.7e9,"
        " \"peak_bytes\": 123456}\n"
        "{\"step\": 2, \"loss\": 5.25, \"valid_loss\": 5.5, \"grad_norm\": 1,"
        " \"lr\": 0.001, \"step_s\": 0.25, \"tokens_per_s\": 4096}\n"
        "{\"step\": 2, \"loss\": 5.0, \"step_s\": 0.125}\n"
        "{\"step\": 25e49, \"loss\": 1}\n{\"step\": -3, \"loss\": 1}\n"
        "{\"step\": 3, \"lo";
    static const char starts[] =
        "{\"time\": 1.7e9, \"ranks\": 4, \"steps\": 100, \"model\": \"x\","
        " \"tp\": 2, \"flops_per_step\": 1e12, \"metrics\": \"m.jsonl\"}\n"
        "{\"time\": 1.8e9, \"ranks\": 2}\n";

    fuzz_add_kind(TEXTS, texts, sizeof(texts) - 1);
    fuzz_add_kind(TEXTS, talk, sizeof(talk) - 1);
    fuzz_add_kind(TEXTS, list, sizeof(list) - 1);
    fuzz_add_kind(TEXTS, gzip, sizeof(gzip));
    fuzz_add_kind(TEXTS, zstd, sizeof(zstd));
    fuzz_add_kind(METRICS, metrics, sizeof(metrics) - 1);
    fuzz_add_kind(STARTS, starts, sizeof(starts) - 1);
}

static enum merak_status take_text(void *arg, const char *text, size_t n,
                                   struct merak_error *err)
{
    (void)err;
    *(size_t *)arg += n + strnlen(text, n);
    return MERAK_OK;
}

/* Some of them are answers, or they would be a document. */
static enum merak_status take_turns(void *arg, bool is_chat,
                                    const struct merak_chat_talk *talk,
                                    struct merak_error *err)
{
    const struct merak_chat_turn *turn = talk->turn;
    size_t n = talk->n;
    size_t answers = 0;

    (void)is_chat;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        if (turn[i].text != NULL)
            *(size_t *)arg += turn[i].n + strnlen(turn[i].text, turn[i].n);
        answers += turn[i].role == MERAK_CHAT_ANSWER;
    }
    fuzz_must(answers > 0, "a conversation has an answer");
    return MERAK_OK;
}

static void read_texts(const char *path)
{
    struct merak_error err = {.text = ""};
    size_t bytes = 0;
    const struct merak_document_reader reader = {take_text, take_turns, &bytes,
                                                 NULL};
    enum merak_status rc = merak_documents_read(path, NULL, &reader, &err);

    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    rc = merak_documents_read(path, "id", &reader, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
}

/* A run that was killed in a line, or a line that is nonsense, hides no more
 * than that line. */
static void read_run(const char *path, size_t last)
{
    struct merak_run_log *log = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc = merak_run_log_load(path, last, &log, &err);

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return;
    }
    for (size_t i = 0; i < log->n; i++)
        fuzz_must(log->step[i].step > 0 && log->step[i].step <= INT64_MAX,
                  "a step is what a run can come to");
    for (size_t i = 1; i < log->n; i++)
        fuzz_must(log->step[i].step > log->step[i - 1].step,
                  "steps are in order, each once");
    (void)merak_run_log_number(log, "steps", 0);
    (void)merak_run_log_text(log, "model");
    (void)merak_run_log_step_s(log, 5);
    merak_run_log_destroy(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path;

    if (n == 0)
        return 0;
    if (data[0] % 3 == TEXTS) {
        read_texts(fuzz_file("x.jsonl", data + 1, n - 1));
    } else if (data[0] % 3 == METRICS) {
        path = fuzz_file("m.jsonl", data + 1, n - 1);
        read_run(path, 0);
        read_run(path, 100);
    } else {
        fuzz_file("run.jsonl", data + 1, n - 1);
        read_run(fuzz_dir(), 0);
    }
    return 0;
}
