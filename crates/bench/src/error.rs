//! The error of the bench: any failure ends it with a message.

/// Any failure.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a fallible function of the bench.
pub type Result<T> = std::result::Result<T, Error>;
