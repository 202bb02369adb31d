//! Floor 1: configuration, raw text in, a valid [`Config`](self) out.
