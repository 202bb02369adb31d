//! Floor 4: the stack a request flows through.
