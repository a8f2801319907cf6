//! A cursor that counts its steps, for scans that must not take long.
//!
//! A [`VisibleCursor`](super::VisibleCursor) may step over any number of tombstones and invisible versions before it is on
//! an entry. Over sources of this type it fails instead, when the steps that are left are used up.

use std::cell::Cell;
use std::rc::Rc;

use bolide_base::{Error, Result, SequenceNumber, Trailer};
use bolide_table::{EntryHead, InternalCursor};

use super::ComponentCursor;

/// The units of a seek of one source. A step from one entry to the next is one unit.
const SEEK_UNITS: u64 = 8;

/// Units of work that cursors and their reader share. A clone is the same budget.
///
/// ```
/// use bolide_lsm::StepBudget;
/// let budget = StepBudget::new(10);
/// budget.spend(7)?;
/// assert!(budget.clone().spend(4).is_err() && budget.is_exhausted());
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StepBudget(Rc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    limit: u64,
    left: Cell<u64>,
    is_exhausted: Cell<bool>,
}

impl StepBudget {
    /// A budget of `limit` units.
    pub fn new(limit: u64) -> Self {
        Self(Rc::new(BudgetState { limit, left: Cell::new(limit), is_exhausted: Cell::new(false) }))
    }

    /// Takes `units`.
    ///
    /// # Errors
    /// `LimitExceeded` if less are left. The budget is then exhausted for good.
    #[inline]
    pub fn spend(&self, units: u64) -> Result<()> {
        match self.0.left.get().checked_sub(units) {
            Some(left) if !self.is_exhausted() => {
                self.0.left.set(left);
                Ok(())
            }
            _ => Err(self.exceeded()),
        }
    }

    /// Whether more was requested than was left.
    pub fn is_exhausted(&self) -> bool {
        self.0.is_exhausted.get()
    }

    #[cold]
    fn exceeded(&self) -> Error {
        self.0.is_exhausted.set(true);
        let limit = self.0.limit;
        Error::limit_exceeded("the units of work of a scan", limit.saturating_add(1), limit)
    }
}

/// A cursor over one component whose steps and seeks are taken from a budget.
#[derive(Debug)]
pub struct BudgetedCursor {
    inner: ComponentCursor,
    budget: StepBudget,
}

impl BudgetedCursor {
    pub(crate) fn new(inner: ComponentCursor, budget: StepBudget) -> Self {
        Self { inner, budget }
    }
}

impl InternalCursor for BudgetedCursor {
    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn trailer(&self) -> Trailer {
        self.inner.trailer()
    }

    fn value(&self) -> &[u8] {
        self.inner.value()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.budget.spend(SEEK_UNITS)?;
        self.inner.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.budget.spend(SEEK_UNITS)?;
        self.inner.seek_to_last()
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.budget.spend(SEEK_UNITS)?;
        self.inner.seek(key, sequence)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.budget.spend(SEEK_UNITS)?;
        self.inner.seek_before(key)
    }

    fn next(&mut self) -> Result<()> {
        self.budget.spend(1)?;
        self.inner.next()
    }

    fn next_entry(&mut self) -> Result<Option<EntryHead>> {
        self.budget.spend(1)?;
        self.inner.next_entry()
    }

    fn yields_keys_once(&self) -> bool {
        self.inner.yields_keys_once()
    }

    fn prev(&mut self) -> Result<()> {
        self.budget.spend(1)?;
        self.inner.prev()
    }
}
