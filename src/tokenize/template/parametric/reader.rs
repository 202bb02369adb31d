//! Reads the code of one tag and tells what it may hold of texts.
//!
//! Decides what each expression is made of. Anything that is not known here to leave
//! a text whole, or to seek a word in it, is `None`.

use super::super::code::Word;
use super::{Found, Kind, Seen, clean, joined};

/// The roles that messages have.
const ROLES: [&str; 3] = ["assistant", "system", "user"];
/// Tests of what kind of thing a value is: the same for all texts.
const KINDS: [&str; 11] = [
    "boolean",
    "defined",
    "false",
    "iterable",
    "mapping",
    "none",
    "number",
    "sequence",
    "string",
    "true",
    "undefined",
];
/// Functions whose value is made of what they are given and nothing else.
const FUNCTIONS: [&str; 3] = ["namespace", "raise_exception", "range"];
/// Methods that take white space off the ends of a text.
const STRIPS: [&str; 3] = ["lstrip", "rstrip", "strip"];
/// Values that no text equals.
const CONSTANTS: [&str; 6] = ["False", "None", "True", "false", "none", "true"];
/// Statements that do nothing by themselves.
const MARKS: [&str; 8] = [
    "break",
    "continue",
    "else",
    "endfor",
    "endgeneration",
    "endif",
    "endset",
    "generation",
];

/// Reads the words of one tag.
pub(super) struct Reader<'w, 's> {
    pub(super) words: &'w [Word<'s>],
    pub(super) at: usize,
    pub(super) found: &'w mut Found<'s>,
}

fn all_clean(arguments: &[Seen]) -> Option<Kind> {
    arguments.iter().try_for_each(clean)?;
    Some(Kind::Clean)
}

/// Whether stripping by these arguments takes off white space only.
fn strips_blanks(arguments: &[Seen]) -> Option<()> {
    let is_blank = |text: &String| text.chars().all(char::is_whitespace);
    match arguments {
        [] => Some(()),
        [one] => one.text.as_ref().is_some_and(is_blank).then_some(()),
        _ => None,
    }
}

/// A member of a message.
fn member(name: &str) -> Kind {
    match name {
        "content" => Kind::Text,
        // Its role, and what it does not have.
        _ => Kind::Clean,
    }
}

// === impl Reader ===

impl<'s> Reader<'_, 's> {
    fn peek(&self) -> Option<&Word<'s>> {
        self.words.get(self.at)
    }

    fn takes(&mut self, word: &Word<'_>) -> bool {
        let is_it = self.peek() == Some(word);
        self.at += usize::from(is_it);
        is_it
    }

    fn sign(&mut self, sign: &str) -> bool {
        self.takes(&Word::Sign(sign))
    }

    fn word(&mut self, name: &str) -> bool {
        self.takes(&Word::Name(name))
    }

    fn name(&mut self) -> Option<&'s str> {
        let Some(&Word::Name(name)) = self.peek() else {
            return None;
        };
        self.at += 1;
        Some(name)
    }

    fn must(&mut self, sign: &str) -> Option<()> {
        self.sign(sign).then_some(())
    }

    /// Whether it is a condition that is never true.
    pub(super) fn statement(&mut self) -> Option<bool> {
        match self.name()? {
            "if" | "elif" => self.expression().map(|seen| seen.never),
            "for" => self.cycle().map(|()| false),
            "set" => self.assignment().map(|()| false),
            mark => MARKS.contains(&mark).then_some(false),
        }
    }

    fn cycle(&mut self) -> Option<()> {
        let mut targets = vec![self.name()?];
        while self.sign(",") {
            targets.push(self.name()?);
        }
        self.word("in").then_some(())?;
        let kind = match (self.expression()?.kind, targets.len()) {
            (Kind::List, 1) => Kind::Item,
            (Kind::Clean, _) => Kind::Clean,
            _ => return None,
        };
        let mut targets = targets.into_iter();
        targets.try_for_each(|target| self.found.assign(target, kind))
    }

    fn assignment(&mut self) -> Option<()> {
        let name = self.name()?;
        if self.at == self.words.len() {
            // What a block writes.
            return self.found.assign(name, Kind::Mixed);
        }
        let is_member = self.sign(".");
        if is_member {
            self.name()?;
        }
        self.must("=")?;
        let seen = self.expression()?;
        match is_member {
            true => clean(&seen),
            false => self.found.assign(name, seen.kind),
        }
    }

    pub(super) fn expression(&mut self) -> Option<Seen> {
        let value = self.either()?;
        if !self.word("if") {
            return Some(value);
        }
        self.either()?;
        if !self.word("else") {
            return Some(Seen::of(value.kind));
        }
        let other = self.expression()?;
        joined(value.kind, other.kind).map(Seen::of)
    }

    fn either(&mut self) -> Option<Seen> {
        let mut value = self.both()?;
        while self.word("or") {
            let other = self.both()?;
            value = Seen {
                never: value.never && other.never,
                ..Seen::of(joined(value.kind, other.kind)?)
            };
        }
        Some(value)
    }

    fn both(&mut self) -> Option<Seen> {
        let mut value = self.denied()?;
        while self.word("and") {
            let other = self.denied()?;
            value = Seen {
                never: value.never || other.never,
                ..Seen::of(joined(value.kind, other.kind)?)
            };
        }
        Some(value)
    }

    fn denied(&mut self) -> Option<Seen> {
        if !self.word("not") {
            return self.comparison();
        }
        self.denied()?;
        Some(Seen::of(Kind::Clean))
    }

    fn comparison(&mut self) -> Option<Seen> {
        let mut left = self.sum()?;
        loop {
            let next = self.words.get(self.at..self.at + 2);
            let is_not_in = next.is_some_and(|next| *next == [Word::Name("not"), Word::Name("in")]);
            self.at += usize::from(is_not_in);
            let holds: fn(&mut Self, &Seen, &Seen) -> Option<()> = match self.peek() {
                Some(Word::Name("in")) => Self::is_in,
                Some(Word::Sign("==" | "!=")) => Self::is_equal,
                Some(Word::Sign("<" | ">" | "<=" | ">=")) => Self::is_less,
                _ => return Some(left),
            };
            let is_same = self.sign("==");
            self.at += usize::from(!is_same);
            let right = self.sum()?;
            holds(self, &left, &right)?;
            let is_none = |role: &String| !ROLES.contains(&role.as_str());
            left = Seen {
                never: is_same && left.role && right.text.as_ref().is_some_and(is_none),
                ..Seen::of(Kind::Clean)
            };
        }
    }

    fn is_in(&mut self, left: &Seen, right: &Seen) -> Option<()> {
        clean(left)?;
        match right.kind {
            Kind::Clean => Some(()),
            Kind::Text => self.found.seek(left.text.as_ref()),
            // Which members it has is the same for all.
            Kind::Item => left.text.as_ref().map(drop),
            Kind::Mixed | Kind::Parts | Kind::List => None,
        }
    }

    fn is_equal(&mut self, left: &Seen, right: &Seen) -> Option<()> {
        let other = match (left.kind, right.kind) {
            (Kind::Clean, Kind::Clean) => return Some(()),
            (Kind::Text, Kind::Clean) => right,
            (Kind::Clean, Kind::Text) => left,
            _ => return None,
        };
        match &other.text {
            // No text is empty.
            Some(text) if text.is_empty() => Some(()),
            Some(_) => self.found.seek(other.text.as_ref()),
            None => other.constant.then_some(()),
        }
    }

    fn is_less(&mut self, left: &Seen, right: &Seen) -> Option<()> {
        clean(left)?;
        clean(right)
    }

    fn sum(&mut self) -> Option<Seen> {
        let mut value = self.product()?;
        loop {
            let is_joint = matches!(self.peek(), Some(Word::Sign("+" | "~")));
            if !is_joint && self.peek() != Some(&Word::Sign("-")) {
                return Some(value);
            }
            self.at += 1;
            let other = self.product()?;
            let kind = match (value.kind, other.kind) {
                (Kind::Clean, Kind::Clean) => Kind::Clean,
                (
                    Kind::Clean | Kind::Text | Kind::Mixed,
                    Kind::Clean | Kind::Text | Kind::Mixed,
                ) if is_joint => Kind::Mixed,
                _ => return None,
            };
            value = Seen::of(kind);
        }
    }

    fn product(&mut self) -> Option<Seen> {
        let mut value = self.signed()?;
        while let Some(Word::Sign("*" | "/" | "//" | "%" | "**")) = self.peek() {
            self.at += 1;
            clean(&value)?;
            clean(&self.signed()?)?;
            value = Seen::of(Kind::Clean);
        }
        Some(value)
    }

    fn signed(&mut self) -> Option<Seen> {
        if !self.sign("-") {
            return self.chain();
        }
        clean(&self.signed()?)?;
        Some(Seen::of(Kind::Clean))
    }

    /// A value, and what is done with it.
    fn chain(&mut self) -> Option<Seen> {
        let mut value = self.primary()?;
        loop {
            let from = self.at;
            let kind = if self.sign(".") {
                let name = self.name()?;
                match self.peek() {
                    Some(Word::Sign("(")) => self.method(value.kind, name)?,
                    _ => self.attribute(value.kind, name)?,
                }
            } else if self.sign("[") {
                self.subscript(value.kind)?
            } else if self.sign("|") {
                self.filter(value.kind)?
            } else if self.word("is") {
                self.test(value.kind)?
            } else {
                return Some(value);
            };
            let is_role = match &self.words[from..self.at] {
                [Word::Sign("."), Word::Name("role")] => true,
                [Word::Sign("["), Word::Text(name), Word::Sign("]")] => name == "role",
                _ => false,
            };
            value = Seen {
                role: is_role && value.kind == Kind::Item,
                ..Seen::of(kind)
            };
        }
    }

    fn primary(&mut self) -> Option<Seen> {
        let word = self.peek()?.clone();
        self.at += 1;
        let clean = Seen::of(Kind::Clean);
        match word {
            Word::Text(text) => Some(Seen {
                text: Some(text),
                ..clean
            }),
            Word::Number(_) => Some(Seen {
                constant: true,
                ..clean
            }),
            Word::Name(name) if self.peek() == Some(&Word::Sign("(")) => {
                FUNCTIONS.contains(&name).then_some(())?;
                all_clean(&self.arguments()?).map(Seen::of)
            }
            Word::Name(name) => Some(Seen {
                constant: CONSTANTS.contains(&name),
                ..Seen::of(self.found.names.get(name).copied().unwrap_or(Kind::Clean))
            }),
            Word::Sign("(") => {
                let value = self.expression()?;
                self.must(")").map(|()| value)
            }
            Word::Sign("[") => {
                while !self.sign("]") {
                    self::clean(&self.expression()?)?;
                    if !self.sign(",") {
                        self.must("]")?;
                        break;
                    }
                }
                Some(clean)
            }
            Word::Sign(_) => None,
        }
    }

    /// What is given in brackets, by name or not.
    fn arguments(&mut self) -> Option<Vec<Seen>> {
        self.must("(")?;
        let mut all = Vec::new();
        while !self.sign(")") {
            let is_named = self.words.get(self.at + 1) == Some(&Word::Sign("="));
            if is_named {
                self.name()?;
                self.at += 1;
            }
            let value = self.expression()?;
            all.push(match is_named {
                true => Seen::of(value.kind),
                false => value,
            });
            if !self.sign(",") {
                self.must(")")?;
                break;
            }
        }
        Some(all)
    }

    fn attribute(&self, kind: Kind, name: &str) -> Option<Kind> {
        match kind {
            Kind::Item => Some(member(name)),
            // Of a loop, those are messages.
            Kind::Clean => (!matches!(name, "previtem" | "nextitem")).then_some(Kind::Clean),
            _ => None,
        }
    }

    fn method(&mut self, kind: Kind, name: &str) -> Option<Kind> {
        let arguments = self.arguments()?;
        match (kind, name, &arguments[..]) {
            (Kind::Clean, ..) => all_clean(&arguments),
            (Kind::Text | Kind::Mixed, name, _) if STRIPS.contains(&name) => {
                strips_blanks(&arguments).map(|()| kind)
            }
            (Kind::Text, "startswith" | "endswith", [word]) => {
                self.found.seek(word.text.as_ref())?;
                Some(Kind::Clean)
            }
            (Kind::Text, "split", [word]) => {
                self.found.seek(word.text.as_ref())?;
                Some(Kind::Parts)
            }
            (Kind::Item, "get", [name]) => name.text.as_deref().map(member),
            _ => None,
        }
    }

    fn subscript(&mut self, kind: Kind) -> Option<Kind> {
        let (from, mut is_slice, mut only) = (self.at, false, None);
        while !self.sign("]") {
            if self.sign(":") {
                is_slice = true;
                continue;
            }
            let seen = self.expression()?;
            clean(&seen)?;
            only = Some(seen);
        }
        let is_end = matches!(
            &self.words[from..self.at - 1],
            [Word::Number("0")] | [Word::Sign("-"), Word::Number("1")]
        );
        let name = only.and_then(|seen| seen.text);
        match (kind, name) {
            (Kind::Clean, _) => Some(Kind::Clean),
            (Kind::List, None) if is_slice => Some(Kind::List),
            (Kind::List, None) => Some(Kind::Item),
            (Kind::Item, Some(name)) if !is_slice => Some(member(&name)),
            (Kind::Parts, None) if is_end => Some(Kind::Text),
            _ => None,
        }
    }

    fn filter(&mut self, kind: Kind) -> Option<Kind> {
        let name = self.name()?;
        let arguments = match self.peek() {
            Some(Word::Sign("(")) => self.arguments()?,
            _ => Vec::new(),
        };
        match (kind, name, &arguments[..]) {
            (Kind::Clean, ..) => all_clean(&arguments),
            (Kind::Text | Kind::Mixed, "trim", []) => Some(kind),
            (Kind::List, "length" | "count", []) => Some(Kind::Clean),
            (Kind::List, "first" | "last", []) => Some(Kind::Item),
            (Kind::List, "list" | "reverse", []) => Some(Kind::List),
            (Kind::Parts, "first" | "last", []) => Some(Kind::Text),
            _ => None,
        }
    }

    fn test(&mut self, kind: Kind) -> Option<Kind> {
        self.word("not");
        let name = self.name()?;
        if KINDS.contains(&name) {
            return Some(Kind::Clean);
        }
        let arguments = match self.peek() {
            Some(Word::Sign("(")) => self.arguments()?,
            _ => Vec::new(),
        };
        (kind == Kind::Clean).then_some(())?;
        all_clean(&arguments)
    }
}
