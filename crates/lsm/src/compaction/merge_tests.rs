//! Merges against the plain union of the written operands.

use std::collections::BTreeSet;

use super::*;
use crate::range_tombstones::RangeTombstones;

/// Operands are sets of numbers, one byte each, newest first; a merge is their union in pieces of four.
#[derive(Debug)]
struct Union;

impl MergeOperator for Union {
    fn merge(
        &self,
        _: &[u8],
        operands: &[Operand<'_>],
        context: &MergeContext,
        out: &mut MergedOperands,
    ) -> Result<()> {
        let all: BTreeSet<u8> = operands.iter().flat_map(|operand| operand.value).copied().collect();
        let mut piece: Option<(SequenceNumber, Vec<u8>)> = None;
        for number in all.into_iter().rev() {
            let sequence = u64::from(number);
            match &mut piece {
                Some((_, numbers)) if numbers.len() < 4 || sequence <= context.above => numbers.push(number),
                _ => out.extend(piece.replace((sequence, vec![number]))),
            }
        }
        out.extend(piece);
        Ok(())
    }
}

#[derive(Default)]
struct Collected(Vec<(Vec<u8>, SequenceNumber, Vec<u8>)>);

impl EntrySink for Collected {
    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.0.push((key.to_vec(), trailer.sequence(), value.to_vec()));
        Ok(())
    }
}

fn merging(in_use: Vec<u64>, window_bytes: usize, flush: bool) -> MergingRetention {
    let retention = Retention::new(in_use, Arc::new(RangeTombstones::default()), false);
    let mut merging = MergingRetention::new(retention, Some(Arc::new(Union)), flush);
    merging.window_bytes = window_bytes;
    merging
}

#[test]
fn operands_are_merged_within_their_stripe_and_window() {
    for window_bytes in [1, 2, 5, 1 << 20] {
        for in_use in [vec![250], vec![60, 250], vec![40, 41, 120, 199]] {
            for flush in [false, true] {
                let mut merging = merging(in_use.clone(), window_bytes, flush);
                let mut collected = Collected::default();
                // Some operands have more than one number: they were merged before.
                let operands: &[&[u8]] =
                    &[&[200], &[150, 149, 148, 30], &[145], &[120, 119], &[50], &[41], &[40, 7], &[20], &[3]];
                for key in [b"a", b"b"] {
                    for operand in operands {
                        let trailer = Trailer::new(u64::from(operand[0]), EntryKind::Merge);
                        merging.add(key, trailer, operand, &mut collected).unwrap();
                    }
                }
                merging.finish(&mut collected).unwrap();
                assert_eq!(merging.retained(2 * operands.len() as u64), collected.0.len() as u64);
                for key in [b"a", b"b"] {
                    let own: Vec<_> = collected.0.iter().filter(|(of, ..)| of == key).collect();
                    assert!(own.is_sorted_by(|newer, older| newer.1 > older.1));
                    for at in in_use.iter().copied().chain([u64::MAX]) {
                        let sees = |sequence: u64| sequence <= at;
                        let mut found: Vec<u8> = own
                            .iter()
                            .filter(|(_, sequence, _)| sees(*sequence))
                            .flat_map(|e| e.2.clone())
                            .collect();
                        let written = operands.iter().filter(|operand| sees(u64::from(operand[0])));
                        let mut expected: Vec<u8> = written.flat_map(|operand| operand.to_vec()).collect();
                        found.sort_unstable();
                        expected.sort_unstable();
                        assert_eq!(found, expected, "window {window_bytes}, in use {in_use:?}, at {at}");
                    }
                    // Many windows make more pieces than one.
                    let max_operands = if window_bytes > 5 { 4 + in_use.len() } else { operands.len() };
                    assert!(own.len() <= max_operands, "{own:?}");
                }
            }
        }
    }
}

#[test]
fn a_put_below_operands_remains_below_them() {
    let mut merging = merging(vec![99], 1 << 20, false);
    let mut collected = Collected::default();
    for (sequence, kind) in
        [(9, EntryKind::Merge), (8, EntryKind::Merge), (7, EntryKind::Put), (6, EntryKind::Merge)]
    {
        merging.add(b"k", Trailer::new(sequence, kind), &[sequence as u8], &mut collected).unwrap();
    }
    merging.finish(&mut collected).unwrap();
    assert_eq!(collected.0, [(b"k".to_vec(), 9, vec![9, 8]), (b"k".to_vec(), 7, vec![7])]);
    assert_eq!(merging.retained(4), 2);
}

#[test]
fn without_an_operator_all_operands_with_one_number_are_retained() {
    let retention = Retention::new(vec![99], Arc::new(RangeTombstones::default()), false);
    let mut merging = MergingRetention::new(retention, None, false);
    let mut collected = Collected::default();
    // The first contains itself, the second itself and older ones that were merged into it.
    for value in [&[][..], &[9, 8, 7]] {
        merging.add(b"k", Trailer::new(9, EntryKind::Merge), value, &mut collected).unwrap();
    }
    merging.finish(&mut collected).unwrap();
    assert_eq!(collected.0, [(b"k".to_vec(), 9, vec![]), (b"k".to_vec(), 9, vec![9, 8, 7])]);
    assert_eq!(merging.retained(2), 2);
}

/// Returns invalid sequence numbers.
#[derive(Debug)]
struct Broken(&'static [u64]);

impl MergeOperator for Broken {
    fn merge(&self, _: &[u8], _: &[Operand<'_>], _: &MergeContext, out: &mut MergedOperands) -> Result<()> {
        out.extend(self.0.iter().map(|sequence| (*sequence, Vec::new())));
        Ok(())
    }
}

#[test]
fn an_operator_that_leaves_its_stripe_fails_the_merge() {
    for returned in [&[10][..], &[5], &[7, 7], &[7, 8], &[6, 3]] {
        let retention = Retention::new(vec![5, 99], Arc::new(RangeTombstones::default()), false);
        let mut merging = MergingRetention::new(retention, Some(Arc::new(Broken(returned))), false);
        let mut collected = Collected::default();
        merging.add(b"k", Trailer::new(9, EntryKind::Merge), b"", &mut collected).unwrap();
        merging.add(b"k", Trailer::new(8, EntryKind::Merge), b"", &mut collected).unwrap();
        assert!(merging.finish(&mut collected).is_err(), "{returned:?}");
        assert!(collected.0.is_empty());
    }
}
