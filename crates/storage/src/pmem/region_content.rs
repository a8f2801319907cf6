//! A simulated region as the content of a file in a simulated file system.
//!
//! A copy of the disk contains the frozen region with all possible contents of its lines. A power cut selects one content per
//! line; the end of the process selects the newest.

use std::sync::Arc;

use bolide_base::{Error, Result};

use super::region::{Region, RegionOptions};
use super::simulated::CrashImage;

/// The region in a file, if the file contains one.
#[derive(Debug, Default)]
pub(crate) enum RegionContent {
    /// An ordinary file.
    #[default]
    None,
    /// An open region.
    Live(Arc<Region>),
    /// A closed region in its last state.
    Frozen(Arc<FrozenRegion>),
}

/// A region that is not open.
pub(crate) struct FrozenRegion {
    image: CrashImage,
    /// The selected content of each line; the newest for lines that are not listed.
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
        region.image().map_or(Self::None, |image| {
            Self::Frozen(Arc::new(FrozenRegion { image, choice: Vec::new(), options }))
        })
    }

    /// Opens the region; `None` if the file contains none. `options` has its expected id. Unless it is `read_only`, it is the
    /// content of the file from now on.
    pub(crate) fn open(&mut self, options: &RegionOptions, read_only: bool) -> Result<Option<Arc<Region>>> {
        let Self::Frozen(frozen) = self.clone() else { return Ok(None) };
        if frozen.options.id != options.id {
            return Err(Error::corruption(&options.name, 16, "the region is another one"));
        }
        let newest = |line: usize| frozen.image.lines.get(line).map_or(0, |(_, contents)| contents.len() - 1);
        let choice = |line: usize| frozen.choice.get(line).copied().unwrap_or_else(|| newest(line));
        let region = Arc::new(frozen.image.reopen(options, choice)?);
        if !read_only {
            *self = Self::Live(Arc::clone(&region));
        }
        Ok(Some(region))
    }

    /// The region after a power cut: `choose` selects among the number of contents of a line; 0 is the oldest.
    pub(crate) fn after_power_cut(&self, choose: &mut dyn FnMut(usize) -> usize) -> Self {
        let Self::Frozen(frozen) = self.clone() else { return Self::None };
        let lines = &frozen.image.lines;
        // The selection of an earlier power cut stays.
        let choice = lines.iter().enumerate().map(|(line, (_, contents))| {
            frozen.choice.get(line).copied().unwrap_or_else(|| choose(contents.len()))
        });
        let (choice, options) = (choice.collect(), frozen.options.clone());
        let image = CrashImage { words: frozen.image.words.clone(), lines: lines.clone() };
        Self::Frozen(Arc::new(FrozenRegion { image, choice, options }))
    }
}
