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
messages | selectattr('role', 'eq', 'nobody') and 'a generator is true'
[] | map('trim') | list ~ (none | selectattr('x')) | list ~ (0 | map('trim') | list)
[1, 2] | map('string') | tojson
[1, 2] | select | length
([1, 2] | select) is sequence or ([1, 2] | select) is iterable
([1, 2] | select)[0] is defined
[3, 1, 2] | select | first ~ ([3, 1, 2] | reverse | first)
'abc' | reverse ~ ('abc' | reverse | list)
{'a': 1}.items() | tojson
{'a': 1}.items() | length ~ ({'a': 1}.items() is sequence)
{1: 'one', 2: 'two', true: 'yes', none: 'no', 1.5: 'real'} ~ {1: 'x'}[1]
{1: 'one', none: 2, true: 3, 'k': 4, 2.5: 5} | tojson
{(1, 2): 'pair'}[(1, 2)]
{[1]: 2}
{'b': 2}[missing] is defined
(1, 2) == [1, 2] or (1,) == (1,)
[1, 2] + [3] == [1, 2, 3] and (1,) + (2,) == (1, 2)
[1] + (2,)
'<b>' | safe + '<i>' ~ '<u>'
'<a>' + '<b>' | safe + 'it\\'s "x" & y'
('a<b>' | escape) ~ ('<' | e) ~ (('<' | safe) | e)
('<x>' | safe).replace('x', '<y>') ~ ('<x>' | safe | replace('x', '<y>'))
('<b>' | safe).join(['<', 'x']) ~ (['<'] | join('<b>' | safe))
('%s<' | safe) % '<' ~ ('<' | safe).upper() + '<'
'%s is %d, %5.2f|%-5s|%05d|%x|%%' | format('it', 3, 2.5, 'ab', 42, 255)
'%(a)s-%(b)s' % {'a': 1, 'b': 'x'} ~ '%s' % [1, 2] ~ '%s+%s' % (1, 'q')
'%(a)s' | format(a='named') ~ '%s' % none ~ '%5s|' % 'a' ~ '%.2s' % 'abcd'
'%s %s' | format(1)
'%s' | format(1, 2)
'%d' % 'x'
'{} {1}'.format(1, 2)
'{}-{}-{}'.format('a', 1, none) ~ '{1}{0}'.format('x', 'y') ~ '{n}'.format(n='z') ~ '{{}}'.format()
'{:>5}|{:<4}|{:^6}|{:*^7}|{:03d}|{:.2f}|{:x}'.format('a', 'b', 'c', 'd', 5, 2.345, 255)
'{'.format()
7 / 2 ~ ' ' ~ 2 ** 10 ~ ' ' ~ -2 ** 2 ~ ' ' ~ 2 ** -1 ~ ' ' ~ 1.5 + 1 ~ ' ' ~ 7.5 // 2 ~ ' ' ~ -7.5 % 2
true + 1 ~ (2 * 1.5) ~ 3 - 0.5 ~ 1e3 ~ 2.5e-3 ~ 6 / 3
'ab' * 3 ~ 2 * 'c' ~ [1] * 2 ~ 'x' * -1
5 // -1 ~ -5 % -1 ~ 5 % 3 ~ -5 // 3
1 / 0
1.0 % 0
1 < 1.5 and 2.5 >= 2 and [1, 2] < [1, 3] and (1,) < (1, 0) and true < 2
1 < none
'3' | int ~ ' 12 ' | int ~ 'x' | int ~ '3.9' | int ~ ('x' | int(7)) ~ ('ff' | int(base=16)) ~ 3.99 | int ~ none | int
'1.5' | float ~ 'x' | float ~ ('x' | float(2.5)) ~ 3 | float ~ '-2' | float
-3 | abs ~ (-3) | abs ~ (-2.5) | abs
2.567 | round ~ (2.567 | round(2)) ~ (2.5 | round) ~ (3 | round) ~ (2.1 | round(0, 'ceil')) ~ (2.9 | round(method='floor'))
[3, 1, 2] | sort ~ ['b', 'A', 'c'] | sort ~ ['b', 'A'] | sort(case_sensitive=true) ~ [1, 3, 2] | sort(reverse=true)
messages | sort(attribute='role') | map(attribute='role') | list
[3, 'a'] | sort
[3, 1, 2] | min ~ [3, 1, 2] | max ~ (['b', 'A'] | min) ~ ([] | max is defined) ~ (messages | max(attribute='role')).role
[1, 2, 3.5] | sum ~ ([] | sum) ~ ([{'n': 1}, {'n': 2}] | sum(attribute='n')) ~ ([1] | sum(start=10))
['a', 'A', 'b', 'a'] | unique | list ~ [1, 2, 1] | unique | list
messages | groupby('role') | map(attribute='grouper') | list ~ (messages | groupby('role') | first).list | length
[1, 2, 3, 4, 5] | batch(2) | list ~ [1, 2, 3] | batch(2, 'x') | list
{'b': 1, 'a': 2} | dictsort(by='value') ~ {'b': 1, 'a': 2} | dictsort(reverse=true) ~ {'b': 1, 'A': 2} | dictsort(true)
{2: 'b', 1: 'a'} | dictsort
[{'a': {'b': 1}}, {'a': {'b': 2}}] | map(attribute='a.b') | list ~ [[1, 2]] | map(attribute=1) | list
[{'a': 1}, {}] | map(attribute='a', default='d') | list ~ [{'a': [5]}] | map(attribute='a.0') | list
messages | selectattr('content') | list | length ~ messages | rejectattr('role', 'in', ['user']) | list | length
[1, 2, 3, 4] | select('divisibleby', 2) | list ~ [1, 2, 3] | select('gt', 1) | list ~ [1, 'a'] | select('string') | list
['a', 'b'] | map('replace', 'a', 'c') | join ~ ['x y'] | map('upper') | first
messages | join(',', attribute='role') ~ [1, none] | join('-')
"it's a-b (c) hELLO" | title ~ "it's".title()
'a\\nb\\n\\nc' | indent ~ ('a\\nb' | indent(2, true)) ~ ('a\\n\\nb' | indent(1, blank=true)) ~ ('a\\nb' | indent('> '))
'foo bar baz qux' | truncate(9) ~ ('foo bar baz qux' | truncate(9, true)) ~ ('foo bar' | truncate(5)) ~ ('abcdefghijkl' | truncate(5, true, '!', 0))
'a' | center(6) ~ '|' ~ ('abc' | center(6)) ~ '|' ~ 'foo bar_x 1' | wordcount
' a  b\\tc '.split() ~ 'a b c'.split(none, 1) ~ 'a-b-c'.rsplit('-', 1) ~ 'a\\nb\\r\\nc\\n'.splitlines()
'a=b=c'.partition('=') ~ 'a=b=c'.rpartition('=') ~ 'ab'.partition('x') ~ 'ab'.rpartition('x')
'abcabc'.find('c') ~ 'abcabc'.rfind('c') ~ 'abc'.find('x') ~ 'h\\u00e9llo'.index('l') ~ 'aXbX'.count('X')
'abc'.index('x')
'foobar'.removeprefix('foo') ~ 'foobar'.removesuffix('bar') ~ 'x'.removeprefix('y')
'12'.isdigit() ~ ''.isdigit() ~ 'ab'.isalpha() ~ 'a1'.isalnum() ~ ' \\t'.isspace() ~ 'a b'.isalpha()
'aXbXc'.replace('X', '-', 1) ~ ('aXbX' | replace('X', '-', 1))
'abc'.startswith(('x', 'a')) ~ 'abc'.endswith(('x',))
'abc'.startswith(['a'])
','.join(['a', 'b']) ~ ','.join('xy')
','.join([1])
[1, 2, 1].index(2) ~ [1, 2, 1].count(1) ~ (1, 2).index(2)
[1].append(2)
{'a': 1}.update({'b': 2})
[0, 1, 2, 3, 4, 5][::2] ~ [0, 1, 2, 3][::-2] ~ 'abcdef'[4:0:-2] ~ (1, 2, 3)[1:] ~ [1, 2][none:1]
{'b': [1, {}], 'a': 'x'} | tojson(indent=none, separators=(',', ':')) ~ {} | tojson(separators=(', ', ': '))
{'a': [1, 2]} | tojson(indent=0) ~ 'h\\u00e9\\U0001f600\\x7f\\x08\\x0c\\x01' | tojson(ensure_ascii=true)
'\\x08\\x0c\\x7f\\x01/' | tojson ~ ['\\x08\\x0c\\x7f\\x01'] ~ [missing]
[missing] | tojson
missing | tojson
3 is lt 4 and 3 is ge(3) and 3 is divisibleby 3 and 'ab' is lower and 'AB' is upper and 'a' is not escaped
none is sameas none and true is sameas true and 1 is not sameas true
range is callable and 'x' is not callable and ('x' | safe) is escaped
1.0 == 1 and '1' != 1 and [1, [2]] == [1.0, [2]] and {'a': 1} == {'a': 1.0}
dict(a=1, **{'b': 2}) ~ range(*[2, 4]) | list
messages | map(attribute='content') | map('length') | list
'x' in {'x': 1} and 1 in {1: 2} and 2 in (1, 2) and 'b' in ({'b': 1}.keys())
'\\101\\x42\\7q\\18'
(missing | default(none)) is none and (none | default('x')) is none
'a' ~ (1, 'b') ~ () ~ [()]
messages[0]['strip'] is defined or messages[0].content['strip'] is defined
'ab' | attr('upper') is callable or {'a': 1} | attr('a') is defined
'%s' % true ~ '%s' % 1.0 ~ '%i' % 3.7
'ab'[5] is defined or [][0] is defined or 'abc'[1:none] == 'bc'
loop is defined
'a,b' | replace(',', '<') | safe
5e-1 + .5
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
    "{% for i in [1, 2, 3, 1] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}"
    "{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in [[1, [2]], [3]] recursive %}{{ loop.depth }}"
    "{{ loop(x) if x is not number else x }};{% endfor %}",
    "{% for x in [1] %}{{ loop([2]) }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, in [(1,), (2,)] %}{{ a }}{% endfor %}",
    "{% for a, b in [(1,)] %}{{ a }}{% endfor %}",
    "{% set (a, b), c = (1, 2), 3 %}{{ a + b + c }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}"
    "{{ f(1, 2, 3, x=4) }}{{ f(*[1, 2], **{'y': 3}) }}{{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a='d') %}{{ a }}{% endmacro %}{{ f(missing) }}|{{ f(none) }}",
    "{% macro f(t) %}<{{ t }}>{{ caller('x') }}</{{ t }}>{% endmacro %}"
    "{% call(v) f('b') %}in {{ v }}{% endcall %}",
    "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}",
    "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% set a = 5 %}{{ a }}{% endwith %}"
    "{{ a }}",
    "{% set a = 1 %}{% with %}{% set a = 2 %}{{ a }}{% endwith %}{{ a }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ b }}{% endwith %}",
    "a\n  {% raw %}\n{{ x }} {% if %}\n  {% endraw %}\nb",
    "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}{{ x",
    "{% set g = messages | selectattr('role') %}{{ g | list | length }}"
    "{{ g | list | length }}",
    "{% set g = [1, 2, 3] | map('string') %}{{ g | first }}{{ g | join }}",
    "{% if messages | rejectattr('role') %}yes{% endif %}",
    "{% for k, v in {1: 'a', 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}",
    "{% for x in range(3) if x %}{{ loop.length }}{{ x }}{% endfor %}",
    "{% for k in {1: 2, 'a': 3} %}{{ k }}{% endfor %}",
    "{% set n = namespace() %}{% set n.a = [] %}{% for i in [1, 2] %}"
    "{% set n.a = n.a + [i] %}{% endfor %}{{ n.a }}",
    "{% for m in messages %}{% for c in 'ab' %}{{ loop.index }}{% endfor %}"
    "{{ loop.index }}{% endfor %}",
    "{% do x %}", "{% include 'x' %}", "{% import 'x' as y %}",
    "{{ f(*1) }}", "{{ dict(**1) }}", "{{ 'a' | groupby }}", "{{ {} | sort }}",
    "{{ [1] | indent }}", "{{ ['a', 1] | max }}", "{{ 'x' | sum }}",
    "{% for x in [1, 2, 3] %}{% if loop.first %}{% continue %}{% endif %}"
    "{{ loop.previtem }}{{ loop.nextitem | default('-') }}{% endfor %}",
    "{% for x in none %}{% endfor %}", "{{ namespace(a=1) | list }}",
    "{{ [1, 2] | first | last }}",
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
