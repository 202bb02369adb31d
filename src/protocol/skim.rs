//! Finds members of JSON without reading what lies between them.
//!
//! Decides where values begin and end, by quotes and brackets alone; whether what
//! is passed over is JSON in itself is not looked at. Whatever is out of the
//! ordinary (an escape in a key, text where a number is expected) is `None`, for
//! the caller to have it read properly. Copies nothing.

/// Most strings are shorter: to look at each byte takes less than to begin a search.
const SHORT: usize = 24;

/// A place in a text.
pub(super) struct Skim<'a> {
    text: &'a [u8],
    at: usize,
}

// === impl Skim ===

impl<'a> Skim<'a> {
    /// The first value of `text`.
    pub(super) fn new(text: &'a [u8]) -> Self {
        let mut skim = Self { text, at: 0 };
        skim.space();
        skim
    }

    /// Whether nothing is left but white space.
    pub(super) fn is_done(&mut self) -> bool {
        self.space();
        self.at == self.text.len()
    }

    /// Passes an object. `each` is given the name of a member as it stands between
    /// its quotes, at the member's value, and passes that.
    pub(super) fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, &'a [u8]) -> Option<()>,
    ) -> Option<()> {
        self.eat(b'{')?;
        if self.closes(b'}') {
            return Some(());
        }
        loop {
            let name = self.plain()?;
            self.space();
            self.eat(b':')?;
            self.space();
            each(self, name)?;
            if self.ends(b'}')? {
                return Some(());
            }
        }
    }

    /// Passes an array. `each` is called at each item and passes it.
    pub(super) fn array(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.eat(b'[')?;
        if self.closes(b']') {
            return Some(());
        }
        loop {
            each(self)?;
            if self.ends(b']')? {
                return Some(());
            }
        }
    }

    /// Passes `null`, if that is what is here.
    pub(super) fn null(&mut self) -> bool {
        let is_null = self.text[self.at..].starts_with(b"null");
        if is_null {
            self.at += 4;
        }
        is_null
    }

    /// Passes a whole number from 0 on, in plain digits.
    pub(super) fn whole(&mut self) -> Option<u64> {
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // What a sign, a fraction or an exponent makes of it is not looked at.
        let is_plain = matches!(
            rest.get(digits),
            None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n')
        );
        if digits == 0 || !is_plain || (rest[0] == b'0' && digits > 1) {
            return None;
        }
        self.at += digits;
        let sum = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
        rest[..digits].iter().try_fold(0, sum)
    }

    /// Passes a string without escapes: what is between its quotes.
    pub(super) fn plain(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"')?;
        let rest = &self.text[self.at..];
        let end = mark(rest)?;
        if rest[end] == b'\\' {
            return None;
        }
        self.at += end + 1;
        Some(&rest[..end])
    }

    /// Passes any value: how it is written.
    pub(super) fn value(&mut self) -> Option<&'a [u8]> {
        let from = self.at;
        match self.text.get(from)? {
            b'"' => self.string()?,
            b'{' | b'[' => self.nested()?,
            _ => self.word()?,
        }
        Some(&self.text[from..self.at])
    }

    /// Passes a string.
    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.at += mark(self.text.get(self.at..)?)?;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Some(());
            }
            self.at += 2;
        }
    }

    /// Passes an object or array, to the bracket that closes it.
    fn nested(&mut self) -> Option<()> {
        let mut depth = 0u32;
        loop {
            match self.text.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Passes a number, `true`, `false` or `null`.
    fn word(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let is_over = |byte: &u8| b",]} \t\r\n".contains(byte);
        let word = &rest[..rest.iter().position(is_over).unwrap_or(rest.len())];
        let is_number = |first: &u8| first.is_ascii_digit() || *first == b'-';
        let is_word = matches!(word, b"null" | b"true" | b"false");
        if !is_word && !word.first().is_some_and(is_number) {
            return None;
        }
        self.at += word.len();
        Some(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        let is_it = *self.text.get(self.at)? == byte;
        self.at += usize::from(is_it);
        is_it.then_some(())
    }

    /// Whether what was just opened is closed at once.
    fn closes(&mut self, bracket: u8) -> bool {
        self.space();
        self.eat(bracket).is_some()
    }

    /// Passes what follows a member or item: whether it is the bracket.
    fn ends(&mut self, bracket: u8) -> Option<bool> {
        self.space();
        if self.eat(b',').is_some() {
            self.space();
            return Some(false);
        }
        self.eat(bracket).map(|()| true)
    }
}

/// Where the first quote or backslash is.
fn mark(text: &[u8]) -> Option<usize> {
    let near = &text[..text.len().min(SHORT)];
    let found = near.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    found.or_else(|| memchr::memchr2(b'"', b'\\', text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values of an object that is all there is.
    fn members(text: &str) -> Option<Vec<(&str, &str)>> {
        let utf8 = |bytes| std::str::from_utf8(bytes).unwrap();
        let mut skim = Skim::new(text.as_bytes());
        let mut members = Vec::new();
        skim.object(|skim, name| {
            members.push((utf8(name), utf8(skim.value()?)));
            Some(())
        })?;
        skim.is_done().then_some(members)
    }

    #[test]
    fn values_are_passed_from_end_to_end() {
        let text = r#" { "a" : [1, {"b": "]}"}] ,"c":"\\\"}" , "d":-1.5e3,"e":null,"f":{} } "#;
        let expected = [
            ("a", r#"[1, {"b": "]}"}]"#),
            ("c", r#""\\\"}""#),
            ("d", "-1.5e3"),
            ("e", "null"),
            ("f", "{}"),
        ];
        assert_eq!(members(text).unwrap(), expected);
        assert_eq!(members("{}").unwrap(), []);
    }

    #[test]
    fn what_breaks_off_or_is_out_of_the_ordinary_is_nothing() {
        for text in [
            "",
            "[]",
            "{",
            r#"{"a"#,
            r#"{"a":"#,
            r#"{"a":1"#,
            r#"{"a":1,"#,
            r#"{"a":1,}"#,
            r#"{"a":"b"#,
            r#"{"a":"b\"#,
            r#"{"a":[1"#,
            r#"{"a":tru}"#,
            r#"{"a":}"#,
            r#"{a:1}"#,
            r#"{"a":1}x"#,
            r#"{"a":1}}"#,
            r#"{"\u0061":1}"#,
            r#"{"a":1 "b":2}"#,
        ] {
            assert_eq!(members(text), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers_are_plain_digits() {
        let whole = |text: &str| {
            let mut skim = Skim::new(text.as_bytes());
            let number = skim.whole()?;
            skim.is_done().then_some(number)
        };
        assert_eq!(whole("0"), Some(0));
        assert_eq!(whole(" 18446744073709551615 "), Some(u64::MAX));
        for text in [
            "",
            "-1",
            "1.0",
            "1e3",
            "01",
            "18446744073709551616",
            "\"1\"",
            "null",
        ] {
            assert_eq!(whole(text), None, "{text}");
        }
    }
}
