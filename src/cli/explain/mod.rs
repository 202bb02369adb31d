//! `tidegate explain`: what a running gateway would do with a body, and why.

mod show;

use std::fs::File;
use std::io::{Read, Write};

use clap::Args;
use serde_json::Value;

use super::Failure;
use super::plain::of_lines;
use super::remote::{RemoteError, RemoteFlags};

/// Most that is read of a body, in bytes: four of the largest a gateway takes by
/// default.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Flags of `tidegate explain`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// A file with the request body, as a client would send it; "-" is standard input.
    #[arg(value_name = "BODY")]
    body: String,
    /// The tenant whose request it is, by name; needed where there are several and none
    /// is anonymous.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The path it is meant for.
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions")]
    route: String,
    /// A header of the request, as "x-tidegate-class: long"; may be given again.
    #[arg(long, value_name = "NAME: VALUE", value_parser = read_header)]
    header: Vec<(String, String)>,
    #[command(flatten)]
    remote: RemoteFlags,
    /// Print the gateway's answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Asks the gateway and prints what it tells.
pub(super) fn explain(
    flags: &Flags,
    input: impl Read,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let remote = flags.remote.remote()?;
    let body = body(&flags.body, input)?;
    let mut headers = flags.header.clone();
    if !headers.iter().any(|(name, _)| name == "content-type") {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    let told = remote.post(&flags.page(), (&headers, &body));
    let told = told.map_err(in_flags)?;
    if flags.json {
        writeln!(out, "{told}")?;
    } else {
        write!(out, "{}", show::Shown(&of_lines(told)))?;
    }
    Ok(())
}

/// What the gateway does not understand of a question, in this command's own words.
fn in_flags(error: RemoteError) -> Failure {
    let RemoteError::Status {
        status: 400, text, ..
    } = error
    else {
        return error.into();
    };
    let own = [
        ("?tenant=", "--tenant "),
        ("tenant=", "--tenant "),
        ("&route=", "--route "),
        ("route=", "--route "),
    ];
    let said = own
        .iter()
        .fold(text, |text, (query, flag)| text.replace(query, flag));
    Failure::Configuration(said)
}

fn body(written: &str, input: impl Read) -> Result<Vec<u8>, Failure> {
    let (bytes, name) = match written {
        "-" => (read_all(input), "standard input".to_owned()),
        path => (File::open(path).and_then(read_all), path.to_owned()),
    };
    let wrong = |problem: &str| Failure::Configuration(format!("{name} {problem}"));
    let bytes = bytes.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    if bytes.is_empty() {
        return Err(wrong("is empty: a request body is expected there"));
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST_BYTES) {
        return Err(wrong(&format!("is longer than {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}

fn read_all(input: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_header(written: &str) -> Result<(String, String), String> {
    let (name, value) = written
        .split_once(':')
        .ok_or_else(|| "no header like \"x-tidegate-class: long\"".to_owned())?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

/// `text` as a value in a query.
fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(byte);
    let one = |byte: u8| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

// === impl Flags ===

impl Flags {
    fn page(&self) -> String {
        let route = format!("/explain?route={}", encoded(&self.route));
        match &self.tenant {
            Some(tenant) => format!("{route}&tenant={}", encoded(tenant)),
            None => route,
        }
    }
}

/// A member that is a number, 0 where it is none.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_letters_stands_in_the_query() {
        assert_eq!(encoded("/v1/chat/completions"), "/v1/chat/completions");
        assert_eq!(encoded("a b&ü"), "a%20b%26%C3%BC");
    }

    #[test]
    fn a_header_is_a_name_and_a_value() {
        let read = |text: &str| read_header(text).ok();
        let long = ("x-tidegate-class".to_owned(), "long".to_owned());
        assert_eq!(read("X-Tidegate-Class: long"), Some(long));
        assert_eq!(read("long"), None);
    }

    #[test]
    fn a_question_that_is_not_understood_is_told_by_flags_and_ends_with_2() {
        let said = |text: &str| {
            in_flags(RemoteError::Status {
                url: "u".to_owned(),
                status: 400,
                text: text.to_owned(),
            })
        };
        let whose = said("say whose it is by ?tenant=NAME; there are: a, b");
        assert_eq!(
            whose.to_string(),
            "say whose it is by --tenant NAME; there are: a, b"
        );
        assert!(matches!(whose, Failure::Configuration(_)));
        let route = said("route=/a b is no path like /v1/chat/completions");
        assert_eq!(
            route.to_string(),
            "--route /a b is no path like /v1/chat/completions"
        );
        let down = in_flags(RemoteError::Unreachable("u".to_owned()));
        assert!(matches!(down, Failure::Run(_)));
    }

    #[test]
    fn a_body_that_is_not_there_says_so() {
        let problem = |written: &str| body(written, &b""[..]).unwrap_err().to_string();
        let empty = "standard input is empty: a request body is expected there";
        assert_eq!(problem("-"), empty);
        assert!(problem("/no/such/file").starts_with("/no/such/file cannot be read: "));
        assert_eq!(body("-", &b"{}"[..]).unwrap(), b"{}");
    }
}
