//! The `vllm-sim` command: the simulated engine over HTTP.

fn main() {}
