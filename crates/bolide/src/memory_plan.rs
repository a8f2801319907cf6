//! The memory budget of a database, and the shares of its caches and memtables.
//!
//! ```text
//! budget      memory_bytes, or a quarter of the memory of the machine or its control group, at least 64 MiB
//! caches      cache_bytes, or a quarter of the budget, at most 128 MiB
//! memtables   memtable_bytes, or a sixteenth of the budget, at most 64 MiB: one set that writers fill, and several full ones
//! the rest    indexes in memory, sorted views, filters, queries, compactions: see `bolide_memory::MemoryBudget`
//! ```

use bolide_base::{Error, Result};

use crate::options::Options;

/// The smallest default budget.
const MIN_DEFAULT_BYTES: u64 = 64 << 20;
/// The smallest budget.
const MIN_BYTES: u64 = 1 << 20;
/// The default budget on a machine of unknown size.
const UNKNOWN_MACHINE_BYTES: u64 = 1 << 30;
/// The default budget is this part of the machine.
const MACHINE_DIVISOR: u64 = 4;
/// The largest default of the caches, and their part of a smaller budget.
const MAX_CACHE_BYTES: usize = 128 << 20;
const CACHE_DIVISOR: u64 = 4;
/// The largest default of the writable memtables, and their part of a smaller budget.
const MAX_MEMTABLE_BYTES: usize = 64 << 20;
const MEMTABLE_DIVISOR: u64 = 16;
/// The smallest default of the writable memtables.
const MIN_MEMTABLE_BYTES: usize = 64 << 10;
/// The row cache gets this fraction of the cache bytes.
const ROW_CACHE_FRACTION: usize = 16;

/// The memory of an open database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// The limit for everything.
    pub(crate) budget_bytes: u64,
    /// The block cache.
    pub(crate) block_cache_bytes: u64,
    /// The row cache.
    pub(crate) row_cache_bytes: usize,
    /// The writable memtables.
    pub(crate) memtable_bytes: usize,
}

impl MemoryPlan {
    /// The plan for `options` on a machine, or in a control group, of `machine_bytes`; 0 if that is unknown.
    ///
    /// # Errors
    /// `InvalidInput` for a budget that is too small, or smaller than the caches and memtables that the options require.
    pub(crate) fn new(options: &Options, machine_bytes: u64) -> Result<Self> {
        let caches = options.cache_bytes.unwrap_or(0) as u64;
        let memtables = options.memtable_bytes.unwrap_or(0) as u64;
        let budget_bytes = match options.memory_bytes {
            Some(bytes) => checked(bytes as u64, caches, memtables)?,
            None => {
                let default = match machine_bytes {
                    0 => UNKNOWN_MACHINE_BYTES,
                    bytes => (bytes / MACHINE_DIVISOR).max(MIN_DEFAULT_BYTES),
                };
                // A size that the program sets has precedence over a default.
                let generations = options.max_immutable_memtables as u64;
                let memtables = memtables.saturating_mul(generations.saturating_add(2));
                let required = caches.saturating_add(memtables).saturating_add(MIN_DEFAULT_BYTES);
                default.max(required)
            }
        };
        let share =
            |divisor: u64, max: usize| usize::try_from(budget_bytes / divisor).unwrap_or(usize::MAX).min(max);
        let cache_bytes = options.cache_bytes.unwrap_or_else(|| share(CACHE_DIVISOR, MAX_CACHE_BYTES));
        let row_cache_bytes =
            options.row_cache_bytes.unwrap_or(cache_bytes / ROW_CACHE_FRACTION).min(cache_bytes);
        Ok(Self {
            budget_bytes,
            block_cache_bytes: (cache_bytes - row_cache_bytes) as u64,
            row_cache_bytes,
            memtable_bytes: options
                .memtable_bytes
                .unwrap_or_else(|| share(MEMTABLE_DIVISOR, MAX_MEMTABLE_BYTES).max(MIN_MEMTABLE_BYTES)),
        })
    }
}

/// The budget that the program sets.
fn checked(budget: u64, caches: u64, memtables: u64) -> Result<u64> {
    if budget < MIN_BYTES {
        let what = format!("`memory_bytes` is {budget}; the minimum is {MIN_BYTES}");
        return Err(Error::invalid_input(what));
    }
    // One set of memtables is filled while another one is flushed.
    let required = caches.saturating_add(memtables.saturating_mul(2));
    if required > budget {
        return Err(Error::invalid_input(format!(
            "`memory_bytes` is {budget}; `cache_bytes` ({caches}) and twice `memtable_bytes` ({memtables}) do not fit into \
             it: raise it, or lower them"
        )));
    }
    Ok(budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: &Options, machine_bytes: u64) -> MemoryPlan {
        MemoryPlan::new(options, machine_bytes).unwrap()
    }

    #[test]
    fn the_default_budget_is_a_quarter_of_the_machine() {
        let large = plan(&Options::default(), 16 << 30);
        assert_eq!((large.budget_bytes, large.memtable_bytes), (4 << 30, 64 << 20));
        assert_eq!(large.block_cache_bytes + large.row_cache_bytes as u64, 128 << 20);
        let small = plan(&Options::default(), 100 << 20);
        assert_eq!((small.budget_bytes, small.memtable_bytes), (64 << 20, 4 << 20));
        assert_eq!((small.block_cache_bytes, small.row_cache_bytes), (15 << 20, 1 << 20));
        assert_eq!(plan(&Options::default(), 0).budget_bytes, 1 << 30);
    }

    #[test]
    fn sizes_that_the_program_sets_have_precedence() {
        let options = Options::default().cache_bytes(1 << 30).memtable_bytes(100 << 20);
        let raised = plan(&options, 1 << 30);
        assert_eq!((raised.block_cache_bytes, raised.row_cache_bytes), ((1 << 30) - (64 << 20), 64 << 20));
        assert_eq!((raised.memtable_bytes, raised.budget_bytes), (100 << 20, (1 << 30) + (564 << 20)));
        let all = usize::MAX;
        let limitless =
            plan(&Options::default().cache_bytes(all).row_cache_bytes(all).memtable_bytes(all), 1);
        assert_eq!((limitless.budget_bytes, limitless.memtable_bytes), (u64::MAX, all));
        assert_eq!((limitless.block_cache_bytes, limitless.row_cache_bytes), (0, all));
    }

    #[test]
    fn a_budget_that_is_too_small_names_the_sizes() {
        let tiny = plan(&Options::default().memory_bytes(1 << 20), 1 << 30);
        assert_eq!((tiny.budget_bytes, tiny.memtable_bytes), (1 << 20, 64 << 10));
        for (options, words) in [
            (Options::default().memory_bytes((1 << 20) - 1), &["1048575", "1048576"][..]),
            (Options::default().memory_bytes(64 << 20).cache_bytes(65 << 20), &["cache_bytes", "68157440"]),
            (Options::default().memory_bytes(64 << 20).memtable_bytes(33 << 20), &["memtable_bytes"]),
        ] {
            let error = MemoryPlan::new(&options, 1 << 30).unwrap_err();
            assert_eq!(error.kind(), bolide_base::ErrorKind::InvalidInput);
            assert!(words.iter().all(|word| error.message().contains(word)), "{error}");
        }
    }
}
