//! Settings of sessions.

use std::path::PathBuf;

/// Settings of a session.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Memory for sorts, joins and aggregates, in bytes; beyond it they use files. Default: 256 MiB.
    pub memory_bytes: Option<usize>,
    /// The directory of these files. Default: that of the system.
    pub temp_dir: Option<PathBuf>,
    /// Threads of one statement. Default: those of the machine.
    pub partitions: Option<usize>,
}

impl SessionOptions {
    /// Sets the memory for sorts, joins and aggregates.
    ///
    /// ```
    /// assert_eq!(bolide_sql::SessionOptions::default().memory_bytes(1 << 20).memory_bytes, Some(1 << 20));
    /// ```
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Sets the threads of one statement.
    ///
    /// ```
    /// assert_eq!(bolide_sql::SessionOptions::default().partitions(1).partitions, Some(1));
    /// ```
    #[must_use]
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = Some(partitions.max(1));
        self
    }
}
