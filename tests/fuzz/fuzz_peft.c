/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_peft.c - folders of PEFT: adapter_config.json, and the tensors beside it
 */
#include "config.h"

#include "fuzz/fuzz.h"

#include "io/weights/peft.h"
#include "io/weights/peft_config.h"

#include <stdio.h>

enum { CONFIG, TENSORS };

static const char *const name[] = {MERAK_PEFT_CONFIG, MERAK_PEFT_FILE};
static const char *const vector[] = {"lora/peft-phi3.json",
                                     "lora/peft-phi3.safetensors"};

static const char patterns[] =
    "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"rank_pattern\": "
    "{\"layers.0.mlp.down_proj\": 4}, \"alpha_pattern\": {\"down_proj\": 8.5}}";

/* The folder's model, and a sound file of each kind. */
static struct merak_hf_config model;
static struct {
    uint8_t data[1 << 13];
    size_t n;
} sound[2];

void fuzz_seeds(void)
{
    fuzz_add_vector(CONFIG, vector[CONFIG]);
    fuzz_add_vector(TENSORS, vector[TENSORS]);
    fuzz_add_kind(CONFIG, patterns, sizeof(patterns) - 1);
}

static void read_once(void)
{
    struct merak_error err = {.text = ""};
    char path[512];

    for (int kind = CONFIG; kind <= TENSORS && sound[kind].n == 0; kind++) {
        FILE *in;

        snprintf(path, sizeof(path), "%s/vectors/%s", TEST_SRCDIR,
                 vector[kind]);
        in = fopen(path, "rbe");
        fuzz_must(in != NULL, "a sound file is there");
        sound[kind].n =
            fread(sound[kind].data, 1, sizeof(sound[kind].data), in);
        fuzz_must(feof(in), "a sound file fits");
        fclose(in);
    }
    if (model.vocab > 0)
        return;
    snprintf(path, sizeof(path), "%s/vectors/lora/peft-phi3-model.json",
             TEST_SRCDIR);
    fuzz_must(merak_hf_config_read(path, MERAK_HF_UNKNOWN_IGNORE, &model,
                                   &err) == MERAK_OK,
              "the model is read");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct merak_peft *peft = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc;
    int kind, other;

    if (n == 0)
        return 0;
    read_once();
    kind = data[0] % 2;
    other = 1 - kind;
    fuzz_file(name[kind], data + 1, n - 1);
    fuzz_file(name[other], sound[other].data, sound[other].n);
    rc = merak_peft_open(fuzz_dir(), &model, &peft, &err);
    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return 0;
    }
    fuzz_must(merak_peft_lora(peft)->rank >= 1 &&
                  merak_peft_lora(peft)->alpha > 0,
              "adapters have a rank and an alpha");
    fuzz_must(merak_peft_count(peft) > 0, "there are adapters");
    merak_peft_close(peft);
    return 0;
}
