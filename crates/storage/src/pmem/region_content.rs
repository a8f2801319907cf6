//! A simulated region as the content of a file in a simulated file system.
//!
//! A copy of the disk has the region frozen, with all contents that its lines may have; a power cut chooses among them,
//! and the end of the process leaves the newest.

use std::sync::Arc;

use bolide_base::{Error, Result};

use super::region::{Region, RegionOptions};
use super::simulated::CrashImage;

/// The region in a file, if the file is one.
#[derive(Debug, Default)]
pub(crate) enum RegionContent {
    /// An ordinary file.
    #[default]
    None,
    /// In use.
    Live(Arc<Region>),
    /// As somebody left it.
    Frozen(Arc<FrozenRegion>),
}

/// A region that nobody uses.
pub(crate) struct FrozenRegion {
    image: CrashImage,
    /// Which of its contents each line has; the newest where it is not listed.
    choice: Vec<usize>,
    options: RegionOptions,
}

impl std::fmt::Debug for FrozenRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a region of {} words", self.image.words.len())
    }
}

impl Clone for RegionContent {
    fn clone(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Live(region) => Self::freeze(region),
            Self::Frozen(frozen) => Self::Frozen(Arc::clone(frozen)),
        }
    }
}

impl RegionContent {
    /// A new, empty region.
    pub(crate) fn create(options: RegionOptions) -> Result<(Self, Arc<Region>)> {
        let region = Arc::new(Region::simulated(options)?);
        Ok((Self::Live(Arc::clone(&region)), region))
    }

    fn freeze(region: &Region) -> Self {
        let options = region.creation_options();
        region
            .image()
            .map_or(Self::None, |image| Self::Frozen(Arc::new(FrozenRegion { image, choice: Vec::new(), options })))
    }

    /// The region, as the next to open it finds it; `None` if the file is none. `options` has the id that it must
    /// have. Unless it is only `looked_at`, it is the content from now on.
    pub(crate) fn open(&mut self, options: &RegionOptions, looked_at: bool) -> Result<Option<Arc<Region>>> {
        let Self::Frozen(frozen) = self.clone() else { return Ok(None) };
        if frozen.options.id != options.id {
            return Err(Error::corruption(&options.name, 16, "the region is another one"));
        }
        let newest = |line: usize| frozen.image.lines.get(line).map_or(0, |(_, contents)| contents.len() - 1);
        let choice = |line: usize| frozen.choice.get(line).copied().unwrap_or_else(|| newest(line));
        let region = Arc::new(frozen.image.reopen(options, choice)?);
        if !looked_at {
            *self = Self::Live(Arc::clone(&region));
        }
        Ok(Some(region))
    }

    /// What a power cut leaves of it: `choose` says which of so many contents a line has, the oldest being 0.
    pub(crate) fn after_power_cut(&self, choose: &mut dyn FnMut(usize) -> usize) -> Self {
        let Self::Frozen(frozen) = self.clone() else { return Self::None };
        let lines = &frozen.image.lines;
        // What was chosen by an earlier cut holds.
        let choice = lines.iter().enumerate().map(|(line, (_, contents))| {
            frozen.choice.get(line).copied().unwrap_or_else(|| choose(contents.len()))
        });
        let (choice, options) = (choice.collect(), frozen.options.clone());
        let image = CrashImage { words: frozen.image.words.clone(), lines: lines.clone() };
        Self::Frozen(Arc::new(FrozenRegion { image, choice, options }))
    }
}
