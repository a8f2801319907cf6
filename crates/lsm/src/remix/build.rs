//! Builds a REMIX by merging all of its runs.

use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_table::InternalCursor;

use super::run::ViewRun;
use super::segmenter::{Fork, InputKey, Segmenter};
use super::segments::{SegmentLayout, tag_of};
use super::selectors::MAX_RUNS;
use super::{Remix, RemixOptions};
use crate::cursor::{MergingCursor, RunCursor};

impl RemixOptions {
    /// The segment layout of a REMIX of these runs.
    pub(super) fn layout(&self, runs: &[Arc<ViewRun>]) -> Result<SegmentLayout> {
        if runs.len() > MAX_RUNS {
            return Err(Error::limit_exceeded("the runs of a REMIX", runs.len() as u64, MAX_RUNS as u64));
        }
        let width = self.width_for(runs.len());
        SegmentLayout::of_runs(width, self.tags, self.forks, runs.iter().map(|run| &**run)).ok_or_else(|| {
            let blocks = runs.iter().map(|run| run.blocks()).max().unwrap_or(0);
            Error::limit_exceeded("the data blocks of a run of a REMIX", blocks.into(), 1 << 24)
        })
    }
}

impl Remix {
    /// The REMIX of `runs`, newest first: at most [`MAX_RUNS`]. Reads all entries of all runs and bypasses the cache.
    ///
    /// # Errors
    /// `LimitExceeded` for more or larger runs than a REMIX supports; `Corruption` and `Io` from reading them.
    pub fn build(runs: &[Arc<ViewRun>], options: &RemixOptions) -> Result<Self> {
        let layout = options.layout(runs)?;
        let tags = layout.tags;
        let mut segmenter = Segmenter::new(runs, layout);
        let sources = runs.iter().map(|run| RunCursor::new(Arc::clone(run), false)).collect();
        let mut cursor = MergingCursor::new(sources);
        cursor.seek_to_first()?;
        while let Some(run) = cursor.current_source() {
            let key = cursor.key();
            if !segmenter.has_key() || segmenter.key() != key {
                let tag = if tags { tag_of(key) } else { 0 };
                segmenter.start_key(InputKey::Known(key), tag, Fork::Compared)?;
            }
            segmenter.push(run, cursor.trailer().is_delete());
            cursor.next()?;
        }
        Ok(segmenter.finish()?.0)
    }
}
