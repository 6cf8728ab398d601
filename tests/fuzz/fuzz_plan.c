/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_plan.c - plans as saved by `merak plan --json` */
#include "config.h"

#include "fuzz/fuzz.h"

#include "unit/plan_sample.h"

#include "io/plan_file.h"

#include <stdlib.h>
#include <string.h>

static void add(struct merak_plan_file *file)
{
    json_t *object = merak_plan_file_object(file);
    char *text = json_dumps(object, JSON_INDENT(2));

    fuzz_must(text != NULL, "a plan has a text");
    fuzz_add_text(text);
    free(text);
    json_decref(object);
}

void fuzz_seeds(void)
{
    struct merak_plan_file file = plan_sample();

    add(&file);
    file.plan = (struct merak_plan){.tp = 1,
                                    .pp = 1,
                                    .dp = 1,
                                    .chunks = 1,
                                    .microbatches = 1,
                                    .micro_batch = 1,
                                    .schedule = "1f1b",
                                    .dtype = MERAK_F32};
    add(&file);
}

/* What is read is written, and read again as the same. */
static void come_back(struct merak_plan_file *file)
{
    struct merak_plan_file *again = NULL;
    struct merak_error err = {.text = ""};
    char before[MERAK_PLAN_TEXT], after[MERAK_PLAN_TEXT];
    json_t *object = merak_plan_file_object(file);
    char *text = json_dumps(object, 0);

    fuzz_must(text != NULL &&
                  merak_plan_file_decode(text, strlen(text), "again", &again,
                                         &err) == MERAK_OK,
              "a plan that was read is written and read again");
    merak_plan_describe(&file->plan, before, sizeof(before));
    merak_plan_describe(&again->plan, after, sizeof(after));
    fuzz_must(strcmp(before, after) == 0, "a plan comes back as it was");
    merak_plan_file_destroy(again);
    free(text);
    json_decref(object);
}

/* The same text with the id that its contents have, which guards against
 * changes by hand and would hide all that is behind it. */
static char *with_its_id(const uint8_t *data, size_t n,
                         const struct merak_error *err)
{
    static const char begins[] = "plan x was changed after it was saved: ",
                      said[] = "its content has ";
    const char *id = strncmp(err->text, begins, strlen(begins)) == 0
                         ? strstr(err->text, said)
                         : NULL;
    json_t *root = NULL;
    char *text = NULL, digits[17];

    if (id != NULL)
        root = json_loadb((const char *)data, n, 0, NULL);
    if (root == NULL)
        return NULL;
    memcpy(digits, id + strlen(said), 16);
    digits[16] = '\0';
    json_object_set_new(root, "id", json_string(digits));
    text = json_dumps(root, 0);
    json_decref(root);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct merak_plan_file *file = NULL;
    struct merak_error err = {.text = ""};
    char *fixed = NULL;
    enum merak_status rc =
        merak_plan_file_decode((const char *)data, n, "x", &file, &err);

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        fixed = with_its_id(data, n, &err);
    }
    if (fixed != NULL) {
        rc = merak_plan_file_decode(fixed, strlen(fixed), "x", &file, &err);
        fuzz_must(rc == MERAK_OK, "the id was all that was wrong");
    }
    if (rc == MERAK_OK)
        come_back(file);
    merak_plan_file_destroy(file);
    free(fixed);
    return 0;
}
