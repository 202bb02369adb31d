//! `x-ratelimit-*`: what is left of a tenant's rates, under OpenAI's names.
//!
//! Decides words only. Sent where the tenant has a limit, and not otherwise;
//! the limit is what passes at one moment, which is what `remaining` counts
//! down from. `reset` is when all of it is free again, in the way Go writes a
//! duration (`6m0s`, `1.5s`, `20ms`), as OpenAI's servers do.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::tenants::{Gauge, Standing};

/// What all of the names begin with.
const PREFIX: &str = "x-ratelimit-";

/// Limit, remaining and reset of one meter.
type Names = [HeaderName; 3];

const REQUESTS: Names = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];

const TOKENS: Names = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// Puts `standing` in place of what an engine may have said of its own.
pub(super) fn tell(standing: &Standing, headers: &mut HeaderMap) {
    let is_one = |name: &HeaderName| name.as_str().starts_with(PREFIX);
    let has_any = headers.keys().any(is_one);
    for (names, gauge) in [(REQUESTS, standing.requests), (TOKENS, standing.tokens)] {
        match gauge {
            Some(gauge) => set(names, gauge, headers),
            None if has_any => names.into_iter().for_each(|name| {
                headers.remove(name);
            }),
            None => {}
        }
    }
}

fn set([limit, remaining, reset]: Names, gauge: Gauge, headers: &mut HeaderMap) {
    headers.insert(limit, HeaderValue::from(gauge.rate.capacity()));
    headers.insert(remaining, HeaderValue::from(gauge.remaining));
    let text = in_words(gauge.full_in);
    let text = HeaderValue::from_str(&text).expect("digits and letters make a header value");
    headers.insert(reset, text);
}

/// A duration in Go's way, in whole milliseconds, rounded up.
fn in_words(time: Duration) -> String {
    let started = u128::from(!time.subsec_nanos().is_multiple_of(1_000_000));
    let all = u64::try_from(time.as_millis() + started).unwrap_or(u64::MAX);
    let (minutes, milliseconds) = (all / 60_000, all % 60_000);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let seconds = match (milliseconds / 1000, milliseconds % 1000) {
        (whole, 0) => format!("{whole}s"),
        (0, thousandths) if all < 1000 => format!("{thousandths}ms"),
        (whole, thousandths) => {
            let digits = format!("{thousandths:03}");
            format!("{whole}.{}s", digits.trim_end_matches('0'))
        }
    };
    match (hours, minutes) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::rate::Rate;

    #[test]
    fn times_are_written_as_openai_writes_them() {
        let cases = [
            (0, "0s"),
            (1, "1ms"),
            (20_000_000, "20ms"),
            (999_000_001, "1s"),
            (1_500_000_000, "1.5s"),
            (8_640_000_000, "8.64s"),
            (60_000_000_000, "1m0s"),
            (360_000_000_000, "6m0s"),
            (61_020_000_000, "1m1.02s"),
            (3_600_000_000_000, "1h0m0s"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(in_words(Duration::from_nanos(nanos)), expected);
        }
    }

    #[test]
    fn only_what_is_limited_is_told_and_nothing_of_an_engines_own() {
        let mut headers = HeaderMap::new();
        headers.insert(TOKENS[0].clone(), HeaderValue::from_static("7"));
        headers.insert(REQUESTS[1].clone(), HeaderValue::from_static("7"));
        let standing = Standing {
            requests: Some(Gauge {
                rate: Rate::per_minute(5),
                remaining: 4,
                full_in: Duration::from_secs(12),
            }),
            ..Standing::default()
        };
        tell(&standing, &mut headers);
        let told: Vec<_> = REQUESTS.iter().map(|name| &headers[name]).collect();
        assert_eq!(told, ["5", "4", "12s"]);
        assert_eq!(headers.len(), 3);
    }
}
