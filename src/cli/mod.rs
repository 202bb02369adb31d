//! Floor 6: flags; one function per command.
