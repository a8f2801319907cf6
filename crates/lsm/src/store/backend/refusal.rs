//! When an opening that the memory budget refused is attempted again.
//!
//! An opening may read the whole external tree before it is refused. So it is attempted again when the budget could grant what
//! the refused one needed. That may be too little: an opening may request memory in steps, and the budget overestimates what
//! pinned blocks of a cache would release. Each attempt that fails although the memory seemed sufficient raises the next
//! threshold. A threshold that is too high is bounded by the number of calls in between, which doubles with each refusal.

use bolide_base::Error;

/// Calls without an attempt after the first refusal, and at most.
const MIN_CALLS: u64 = 64;
const MAX_CALLS: u64 = 1 << 16;

/// An opening that the memory budget did not allow.
#[derive(Debug)]
pub(super) struct Refusal {
    error: Error,
    /// Attempted again if the budget can grant these bytes,
    retry_bytes: u64,
    /// or after these calls.
    retry_calls: u64,
    calls: u64,
    /// Attempts that failed although the budget could grant `retry_bytes`.
    wrong_estimates: u32,
    /// The last attempt is because of `retry_bytes`.
    is_by_bytes: bool,
}

impl Refusal {
    /// A refusal with `error` of an opening that needs at least `needed_bytes`, after it gave back its memory: `grantable_bytes`
    /// can be granted. `before` is the previous one.
    pub(super) fn new(error: Error, needed_bytes: u64, grantable_bytes: u64, before: Option<&Self>) -> Self {
        let wrong_estimates =
            before.map_or(0, |before| before.wrong_estimates + u32::from(before.is_by_bytes));
        let margin = match wrong_estimates {
            0 => 0,
            1 => needed_bytes / 8,
            _ => needed_bytes / 4,
        };
        Self {
            error,
            retry_bytes: needed_bytes.max(grantable_bytes).saturating_add(margin),
            retry_calls: before.map_or(MIN_CALLS, |before| (2 * before.retry_calls).min(MAX_CALLS)),
            calls: 0,
            wrong_estimates,
            is_by_bytes: false,
        }
    }

    /// The error of the refused opening.
    pub(super) fn error(&self) -> &Error {
        &self.error
    }

    /// Counts a call, while `grantable_bytes` can be granted. Returns whether it shall attempt the opening.
    pub(super) fn is_over(&mut self, grantable_bytes: u64) -> bool {
        self.calls += 1;
        let is_by_bytes = grantable_bytes >= self.retry_bytes;
        let is_due = is_by_bytes || self.calls > self.retry_calls;
        if is_due {
            // A call beside the attempt must not change its reason.
            self.is_by_bytes = is_by_bytes;
            if !is_by_bytes {
                // Other calls do not wait for this attempt.
                self.calls = 0;
            }
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(needed: u64, grantable: u64, before: Option<&Refusal>) -> Refusal {
        Refusal::new(Error::memory_refused("no memory", needed), needed, grantable, before)
    }

    #[test]
    fn an_opening_is_attempted_when_its_memory_can_be_granted() {
        let mut refusal = refused(1_000, 400, None);
        assert!(!refusal.is_over(999));
        assert!(refusal.is_over(1_000));
        // Also if more could be granted at an earlier refusal.
        let mut later = refused(1_000, 200, Some(&refused(1_000, 900, None)));
        assert!(!later.is_over(999) && later.is_over(1_000));
    }

    #[test]
    fn few_openings_are_refused_while_the_memory_grows_in_small_steps() {
        const NEEDED: u64 = 100 << 20;
        let mut grantable = 10 << 20;
        let (mut refusal, mut attempts) = (refused(grantable + 1, grantable, None), 1);
        // Each attempt needs one byte more than there is.
        while grantable < NEEDED {
            grantable += 64 << 10;
            refusal.calls = 0;
            if refusal.is_over(grantable) {
                attempts += 1;
                refusal = refused(grantable + 1, grantable, Some(&refusal));
            }
        }
        assert!(attempts < 16, "{attempts}");
        assert!((0..480).any(|step| refusal.is_over(NEEDED + (step << 16))), "at most a quarter more");
    }

    #[test]
    fn a_call_beside_an_attempt_does_not_hide_its_wrong_estimate() {
        let mut refusal = refused(1_000, 400, None);
        assert!(refusal.is_over(1_000), "an attempt by bytes");
        assert!(!refusal.is_over(900), "another call, while the attempt uses memory");
        let mut later = refused(1_000, 900, Some(&refusal));
        assert!(!later.is_over(1_124) && later.is_over(1_125), "an eighth more");
    }

    /// Blocks that were pinned are not any more: the estimate does not change.
    #[test]
    fn an_opening_is_attempted_after_a_number_of_calls_at_last() {
        let mut refusal = refused(1_000, 5_000, None);
        for attempt in 0..20 {
            let calls = (1..=MAX_CALLS + 1).find(|_| refusal.is_over(4_000)).expect("an attempt");
            assert_eq!(calls, (MIN_CALLS << attempt).min(MAX_CALLS) + 1, "attempt {attempt}");
            assert!(!refusal.is_over(4_000), "one call attempts it");
            refusal = refused(1_000, 5_000, Some(&refusal));
            assert_eq!(refusal.retry_bytes, 5_000, "only wrong estimates raise the threshold");
        }
    }
}
