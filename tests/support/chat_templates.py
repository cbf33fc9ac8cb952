"""Chat templates: of the kinds that models are published with, and of kinds that must not be left to themselves."""

USUAL = {
    "plain": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "alternating": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' ~ (system ~ '\n\n' if loop.first and system is defined else '')"
    " ~ m['content'].strip() ~ ' [/INST]' }}{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}"
    "{% endfor %}",
    "thoughts": "{%- set ns = namespace(last=messages|length - 1, found=false) %}{%- for m in messages[::-1] %}"
    "{%- set index = (messages|length - 1) - loop.index0 %}{%- if not ns.found and m.role == 'user' and m.content is"
    " string and not (m.content.startswith('<tool>') and m.content.endswith('</tool>')) %}{%- set ns.found = true %}"
    "{%- set ns.last = index %}{%- endif %}{%- endfor %}{%- for m in messages %}{%- set content = m.content %}"
    "{%- set thoughts = '' %}{%- if m.role == 'assistant' and '</think>' in content %}{%- set thoughts ="
    " content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}{%- set content ="
    " content.split('</think>')[-1].lstrip('\n') %}{%- endif %}{{- '<' + m.role + '>' + (thoughts if loop.index0 >"
    " ns.last else '') + content.replace('\n', ' ') }}{%- endfor %}",
    "macros": "{%- macro line(role, text, end='<end>') -%}<{{ role|upper }}>{{ text|trim }}{{ end }}{%- endmacro -%}"
    "{%- macro all(items) -%}{%- for m in items -%}{{ line(m.role, m.content) }}{{ '\n' if not loop.last }}"
    "{%- endfor -%}{%- endmacro -%}{{ all(messages) }}{% macro wrapped(a) %}{{ caller(a) }}{% endmacro %}"
    "{% call(x) wrapped('b') %}{{ x }}{% endcall %}",
    "filters": "{{ messages|map(attribute='role')|join(', ') }}|{{ messages|selectattr('role', 'equalto', 'user')|list"
    "|length }}|{{ messages|tojson }}|{{ messages|tojson(indent=2) }}|{{ messages[0]|dictsort }}|{{ messages[0].content"
    "|indent(4) }}|{{ 'x'|center(9) }}|{{ '%s of %02d'|format('a', 7) }}|{{ messages|groupby('role')|length }}|"
    "{{ [3, 1, 2]|sort|first }}|{{ (1, 2)|sum }}|{{ messages|batch(3, 'x')|list|length }}|{{ messages|slice(3)|list"
    "|length }}|{{ none|default('d') }}|{{ 'A b'|title|lower|capitalize|replace('b', 'c') }}|{{ 'a\nb'|wordcount }}|"
    "{{ messages|map('length')|list }}|{{ 5|string }}|{{ '<a>'|escape }}|{{ messages|unique(attribute='role')|list"
    "|length }}|{{ 'abc'|reverse }}|{{ 'a b c'|truncate(3) }}|{{ 7.5|round|int }}|{{ messages[1].content|urlencode }}",
    "methods": "{{ '{} and {:>4}'.format('a', 5) }}|{{ '%d%%' % 5 }}|{{ 'ab'.center(6) }}|{{ '7'.zfill(3) }}|"
    "{{ 'a,b'.split(',') }}|{{ ', '.join(['a', 'b']) }}|{{ 'a\tb'.expandtabs(4) }}|{{ {'a': 1}.items()|list }}|"
    "{{ messages[0].get('name', 'nobody') }}|{{ 'x' * 3 + 'y' }}|{{ [1] * 2 + [3] }}|{{ 2 ** 10 }}|{{ 'é'.encode() }}|"
    "{{ '{a}'.format_map({'a': 1}) }}|{{ 'Ab'.swapcase() }}|{{ dict(a=1, b=[1, (2, 3)]) }}|"
    "{{ messages[0].keys()|list }}",
    "control": "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ m.role }}{% if loop.last %}"
    "{% break %}{% endif %}{% else %}none{% endfor %}{% set text %}{% for i in range(3) %}{{ i }},{% endfor %}"
    "{% endset %}{{ text }}{% generation %}{{ text }}{% endgeneration %}{% for i in [[1, [2]], [3]] recursive %}"
    "{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{% endif %}{% endfor %}"
    "{% filter upper %}abc{% endfilter %}{{ loop is defined }}"
    "{% for a, b in {'x': 1}.items() if b %}{{ a }}{{ loop.cycle('o', 'e') }}{% endfor %}{% with z = 4 %}{{ z }}"
    "{% endwith %}{{ strftime_now('%Y')|length }}{% set ns = namespace(a=[]) %}{% for m in messages %}{% set ns.a ="
    " ns.a + [m.role] %}{% endfor %}{{ ns.a }}{{ 1 if messages is mapping else 'list' }}{{ tools is none }}",
}  # fmt: skip
_DOUBLE = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ ns.x|length }}"


def _doubling(start: str, step: str) -> str:
    return _DOUBLE.replace("START", start).replace("STEP", step)


HOSTILE = {
    "a gigabyte at once": "{{ 'a' * 1000000000 }}",
    "times a text": "{{ 1000000000 * 'a' }}",
    "a list of a gigabyte": "{% set x = [0] * 1000000000 %}",
    "loops in loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "loops that write": "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
    "a loop in a block": "{% set x %}{% for a in range(100000) %}{% for b in range(100000) %}{{ b }}{% endfor %}"
    "{% endfor %}{% endset %}",
    "macros that double": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% else %}x{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "macros that do nothing": "{% macro f(n) %}{% if n %}{% set a = f(n - 1) %}{% set a = f(n - 1) %}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "doubling by +": _doubling("'a'", "ns.x + ns.x"),
    "doubling by ~": _doubling("'a'", "ns.x ~ ns.x"),
    "doubling by join": _doubling("'a'", "ns.x.join(['', '', ''])"),
    "doubling by |join": _doubling("'a'", "[ns.x, ns.x]|join"),
    "doubling by replace": _doubling("'a'", "ns.x.replace('a', 'aa')"),
    "doubling by |replace": _doubling("'a'", "ns.x|replace('a', 'aa')"),
    "squaring by replace": _doubling("'aa'", "ns.x.replace('a', ns.x)"),
    "doubling by format": _doubling("'a'", "'{0}{0}'.format(ns.x)"),
    "doubling by %": _doubling("'a'", "'%s%s' % (ns.x, ns.x)"),
    "doubling by |format": _doubling("'a'", "'%s%s'|format(ns.x, ns.x)"),
    "doubling lists": _doubling("[1]", "ns.x + ns.x"),
    "lists of lists": _doubling("[1]", "[ns.x, ns.x]"),
    "tuples of tuples as keys": _doubling("(1,)", "(ns.x, ns.x)") + "{{ {ns.x: 1} }}",
    "dicts of dicts": _doubling("{}", "{'a': ns.x, 'b': ns.x}"),
    "equal trees": "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
    "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}",
    "printed lists": "{% set x = ['a' * 20000] * 20000 %}{{ x }}",
    "many copies": "{% set n = namespace(x=[]) %}{% for i in range(100000) %}{% set n.x = n.x + ['a' * 50000 ~ i] %}"
    "{% endfor %}",
    "many slices": "{% set n = namespace(x=[]) %}{% set a = 'a' * 50000 %}{% for i in range(100000) %}"
    "{% set n.x = n.x + [a[1:]] %}{% endfor %}",
    "namespaces in namespaces": "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n = namespace(x=[n, n]) %}"
    "{% set m = n %}{% endfor %}{% set n = namespace(x=1) %}{% set n.x = n %}{{ [n] }}",
    "a wide column": "{{ 'a'.center(1000000000) }}",
    "a wide column by |": "{{ 'a'|center(1000000000) }}",
    "wide to the left": "{{ 'a'.ljust(1000000000) }}",
    "zeros": "{{ '1'.zfill(1000000000) }}",
    "tabs": "{{ ('\t' * 1000).expandtabs(1000000) }}",
    "tabs by name": "{{ '\t'.expandtabs(tabsize=1000000000) }}",
    "an indent": "{{ ('\n' * 1000)|indent(1000000, true) }}",
    "an indent of text": "{{ ('\n' * 1000)|indent('a' * 50000, true) }}",
    "a wide format": "{{ '{:1000000000}'.format(1) }}",
    "a width as an argument": "{{ '{:{}}'.format(1, 1000000000) }}",
    "a wide %": "{{ '%1000000000d' % 1 }}",
    "a width for %": "{{ '%*d' % (1000000000, 1) }}",
    "a wide |format": "{{ '%1000000000s'|format('a') }}",
    "format_map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "a large power": "{{ 10 ** 100000000 }}",
    "a power of a power": "{{ 9 ** (9 ** 9) }}",
    "a large product": "{% set n = namespace(x=3) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "bytes of a number": "{{ (1).to_bytes(1000000000, 'big') }}",
    "a batch": "{{ [1]|batch(1000000000, 0)|list }}",
    "slices": "{{ [1]|slice(1000000000)|list|length }}",
    "json": "{{ [[[[[1]]]]]|tojson(indent=1000000) }}",
    "json of a text": "{{ [1]|tojson(indent='a' * 90000) }}{{ [[[[1]]]]|tojson(indent='a' * 90000) }}",
    "sums of lists": "{{ ([[1]] * 1000)|sum(start=[]) }}",
    "mapped text": "{{ range(100000)|map('string')|map('center', 90000)|join }}",
    "mapped lists": "{{ range(100000)|map('center', 90000)|list }}",
    "a search in each": "{% set x = range(100000)|list %}{{ x|select('in', x)|list|length }}",
    "a translation": "{{ 'aaaa'.translate({97: 'b' * 90000}) }}",
    "the whole conversation again and again": "{% for i in range(100000) %}{{ messages }}{% endfor %}",
}  # fmt: skip
