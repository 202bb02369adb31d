//! Counts as people say them.

/// `1 request`, `2 requests`.
pub(super) fn several(count: impl Into<u64>, one: &str) -> String {
    let count = count.into();
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_everything_else_is_several() {
        let told = [0_u64, 1, 2].map(|count| several(count, "request"));
        assert_eq!(told, ["0 requests", "1 request", "2 requests"]);
    }
}
