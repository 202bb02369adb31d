//! The code of a template, in words.
//!
//! Decides where code begins and ends and what its words are. Knows no grammar.
//! Invariant: what this cannot take apart for certain is `None`.

/// One tag of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Code<'s> {
    /// `{{ … }}`
    Output(Vec<Word<'s>>),
    /// `{% … %}`
    Statement(Vec<Word<'s>>),
}

/// One word of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word<'s> {
    /// A name or keyword.
    Name(&'s str),
    /// A string, escapes resolved.
    Text(String),
    /// A number, as written.
    Number(&'s str),
    /// An operator or bracket.
    Sign(&'s str),
}

/// Operators of two characters.
const PAIRS: [&str; 6] = ["==", "!=", "<=", ">=", "//", "**"];
/// Those of one, and brackets. Braces are not among them: where one ends is not
/// told from where code ends.
const SIGNS: &str = "()[].,:|+-*/%~=<>";

/// All code of `source`, in order; comments and text are left out.
pub(super) fn code(source: &str) -> Option<Vec<Code<'_>>> {
    let mut all = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (open, after) = (rest[at..].get(..2), at + 2);
        match open {
            Some("{#") => {
                let end = rest[after..].find("#}")?;
                rest = &rest[after + end + 2..];
            }
            Some("{{") => {
                let (words, left) = words(&rest[after..], "}}")?;
                all.push(Code::Output(words));
                rest = left;
            }
            Some("{%") => {
                let (words, left) = words(&rest[after..], "%}")?;
                all.push(Code::Statement(words));
                rest = left;
            }
            _ => rest = &rest[at + 1..],
        }
    }
    Some(all)
}

/// The words up to `close`, and what follows it.
fn words<'s>(code: &'s str, close: &str) -> Option<(Vec<Word<'s>>, &'s str)> {
    let mut words = Vec::new();
    let trims = |code: &'s str| code.strip_prefix(['-', '+']).unwrap_or(code);
    let mut rest = trims(code);
    loop {
        rest = rest.trim_start();
        if let Some(left) = rest.strip_prefix(close) {
            return Some((words, left));
        }
        if let Some(left) = trims(rest).strip_prefix(close) {
            return Some((words, left));
        }
        let (word, left) = word(rest)?;
        words.push(word);
        rest = left;
    }
}

fn word(rest: &str) -> Option<(Word<'_>, &str)> {
    let first = rest.chars().next()?;
    if matches!(first, '\'' | '"') {
        return text(rest, first);
    }
    let run = |fits: fn(char) -> bool| {
        let end = rest.find(|c: char| !fits(c)).unwrap_or(rest.len());
        rest.split_at(end)
    };
    if first.is_ascii_digit() {
        let (number, left) = run(|c| c.is_ascii_alphanumeric() || c == '_');
        return Some((Word::Number(number), left));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let (name, left) = run(|c| c.is_ascii_alphanumeric() || c == '_');
        return Some((Word::Name(name), left));
    }
    let is_pair = rest.get(..2).is_some_and(|pair| PAIRS.contains(&pair));
    let length = match is_pair {
        true => 2,
        false => usize::from(SIGNS.contains(first)),
    };
    let (sign, left) = rest.split_at(length);
    (length > 0).then_some((Word::Sign(sign), left))
}

fn text(rest: &str, quote: char) -> Option<(Word<'_>, &str)> {
    let mut resolved = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => resolved.push(match characters.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                plain @ ('\\' | '\'' | '"') => plain,
                _ => return None,
            }),
            _ if character == quote => return Some((Word::Text(resolved), &rest[at + 1..])),
            _ => resolved.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_taken_apart_and_text_left_out() {
        let source = "a { b }{#- {{ x }} -#}{{- m.a[0] + 'it\\'s\\n' -}} {%+ if x!=1 %}{{\"}}\"}}";
        let expected = [
            Code::Output(vec![
                Word::Name("m"),
                Word::Sign("."),
                Word::Name("a"),
                Word::Sign("["),
                Word::Number("0"),
                Word::Sign("]"),
                Word::Sign("+"),
                Word::Text("it's\n".to_owned()),
            ]),
            Code::Statement(vec![
                Word::Name("if"),
                Word::Name("x"),
                Word::Sign("!="),
                Word::Number("1"),
            ]),
            Code::Output(vec![Word::Text("}}".to_owned())]),
        ];
        assert_eq!(code(source).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_taken_apart_is_nothing() {
        for source in [
            "{{ a",
            "{{ {'a': 1} }}",
            "{{ 'a }}",
            "{{ '\\x41' }}",
            "{# a",
            "{% a ! %}",
        ] {
            assert_eq!(code(source), None, "{source}");
        }
    }
}
