/* SPDX-License-Identifier: Apache-2.0 */
/* param_rules.c - options that select parameters by name */
#include "config.h"

#include "runtime/train/param_rules.h"

#include "base/error.h"
#include "io/lora_record.h"
#include "partitioner/graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const option[] = {[MERAK_FREEZE] = "freeze",
                                     [MERAK_NO_DECAY] = "no-decay",
                                     [MERAK_LR_SCALE] = "lr-scale"};

/* Cut the pattern at its last "=" and parse the scale after it. */
static enum merak_status take_scale(struct merak_param_rule *rule,
                                    struct merak_error *err)
{
    char *equals = strrchr(rule->pattern, '='), *end = NULL;

    if (equals != NULL && equals != rule->pattern) {
        *equals = '\0';
        rule->x = strtof(equals + 1, &end);
    }
    if (end == NULL || end == equals + 1 || *end != '\0' || !(rule->x > 0) ||
        !isfinite(rule->x))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--lr-scale: expected PATTERN=X with a number X "
                          "above 0, as in \"*.attn.*=0.1\", got \"%.60s%s%s\"",
                          rule->pattern, equals != NULL ? "=" : "",
                          equals != NULL ? equals + 1 : "");
    return MERAK_OK;
}

enum merak_status merak_param_rules_add(struct merak_param_rules *rules,
                                        enum merak_param_rule_kind kind,
                                        const char *text,
                                        struct merak_error *err)
{
    struct merak_param_rule *rule = &rules->rule[rules->n];
    enum merak_status rc = MERAK_OK;

    if (rules->n == MERAK_PARAM_RULES)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--%s %.60s: there are already %d of --freeze, "
                          "--no-decay and --lr-scale, and no room for more; "
                          "use wider patterns",
                          option[kind], text, MERAK_PARAM_RULES);
    if (text[0] == '\0' || strlen(text) >= sizeof(rule->pattern))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--%s: expected a pattern of 1 to %zu characters, "
                          "got \"%.60s\"",
                          option[kind], sizeof(rule->pattern) - 1, text);
    *rule = (struct merak_param_rule){.kind = kind};
    strcpy(rule->pattern, text);
    if (kind == MERAK_LR_SCALE)
        rc = take_scale(rule, err);
    rules->n += rc == MERAK_OK;
    return rc;
}

size_t merak_param_rules_print(const struct merak_param_rules *rules,
                               char *text, size_t bytes)
{
    size_t at = 0;

    for (int i = 0; i < rules->n; i++) {
        const struct merak_param_rule *rule = &rules->rule[i];
        char x[32] = "";

        if (rule->kind == MERAK_LR_SCALE)
            snprintf(x, sizeof(x), "=%g", (double)rule->x);
        at += (size_t)snprintf(at < bytes ? text + at : NULL,
                               at < bytes ? bytes - at : 0, " --%s %s%s",
                               option[rule->kind], rule->pattern, x);
    }
    return at;
}

enum merak_status merak_lora_settle(struct merak_lora *lora,
                                    struct merak_error *err)
{
    if (lora->rank == 0)
        return lora->alpha == 0 && lora->dropout == 0 &&
                       lora->targets == NULL && !lora->by_root
                   ? MERAK_OK
                   : merak_fail(err, MERAK_ERR_CONFIG,
                                "--lora-alpha, --lora-scale, --lora-dropout "
                                "and --lora-targets need --lora-rank R");
    if (lora->alpha == 0)
        lora->alpha = (float)lora->rank;
    if (lora->targets == NULL)
        lora->targets = "*.*";
    if (!(lora->dropout < 1))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--lora-dropout: expected a number below 1, got %g",
                          (double)lora->dropout);
    if (lora->targets[0] == '\0' || strchr(lora->targets, ' ') != NULL ||
        strlen(lora->targets) >= MERAK_LORA_TARGETS)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--lora-targets: expected patterns with commas and "
                          "no blanks between, of 1 to %d characters, got "
                          "\"%.60s\"",
                          MERAK_LORA_TARGETS - 1, lora->targets);
    return MERAK_OK;
}

enum merak_status merak_objective_settle(struct merak_objective *objective,
                                         struct merak_error *err)
{
    if (objective->kind != MERAK_DPO)
        return objective->beta == 0
                   ? MERAK_OK
                   : merak_fail(err, MERAK_ERR_CONFIG,
                                "--dpo-beta needs --objective dpo");
    if (objective->beta == 0)
        objective->beta = 0.1f;
    return MERAK_OK;
}

size_t merak_balance_print(const struct merak_balance_options *balance,
                           char *text, size_t bytes)
{
    const struct {
        const char *name;
        float x;
    } given[] = {{"aux", balance->aux},
                 {"z", balance->z},
                 {"bias-rate", balance->bias_rate}};
    size_t at = 0;

    for (size_t i = 0; i < sizeof(given) / sizeof(*given); i++) {
        if (given[i].x >= 0)
            at += (size_t)snprintf(at < bytes ? text + at : NULL,
                                   at < bytes ? bytes - at : 0,
                                   " --router-%s %g", given[i].name,
                                   (double)given[i].x);
    }
    return at;
}

/* Whatever is given needs something that it is about. */
static void check_balance(struct merak_model *m,
                          const struct merak_balance_options *balance)
{
    bool routes, has_bias;
    char given[96] = "";

    merak_model_balances(m, &routes, &has_bias);
    merak_balance_print(balance, given, sizeof(given));
    if (given[0] != '\0' && !routes)
        merak_model_fail(m, MERAK_ERR_CONFIG,
                         "%s: the model has no experts; leave it out",
                         given + 1);
    else if (balance->bias_rate > 0 && !has_bias)
        merak_model_fail(m, MERAK_ERR_CONFIG,
                         "--router-bias-rate %g: no router of the model has a "
                         "bias that is trained; use --router-aux",
                         (double)balance->bias_rate);
}

static void check_capacity(struct merak_model *m, double capacity)
{
    if (capacity > 0 && !merak_model_limits_experts(m))
        merak_model_fail(m, MERAK_ERR_CONFIG,
                         "--expert-capacity %g: the model has no experts; "
                         "leave it out",
                         capacity);
}

void merak_ruled_describe(struct merak_model *m, void *arg)
{
    const struct merak_ruled_model *ruled = arg;

    if (ruled->documents)
        merak_documents(m);
    if (ruled->objective.kind == MERAK_DPO)
        merak_preferences(m, ruled->objective.beta);
    if (ruled->lora != NULL && ruled->lora->rank > 0)
        merak_lora(m, ruled->lora);
    if (ruled->balance != NULL)
        merak_balance_as(m, ruled->balance);
    merak_expert_capacity(m, ruled->objective.capacity);
    ruled->describe(m, ruled->arg);
    if (ruled->balance != NULL)
        check_balance(m, ruled->balance);
    check_capacity(m, ruled->objective.capacity);
    for (int i = 0; i < ruled->rules->n; i++) {
        const struct merak_param_rule *rule = &ruled->rules->rule[i];

        if (rule->kind == MERAK_FREEZE)
            merak_freeze(m, rule->pattern);
        else if (rule->kind == MERAK_NO_DECAY)
            merak_no_decay(m, rule->pattern);
        else
            merak_lr_scale(m, rule->pattern, rule->x);
    }
}
