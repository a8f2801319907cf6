//! What an index read for a query: counters with names, in a type of the kind.
//!
//! A kind declares its counters with [`index_costs!`](crate::index_costs). Its cursors report them to the
//! [`Explain`](crate::Explain) of the query as [`IndexCosts`], a list of numbers without a type parameter: no other module
//! depends on the type of a kind.

use std::fmt;

/// Maximum number of counters of a kind.
pub const MAX_COUNTERS: usize = 16;

/// The names and the display of the counters of a kind.
#[derive(Debug)]
pub struct CostsLayout {
    /// The name of the kind, unique among all layouts.
    pub kind: &'static str,
    /// The name of each counter, at most [`MAX_COUNTERS`].
    pub names: &'static [&'static str],
    /// Displays the counters in lines of text.
    pub display: fn(&[u64; MAX_COUNTERS], &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// A type with the counters of a kind as fields, made by [`index_costs!`](crate::index_costs).
pub trait CostCounters: Default {
    /// Its names and its display.
    const LAYOUT: &'static CostsLayout;

    /// The counters, in the order of their names; 0 beyond the last one.
    fn values(&self) -> [u64; MAX_COUNTERS];

    /// The type with these counters.
    fn from_values(values: &[u64; MAX_COUNTERS]) -> Self;

    /// Adds the counters of `other`.
    fn add(&mut self, other: &Self) {
        let mut sum = IndexCosts::of(self);
        sum.add(&IndexCosts::of(other));
        *self = Self::from_values(&sum.values);
    }
}

/// The counters of one index, whatever its kind is.
///
/// ```
/// use bolide_index::costs::IndexCosts;
/// use bolide_index::PsCosts;
/// let mut read = PsCosts::default();
/// read.entries = 7;
/// let costs = IndexCosts::of(&read);
/// assert_eq!((costs.kind(), costs.get::<PsCosts>().unwrap().entries), ("ps-tree", 7));
/// assert!(costs.named().any(|counter| counter == ("entries", 7)));
/// ```
#[derive(Clone, Copy)]
pub struct IndexCosts {
    layout: &'static CostsLayout,
    values: [u64; MAX_COUNTERS],
}

impl IndexCosts {
    /// The counters of `costs`.
    #[inline]
    pub fn of<T: CostCounters>(costs: &T) -> Self {
        Self { layout: T::LAYOUT, values: costs.values() }
    }

    /// The name of the kind.
    pub fn kind(&self) -> &'static str {
        self.layout.kind
    }

    /// The counters in the type of their kind; `None` if they are of another kind.
    pub fn get<T: CostCounters>(&self) -> Option<T> {
        (self.kind() == T::LAYOUT.kind).then(|| T::from_values(&self.values))
    }

    /// The counters with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.layout.names.iter().copied().zip(self.values)
    }

    /// Whether all counters are 0.
    pub fn is_zero(&self) -> bool {
        self.values == [0; MAX_COUNTERS]
    }

    /// Adds the counters of `other`, which is of the same kind.
    pub fn add(&mut self, other: &Self) {
        debug_assert_eq!(self.kind(), other.kind(), "counters of two kinds");
        for (sum, more) in self.values.iter_mut().zip(other.values) {
            *sum += more;
        }
    }
}

impl PartialEq for IndexCosts {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.values == other.values
    }
}

impl Eq for IndexCosts {}

impl fmt::Debug for IndexCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_struct(self.kind());
        self.named().for_each(|(name, value)| _ = map.field(name, &value));
        map.finish()
    }
}

impl fmt::Display for IndexCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.layout.display)(&self.values, f)
    }
}

/// Declares the counters of an index kind: a struct of `u64` fields that implements
/// [`CostCounters`](crate::costs::CostCounters). The kind implements [`Display`](std::fmt::Display) for it: lines of text, of
/// which each ends with a line break.
///
/// ```
/// use std::fmt;
/// bolide_index::index_costs! {
///     /// What queries on an index of kind `list` read.
///     pub struct ListCosts for "list" {
///         /// Entries.
///         entries,
///     }
/// }
/// impl fmt::Display for ListCosts {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         writeln!(f, "list          {} entries", self.entries)
///     }
/// }
/// let costs = bolide_index::costs::IndexCosts::of(&ListCosts { entries: 3 });
/// assert_eq!(costs.to_string(), "list          3 entries\n");
/// ```
#[macro_export]
macro_rules! index_costs {
    ($(#[$about:meta])* $vis:vis struct $name:ident for $kind:literal {
        $($(#[$field_about:meta])* $field:ident,)+
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$field_about])* pub $field: u64,)+
        }

        impl $crate::costs::CostCounters for $name {
            const LAYOUT: &'static $crate::costs::CostsLayout = &$crate::costs::CostsLayout {
                kind: $kind,
                names: &[$(stringify!($field)),+],
                display: |values, f| {
                    let costs = <$name as $crate::costs::CostCounters>::from_values(values);
                    ::std::fmt::Display::fmt(&costs, f)
                },
            };

            #[inline]
            fn values(&self) -> [u64; $crate::costs::MAX_COUNTERS] {
                const { assert!([$(stringify!($field)),+].len() <= $crate::costs::MAX_COUNTERS) };
                let counters = [$(self.$field),+];
                let mut values = [0; $crate::costs::MAX_COUNTERS];
                values[..counters.len()].copy_from_slice(&counters);
                values
            }

            fn from_values(values: &[u64; $crate::costs::MAX_COUNTERS]) -> Self {
                let mut values = values.iter().copied();
                Self { $($field: values.next().unwrap_or(0),)+ }
            }
        }
    };
}
