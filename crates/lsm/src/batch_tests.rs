//! Tests of the batch and its reader.

use super::*;

fn entry<'a>(kind: EntryKind, key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Entry { kind, key, value }
}

fn sample() -> StoreBatch {
    let mut batch = StoreBatch::new();
    batch.put(1, b"a", b"1").unwrap();
    batch.put_derived(2, b"red........a", b"", Some(3)).unwrap();
    batch.delete(1, b"b").unwrap();
    batch.delete_range(1, b"c", b"d").unwrap();
    batch.put_at(3, b"old", b"x", 7).unwrap();
    batch
}

#[test]
fn operations_round_trip_with_their_sequence_numbers() {
    let mut batch = sample();
    batch.assign(100);
    let payload = batch.seal().to_vec();
    let read: Vec<_> = BatchReader::new(&payload).unwrap().map(Result::unwrap).collect();
    let mut patched = b"red........a".to_vec();
    patched[3..11].copy_from_slice(&(!100_u64).to_be_bytes());
    assert_eq!(
        read.iter().map(|op| (op.tree, op.sequence, op.derived)).collect::<Vec<_>>(),
        [(1, 100, false), (2, 100, true), (1, 101, false), (1, 102, false), (3, 7, true)]
    );
    assert_eq!(read[0].operation, entry(EntryKind::Put, b"a", b"1"));
    assert_eq!(read[1].operation, entry(EntryKind::Put, &patched, b""));
    assert_eq!(read[2].operation, entry(EntryKind::Delete, b"b", b""));
    assert_eq!(read[3].operation, Operation::RangeDelete { start: b"c", end: b"d" });
    assert_eq!(batch.operations().count(), 5);
}

#[test]
fn appended_batches_keep_their_patches() {
    let mut batch = sample();
    batch.append(&sample()).unwrap();
    assert_eq!((batch.len(), batch.sequence_count()), (10, 6));
    batch.assign(50);
    let payload = batch.seal().to_vec();
    let read: Vec<_> = BatchReader::new(&payload).unwrap().map(Result::unwrap).collect();
    assert_eq!(read[6].sequence, 53);
    let Operation::Entry { key, .. } = read[6].operation else { panic!("an entry") };
    assert_eq!(key[3..11], (!53_u64).to_be_bytes());
}

#[test]
fn a_truncated_batch_equals_its_earlier_state() {
    let mut batch = sample();
    let mark = batch.mark();
    batch.put(9, b"more", b"1").unwrap();
    batch.put_derived(8, b"red........more", b"", Some(3)).unwrap();
    batch.truncate(mark);
    assert_eq!((batch.len(), batch.sequence_count(), batch.trees()), (5, 3, &[1, 2, 3][..]));
    assert!(batch.operations().eq(sample().operations()));
    assert_eq!(batch.seal(), sample().seal());
}

#[test]
fn every_truncation_and_trailing_byte_is_rejected() {
    let mut batch = sample();
    batch.assign(9);
    let payload = batch.seal().to_vec();
    for len in 0..payload.len() {
        let rejected = match BatchReader::new(&payload[..len]) {
            Err(_) => true,
            Ok(reader) => reader.into_iter().any(|operation| operation.is_err()),
        };
        assert!(rejected, "truncated to {len} bytes");
    }
    let mut longer = payload;
    longer.push(0);
    assert!(BatchReader::new(&longer).unwrap().any(|operation| operation.is_err()));
}

#[test]
fn limits_hold_at_their_edges() {
    let mut batch = StoreBatch::new();
    batch.put(1, &vec![0; MAX_TREE_KEY_BYTES], b"").unwrap();
    assert!(batch.put(1, &vec![0; MAX_TREE_KEY_BYTES + 1], b"").is_err());
    batch.put(1, b"", &vec![0; MAX_VALUE_BYTES]).unwrap();
    assert!(batch.put(1, b"", &vec![0; MAX_VALUE_BYTES + 1]).is_err());
    assert_eq!(batch.len(), 2);
    assert!(batch.delete_range(1, b"b", b"b").is_err());
    let mut empty = StoreBatch::new();
    assert!(empty.put_derived(1, b"k", b"", None).is_err());
}
