//! The reader on short logs.
