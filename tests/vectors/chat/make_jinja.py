#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write jinja.jsonl: small templates, and what transformers makes of them.

    pip install transformers==5.23.0 jinja2
    python3 make_jinja.py

Each is run on the same messages.  A line has the template, and the text or,
where it raises an exception, none.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

MESSAGES = [{"role": "system", "content": " Be brief.\n"},
            {"role": "user", "content": "na\u00efve \u4f60 <think>x</think>y"},
            {"role": "assistant", "content": "\u3000Yes, 'no' \"and\" a\\b "}]
WORDS = {"bos_token": "<s>", "eos_token": "</s>"}

VALUES = """
1 + 2 * 3 - 4 // 3 % 2
-7 // 2 ~ ' ' ~ -7 % 3 ~ ' ' ~ 7 % -3
2 < 3 < 4 and not 3 > 4
1 if false else 2 if true else 3
1 if false
'a' + 'b' ~ 1 ~ none ~ true ~ 1.5 ~ 3.0 ~ missing
'a' 'b' "c"
'x\\n\\t\\'\\"\\\\\\x41\\u00e9\\q'
[1, 'two', none, [true, 2.5], {'k': 'v'}, ()]
{'b': [1, {}, []], 'a': {'c': "x'\u00e9"}} | tojson(indent=4)
[[], [1, [2]]] | tojson(ensure_ascii=False, indent=2)
{} | tojson(ensure_ascii=False)
{'b': 1, 'A': 2, 'ab': 3, 'a': 4} | dictsort
{'a': 1, 'b': [2]}.b[0] ~ {'a': 1}['a']
(1, 2)[-1]
[1, 2, 3, 4][1:3] ~ [1, 2, 3][::-1] ~ [1, 2, 3][:-1] ~ [1][5:]
'h\u00e9llo'[1:3] ~ 'abc'[-1] ~ 'abc'[::-1] ~ 'abc'[9:]
[1][9] is defined
messages[-1].role ~ messages[1]['role'] ~ messages|length
messages[0].nothing is none or messages[0].nothing is not defined
messages[0].items() | list | length
'content' in messages[0] and 'x' not in messages[0] and 'b' in 'abc'
2 in [1, 2] and 'z' not in 'abc' and not 'd' in ['e']
messages[0].content.strip() ~ '|' ~ messages[2].content.strip() ~ '|'
messages[2].content | trim | upper
'  xaxbx '.strip(' x') ~ '|' ~ 'xxa'.lstrip('x') ~ '|' ~ 'axx'.rstrip('x')
messages[1].content.split('</think>')[-1] ~ messages[1].content.split('<think>')[0]
'a,b,c'.split(',', 1) ~ 'abc'.split('z')
'abc'.startswith('ab') and 'abc'.endswith('bc') and not 'abc'.startswith('b')
'hello wORLD'.title() ~ 'hELLO you'.capitalize() ~ 'aB'.upper() ~ 'aB'.lower()
'aXbXc'.replace('X', '--') ~ ('aXb' | replace('X', ''))
missing | default('d') ~ ('' | default('e', true)) ~ ('f' | default('g')) ~ (none | default(1))
['a', 'b', 1] | join(', ') ~ ([] | join('x')) ~ ('abc' | join('-'))
messages | map(attribute='role') | join(' ')
['A', ' b '] | map('trim') | map('lower') | list
messages | selectattr('role', 'equalto', 'user') | list | length
messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | list
[1, 0, 2] | select | list ~ [1, 2, 3] | reject('odd') | list
[3, 1] | first ~ [3, 1] | last ~ ([] | first is defined)
{'a': 1}.items() | list ~ {'a': 1} | items | list ~ {'b': 2}.keys() | list
{'a': 1}.get('a') ~ {'a': 1}.get('b') ~ {'a': 1}.get('b', 'c')
messages[2].content | tojson
{'a': [1, none, true, 1.5], 'b': '\u00e9\\n'} | tojson
messages[0]
'%' ~ "it's" ~ ['it\\'s', 'say "x"']
1 is number and 'x' is string and [] is sequence and {} is mapping and 'x' is iterable
none is none and true is true and false is false and 1 is not string
true is number and 1 is integer and 1.0 is float and true is boolean
missing is undefined and missing is iterable
3 is odd and 4 is even and 2 is in [1, 2] and 1 is ne 2
range(3) | list ~ range(1, 4) | list ~ range(4, 0, -2) | list
namespace(a=1).a ~ dict(b=2).b
not messages[0].tool_calls and not missing
('x' if messages[0]['role'] == 'system' else 'y') + bos_token
'a' == 'a' and 1 == 1.0 and [1] == [1] and 'a' != 1 and none == none
'a' < 'b' and 'ab' > 'a' and 2 >= 2
'a' or 'b' ~ '' or 'c' ~ 0
tools is none and documents is none and not add_generation_prompt
messages[0]['con' + 'tent'] | string | length
- 3 | string
'x' | safe ~ 'ab' | list ~ 'abc' | length ~ ['q'] | count
[[1, 2], [3]] | map('length') | list ~ [1, 2] | reverse | list
1 == 1 is true
1,2
'a' if x is defined else 'b'
""".strip().split("\n")

BODIES = [
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ m.role }};{% endfor %}",
    "{% for m in messages if m.role != 'user' %}{{ loop.index }}{{ m.role }}"
    "{% endfor %}",
    "{% for a, b in {'x': 1, 'y': 2}|items %}{{ a }}={{ b }} {% endfor %}",
    "{% for c in 'h\u00e9' %}[{{ c }}]{% endfor %}{% for k in {'p': 1} %}"
    "{{ k }}{% endfor %}{% for x in missing %}no{% else %}none{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
    "{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}!",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem }}<"
    "{{ loop.nextitem.role if loop.nextitem is defined }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = i + x %}{{ x }}"
    "{% endfor %}{{ x }}",
    "{% set n = namespace(x=0, s='') %}{% for i in [1, 2, 3] %}"
    "{% set n.x = n.x + i %}{% set n.s = n.s ~ i %}{% endfor %}{{ n.x }}"
    "{{ n.s }}",
    "{% if true %}{% set y = 5 %}{% endif %}{{ y }}",
    "{% set a, b = 1, 'z' %}{{ b }}{{ a }}{% set (c) = 3 %}{{ c }}",
    "{% set t %}  <{{ 1 + 1 }}>\n{% endset %}{{ t | trim }}|{{ t }}|",
    "{% set t | trim | upper %} ab {% endset %}{{ t }}",
    "{% filter upper %}ab{{ 'c' }}{% endfilter %}",
    "{% macro f(a, b='B', c=none) %}({{ a }}{{ b }}{{ c }}){% endmacro %}"
    "{{ f(1) }}{{ f(1, 2) }}{{ f(c=3, a=4) }}{{ f() }}",
    "{% set g = 'G' %}{% macro f(n) %}{{ g }}{% if n > 0 %}{{ f(n - 1) }}"
    "{% endif %}{% endmacro %}{{ f(3) }}",
    "{%- macro f(m) %}\n  {{- m.content | trim }}\n{%- endmacro -%}\n"
    "{% for m in messages %}{{ f(m) }}/{% endfor %}",
    "{% if 1 %}a{% elif 2 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 2 %}b"
    "{% else %}c{% endif %}{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}",
    "  {% if 1 %}  \n  a  \n  {% endif %}  \nb\n",
    "x  {% if 1 %}\n  {{ 1 }}\n\n{{ 2 -}}  \n 3 {{- 4 }}{% endif %}\n\n",
    "a\n   {#- c #}  \n  {# d #}\n  e {# f -#}\n g",
    "a\n  {%+ if 1 %}\n b {%+ endif +%}\n c",
    "{%- set x = 1 -%}\n\n  {{ x }}\t{%- if x -%}  y  {%- endif %}",
    "{% if 1 %}\r\na\r\n{% endif %}\r\n",
    "a {{ '{% no %}' }} {{ \"}}\" }} {'k': {{ {'a': {'b': 1}}['a']['b'] }} }",
    "{{ bos_token }}{% generation %}x{{ eos_token }}{% endgeneration %}y",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endfor %}",
    "{{ raise_exception('no') }}",
    "{% for m in messages %}{{ raise_exception('no ' + m.role) if loop.last }}"
    "{% endfor %}",
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing + 'x' }}",
    "{{ 'a' + 1 }}", "{{ [1] + 'a' }}", "{{ 'a' < 1 }}", "{{ missing() }}",
    "{{ none | length }}", "{{ 1 | length }}", "{{ 1 // 0 }}",
    "{{ 'x' | nofilter }}", "{{ 'x' is notest }}", "{% for a in 3 %}{% endfor %}",
    "{% if %}", "{% endif %}", "{{ 1", "{% if 1 %}x", "{{ (1 }}", "{{ 'a }}",
    "{% set 1 = 2 %}", "{% nothing %}", "{# c", "{{ 1 2 }}", "{{ a. }}",
    "{% for m messages %}{% endfor %}", "{% set m.x = 1 %}",
]


def main():
    out = pathlib.Path(__file__).parent / "jinja.jsonl"
    with open(out, "w") as f:
        f.write(json.dumps({"messages": MESSAGES, "words": WORDS}) + "\n")
        for t in ["{{ " + v + " }}" for v in VALUES] + BODIES:
            try:
                text = render_jinja_template([MESSAGES], chat_template=t,
                                             **WORDS)[0][0]
            except Exception:
                text = None
            f.write(json.dumps({"template": t, "text": text}) + "\n")


if __name__ == "__main__":
    main()
