//! Times with their unit, as written in a configuration: `"500ms"`, `"30s"`, `"10m"`, `"1h"`.

use std::time::Duration;

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// Reads one whole number and one unit; `None` for anything else.
pub(super) fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, milliseconds) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    let number: u64 = number.parse().ok()?;
    number.checked_mul(*milliseconds).map(Duration::from_millis)
}

/// Writes a time in the largest unit that divides it, in whole milliseconds.
pub(super) fn time_text(time: Duration) -> String {
    let total = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let fits = |unit: &&(&str, u64)| total.is_multiple_of(unit.1) && total >= unit.1;
    match UNITS.iter().rev().find(fits) {
        Some((name, milliseconds)) => format!("{}{name}", total / milliseconds),
        None => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        assert_eq!(parse_time("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_time("30 s"), Some(Duration::from_secs(30)));
        assert_eq!(parse_time("10m"), Some(Duration::from_secs(600)));
        assert_eq!(parse_time("24h"), Some(Duration::from_secs(86_400)));
        for wrong in [
            "",
            "30",
            "s",
            "1.5s",
            "-1s",
            "1s2",
            "1d",
            "99999999999999999999s",
            "18446744073709551h",
        ] {
            assert_eq!(parse_time(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_time_is_written_in_the_largest_unit_that_divides_it() {
        let texts = ["0s", "250ms", "1500ms", "2s", "90s", "5m", "24h"];
        for text in texts {
            let time = parse_time(text).unwrap_or_default();
            assert_eq!(time_text(time), text);
        }
    }
}
