//! Planted mistakes of transactions, for the test kit.

/// A mistake of the checks of transactions, or of their reads, which the test kit must detect.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionFlaw {
    /// Keys that were read are not validated.
    SkipsKeys,
    /// Ranges that were scanned are not validated.
    SkipsRanges,
    /// Predicates of queries are not validated.
    SkipsPredicates,
    /// Commits that are applied and not published are not validated.
    ValidatesPublished,
    /// Commits of one write are not recorded.
    SkipsSingleWrites,
    /// Only commits of the same group are validated.
    OnlyCommitGroup,
    /// Queries also return the records of the snapshot that the transaction has replaced.
    StaleOwnWrites,
    /// Expectations of batches are not checked. Not a mistake of transactions.
    SkipsExpectations,
    /// A record of recent commits without the needed commits counts as one without conflicts.
    IgnoresRemoved,
}

impl TransactionFlaw {
    /// All flaws of transactions.
    pub const EACH: [Self; 8] = [
        Self::SkipsKeys,
        Self::SkipsRanges,
        Self::SkipsPredicates,
        Self::ValidatesPublished,
        Self::SkipsSingleWrites,
        Self::OnlyCommitGroup,
        Self::StaleOwnWrites,
        Self::IgnoresRemoved,
    ];
}
