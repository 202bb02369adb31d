use super::*;

const LOOP: &str = "{% for m in messages %}{{ m.role + ':' + m['content']|trim }}{% endfor %}";

#[test]
fn texts_that_are_passed_on_are_not_looked_into() {
    assert_eq!(searched(LOOP), Some(Vec::new()));
    let more = "{%- set all = messages[1:] %}{% if messages[0].role == 'system' %}{% endif %}\
        {% for m in all if m.content is string %}{% set c = m.content or '' %}\
        {% if c.startswith('<a>') and not '<b>' in c and c != '' and c != none %}\
        {% set c = c.split('<c>')[-1].lstrip('\\n') %}{% endif %}\
        {{ '<' ~ m.role ~ '>' ~ (c if loop.last else c + '\\n') }}{% endfor %}\
        {% if add_generation_prompt %}{{ x | tojson(indent=2) }}{% endif %}";
    let words = ["<a>", "<b>", "<c>"].map(str::to_owned);
    assert_eq!(searched(more), Some(words.into()));
}

#[test]
fn what_other_roles_would_have_made_of_them_does_not_count() {
    let cases = [
        ("m.role == 'tool'", true),
        ("m['role'] == 'tool' or (m.role == 'ipython' and x)", true),
        ("m.role == 'user' and m.role == 'tool'", true),
        ("m.role == 'user'", false),
        ("m.role != 'tool'", false),
        ("not m.role == 'tool'", false),
        ("m.role == 'tool' or x", false),
        ("x.role == 'tool'", false),
        ("'tool' == m.role", false),
        ("m.role == x", false),
        ("m.name == 'tool'", false),
    ];
    for (condition, is_never) in cases {
        let look = "{{ m.content|tojson }}";
        let source = format!(
            "{{% for m in messages %}}{{% if {condition} %}}{{% for i in x %}}{{{{ i }}}}\
             {{% else %}}{{% endfor %}}{{% if y %}}{{% else %}}{look}{{% endif %}}\
             {{% elif y %}}{{{{ m.content }}}}{{% endif %}}{{% endfor %}}"
        );
        assert_eq!(searched(&source).is_some(), is_never, "{condition}");
        let other = source.replace("{% elif y %}", "{% else %}{{ m.content|length }}");
        assert_eq!(searched(&other), None, "{condition}");
    }
}

#[test]
fn a_template_that_looks_into_a_text_is_not_parametric() {
    for look in [
        "m.content|length",
        "m.content|upper",
        "m.content|tojson",
        "m.content[0]",
        "m.content[:3]",
        "m.content == m.role",
        "m.content == messages[0].content",
        "m.content < 'a'",
        "m.content in ['a']",
        "m.role in m.content",
        "'' in m.content",
        "m.content * 2",
        "m.content.title()",
        "m.content.split()",
        "m.content.split('a')[1]",
        "m.content.split('a')|length",
        "m.content.strip('ab')",
        "m.content.startswith(m.role)",
        "'a' in ('b' + m.content)",
        "(m.content + 'a').startswith('a')",
        "m",
        "messages",
        "m|tojson",
        "m.items()",
        "m[m.role]",
        "messages|map(attribute='content')",
        "m in messages",
        "loop.previtem.content",
        "loop.changed(m.content)",
        "range(m.content)",
        "strftime_now('%d')",
        "f(m.content)",
        "m.content.x",
        "namespace(c=m.content)",
        "m.get('content', 'x')",
        "[m.content]",
        "{'c': m.content}",
    ] {
        let source = LOOP.replace("m.role + ':'", look);
        assert_ne!(source, LOOP);
        assert_eq!(searched(&source), None, "{look}");
    }
    for source in [
        "{% for c in messages[0].content %}{{ c }}{% endfor %}",
        "{% for k, v in messages %}{% endfor %}",
        "{% macro f(m) %}{{ m.content|length }}{% endmacro %}",
        "{% filter upper %}{{ messages[0].content }}{% endfilter %}",
        "{% set ns.c = messages[0].content %}",
        "{% set c %}{{ messages[0].content }}{% endset %}{{ c|length }}",
        "{% set c = messages[0].content %}{{ d|length }}{% set d = c %}",
        "{% include 'x' %}",
        "{% raw %}{{ x }}{% endraw %}",
        "{{ messages[0].content",
    ] {
        assert_eq!(searched(source), None, "{source}");
    }
}
