//! Whether a template wants message contents as text or as a list of parts.
//!
//! Decides it as vLLM does: a template that loops over a message's content gets
//! parts, any other gets one text. Reads the source, never renders it.
//! Invariant: what is not recognised is [`ContentFormat::Text`], the engine's
//! own default.

use std::collections::BTreeSet;

/// How message contents are handed to a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tokenize) enum ContentFormat {
    /// One text; parts are joined by line feeds.
    Text,
    /// A list of parts with a type.
    Parts,
}

impl ContentFormat {
    /// Reads the format off a template's source. O(source).
    pub(super) fn detect(source: &str) -> Self {
        let outline = Outline::read(source);
        if outline.loops_over_content() == Some(true) {
            Self::Parts
        } else {
            Self::Text
        }
    }
}

/// A `for` statement.
struct Loop<'a> {
    target: &'a str,
    over: &'a str,
    /// The innermost macro around it, by index.
    inside: Option<usize>,
}

struct Macro<'a> {
    name: &'a str,
    parameters: Vec<&'a str>,
}

/// The statements of a template that can carry a message's content.
#[derive(Default)]
struct Outline<'a> {
    loops: Vec<Loop<'a>>,
    assignments: Vec<(&'a str, &'a str)>,
    macros: Vec<Macro<'a>>,
    /// Everything that may call a macro.
    expressions: Vec<&'a str>,
}

impl<'a> Outline<'a> {
    fn read(source: &'a str) -> Self {
        let mut outline = Self::default();
        let mut open_macros = Vec::new();
        for tag in Tags(source) {
            let (keyword, rest) = split_word(tag);
            match keyword {
                "for" => outline.add_loop(rest, open_macros.last().copied()),
                "set" => outline.add_assignment(rest),
                "macro" => {
                    open_macros.push(outline.macros.len());
                    outline.add_macro(rest);
                    continue;
                }
                "endmacro" => {
                    open_macros.pop();
                }
                _ => {}
            }
            outline.expressions.push(tag);
        }
        outline
    }

    fn add_loop(&mut self, statement: &'a str, inside: Option<usize>) {
        let Some((target, over)) = statement.split_once(" in ") else {
            return;
        };
        let over = [" if ", " recursive"]
            .iter()
            .filter_map(|end| over.find(end))
            .min()
            .map_or(over, |end| &over[..end]);
        self.loops.push(Loop {
            target: target.trim(),
            over,
            inside,
        });
    }

    fn add_assignment(&mut self, statement: &'a str) {
        if let Some((target, value)) = statement.split_once('=') {
            self.assignments.push((target.trim(), value));
        }
    }

    fn add_macro(&mut self, statement: &'a str) {
        let (name, arguments) = statement.split_once('(').unwrap_or((statement, ""));
        let parameters = arguments_of(arguments)
            .into_iter()
            .map(|parameter| parameter.split('=').next().unwrap_or_default().trim())
            .collect();
        self.macros.push(Macro {
            name: name.trim(),
            parameters,
        });
    }

    /// `None` where vLLM's reading of the template fails.
    fn loops_over_content(&self) -> Option<bool> {
        let lists = self.message_lists()?;
        let messages = self.message_variables(&lists)?;
        let is_content = |expression: &str| {
            Access::read(expression).is_some_and(|access| {
                access.key == Some("content") && messages.contains(access.variable)
            })
        };
        let parameters: Vec<BTreeSet<&str>> = self
            .macros
            .iter()
            .map(|definition| self.content_parameters(definition, &is_content))
            .collect();
        for each in &self.loops {
            let name = each.over.trim();
            let found = is_content(each.over)
                || match each.inside {
                    Some(index) => parameters[index].contains(name),
                    None => name == "content",
                };
            if found {
                return is_name(each.target).then_some(true);
            }
        }
        Some(false)
    }

    /// The names that stand for the message list or a part of it.
    fn message_lists(&self) -> Option<BTreeSet<&'a str>> {
        let mut lists = BTreeSet::from(["messages"]);
        loop {
            let mut grown = false;
            for (target, value) in &self.assignments {
                let access = Access::read(value);
                if access.is_some_and(|a| a.key.is_none() && lists.contains(a.variable)) {
                    if !is_name(target) {
                        return None;
                    }
                    grown |= lists.insert(target);
                }
            }
            if !grown {
                return Some(lists);
            }
        }
    }

    /// The loop variables that stand for one message.
    fn message_variables(&self, lists: &BTreeSet<&str>) -> Option<BTreeSet<&'a str>> {
        let mut variables = BTreeSet::new();
        for each in &self.loops {
            let access = Access::read(each.over);
            if access.is_some_and(|a| a.key.is_none() && lists.contains(a.variable)) {
                if !is_name(each.target) {
                    return None;
                }
                variables.insert(each.target);
            }
        }
        Some(variables)
    }

    /// The parameters of a macro that some call passes a message's content to.
    fn content_parameters(
        &self,
        definition: &Macro<'a>,
        is_content: &dyn Fn(&str) -> bool,
    ) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        for expression in &self.expressions {
            for arguments in calls(expression, definition.name) {
                for (index, argument) in arguments_of(arguments).into_iter().enumerate() {
                    let named = argument
                        .split_once('=')
                        .map(|(name, value)| (name.trim(), value))
                        .filter(|(name, _)| is_name(name));
                    let (parameter, value) = match named {
                        Some((name, value)) => {
                            (definition.parameters.iter().find(|p| **p == name), value)
                        }
                        None => (definition.parameters.get(index), argument),
                    };
                    if let (Some(parameter), true) = (parameter, is_content(value)) {
                        found.insert(*parameter);
                    }
                }
            }
        }
        found
    }
}

/// The insides of `{% … %}` and `{{ … }}`, without comments and trim marks.
struct Tags<'a>(&'a str);

impl<'a> Iterator for Tags<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let start = self.0.find('{')?;
            let rest = &self.0[start + 1..];
            let close = match rest.as_bytes().first() {
                Some(b'%') => "%}",
                Some(b'{') => "}}",
                Some(b'#') => "#}",
                _ => {
                    self.0 = rest;
                    continue;
                }
            };
            let inside = &rest[1..];
            let end = if close == "#}" {
                inside.find(close)?
            } else {
                find_unquoted(inside, close)?
            };
            self.0 = &inside[end + 2..];
            if close != "#}" {
                let trimmed = inside[..end].trim_matches(['-', '+']);
                return Some(trimmed.trim());
            }
        }
    }
}

/// A variable, or one of its keys, behind filters, tests and slices.
struct Access<'a> {
    variable: &'a str,
    key: Option<&'a str>,
}

impl<'a> Access<'a> {
    fn read(expression: &'a str) -> Option<Self> {
        let expression = expression.trim();
        if let Some(inner) = expression.strip_prefix('(') {
            return Self::read(inner.strip_suffix(')')?);
        }
        let (variable, mut rest) = split_word(expression);
        if variable.is_empty() {
            return None;
        }
        let mut access = Self {
            variable,
            key: None,
        };
        let mut bare = true;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let (key, after) = split_word(after);
                (access.key, bare) = (access.take_key(key, bare)?, false);
                rest = after;
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = find_unquoted(after, "]")?;
                let index = after[..end].trim();
                if let Some(key) = quoted(index) {
                    access.key = access.take_key(key, bare)?;
                } else if !index.contains(':') {
                    return None;
                }
                bare = false;
                rest = after[end + 1..].trim_start();
            } else {
                rest = skip_filter_or_test(rest)?;
                bare = false;
            }
        }
        Some(access)
    }

    /// Only the first step may be a key.
    fn take_key(&self, key: &'a str, bare: bool) -> Option<Option<&'a str>> {
        (bare && self.key.is_none() && !key.is_empty()).then_some(Some(key))
    }
}

/// What follows `|filter(…)` or `is test`.
fn skip_filter_or_test(rest: &str) -> Option<&str> {
    let (name, after) = if let Some(filter) = rest.strip_prefix('|') {
        split_word(filter.trim_start())
    } else {
        split_word(rest.strip_prefix("is ")?.trim_start())
    };
    if name.is_empty() || name == "not" {
        return None;
    }
    match after.strip_prefix('(') {
        Some(arguments) => {
            let end = closing_bracket(arguments)?;
            Some(arguments[end + 1..].trim_start())
        }
        None => Some(after),
    }
}

/// Splits a leading name off, and the white space after it.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && split_word(text).0.len() == text.len()
}

fn quoted(text: &str) -> Option<&str> {
    ['"', '\''].iter().find_map(|quote| {
        let inner = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
        (!inner.contains(*quote)).then_some(inner)
    })
}

/// The argument texts of every call of `name` in `expression`.
fn calls<'a>(expression: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    expression.match_indices(name).filter_map(move |(at, _)| {
        let before = expression[..at].chars().next_back();
        if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            return None;
        }
        expression[at + name.len()..].trim_start().strip_prefix('(')
    })
}

/// The arguments up to the closing bracket, split at commas outside brackets
/// and quotes.
fn arguments_of(text: &str) -> Vec<&str> {
    let inside = closing_bracket(text).map_or(text, |end| &text[..end]);
    let mut arguments = Vec::new();
    let mut start = 0;
    for (at, c, depth) in Depths::of(inside) {
        if c == ',' && depth == 0 {
            arguments.push(&inside[start..at]);
            start = at + 1;
        }
    }
    if !inside[start..].trim().is_empty() {
        arguments.push(&inside[start..]);
    }
    arguments
}

fn closing_bracket(text: &str) -> Option<usize> {
    Depths::of(text)
        .find(|(_, c, depth)| *c == ')' && *depth < 0)
        .map(|(at, ..)| at)
}

fn find_unquoted(text: &str, pattern: &str) -> Option<usize> {
    Depths::of(text)
        .map(|(at, ..)| at)
        .find(|at| text[*at..].starts_with(pattern))
}

/// The characters outside quotes, with the depth of brackets after each.
struct Depths<'a> {
    chars: std::str::CharIndices<'a>,
    depth: i32,
}

impl<'a> Depths<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            chars: text.char_indices(),
            depth: 0,
        }
    }

    fn skip_string(&mut self, quote: char) {
        while let Some((_, c)) = self.chars.next() {
            if c == '\\' {
                self.chars.next();
            } else if c == quote {
                return;
            }
        }
    }
}

impl Iterator for Depths<'_> {
    type Item = (usize, char, i32);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (at, c) = self.chars.next()?;
            match c {
                '"' | '\'' => {
                    self.skip_string(c);
                    continue;
                }
                '(' | '[' | '{' => self.depth += 1,
                ')' | ']' | '}' => self.depth -= 1,
                _ => {}
            }
            return Some((at, c, self.depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ContentFormat::{Parts, Text};
    use super::*;

    #[test]
    fn a_template_that_prints_content_gets_text() {
        for source in [
            "",
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            "{% for m in messages %}{% for c in m.tool_calls %}{{ c }}{% endfor %}{% endfor %}",
            "{# {% for c in content %} #}{{ messages[0].content }}",
            "{% for m in messages %}{% set x = m.content %}{% for c in x %}{% endfor %}{% endfor %}",
            "{% macro r(content) %}{% for c in content %}{% endfor %}{% endmacro %}{{ r(tools) }}",
            "{% for a, b in messages %}{% for c in a.content %}{% endfor %}{% endfor %}",
        ] {
            assert_eq!(ContentFormat::detect(source), Text, "{source}");
        }
    }

    #[test]
    fn a_template_that_loops_over_content_gets_parts() {
        for source in [
            "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}",
            "{%- for m in messages[1:] -%}{%- for c in m['content']|list -%}{% endfor %}{% endfor %}",
            "{% set loop_messages = messages %}{% for m in loop_messages %}\
             {% for c in m[\"content\"] if c.type == 'text' %}{% endfor %}{% endfor %}",
            "{% set content = messages[0].content %}{% for c in content %}{% endfor %}",
            "{% macro r(x, n=1) %}{% for c in x %}{% endfor %}{% endmacro %}\
             {% for m in messages %}{{ '}}' ~ r(m.content, 2) }}{% endfor %}",
            "{% macro r(n, x) %}{% for c in x %}{% endfor %}{% endmacro %}\
             {% for m in messages %}{% set t = r(1, x=m.content) %}{% endfor %}",
            "{% for m in (messages) %}{% for c in m.content | selectattr('type', 'equalto', 'text') %}{% endfor %}{% endfor %}",
        ] {
            assert_eq!(ContentFormat::detect(source), Parts, "{source}");
        }
    }

    #[test]
    fn broken_sources_are_text_and_no_crash() {
        for source in [
            "{%",
            "{{ 'x",
            "{% for %}",
            "{% set %}",
            "{% macro ( %}",
            "{% for m in messages[ %}",
            "{é",
        ] {
            assert_eq!(ContentFormat::detect(source), Text, "{source}");
        }
    }
}
