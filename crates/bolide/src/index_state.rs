//! Where an index stands in its life.

/// Where an index stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexState {
    /// Writes maintain it, but the records that were there before are still being added. Queries do
    /// not use it yet.
    Building,
    /// Complete: queries use it.
    Ready,
    /// A record could not be indexed, so it was given up. Writes maintain it still; queries do not use it. Fix the record
    /// and rebuild the index, or drop it.
    Failed,
    /// Its files are damaged or missing. Queries do not use it; records are read and written as before. It is rebuilt from
    /// the records by the next opening for writing, or by a rebuild.
    Damaged,
}

impl IndexState {
    /// The word for it in lists.
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
