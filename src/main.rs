//! The `tidegate` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A tokenizer is hundreds of thousands of small pieces, loaded anew by each
/// reload on another thread: the system's allocator keeps what one thread freed
/// for that thread, and the process grows with every reload.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tidegate::cli::run()
}
