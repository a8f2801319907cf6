//! One history with every kind of index: all answers are equal.

use std::sync::Arc;

use bolide::Layout;
use bolide_storage::SimRng;

use crate::history::{HistoryOptions, HistoryStep, history};
use crate::kinds::{KindChoice, available, can_be_on, is_available};
use crate::metamorphic::{setups_of, transcript};
use crate::seeds::{Counts, Outcome};

/// The specification `spec` with another kind; unchanged if `kind` does not support its attributes.
fn in_kind(spec: &str, kind: &str) -> Arc<str> {
    let head = spec.split(':').next().unwrap_or(spec);
    let other = format!("{head}:{kind}");
    let attributes = head.split_once('=').map_or(head, |(_, attributes)| attributes);
    if can_be_on(kind, attributes) && is_available(&other) { other.into() } else { spec.into() }
}

/// The history `steps` with one kind for all indexes.
pub fn with_kind(steps: &[HistoryStep], kind: &str) -> Vec<HistoryStep> {
    let rewritten = |step: &HistoryStep| match step {
        HistoryStep::ToggleIndex(collection, spec) => {
            HistoryStep::ToggleIndex(collection, in_kind(spec, kind))
        }
        HistoryStep::ToggleCollection(name, specs) => {
            HistoryStep::ToggleCollection(name, specs.iter().map(|spec| in_kind(spec, kind)).collect())
        }
        other => other.clone(),
    };
    steps.iter().map(rewritten).collect()
}

/// Options of a run over the kinds.
#[derive(Debug, Clone, Copy)]
pub struct KindsOptions {
    /// Number of steps of the history.
    pub steps: usize,
    /// The layout of all setups; `None` for any layout.
    pub layout: Option<Layout>,
}

impl Default for KindsOptions {
    fn default() -> Self {
        Self { steps: 150, layout: None }
    }
}

/// Runs the history of `seed` with indexes of mixed kinds, and then once with each kind, each time under a random setup. All
/// answers must equal each other and those of the model.
pub fn check(seed: u64, options: KindsOptions) -> Outcome<Counts> {
    let mut rng = SimRng::new(seed ^ 0x6b69_6e64);
    let keys = [12, 60, 250][rng.below(3) as usize];
    let steps = history(
        seed,
        HistoryOptions {
            steps: options.steps,
            keys,
            reads: true,
            reopens: true,
            kinds: KindChoice::default(),
        },
    );
    let setups = setups_of(options.layout);
    let mut counts = Counts::default();
    let mut wanted = None;
    let kinds = std::iter::once(None).chain(available().iter().map(Some));
    for kind in kinds {
        let name = kind.map_or("mixed kinds", |kind| kind);
        let setup = *rng.pick(&setups).ok_or("there are no setups")?;
        let steps = kind.map_or_else(|| steps.clone(), |kind| with_kind(&steps, kind));
        let transcript =
            transcript(seed, setup, &steps).map_err(|what| format!("{name}, {setup}: {what}"))?;
        counts.add("runs");
        counts.add_many("answers", transcript.lines().count() as u64);
        // Index creation may use sequence numbers, depending on the kind.
        let transcript = without_sequences(&transcript);
        let wanted = wanted.get_or_insert_with(|| transcript.clone());
        if let Some((got, want)) = transcript.lines().zip(wanted.lines()).find(|(got, want)| got != want) {
            return Err(format!("{name}, {setup}: differs from mixed kinds:\n{got}\n{want}"));
        }
        if transcript.len() != wanted.len() {
            return Err(format!("{name}, {setup}: has another number of answers than mixed kinds"));
        }
    }
    counts.add("histories");
    Ok(counts)
}

/// The transcript without the sequence numbers after the keys.
fn without_sequences(transcript: &str) -> String {
    let of_word = |word: &str| match word.rsplit_once('@') {
        Some((key, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => key.to_owned(),
        _ => word.to_owned(),
    };
    let of_line = |line: &str| line.split(' ').map(of_word).collect::<Vec<_>>().join(" ");
    transcript.lines().map(of_line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcripts_lose_their_sequence_numbers() {
        assert_eq!(without_sequences("find k1@7 a@b@12 \nget {\"a\":1}"), "find k1 a@b \nget {\"a\":1}");
    }
}
