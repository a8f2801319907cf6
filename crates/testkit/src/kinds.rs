//! The list of the kinds of index, and random specifications out of it.
//!
//! The list is here and nowhere else: the conformance suite, the random histories and the runs with threads
//! all take theirs from it. A kind that the library refuses as not available in this version is left out by
//! that very refusal, and takes part from the moment on when it is not refused.

use std::sync::{Arc, LazyLock};

use bolide::{CollectionOptions, Components, Db, ErrorKind, Options};
use bolide_storage::SimRng;

use crate::value::is_spatial;

/// Kinds with their options, as a specification has them behind its attributes, that must be available.
pub const IMPLEMENTED: [&str; 37] = [
    "composite",
    "composite:maintenance=synchronous",
    "composite:include=pad",
    "composite:include=pad,maintenance=synchronous",
    "composite:validation=get-lite",
    "composite:validation=key-index",
    "composite:repair=primary-compaction",
    "composite:order=primary-key,repair=primary-compaction",
    "composite:order=primary-key",
    "composite:order=primary-key,maintenance=synchronous",
    "lazy",
    "lazy:maintenance=synchronous",
    "lazy:validation=get-lite",
    "lazy:validation=key-index",
    "lazy:include=pad",
    "lazy:repair=primary-compaction",
    "eager",
    "eager:maintenance=synchronous",
    "eager:split=off",
    "eager:split=off,maintenance=synchronous",
    "eager:validation=get-lite",
    "eager:validation=key-index",
    "eager:include=pad",
    "eager:include=pad,maintenance=synchronous",
    "eager:repair=primary-compaction",
    "eager:split=off,repair=primary-compaction",
    "embedded",
    "embedded:bloom_bits=1",
    "next",
    "next:block_bytes=64",
    "next:block_bytes=300,delta=3",
    "ps-tree",
    "ps-tree:include=pad",
    "ps-tree:page_bytes=512",
    "ps-tree:skey=trie",
    "ps-tree:region=dax",
    "ps-tree:region=dax,skey=trie,include=pad",
];

/// Kinds and options that take part as soon as they are not refused.
pub const PLANNED: [&str; 0] = [];

/// The attributes that indexes of random histories are on.
pub const ATTRIBUTES: [&str; 7] = ["a", "n.x", "tags[*]", "s", "s+n.x", "rect(areas)", "point(p.x,p.y)"];

/// All kinds that are not refused.
pub fn available() -> &'static [&'static str] {
    static AVAILABLE: LazyLock<Vec<&str>> = LazyLock::new(|| {
        IMPLEMENTED.into_iter().chain(PLANNED).filter(|kind| is_available(&format!("i=a:{kind}"))).collect()
    });
    &AVAILABLE
}

/// Which kinds a run draws its indexes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindChoice(Option<&'static str>);

impl KindChoice {
    /// Those called `name`, with all their options: `ps-tree`, for example. `None` if there are none.
    pub fn only(name: &str) -> Option<Self> {
        let mut names = IMPLEMENTED.into_iter().map(family);
        names.find(|family| *family == name).map(|family| Self(Some(family)))
    }

    fn has(self, kind: &str) -> bool {
        self.0.is_none_or(|name| family(kind) == name)
    }
}

/// A kind without its options.
fn family(kind: &str) -> &str {
    kind.split(':').next().unwrap_or(kind)
}

/// The kinds that an index on these attributes of [`ATTRIBUTES`] can have.
fn kinds_of(attributes: usize) -> &'static [&'static str] {
    static TABLE: LazyLock<Vec<Vec<&str>>> = LazyLock::new(|| {
        let usable = |attributes: &str| {
            let usable =
                |kind: &&str| can_be_on(kind, attributes) && is_available(&format!("i={attributes}:{kind}"));
            available().iter().copied().filter(usable).collect()
        };
        ATTRIBUTES.into_iter().map(usable).collect()
    });
    TABLE.get(attributes).map_or(&[], Vec::as_slice)
}

/// Whether a kind keeps values of these attributes: those of places are for one kind alone.
pub fn can_be_on(kind: &str, attributes: &str) -> bool {
    !is_spatial(attributes) || family(kind) == "next"
}

/// Whether the library has what `spec` asks for. Any other refusal than that it is not available in this
/// version counts as available, so that it shows where the index is used.
pub fn is_available(spec: &str) -> bool {
    let refusal = spec.parse().and_then(|spec| {
        let db = Db::open_with("probe", Options::default().background_threads(0), Components::in_memory())?;
        db.create_collection("probe", CollectionOptions::json().index(spec))
    });
    !matches!(refusal, Err(error) if error.kind() == ErrorKind::Unsupported
        && error.message().contains("not available in this version"))
}

/// A random kind that is not refused.
pub fn any(rng: &mut SimRng) -> &'static str {
    rng.pick(available()).copied().unwrap_or("composite")
}

/// Random specifications of indexes: all attributes of [`ATTRIBUTES`] and then some, of random kinds.
/// The first one is on `a`, the second on elements of an array. Their names are `ix0`, `ix1` and so on. Where no kind of the
/// choice can be on the attributes it is `composite`.
pub fn random_specs(rng: &mut SimRng, choice: KindChoice, count: usize) -> Vec<Arc<str>> {
    let of = |attributes: usize| -> Vec<&str> {
        kinds_of(attributes).iter().copied().filter(|kind| choice.has(kind)).collect()
    };
    let spec = |i: usize, rng: &mut SimRng| {
        let attributes = [0, 2, 1, 3, 4].get(i).copied();
        let drawn = attributes.unwrap_or_else(|| rng.below(ATTRIBUTES.len() as u64) as usize);
        // Not every kind can be on places.
        let attributes = if of(drawn).is_empty() && is_spatial(ATTRIBUTES[drawn]) { 0 } else { drawn };
        let kind = rng.pick(&of(attributes)).copied().unwrap_or("composite");
        Arc::from(format!("ix{i}={}:{kind}", ATTRIBUTES[attributes]))
    };
    (0..count).map(|i| spec(i, rng)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_not_refused() {
        for kind in IMPLEMENTED {
            assert!(available().contains(&kind), "{kind} is refused as not available");
        }
    }

    #[test]
    fn every_announced_text_is_a_specification() {
        for kind in IMPLEMENTED.into_iter().chain(PLANNED) {
            let spec = format!("i=a:{kind}");
            assert!(spec.parse::<bolide::IndexSpec>().is_ok(), "{spec}");
        }
    }

    #[test]
    fn random_specs_draw_every_kind() {
        let mut rng = SimRng::new(1);
        let drawn: Vec<_> = (0..100).flat_map(|_| random_specs(&mut rng, KindChoice::default(), 7)).collect();
        for kind in available() {
            assert!(drawn.iter().any(|spec| spec.ends_with(&format!(":{kind}"))), "{kind}");
        }
    }

    #[test]
    fn a_choice_draws_its_kinds_alone() {
        let mut rng = SimRng::new(1);
        let choice = KindChoice::only("ps-tree").unwrap();
        let drawn: Vec<_> = (0..100).flat_map(|_| random_specs(&mut rng, choice, 7)).collect();
        assert!(drawn.iter().all(|spec| spec.contains(":ps-tree")));
        for kind in IMPLEMENTED.into_iter().filter(|kind| choice.has(kind)) {
            assert!(drawn.iter().any(|spec| spec.ends_with(&format!(":{kind}"))), "{kind}");
        }
        assert_eq!(KindChoice::only("ps"), None);
    }
}
