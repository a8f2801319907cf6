//! Sizes of an index: named figures, and the type of the kind.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The value of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureValue {
    /// A count, or bytes, by the name of the figure.
    Number(u64),
    /// A word.
    Text(&'static str),
}

impl From<u64> for FigureValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for FigureValue {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

/// The figures of one index, in a type of its kind.
pub trait IndexFigures: Any + fmt::Debug + Send + Sync {
    /// Bytes on disk that are not in the tree of the index.
    fn disk_bytes(&self) -> u64;

    /// Bytes in memory that are not in the tree of the index, without cached blocks.
    fn memory_bytes(&self) -> u64;

    /// All figures with their names, for display.
    fn named(&self) -> Vec<(&'static str, FigureValue)>;
}

/// The figures of one index.
///
/// ```
/// use bolide_index::figures::Figures;
/// use bolide_index::NextFigures;
/// let figures = Figures::new(NextFigures::default());
/// assert_eq!(figures.get::<NextFigures>().map(|figures| figures.sstables), Some(0));
/// assert!(figures.named().iter().any(|(name, _)| *name == "index_blocks"));
/// ```
#[derive(Debug, Clone)]
pub struct Figures(Arc<dyn IndexFigures>);

impl Figures {
    /// The figures `figures`.
    pub fn new(figures: impl IndexFigures) -> Self {
        Self(Arc::new(figures))
    }

    /// The figures in the type `T` of their kind; `None` if they have another type.
    pub fn get<T: IndexFigures>(&self) -> Option<&T> {
        let figures: &dyn Any = &*self.0;
        figures.downcast_ref()
    }

    /// Bytes on disk that are not in the tree of the index.
    pub fn disk_bytes(&self) -> u64 {
        self.0.disk_bytes()
    }

    /// Bytes in memory that are not in the tree of the index, without cached blocks.
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }

    /// All figures with their names.
    pub fn named(&self) -> Vec<(&'static str, FigureValue)> {
        self.0.named()
    }
}
