//! Simulated regions, which model the outcomes of a power cut on persistent memory.

use std::fmt;
use std::sync::Arc;

use bolide_base::Result;

use super::layout::{EXTENT_BYTES, Place, extent_of};
use super::line_model::{LineContent, LineModel};
use super::region::{Backing, Region, RegionOptions};
use super::sync::Ordering;
use crate::SimRng;

/// With at most this many lines that are not durable, all subsets of them are enumerated.
const ENUMERATED_LINES: usize = 12;
/// The number of samples with more lines.
const SAMPLES: u64 = 1_000;

impl Region {
    /// A new, empty region that behaves like persistent memory and can report the outcomes of a power cut. Slow.
    ///
    /// ```
    /// use bolide_storage::pmem::{Region, RegionOptions};
    /// let region = Region::simulated(RegionOptions::new())?;
    /// let writer = region.writer();
    /// let at = writer.allocate(64)?;
    /// writer.store(at, 1)?;
    /// writer.persist(at, 8)?;
    /// writer.fence();
    /// writer.store(at, 2)?;
    /// let mut values: Vec<u64> = Vec::new();
    /// for outcome in region.crash_outcomes(1) {
    ///     values.push(outcome.reopen()?.load(at)?);
    /// }
    /// values.sort();
    /// values.dedup();
    /// assert_eq!(values, [1, 2]);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSpace` if the system refuses memory.
    pub fn simulated(options: RegionOptions) -> Result<Self> {
        Self::new_with(&options, Backing::Simulated(LineModel::default()))
    }

    /// Sets the hook that runs before each fence of this simulated region, when the number of lines that are not durable is
    /// largest; `None` removes it. The hook may read the region and call [`crash_outcomes`](Self::crash_outcomes); it must
    /// neither write nor read statistics. No effect on other regions.
    pub fn set_fence_hook(&self, hook: Option<Arc<dyn Fn() + Send + Sync>>) {
        if let Backing::Simulated(model) = &self.backing {
            model.set_hook(hook);
        }
    }

    /// The outcomes of a power cut of this simulated region now. With at most 12 lines that are not durable, all subsets of them
    /// survive in turn, the other lines having their last durable content. With more lines there are 1,000 samples by the seed.
    /// If lines have intermediate contents, half as many samples again, and at least 16, use any of these contents.
    ///
    /// Empty for other regions.
    pub fn crash_outcomes(&self, seed: u64) -> CrashOutcomes {
        let Some(image) = self.image() else { return CrashOutcomes::none() };
        let lines = &image.lines;
        let subsets = match lines.len() {
            count if count <= ENUMERATED_LINES => 1 << count,
            _ => SAMPLES,
        };
        let in_between = lines.iter().any(|(_, contents)| contents.len() > 2);
        CrashOutcomes {
            image: Arc::new(image),
            rng: SimRng::new(seed),
            options: self.creation_options(),
            next: 0,
            subsets,
            total: subsets + if in_between { (subsets / 2).max(16) } else { 0 },
        }
    }

    /// The possible contents after a power cut; `None` unless the region is simulated.
    pub(super) fn image(&self) -> Option<CrashImage> {
        let Backing::Simulated(model) = &self.backing else { return None };
        let (words, lines) = model.unflushed(|| self.words_below_mark());
        Some(CrashImage { words, lines })
    }

    /// The options of the region's creation.
    pub(super) fn creation_options(&self) -> RegionOptions {
        let limit = self.table.limit() as u64 * EXTENT_BYTES as u64;
        RegionOptions::new().id(self.id()).name(self.name()).limit_bytes(limit)
    }

    fn words_below_mark(&self) -> Vec<u64> {
        let end = self.own(super::layout::MARK_AT) / 8;
        (0..end).map_while(|index| self.table.word(8 * index)).map(super::word::Word::get).collect()
    }
}

/// A region at the moment of a power cut.
pub(super) struct CrashImage {
    /// All words below the mark as the processor sees them.
    pub(super) words: Vec<u64>,
    /// The lines with several possible contents.
    pub(super) lines: Vec<(Place, Vec<LineContent>)>,
}

/// The outcomes of a power cut; see [`Region::crash_outcomes`].
pub struct CrashOutcomes {
    image: Arc<CrashImage>,
    rng: SimRng,
    options: RegionOptions,
    next: u64,
    subsets: u64,
    total: u64,
}

impl CrashOutcomes {
    fn none() -> Self {
        Self {
            image: Arc::new(CrashImage { words: Vec::new(), lines: Vec::new() }),
            rng: SimRng::new(0),
            options: RegionOptions::new(),
            next: 0,
            subsets: 0,
            total: 0,
        }
    }

    /// The number of lines that were not durable.
    pub fn lines(&self) -> usize {
        self.image.lines.len()
    }

    /// A random outcome: every line has one of its contents.
    pub fn sample(&mut self) -> CrashOutcome {
        let lines = &self.image.lines;
        let choice =
            lines.iter().map(|(_, contents)| self.rng.below(contents.len() as u64) as usize).collect();
        self.outcome(choice)
    }

    fn outcome(&self, choice: Vec<usize>) -> CrashOutcome {
        CrashOutcome { image: Arc::clone(&self.image), options: self.options.clone(), choice }
    }
}

impl Iterator for CrashOutcomes {
    type Item = CrashOutcome;

    fn next(&mut self) -> Option<CrashOutcome> {
        if self.next == self.total {
            return None;
        }
        let number = self.next;
        self.next += 1;
        if number >= self.subsets {
            return Some(self.sample());
        }
        let lines = &self.image.lines;
        let enumerated = lines.len() <= ENUMERATED_LINES;
        // Few, half or most of the lines survive.
        let one_in = 1 + number % 4;
        let is_inverted = number % 8 >= 4;
        let choice = (0..).zip(lines).map(|(index, (_, contents))| {
            let written = match enumerated {
                true => number >> index & 1 == 1,
                false => self.rng.one_in(one_in) != is_inverted,
            };
            if written { contents.len() - 1 } else { 0 }
        });
        let choice = choice.collect();
        Some(self.outcome(choice))
    }
}

impl fmt::Debug for CrashOutcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} outcomes for {} lines", self.total, self.lines())
    }
}

/// One outcome of a power cut. Its `Debug` text contains the content index of each line that was not durable.
pub struct CrashOutcome {
    image: Arc<CrashImage>,
    options: RegionOptions,
    choice: Vec<usize>,
}

impl CrashOutcome {
    /// The region at the next boot, simulated again. Its free space is unknown: no space below the high-water mark is allocated
    /// before it is [reclaimed](Region::reclaim).
    ///
    /// # Errors
    /// `Corruption` if the header page is damaged, which is a bug; `NoSpace` if memory is short.
    pub fn reopen(&self) -> Result<Region> {
        self.image.reopen(&self.options, |line| self.choice.get(line).copied().unwrap_or(0))
    }
}

impl CrashImage {
    /// The region with the content of each line that `choice` selects by the line's index.
    pub(super) fn reopen(&self, options: &RegionOptions, choice: impl Fn(usize) -> usize) -> Result<Region> {
        let region = Region::without_extents(options, Backing::Simulated(LineModel::default()));
        let last = self.words.len().saturating_sub(1) as Place * 8;
        while region.table.len() <= extent_of(last) {
            region.table.grow(|index| region.extent_memory(index))?;
        }
        for (index, &value) in self.words.iter().enumerate().filter(|(_, value)| **value != 0) {
            if let Some(word) = region.table.word(8 * index as Place) {
                word.0.store(value, Ordering::Relaxed);
            }
        }
        for (line, (place, contents)) in self.lines.iter().enumerate() {
            let words = region.table.words(*place, contents[0].len()).unwrap_or_default();
            for (word, &value) in words.iter().zip(contents.get(choice(line)).into_iter().flatten()) {
                word.0.store(value, Ordering::Relaxed);
            }
        }
        region.recover(options.id)?;
        Ok(region)
    }
}

impl fmt::Debug for CrashOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.image.lines.iter().zip(&self.choice);
        f.debug_map()
            .entries(lines.map(|((place, contents), choice)| {
                (place, format!("content {choice} of 0..={}", contents.len() - 1))
            }))
            .finish()
    }
}
