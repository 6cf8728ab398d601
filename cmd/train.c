/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - `merak train`: the stock trainer for a Hugging Face config.json */
#include "config.h"

#include "cmd/cmd.h"
#include "io/hf_config.h"
#include "merak/train.h"
#include "runtime/boot/boot.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Take "--model FILE" or "--model=FILE" out of argv; NULL if it is not
 * there. */
static const char *take_model(int *argc, char **argv)
{
    const char *model = NULL;
    int n = 1;

    for (int i = 1; i < *argc; i++) {
        if (strncmp(argv[i], "--model=", 8) == 0)
            model = argv[i] + 8;
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < *argc)
            model = argv[++i];
        else
            argv[n++] = argv[i];
    }
    *argc = n;
    argv[n] = NULL;
    return model;
}

static int usage(int argc, char **argv)
{
    fputs("merak train: give --model config.json (Hugging Face, gpt2 or llama "
          "family) and --data PREFIX\n",
          argc > 1 && strcmp(argv[1], "--help") == 0 ? stdout : stderr);
    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return merak_train(argc, argv, merak_hf_describe, NULL);
    return MERAK_EXIT_CONFIG;
}

int merak_cmd_train(int argc, char **argv)
{
    struct merak_hf_config config;
    struct merak_error err;
    const char *model;

    if (argc > 1 && strcmp(argv[1], "plan") == 0)
        return merak_cmd_plan(argc - 1, argv + 1);
    model = take_model(&argc, argv);
    if (model == NULL)
        return usage(argc, argv);
    if (merak_hf_config_load(model, &config, &err) != MERAK_OK) {
        if (merak_boot_is_first())
            fprintf(stderr, "merak: error: %s\n", err.text);
        return MERAK_EXIT_CONFIG;
    }
    return merak_train(argc, argv, merak_hf_describe, &config);
}
