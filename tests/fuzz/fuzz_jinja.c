/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_jinja.c - chat templates */
#include "config.h"

#include "fuzz/fuzz.h"

#include "text/template/jinja.h"

#include <string.h>

void fuzz_seeds(void)
{
    static const char chat[] =
        "{%- if tools %}{{ tools | tojson }}{% endif -%}\n"
        "{% set ns = namespace(n=0) %}{%- for m in messages[1:] if m.role %}"
        "{% set ns.n = ns.n + loop.index0 %}"
        "{{ '<|' ~ m['role'] + '|>\\n' + m.content | trim + eos_token }}"
        "{% if loop.last and not m.content.startswith('x') %}\n{{- ns.n }}"
        "{% elif 'a' in m.content %}{% continue %}{% endif %}{% endfor %}"
        "{{ raise_exception('no') if missing is defined else '' }}\n";
    static const char more[] =
        "{% macro f(a, b=[1, {'k': none}]) -%} {{ a.split('b')[-1] }}{{ b }}"
        "{%- endmacro %}{{ f(messages[0].content, b=range(3) | list) }}"
        "{# c #}{% set t | upper %}{% generation %}x{% endgeneration %}"
        "{% endset %}{{ t[::-1] }}{{ (1, -2.5, 7 // 2 % 3 * 4) }}"
        "{{ messages | map(attribute='role') | join(', ') }}"
        "{{ messages | selectattr('role', 'eq', 'user') | list | length }}"
        "{{ 'a\\u00e9'.replace('a', 'b').title() if 1 < 2 <= 3 }}"
        "{{ strftime_now('%Y') }}{% filter trim %} y {% endfilter %}";

    static const char rest[] =
        "{% macro g(a) %}{{ varargs }}{{ kwargs }}{{ caller(a) }}"
        "{% endmacro %}{% call(x) g(1, *[2], **{'y': 3}) %}{{ x }}{% endcall %}"
        "{% for x in [1, [2]] recursive %}{{ loop(x) if x is not number }}"
        "{{ loop.cycle('a', 'b') ~ loop.changed(x) }}{% endfor %}"
        "{% with a = 1 %}{{ a }}{% endwith %}{% raw %}{{ {% endraw %}"
        "{{ '%5.2f|%-3s' | format(2.5, 'a') ~ '{:>4}{n}'.format(1, n=2) }}"
        "{{ [3, 1] | sort(reverse=true) ~ ['b', 'A'] | min ~ [1] | sum }}"
        "{{ messages | groupby('role') | map(attribute='list') | list }}"
        "{{ [1, 2, 2] | unique | batch(2) | list ~ '1.5' | float | round }}"
        "{{ 'a b\nc' | indent(2) | truncate(4) | title | center(9) }}"
        "{{ 'a-b'.rsplit('-', 1) ~ 'ab'.partition('b') ~ 'ab'.rfind('b') }}"
        "{{ ('<' | safe + '<') | e ~ {1: 2, none: (3,)} ~ 7 / 2 ** 3 // 1 }}"
        "{{ {'a': 1} | dictsort | tojson(indent=1, separators=(',', ':')) }}";

    fuzz_add(rest, sizeof(rest) - 1);
    fuzz_add(chat, sizeof(chat) - 1);
    fuzz_add(more, sizeof(more) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct merak_jinja_message message[] = {
        {"user", " a-b ", 5, NULL}, {"assistant", "yes", 3, NULL}};
    static const struct merak_jinja_word word = {"eos_token", "</s>"};
    const struct merak_jinja_input in = {
        .message = message, .n_messages = 2, .word = &word, .n_words = 1};
    struct merak_jinja_output out = {.n = 0};
    struct merak_error err = {.text = ""};
    struct merak_jinja *jinja = NULL;
    enum merak_status rc =
        merak_jinja_compile((const char *)data, n, &jinja, &err);

    if (rc == MERAK_OK)
        rc = merak_jinja_render(jinja, &in, &out, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    for (size_t i = 0; rc == MERAK_OK && i < out.n_marks; i++) {
        const struct merak_jinja_mark *m = &out.mark[i];

        fuzz_must(m->begin <= m->end && m->end <= out.n,
                  "a mark is in the text");
        fuzz_must(m->message >= -1 && m->message < 2, "a mark is of a message");
    }
    merak_jinja_output_fini(&out);
    merak_jinja_free(jinja);
    return 0;
}
