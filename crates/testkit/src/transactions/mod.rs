//! Transactions by several threads: their histories have no anomaly.
//!
//! Threads run random transactions on few records and record what each reads and writes: single records, ranges in both
//! directions, groups by a query through an index, lists to which they append, records that they replace without reading
//! them, and writes that they roll back. Beside them, one thread writes without transactions, one reads everything, flushes, and
//! one cuts the power on copies of the disk. The checker then proves the history serializable, or with snapshot
//! isolation free of the anomalies that it excludes.
//!
//! Threads are real, so a seed does not repeat a run: it only chooses the setup and the load.

mod checker;
mod cycles;
mod recorded;
mod run;

use std::sync::Arc;

use bolide::{Isolation, TransactionFlaw};
use bolide_storage::{SimRng, SimVfs};

use self::cycles::Proscribed;
use self::run::TransactionRun;
use crate::kinds;
use crate::rule::Rule;
use crate::seeds::{Counts, Outcome};
use crate::setup::{DATABASE, Setup};

/// Options of a history of transactions.
#[derive(Debug, Clone, Copy)]
pub struct HistoryOfTransactions {
    /// Transactions of each thread.
    pub transactions: u64,
    /// Power cuts on copies of the disk.
    pub cuts: u64,
    /// A planted mistake, which the checker must find.
    pub planted: Option<TransactionFlaw>,
}

impl Default for HistoryOfTransactions {
    fn default() -> Self {
        Self { transactions: 30, cuts: 2, planted: None }
    }
}

/// Runs 2 to 8 threads of transactions and checks their history.
pub fn check(seed: u64, options: HistoryOfTransactions) -> Outcome<Counts> {
    let mut rng = SimRng::new(seed);
    let mut setup = Setup { threads: 1 + rng.below(2) as usize, ..Setup::random(&mut rng) };
    // A record of few recent commits refuses most transactions: only some runs have one.
    if options.planted != Some(TransactionFlaw::IgnoresRemoved) && !rng.one_in(8) {
        setup.memtable_bytes = setup.memtable_bytes.max(64 << 10);
    }
    let isolation = if seed % 4 == 3 { Isolation::Snapshot } else { Isolation::Serializable };
    let threads = 2 + rng.below(7) as usize;
    let kind = kinds::any(&mut rng);
    let context = |what: String| format!("{setup}, {threads} threads, {isolation:?}, {kind}: {what}");
    let disk = SimVfs::new(seed);
    let components = setup.components(Arc::new(disk.clone()), seed).transaction_flaw(options.planted);
    let open = || {
        let db = bolide::Db::open_with(DATABASE, setup.options(), components)?;
        let index = format!("group=g:{kind}").parse()?;
        let records = db.create_collection("records", setup.collection_options().index(index))?;
        Ok((db, records))
    };
    let (db, records) = open().map_err(|error: bolide::Error| context(format!("{error:?}")))?;
    let run = TransactionRun {
        db,
        records,
        disk,
        setup,
        isolation,
        clock: Default::default(),
        writes: Default::default(),
        synced: Default::default(),
        done: Default::default(),
        history: Default::default(),
    };
    run.run(threads, options.transactions, options.cuts, &mut rng).map_err(context)?;
    let history = run.history.into_inner().unwrap_or_else(|poison| poison.into_inner());
    let proscribed = match isolation {
        Isolation::Snapshot => Proscribed::Single,
        _ => Proscribed::All,
    };
    checker::check(&history, proscribed).map_err(context)
}

/// The rule that a planted mistake breaks, and the texts of which the failure contains one.
pub fn expected(flaw: TransactionFlaw) -> (&'static [Rule], &'static [&'static str]) {
    let texts: &[&str] = match flaw {
        TransactionFlaw::StaleOwnWrites => &["not its own write", "twice"],
        TransactionFlaw::SkipsKeys => &["lost update", "G-single", "G2-item"],
        // A list that was read by a cursor or a query, and then written, may lose an update too.
        TransactionFlaw::SkipsRanges | TransactionFlaw::SkipsPredicates => {
            &["lost update", "G-single", "G2:"]
        }
        _ => &["lost update", "G-single", "G2-item", "G2:"],
    };
    (&[Rule::Isolated], texts)
}
