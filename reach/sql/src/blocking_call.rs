//! Calls of the engine, which block, from asynchronous code.

use crate::error::{Result, SqlError};

/// Runs `work` on a thread that may block.
///
/// # Errors
/// If `work` panics, or the runtime ends.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SqlError::internal(format!("a call of the engine: {error}")))
}
