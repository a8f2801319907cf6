//! The list of index kinds, and random index specifications.
//!
//! The conformance suite, the random histories and the runs with threads all use this list. A kind that the library rejects
//! as not available in this version is skipped.

use std::sync::{Arc, LazyLock};

use bolide::{CollectionOptions, Components, Db, ErrorKind, Options};
use bolide_storage::SimRng;

use crate::value::is_spatial;

/// Kinds with options that must be available, as the part of a specification after its attributes.
pub const IMPLEMENTED: [&str; 39] = [
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
    "ps-tree:memory=4096",
    "ps-tree:memory=4096,skey=trie,include=pad",
    "ps-tree:region=dax",
    "ps-tree:region=dax,skey=trie,include=pad",
];

/// Kinds with options that are used once the library accepts them.
pub const PLANNED: [&str; 0] = [];

/// The attributes of the indexes of random histories.
pub const ATTRIBUTES: [&str; 7] = ["a", "n.x", "tags[*]", "s", "s+n.x", "rect(areas)", "point(p.x,p.y)"];

/// All available kinds.
pub fn available() -> &'static [&'static str] {
    static AVAILABLE: LazyLock<Vec<&str>> = LazyLock::new(|| {
        IMPLEMENTED.into_iter().chain(PLANNED).filter(|kind| is_available(&format!("i=a:{kind}"))).collect()
    });
    &AVAILABLE
}

/// The kinds of the indexes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindChoice(Option<&'static str>);

impl KindChoice {
    /// The kinds named `name`, for example `ps-tree`, with all their options. `None` if there is no such kind.
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

/// The available kinds for an index on the attributes at this position of [`ATTRIBUTES`].
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

/// Whether a kind supports these attributes. Only one kind supports spatial attributes.
pub fn can_be_on(kind: &str, attributes: &str) -> bool {
    !is_spatial(attributes) || family(kind) == "next"
}

/// Whether the library supports `spec`. Any error other than "not available in this version" counts as available, so that it
/// appears where the index is used.
pub fn is_available(spec: &str) -> bool {
    let refusal = spec.parse().and_then(|spec| {
        let db = Db::open_with("probe", Options::default().background_threads(0), Components::in_memory())?;
        db.create_collection("probe", CollectionOptions::json().index(spec))
    });
    !matches!(refusal, Err(error) if error.kind() == ErrorKind::Unsupported
        && error.message().contains("not available in this version"))
}

/// A random available kind.
pub fn any(rng: &mut SimRng) -> &'static str {
    rng.pick(available()).copied().unwrap_or("composite")
}

/// Random index specifications, named `ix0`, `ix1` and so on, with random kinds. The first five are on fixed attributes, the
/// first on `a` and the second on the elements of an array; the rest are on random ones. The kind is `composite` if no kind
/// of the choice supports the attributes.
pub fn random_specs(rng: &mut SimRng, choice: KindChoice, count: usize) -> Vec<Arc<str>> {
    let of = |attributes: usize| -> Vec<&str> {
        kinds_of(attributes).iter().copied().filter(|kind| choice.has(kind)).collect()
    };
    let spec = |i: usize, rng: &mut SimRng| {
        let attributes = [0, 2, 1, 3, 4].get(i).copied();
        let drawn = attributes.unwrap_or_else(|| rng.below(ATTRIBUTES.len() as u64) as usize);
        // Not every kind supports spatial attributes.
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
    fn implemented_kinds_are_available() {
        for kind in IMPLEMENTED {
            assert!(available().contains(&kind), "{kind} is not available");
        }
    }

    #[test]
    fn every_kind_is_a_valid_specification() {
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
    fn a_choice_draws_only_its_kinds() {
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
