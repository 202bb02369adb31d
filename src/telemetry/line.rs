//! A record as a line of the access log.
//!
//! Decides how values are spelled: JSON, every member in the order of the record,
//! `null` for what is not known. Written by hand, for it is done for every request.
//! Never fails.

use std::io::Write;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::Offset;

use super::record::{AccessRecord, Finish, OutputPrecision, Would};
use crate::core::backend::Tier;

/// The name of a member, as it stands between two values.
macro_rules! member {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

/// The line that is written.
struct Line<'l>(&'l mut Vec<u8>);

// === impl AccessRecord ===

impl AccessRecord {
    /// Writes it and a line feed to the end of `lines`.
    pub fn write_line(&self, lines: &mut Vec<u8>) {
        let mut line = Line(lines);
        line.beginning(self);
        line.prompt(self);
        line.end(self);
        line.shadow(self);
        line.raw("}\n");
    }
}

// === impl Line ===

impl Line<'_> {
    /// What is known when the headers are there.
    fn beginning(&mut self, record: &AccessRecord) {
        self.raw("{\"arrival\":");
        self.stamp(record.arrival);
        self.name(member!("request_id"), Some(&record.request_id));
        self.name(member!("route"), Some(record.route));
        self.name(member!("tenant"), record.tenant.as_deref());
        self.name(member!("model"), record.model.as_deref());
    }

    /// What was asked and counted, and what the engine said of it.
    fn prompt(&mut self, record: &AccessRecord) {
        self.number(member!("prompt_tokens"), record.prompt_tokens);
        self.name(member!("precision"), record.precision);
        self.number(member!("used_prompt_tokens"), record.used_prompt_tokens);
        self.number(member!("used_cached_tokens"), record.used_cached_tokens);
        self.number(member!("used_output_tokens"), record.used_output_tokens);
        self.number(member!("max_tokens"), record.max_tokens);
        self.number(member!("samples"), Some(record.samples.into()));
        self.raw(member!("stream"));
        self.raw(if record.stream { "true" } else { "false" });
        self.raw(member!("class"));
        self.list(&record.class, |line, class| line.quoted(class.name()));
        self.raw(member!("prefix_hashes"));
        self.list(&record.prefix_hashes, |line, hash| {
            line.spelled(&format_args!("{hash:016x}"));
        });
    }

    /// What became of it, and when.
    fn end(&mut self, record: &AccessRecord) {
        self.time(member!("queue_ms"), record.queue_ms);
        self.time(member!("ttft_ms"), record.ttft_ms);
        self.time(member!("duration_ms"), record.duration_ms);
        self.name(member!("finish"), Some(finish_name(record.finish)));
        self.time(member!("predicted_wait_ms"), record.predicted_wait_ms);
        self.name(member!("backend"), record.backend.as_deref());
        self.name(member!("tier"), record.tier.map(Tier::name));
        self.number(member!("status"), record.status.map(u64::from));
        self.name(member!("reason"), record.reason);
        let precision = record.output_precision.map(precision_name);
        self.name(member!("output_precision"), precision);
        self.number(member!("charged_tokens"), record.charged_tokens);
        self.raw(member!("client"));
        match record.client {
            // An address alone where the network is no larger.
            Some(one) if one.prefix_len() == one.max_prefix_len() => self.spelled(&one.addr()),
            Some(network) => self.spelled(&network),
            None => self.raw("null"),
        }
        self.number(member!("retry_after_s"), record.retry_after_s);
    }

    /// What admission thought of it.
    fn shadow(&mut self, record: &AccessRecord) {
        self.raw(member!("would"));
        match record.would {
            None => self.raw("null"),
            Some(would) => self.would(would),
        }
        let wait = record.predicted_wait_q80_ms;
        self.time(member!("predicted_wait_q80_ms"), wait);
        self.name(member!("held_by"), record.held_by);
        self.name(member!("home"), record.home.map(Tier::name));
        self.name(member!("choice"), record.choice);
        self.name(member!("trace_id"), record.trace_id.as_deref());
    }

    fn would(&mut self, would: Would) {
        let [what, reason] = would.labels();
        match would {
            Would::Admit | Would::Wait => self.quoted(what),
            Would::Move(tier) => self.spelled(&format_args!("{what}:{}", tier.name())),
            Would::Refuse(_) => self.spelled(&format_args!("{what}:{reason}")),
        }
    }

    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn name(&mut self, member: &str, name: Option<&str>) {
        self.raw(member);
        match name {
            Some(name) => self.quoted(name),
            None => self.raw("null"),
        }
    }

    fn number(&mut self, member: &str, number: Option<u64>) {
        self.raw(member);
        match number {
            Some(number) => self.digits(number),
            None => self.raw("null"),
        }
    }

    /// Milliseconds with up to three places, and one at the least.
    fn time(&mut self, member: &str, time: Option<Duration>) {
        self.raw(member);
        let Some(time) = time else {
            return self.raw("null");
        };
        let microseconds = (time.as_nanos() + 500) / 1000;
        let microseconds = u64::try_from(microseconds).unwrap_or(u64::MAX);
        self.digits(microseconds / 1000);
        let places = microseconds % 1000;
        let places = [places / 100, places / 10 % 10, places % 10];
        let shown = places.iter().rposition(|place| *place > 0).unwrap_or(0);
        self.raw(".");
        places[..=shown]
            .iter()
            .for_each(|place| self.digits(*place));
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.raw("[");
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.raw(",");
            }
            each(self, item);
        }
        self.raw("]");
    }

    fn quoted(&mut self, text: &str) {
        let is_plain = |byte: &u8| *byte >= 0x20 && !matches!(byte, b'"' | b'\\');
        if text.as_bytes().iter().all(is_plain) {
            self.raw("\"");
            self.raw(text);
            self.raw("\"");
        } else {
            serde_json::to_writer(&mut *self.0, text).expect("every text has a JSON form");
        }
    }

    /// What never needs an escape.
    fn spelled(&mut self, text: &dyn std::fmt::Display) {
        write!(self.0, "\"{text}\"").expect("memory takes all that is written");
    }

    fn digits(&mut self, number: u64) {
        let mut digits = [b'0'; 20];
        let (mut at, mut rest) = (digits.len(), number);
        loop {
            at -= 1;
            digits[at] += u8::try_from(rest % 10).expect("a digit is below 10");
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.0.extend_from_slice(&digits[at..]);
    }

    /// RFC 3339 in UTC, to the microsecond.
    fn stamp(&mut self, time: SystemTime) {
        let stamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
        let civil = Offset::UTC.to_datetime(stamp);
        let Ok(year) = u64::try_from(civil.year()) else {
            return self.spelled(&format_args!("{stamp:.6}"));
        };
        let parts = [
            ("\"", year, 1000),
            ("-", wide(civil.month()), 10),
            ("-", wide(civil.day()), 10),
            ("T", wide(civil.hour()), 10),
            (":", wide(civil.minute()), 10),
            (":", wide(civil.second()), 10),
            (".", wide(civil.subsec_nanosecond() / 1000), 100_000),
        ];
        for (before, number, first) in parts {
            self.raw(before);
            let mut place = first;
            while place > 0 {
                self.digits(number / place % 10);
                place /= 10;
            }
        }
        self.raw("Z\"");
    }
}

/// A part of a date or time of day.
fn wide(part: impl Into<i64>) -> u64 {
    u64::try_from(part.into()).unwrap_or(0)
}

const fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::Complete => "complete",
        Finish::Refused => "refused",
        Finish::Cancelled => "cancelled",
        Finish::Failed => "failed",
    }
}

const fn precision_name(precision: OutputPrecision) -> &'static str {
    match precision {
        OutputPrecision::Exact => "exact",
        OutputPrecision::Estimated => "estimated",
        OutputPrecision::Partial => "partial",
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Class;
    use super::*;
    use std::sync::Arc;

    use serde_json::{Value, json};

    fn written(record: &AccessRecord) -> String {
        let mut lines = Vec::new();
        record.write_line(&mut lines);
        String::from_utf8(lines).unwrap()
    }

    fn new(arrival: SystemTime) -> AccessRecord {
        AccessRecord::new(arrival, Arc::from("r"), "completions")
    }

    #[test]
    fn all_that_is_known_is_written_and_null_for_the_rest() {
        let arrival = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_795_964_796_000_120_999);
        let record = AccessRecord {
            tenant: Some("a \"b\"\\\n\u{e9}".into()),
            model: Some("m".into()),
            prompt_tokens: Some(u64::MAX),
            precision: Some("exact"),
            stream: true,
            class: vec![Class::Long, Class::Tools],
            prefix_hashes: vec![0xab, u64::MAX],
            queue_ms: Some(Duration::ZERO),
            duration_ms: Some(Duration::from_nanos(12_340_500)),
            finish: Finish::Complete,
            tier: Some(Tier::Standard),
            status: Some(200),
            output_precision: Some(OutputPrecision::Partial),
            client: Some("10.0.0.1/32".parse().unwrap()),
            would: Some(Would::Refuse("queue_timeout")),
            ..new(arrival)
        };
        let line = written(&record);
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1);
        let read: Value = serde_json::from_str(&line).unwrap();
        let expected = json!({
            "arrival": "2026-11-29T15:06:36.000120Z", "request_id": "r", "route": "completions",
            "tenant": "a \"b\"\\\n\u{e9}", "model": "m", "prompt_tokens": u64::MAX,
            "precision": "exact", "used_prompt_tokens": null, "used_cached_tokens": null,
            "used_output_tokens": null, "max_tokens": null, "samples": 1, "stream": true,
            "class": ["long", "tools"],
            "prefix_hashes": ["00000000000000ab", "ffffffffffffffff"], "queue_ms": 0.0,
            "ttft_ms": null, "duration_ms": 12.341, "finish": "complete",
            "predicted_wait_ms": null, "backend": null, "tier": "standard", "status": 200,
            "reason": null, "output_precision": "partial", "charged_tokens": null,
            "client": "10.0.0.1", "retry_after_s": null, "would": "refuse:queue_timeout",
            "predicted_wait_q80_ms": null, "held_by": null, "home": null, "choice": null,
            "trace_id": null
        });
        // In the same order, too.
        assert_eq!(read.to_string(), expected.to_string());
    }

    #[test]
    fn times_have_one_to_three_places_and_years_four_digits() {
        let time = |nanoseconds| {
            let record = AccessRecord {
                ttft_ms: Some(Duration::from_nanos(nanoseconds)),
                ..new(SystemTime::UNIX_EPOCH)
            };
            let line = written(&record);
            let at = line.find("\"ttft_ms\":").unwrap() + 10;
            line[at..].split(',').next().unwrap().to_owned()
        };
        let times = [0, 499, 500, 10_000, 80_000_000, 3_000_999_600].map(time);
        assert_eq!(times, ["0.0", "0.0", "0.001", "0.01", "80.0", "3001.0"]);
        let arrival = |time| written(&new(time))[..41].to_owned();
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(
            arrival(epoch),
            "{\"arrival\":\"1970-01-01T00:00:00.000000Z\","
        );
        let before = epoch - Duration::from_micros(1);
        assert_eq!(
            arrival(before),
            "{\"arrival\":\"1969-12-31T23:59:59.999999Z\","
        );
    }
}
