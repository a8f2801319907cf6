//! Any failure ends the bench with its message.

/// Any failure.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Result of anything here.
pub type Result<T> = std::result::Result<T, Error>;
