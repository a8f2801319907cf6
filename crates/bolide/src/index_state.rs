//! The state of an index.

/// The state of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexState {
    /// Writes maintain it, but the earlier records are still being added. Queries do not use it yet.
    Building,
    /// Complete: queries use it.
    Ready,
    /// A record could not be indexed, so the build stopped. Writes still maintain it; queries do not use it. Fix the
    /// record and rebuild the index, or drop it.
    Failed,
    /// Its files are damaged or missing. Queries do not use it; reads and writes of records are not affected. The next
    /// opening for writing rebuilds it from the records; so does an explicit rebuild.
    Damaged,
}

impl IndexState {
    /// The name of the state in lists.
    ///
    /// ```
    /// assert_eq!(bolide::IndexState::Ready.name(), "ready");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Damaged => "damaged",
        }
    }
}
