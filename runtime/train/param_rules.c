/* SPDX-License-Identifier: Apache-2.0 */
/* param_rules.c - options that select parameters by name */
#include "config.h"

#include "runtime/train/param_rules.h"

#include "base/error.h"

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

void merak_ruled_describe(struct merak_model *m, void *arg)
{
    const struct merak_ruled_model *ruled = arg;

    if (ruled->documents)
        merak_documents(m);
    ruled->describe(m, ruled->arg);
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
