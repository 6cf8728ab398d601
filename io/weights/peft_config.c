/* SPDX-License-Identifier: Apache-2.0 */
/* peft_config.c - adapter_config.json, as PEFT writes and reads it
 *
 * One object.  Those fields that determine what a forward pass computes are
 *
 *   peft_type       "LORA"
 *   r, lora_alpha   rank, and alpha: B A x is multiplied by alpha / r, or
 *   use_rslora      if this is true by alpha / sqrt(r)
 *   rank_pattern, alpha_pattern
 *                   { KEY: number } for modules whose names, or what follows
 *                   a dot of theirs, match the regular expression KEY
 *   target_modules  names of modules, or what follows a dot of theirs
 *
 * Which modules have adapters is read from the tensors beside it.
 */
#include "config.h"

#include "io/weights/peft_config.h"

#include "base/error.h"
#include "io/ckpt/durable.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool merak_peft_is_one(const char *dir)
{
    char path[PATH_MAX];

    return strlen(dir) < MERAK_DIR_MAX &&
           access(merak_path(path, dir, MERAK_PEFT_CONFIG), F_OK) == 0;
}

/* --- what is read -----------------------------------------------------------
 */

/* Fields that do not change what adapters compute. */
static const char *const idle[] = {
    "auto_mapping", "corda_config", "ensure_weight_tying", "eva_config",
    "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights",
    "layers_pattern", "layers_to_transform", "loftq_config", "lora_ga_config",
    "megatron_config", "megatron_core", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "target_modules", "task_type",
    /* read below */
    "alpha_pattern", "base_model_name_or_path", "lora_alpha", "lora_dropout",
    "peft_type", "r", "rank_pattern", "use_rslora"};

static bool is_idle(const char *key)
{
    for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++) {
        if (strcmp(key, idle[i]) == 0)
            return true;
    }
    return false;
}

/* Is a feature not used?  null, false, {}, [], "none". */
static bool is_off(const json_t *json)
{
    const char *word = json_string_value(json);

    return json_is_null(json) || json_is_false(json) ||
           (json_is_object(json) && json_object_size(json) == 0) ||
           (json_is_array(json) && json_array_size(json) == 0) ||
           (word != NULL && strcmp(word, "none") == 0);
}

/* Some ways to start adapters change the base model, too. */
static bool changes_base(const json_t *start)
{
    static const char *const plain[] = {"gaussian", "eva", "orthogonal"};
    const char *word = json_string_value(start);

    if (word == NULL)
        return false;
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (strcmp(word, plain[i]) == 0)
            return false;
    }
    return true;
}

static enum merak_status refuse(const char *dir, const char *key,
                                const json_t *json, struct merak_error *err)
{
    char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);

    merak_fail(err, MERAK_ERR_UNSUPPORTED,
               "%.80s/" MERAK_PEFT_CONFIG " has %.40s %.40s: only plain LoRA "
               "is read; merge these adapters with PEFT's merge_and_unload()",
               dir, key, text != NULL ? text : "");
    free(text);
    return MERAK_ERR_UNSUPPORTED;
}

static enum merak_status check_features(const char *dir, json_t *root,
                                        struct merak_error *err)
{
    json_t *kind = json_object_get(root, "peft_type"), *json;
    json_t *start = json_object_get(root, "init_lora_weights");
    const char *key;

    if (json_string_value(kind) == NULL ||
        strcmp(json_string_value(kind), "LORA") != 0)
        return refuse(dir, "peft_type", kind, err);
    if (changes_base(start))
        return refuse(dir, "init_lora_weights", start, err);
    json_object_foreach(root, key, json)
    {
        if (!is_idle(key) && !is_off(json))
            return refuse(dir, key, json, err);
    }
    return MERAK_OK;
}

static enum merak_status not_as_expected(const char *dir, const char *key,
                                         const json_t *json, const char *what,
                                         struct merak_error *err)
{
    char *text =
        json != NULL ? json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    merak_fail(err, MERAK_ERR_FORMAT,
               "%.80s/" MERAK_PEFT_CONFIG ": %s is %.40s, expected %s", dir,
               key, text != NULL ? text : "absent", what);
    free(text);
    return MERAK_ERR_FORMAT;
}

static enum merak_status check_patterns(const char *dir,
                                        const struct merak_peft_config *c,
                                        struct merak_error *err)
{
    static const char *const key[] = {"rank_pattern", "alpha_pattern"};

    for (size_t i = 0; i < 2; i++) {
        const json_t *json = json_object_get(c->root, key[i]);

        if (json != NULL && !json_is_null(json) && !json_is_object(json))
            return not_as_expected(dir, key[i], json, "an object", err);
    }
    return MERAK_OK;
}

static enum merak_status read_numbers(const char *dir,
                                      struct merak_peft_config *c,
                                      struct merak_error *err)
{
    json_t *rank = json_object_get(c->root, "r");
    json_t *alpha = json_object_get(c->root, "lora_alpha");
    json_t *dropout = json_object_get(c->root, "lora_dropout");
    json_t *root = json_object_get(c->root, "use_rslora");

    c->rank = (size_t)json_integer_value(rank);
    c->alpha = json_number_value(alpha);
    c->dropout = json_number_value(dropout);
    c->by_root = json_is_true(root);
    if (!json_is_boolean(root) && root != NULL && !json_is_null(root))
        return not_as_expected(dir, "use_rslora", root, "true or false", err);
    c->base =
        json_string_value(json_object_get(c->root, "base_model_name_or_path"));
    if (json_integer_value(rank) < 1 || json_integer_value(rank) > 65535)
        return not_as_expected(dir, "r", rank, "an integer from 1 to 65535",
                               err);
    if (!(c->alpha > 0 && c->alpha <= FLT_MAX))
        return not_as_expected(dir, "lora_alpha", alpha,
                               "a number above 0 that a float can hold", err);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return not_as_expected(dir, "lora_dropout", dropout,
                               "a number from 0 to below 1", err);
    return check_patterns(dir, c, err);
}

enum merak_status merak_peft_config_read(const char *dir,
                                         struct merak_peft_config *config,
                                         struct merak_error *err)
{
    char path[PATH_MAX];
    size_t bytes = 0;
    char *text = NULL;
    json_error_t why;
    enum merak_status rc;

    *config = (struct merak_peft_config){.root = NULL};
    if (strlen(dir) >= MERAK_DIR_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "path too long");
    rc = merak_durable_read(merak_path(path, dir, MERAK_PEFT_CONFIG), &text,
                            &bytes, err);
    if (rc != MERAK_OK)
        return rc;
    config->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!json_is_object(config->root))
        rc = merak_fail(err, MERAK_ERR_FORMAT,
                        "%.100s is not a JSON object: line %d: %.60s", path,
                        config->root == NULL ? why.line : 1,
                        config->root == NULL ? why.text : "another value");
    if (rc == MERAK_OK)
        rc = check_features(dir, config->root, err);
    if (rc == MERAK_OK)
        rc = read_numbers(dir, config, err);
    if (rc != MERAK_OK)
        merak_peft_config_fini(config);
    return rc;
}

void merak_peft_config_fini(struct merak_peft_config *config)
{
    json_decref(config->root);
    *config = (struct merak_peft_config){.root = NULL};
}

/* Only names are understood, with dots as themselves. */
static bool is_name(const char *key)
{
    return key[strcspn(key, "\\[](){}*+?^$|")] == '\0';
}

/* The number that a pattern gives a module, if it does. */
static enum merak_status match(const struct merak_peft_config *config,
                               const char *pattern, const char *module,
                               double *number_p, struct merak_error *err)
{
    json_t *json;
    size_t n = strlen(module);
    const char *key;

    json_object_foreach(json_object_get(config->root, pattern), key, json)
    {
        size_t m = strlen(key);

        if (!is_name(key) || !(json_number_value(json) > 0))
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "%s has \"%.60s\", expected the end of a "
                              "module's name, and a number above 0",
                              pattern, key);
        if (n < m || strcmp(module + n - m, key) != 0 ||
            (n > m && module[n - m - 1] != '.'))
            continue;
        *number_p = json_number_value(json);
        break; /* PEFT takes the first */
    }
    return MERAK_OK;
}

enum merak_status merak_peft_config_of(const struct merak_peft_config *config,
                                       const char *module, double *rank_p,
                                       double *alpha_p, struct merak_error *err)
{
    enum merak_status rc;

    *rank_p = (double)config->rank;
    *alpha_p = config->alpha;
    rc = match(config, "rank_pattern", module, rank_p, err);
    return rc == MERAK_OK ? match(config, "alpha_pattern", module, alpha_p, err)
                          : rc;
}

double merak_peft_blocks_alpha(const struct merak_peft_config *config, size_t n)
{
    return config->by_root ? sqrt((double)n) : (double)n;
}

/* A root was rounded to the digits of the file: all modules have one alpha. */
double merak_peft_block_alpha(const struct merak_peft_config *config, size_t n,
                              double alpha)
{
    double one = alpha / merak_peft_blocks_alpha(config, n);

    return fabs(one - config->alpha) <= 1e-6 * config->alpha ? config->alpha
                                                             : one;
}

/* --- what is written --------------------------------------------------------
 */

/* A float in the digits that it has; an integer, if it is one. */
static json_t *number(double x)
{
    char digits[32];

    if (x == floor(x) && fabs(x) < 1e15)
        return json_integer((json_int_t)x);
    snprintf(digits, sizeof(digits), "%.7g", x);
    return json_real(strtod(digits, NULL));
}

static json_t *list(const char *text)
{
    json_t *all = json_array();

    for (size_t n; *text != '\0'; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        json_array_append_new(all, json_stringn(text, n));
    }
    return all;
}

json_t *merak_peft_config_make(const struct merak_peft_config *config,
                               const char *targets, bool in_out)
{
    return json_pack(
        "{s:{}, s:s?, s:s, s:b, s:b, s:b, s:n, s:n, s:o, s:o, s:n, s:s, s:I, "
        "s:{}, s:n, s:o, s:s, s:b, s:b}",
        "alpha_pattern", "base_model_name_or_path", config->base, "bias",
        "none", "fan_in_fan_out", in_out, "inference_mode", 1,
        "init_lora_weights", 1, "layers_pattern", "layers_to_transform",
        "lora_alpha", number(config->alpha), "lora_dropout",
        config->dropout > 0 ? number(config->dropout) : json_real(0),
        "modules_to_save", "peft_type", "LORA", "r", (json_int_t)config->rank,
        "rank_pattern", "revision", "target_modules", list(targets),
        "task_type", "CAUSAL_LM", "use_dora", 0, "use_rslora", config->by_root);
}

void merak_peft_config_pattern(json_t *root, const char *end, size_t rank,
                               double alpha)
{
    json_object_set_new(json_object_get(root, "rank_pattern"), end,
                        json_integer((json_int_t)rank));
    json_object_set_new(json_object_get(root, "alpha_pattern"), end,
                        number(alpha));
}
