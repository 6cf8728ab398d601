/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - the requested settings, their sources, and checks
 *
 * Nothing here fails at once: Slurm makes an error in an option callback fatal
 * with its own exit code, so mistakes are recorded.
 */
#include "config.h"

#include "spank_plugin/plugin.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *option, *variable, *site, *arginfo, *usage;
} names[SET_COUNT] = {
    [SET_TP] = {"merak-tp", "MERAK_TP", "tp", "N|auto",
                "Merak: tasks that share each layer (tensor parallel)"},
    [SET_EP] = {"merak-ep", "MERAK_EP", "ep", "N|auto",
                "Merak: tasks that share the experts (expert parallel)"},
    [SET_PP] = {"merak-pp", "MERAK_PP", "pp", "N|auto",
                "Merak: pipeline stages"},
    [SET_DP] = {"merak-dp", "MERAK_DP", "dp", "N|auto",
                "Merak: replicas (default: tasks / (tp x cp x ep x pp))"},
    [SET_CP] = {"merak-cp", "MERAK_CP", "cp", "N|auto",
                "Merak: tasks that share each sequence (context parallel)"},
    [SET_ORDER] = {"merak-order", "MERAK_ORDER", "order",
                   "tp-dp-pp|tp-pp-dp|auto",
                   "Merak: which groups are kept close, nearest first"},
    [SET_TP_DOMAIN] = {"merak-tp-domain", "MERAK_TP_DOMAIN", "tp-domain",
                       "node|leaf|any",
                       "Merak: where a tensor-parallel group must stay"},
    [SET_PLAN] = {"merak-plan", "MERAK_PLAN_FILE", NULL, "FILE",
                  "Merak: run the plan that `merak plan --json FILE` saved"},
    [SET_LINKS] = {"merak-links", "MERAK_LINKS", NULL, "FILE",
                   "Merak: islands of nodes, as for `merak plan --links`"},
    [SET_MAP] = {"merak-map", NULL, NULL, "show|quiet|FILE",
                 "Merak: print the rank map, or write it to FILE"},
    [SET_ENV] = {"merak-env", "MERAK_ENV", "env", "none|torch",
                 "Merak: also set the variables that torchrun would"},
};

const char *setting_option(enum setting setting)
{
    return names[setting].option;
}

const char *setting_arginfo(enum setting setting)
{
    return names[setting].arginfo;
}

const char *setting_usage(enum setting setting)
{
    return names[setting].usage;
}

const char *setting_variable(enum setting setting)
{
    return names[setting].variable;
}

void setting_wish(enum setting setting, char name[NAME_LONGEST])
{
    snprintf(name, NAME_LONGEST, WISH_PREFIX "%s", names[setting].variable);
}

/* Describe where the user gave a setting, for a message. */
static void describe(enum setting setting, enum source source, char *out,
                     size_t size)
{
    if (source == FROM_SITE)
        snprintf(out, size, "plugstack.conf: %s", names[setting].site);
    else if (source == FROM_ENV)
        snprintf(out, size, "%s", names[setting].variable);
    else
        snprintf(out, size, "--%s", names[setting].option);
}

/* Record a mistake; the first one is reported. */
static void refuse(struct settings *s, enum setting setting, enum source source,
                   const char *what, const char *got)
{
    char name[64];

    if (s->refused)
        return;
    s->refused = true;
    describe(setting, source, name, sizeof(name));
    merak_fail(&s->error, MERAK_ERR_CONFIG, "%s: %s, got \"%.80s\"", name, what,
               got);
}

/* 1..65535 without sign, space or leading zero; 0 for anything else. */
static int parse_degree(const char *text)
{
    int value = 0;

    if (text[0] < '1' || text[0] > '9')
        return 0;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return 0;
        value = value * 10 + (*text - '0');
        if (value > MERAK_MAX_DEGREE)
            return 0;
    }
    return value;
}

/* What was expected, or NULL if the text is fine. */
static const char *check(enum setting setting, const char *text)
{
    enum merak_order order;
    enum merak_domain domain;

    switch (setting) {
    case SET_TP:
    case SET_EP:
    case SET_PP:
    case SET_DP:
    case SET_CP:
        return strcmp(text, "auto") == 0 || parse_degree(text) > 0
                   ? NULL
                   : "expected an integer 1..65535 or auto";
    case SET_ORDER:
        return merak_order_parse(text, &order) == MERAK_OK
                   ? NULL
                   : "expected tp-dp-pp, tp-pp-dp or auto";
    case SET_TP_DOMAIN:
        return merak_domain_parse(text, &domain) == MERAK_OK
                   ? NULL
                   : "expected node, leaf or any";
    case SET_PLAN:
        return text[0] != '\0' && strcmp(text, "show") != 0 &&
                       strcmp(text, "quiet") != 0
                   ? NULL
                   : "expected a file of `merak plan --json` (the rank map "
                     "has --merak-map)";
    case SET_LINKS:
        return text[0] != '\0' ? NULL
                               : "expected a file of islands, as for `merak "
                                 "plan --links`";
    case SET_MAP:
        return strcmp(text, "show") == 0 || strcmp(text, "quiet") == 0 ||
                       strchr(text, '/') != NULL
                   ? NULL
                   : "expected show, quiet, or a file with a / in its name";
    case SET_ENV:
        return strcmp(text, "none") == 0 || strcmp(text, "torch") == 0
                   ? NULL
                   : "expected none or torch";
    case SET_COUNT:
        break;
    }
    return "unknown";
}

void settings_note(struct settings *s, enum setting setting, enum source source,
                   const char *text, bool once)
{
    const char *mistake;

    if (text == NULL)
        text = "";
    s->active = s->active || source > FROM_SITE;
    mistake = strlen(text) < VALUE_MAX ? check(setting, text) : "too long";
    if (mistake != NULL) {
        refuse(s, setting, source, mistake, text);
        return;
    }
    if (once && s->value[setting].source == source &&
        strcmp(s->value[setting].text, text) != 0) {
        char what[VALUE_MAX + 64];

        snprintf(what, sizeof(what), "one value expected, was \"%.80s\"",
                 s->value[setting].text);
        refuse(s, setting, source, what, text);
        return;
    }
    if (s->value[setting].source > source)
        return;
    s->value[setting].source = source;
    snprintf(s->value[setting].text, VALUE_MAX, "%s", text);
}

void settings_note_site(struct settings *s, const char *argument)
{
    size_t len = strcspn(argument, "=");

    for (int i = 0; i < SET_COUNT; i++) {
        if (names[i].site != NULL && strlen(names[i].site) == len &&
            strncmp(names[i].site, argument, len) == 0 &&
            argument[len] == '=') {
            settings_note(s, (enum setting)i, FROM_SITE, argument + len + 1,
                          true);
            return;
        }
    }
    if (s->refused)
        return;
    s->refused = true;
    merak_fail(&s->error, MERAK_ERR_CONFIG,
               "plugstack.conf: expected tp=, pp=, dp=, cp=, ep=, order=, "
               "tp-domain= or env=, got \"%.80s\"",
               argument);
}

void settings_note_environment(struct settings *s)
{
    for (int i = 0; i < SET_COUNT; i++) {
        const char *text =
            names[i].variable != NULL ? getenv(names[i].variable) : NULL;

        /* An option overrides it, so a mistake here would not matter. */
        if (text != NULL && text[0] != '\0' && s->value[i].source < FROM_ENV)
            settings_note(s, (enum setting)i, FROM_ENV, text, false);
    }
}

const char *settings_text(const struct settings *s, enum setting setting)
{
    return s->value[setting].text;
}

void settings_input(const struct settings *s,
                    struct merak_placement_input *input, bool *is_auto)
{
    memset(input, 0, sizeof(*input));
    input->tp = parse_degree(settings_text(s, SET_TP));
    input->ep = parse_degree(settings_text(s, SET_EP));
    input->pp = parse_degree(settings_text(s, SET_PP));
    input->dp = parse_degree(settings_text(s, SET_DP));
    input->cp = parse_degree(settings_text(s, SET_CP));
    /* checked when noted; "" leaves the defaults */
    if (merak_order_parse(settings_text(s, SET_ORDER), &input->order) !=
        MERAK_OK)
        input->order = MERAK_ORDER_TP_DP_PP;
    if (merak_domain_parse(settings_text(s, SET_TP_DOMAIN),
                           &input->tp_domain) != MERAK_OK)
        input->tp_domain = MERAK_DOMAIN_NODE;
    *is_auto = strcmp(settings_text(s, SET_TP), "auto") == 0 ||
               strcmp(settings_text(s, SET_PP), "auto") == 0 ||
               strcmp(settings_text(s, SET_CP), "auto") == 0 ||
               strcmp(settings_text(s, SET_EP), "auto") == 0;
    if (strcmp(settings_text(s, SET_CP), "auto") == 0)
        input->cp = MERAK_CP_CHOSEN;
    if (strcmp(settings_text(s, SET_EP), "auto") == 0)
        input->ep = MERAK_EP_CHOSEN;
    /* The program chooses the order, too, unless it is given. */
    if (*is_auto && s->value[SET_ORDER].source == FROM_NOWHERE)
        input->order = MERAK_ORDER_AUTO;
}

static enum merak_status apply_order(const struct settings *s,
                                     const struct plan_head *head,
                                     struct merak_placement_input *input,
                                     struct merak_error *err)
{
    enum source source = s->value[SET_ORDER].source;
    enum merak_order order;
    char name[64];

    if (source >= s->value[SET_PLAN].source &&
        merak_order_parse(settings_text(s, SET_ORDER), &order) == MERAK_OK &&
        order != MERAK_ORDER_AUTO && order != head->order) {
        describe(SET_ORDER, source, name, sizeof(name));
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s=%s contradicts the plan %s, which has the other",
                          name, settings_text(s, SET_ORDER),
                          settings_text(s, SET_PLAN));
    }
    input->order = head->order;
    return MERAK_OK;
}

enum merak_status settings_apply_plan(const struct settings *s,
                                      const struct plan_head *head,
                                      struct merak_placement_input *input,
                                      struct merak_error *err)
{
    const struct {
        enum setting setting;
        int has;
    } degree[] = {{SET_TP, head->tp},
                  {SET_PP, head->pp},
                  {SET_DP, head->dp},
                  {SET_CP, head->cp},
                  {SET_EP, head->ep}};

    for (size_t i = 0; i < sizeof(degree) / sizeof(*degree); i++) {
        const char *text = settings_text(s, degree[i].setting);
        enum source source = s->value[degree[i].setting].source;
        char name[64];

        if (parse_degree(text) == 0 || parse_degree(text) == degree[i].has ||
            source < s->value[SET_PLAN].source)
            continue;
        describe(degree[i].setting, source, name, sizeof(name));
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s=%s contradicts the plan %s, which has %d", name,
                          text, settings_text(s, SET_PLAN), degree[i].has);
    }
    input->tp = head->tp;
    input->ep = head->ep;
    input->pp = head->pp;
    input->dp = head->dp;
    input->cp = head->cp;
    input->pp_bytes = head->pp_bytes;
    input->dp_bytes = head->dp_bytes;
    return apply_order(s, head, input, err);
}

void settings_export(const struct settings *s)
{
    for (int i = 0; i < SET_COUNT; i++) {
        if (names[i].variable != NULL && s->value[i].source == FROM_LINE)
            setenv(names[i].variable, s->value[i].text, 1);
    }
}

/* A path is made absolute: tasks may start in another directory. */
static void pass(const struct settings *s, enum setting setting,
                 const char *wish)
{
    const char *text = settings_text(s, setting);
    bool is_path = setting == SET_PLAN || setting == SET_LINKS;
    char *whole = is_path ? realpath(text, NULL) : NULL;

    setenv(wish, whole != NULL ? whole : text, 1);
    free(whole);
}

void settings_pass(const struct settings *s)
{
    for (int i = 0; i < SET_COUNT; i++) {
        enum setting setting = (enum setting)i;
        char wish[NAME_LONGEST];

        if (names[i].variable == NULL)
            continue;
        setting_wish(setting, wish);
        /* srun adds its environment to the tasks': unsetting a leftover here
         * would not unset it there */
        if (s->active && s->value[i].source > FROM_NOWHERE)
            pass(s, setting, wish);
        else if (getenv(wish) != NULL)
            setenv(wish, "", 1);
    }
}
