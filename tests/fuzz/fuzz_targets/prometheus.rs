//! Fuzzes the reader that `checks` calls `prometheus`.

#![no_main]

#[path = "../checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let named = checks::TARGETS
        .iter()
        .find(|(name, _)| *name == "prometheus");
    named.expect("the check is in the list").1(data);
});
