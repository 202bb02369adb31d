//! Sizes of memory as people and engines write them.
//!
//! Decides what `80GiB`, `24 GB` and `85899345920` mean. Never rounds: a size
//! is a whole number of bytes.

/// One KiB, in bytes.
pub const KIB: u64 = 1 << 10;
/// One MiB, in bytes.
pub const MIB: u64 = 1 << 20;
/// One GiB, in bytes. vLLM's logs count in GiB.
pub const GIB: u64 = 1 << 30;

/// Bytes that a text such as `80GiB`, `24GB`, `1.5g` or `85899345920` means;
/// none where it is not a size or does not fit 64 bits. Units with an `i`, and
/// single letters as vLLM's flags take them, are powers of 1024; `kB`, `MB`,
/// `GB` and `TB` are powers of 1000. Fractions of a byte are dropped.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = scale(unit.trim())?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    whole.checked_add(part(fraction, scale)?)
}

/// `0.fraction × scale`, rounded down; at most nine digits are read.
fn part(fraction: &str, scale: u64) -> Option<u64> {
    let read = fraction.get(..fraction.len().min(9))?;
    let read = format!("{read:0<9}").parse::<u64>().ok()?;
    let part = u128::from(read) * u128::from(scale) / 1_000_000_000;
    u64::try_from(part).ok()
}

fn scale(unit: &str) -> Option<u64> {
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "ki" | "kib" => Some(KIB),
        "m" | "mi" | "mib" => Some(MIB),
        "g" | "gi" | "gib" => Some(GIB),
        "t" | "ti" | "tib" => Some(GIB << 10),
        "kb" => Some(1_000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        "tb" => Some(1_000_000_000_000),
        _ => None,
    }
}

/// `bytes` in GiB with two decimals, as vLLM's logs print them.
#[must_use]
pub fn gib(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100 + u128::from(GIB / 2)) / u128::from(GIB);
    format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_powers_of_1024_and_of_1000() {
        let read = [
            ("85899345920", 80 * GIB),
            ("80GiB", 80 * GIB),
            ("80 g", 80 * GIB),
            ("1.5GiB", GIB + GIB / 2),
            ("24GB", 24_000_000_000),
            ("0.5k", 512),
            ("1_000", 1_000),
        ];
        for (text, bytes) in read {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_or_too_large_is_none() {
        for text in ["", "GiB", "-1", "1.2.3", "12 apples", "99999999999TiB", "."] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_in_gib_with_two_decimals() {
        assert_eq!(gib(80 * GIB), "80.00 GiB");
        assert_eq!(gib(GIB / 100), "0.01 GiB");
        assert_eq!(gib(u64::MAX), "17179869184.00 GiB");
    }
}
