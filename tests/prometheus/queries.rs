//! Expressions of PromQL, read as far as this test needs.

/// The expression as Prometheus takes it: what Grafana fills in is filled in.
pub(crate) fn for_prometheus(asked: &str) -> String {
    let asked = asked.replace("$__rate_interval", "1m");
    let variables = ["$job", "$instance", "$model", "$tenant"];
    let filled = variables
        .iter()
        .fold(asked, |asked, name| asked.replace(name, ".*"));
    assert!(!filled.contains('$'), "{filled}");
    filled
}

/// The selectors of an expression: names of metrics with their matchers.
pub(crate) fn selectors(expression: &str) -> Vec<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_name) {
        rest = &rest[start..];
        let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let matchers = match after.strip_prefix('{') {
            Some(inside) => 1 + closing(inside) + 1,
            None => 0,
        };
        if name == "up" || name.contains("tidegate_") {
            found.push(format!("{name}{}", &after[..matchers]));
        }
        rest = &after[matchers..];
    }
    found
}

/// Where the brace is closed; braces within quotes are none.
fn closing(inside: &str) -> usize {
    let mut quoted = false;
    for (at, letter) in inside.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '}' if !quoted => return at,
            _ => {}
        }
    }
    panic!("{inside} is not closed")
}

#[test]
fn selectors_are_taken_out_of_an_expression_with_their_matchers() {
    let found = selectors(
        "a:tidegate_b:rate5m > 0.1 and on (job) max by (job) (tidegate_c{le=~\"1{2}\",x=\"}\"}) > 5 or up == 0",
    );
    let expected = [
        "a:tidegate_b:rate5m",
        "tidegate_c{le=~\"1{2}\",x=\"}\"}",
        "up",
    ];
    assert_eq!(found, expected);
    assert_eq!(
        for_prometheus("rate(a{x=~\"$job\"}[$__rate_interval])"),
        "rate(a{x=~\".*\"}[1m])"
    );
}
