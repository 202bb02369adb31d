//! Fuzzes the reader that `checks` calls `decode`.

#![no_main]

#[path = "../checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let named = checks::TARGETS.iter().find(|(name, _)| *name == "decode");
    named.expect("the check is in the list").1(data);
});
