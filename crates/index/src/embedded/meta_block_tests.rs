use super::*;

fn wanted<'q>(low: &'q [u8], end: &'q [u8]) -> MetaBlockQuery<'q> {
    MetaBlockQuery { low, end, hash: None }
}

/// Three blocks: one with the keys `0c` and `0f`, an empty one, one that is not described.
fn sample() -> Vec<u8> {
    let (mut whole, mut part) = (PartBuilder::default(), PartBuilder::default());
    let mut parts = Vec::new();
    part.add_record(12, b"0c", b"0c");
    part.add_record(10, b"0f", b"0f");
    part.add_hash(filter::hash(b"0c"));
    part.add_hash(filter::hash(b"0f"));
    whole.merge(&part);
    part.finish(10, 1000, &mut parts);
    whole.merge(&part);
    part.finish(10, 1000, &mut parts);
    part.add_record(20, b"0a", b"0a");
    part.add_opaque(21);
    part.finish(10, 1000, &mut parts);
    let mut whole_bytes = Vec::new();
    whole.finish(10, 1000, &mut whole_bytes);
    encode(10, 3, &whole_bytes, &parts)
}

#[test]
fn parts_are_matched_by_zone_filter_and_sequence() {
    let block = MetaBlock::decode(sample()).unwrap();
    assert_eq!((block.blocks(), block.bits(), block.empty_and_opaque()), (3, 10, (1, 1)));
    assert_eq!(block.zone(), Some((&b"0c"[..], &b"0f"[..])));
    let maybe = |largest, filtered| FilterResult::MayMatch { largest, filtered };
    let match_part = |low: &[u8], end: &[u8]| block.match_block(0, &wanted(low, end), 100);
    assert_eq!(match_part(b"0c", b"0d"), maybe(12, false));
    assert_eq!(match_part(b"0d", b"0e"), maybe(12, false));
    assert_eq!(match_part(b"0f", b"0g"), maybe(12, false));
    assert_eq!(
        (match_part(b"0a", b"0c"), match_part(b"0fa", b"0g")),
        (FilterResult::OutOfZone, FilterResult::OutOfZone)
    );
    let point = |key: &[u8]| MetaBlockQuery { low: b"0c", end: b"0g", hash: Some(filter::hash(key)) };
    assert_eq!(block.match_block(0, &point(b"0c"), 100), maybe(12, true));
    assert_eq!(block.match_table(&point(b"0f"), 100), maybe(12, true));
    let absent = (0..50).map(|number: u8| point(&[b'0', b'd', number]).hash);
    let passed = absent.filter(|&hash| {
        let query = MetaBlockQuery { hash, ..point(b"0c") };
        block.match_block(0, &query, 100) != FilterResult::NotInFilter
    });
    assert!(passed.count() < 5);
    assert_eq!(block.match_block(0, &wanted(b"0c", b"0d"), 9), FilterResult::TooNew);
    assert_eq!(block.match_block(1, &wanted(b"", b"\xff"), 100), FilterResult::OutOfZone);
    assert_eq!(block.match_block(2, &point(b"0x"), 100), maybe(21, false));
    assert_eq!(block.match_block(3, &wanted(b"", b"\xff"), 100), FilterResult::OutOfZone);
}

#[test]
fn truncated_bounds_contain_long_keys() {
    let mut long = vec![b'5'; MAX_BOUND_BYTES + 3];
    assert_eq!(lower_bound(&long), &vec![b'5'; MAX_BOUND_BYTES][..]);
    let bound = upper_bound(&long);
    assert!(bound > long && bound.len() <= MAX_BOUND_BYTES);
    for byte in &mut long[1..] {
        *byte = 0xff;
    }
    assert_eq!(upper_bound(&long), b"6");
    assert_eq!(upper_bound(&long[..MAX_BOUND_BYTES]), long[..MAX_BOUND_BYTES]);
}

#[test]
fn hostile_bytes_are_rejected_or_harmless() {
    let good = sample();
    for cut in 0..good.len() {
        assert!(MetaBlock::decode(good[..cut].to_vec()).is_none(), "{cut}");
    }
    let mut longer = good.clone();
    longer.push(0);
    assert!(MetaBlock::decode(longer).is_none());
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            if let Some(block) = MetaBlock::decode(bad) {
                let hash = Some(filter::hash(b"0c"));
                let query = MetaBlockQuery { low: b"0c", end: b"0d", hash };
                for part in 0..4 {
                    let _ = block.match_block(part, &query, 11);
                }
                assert!(block.memory_bytes() < 50 * good.len() + 1000);
            }
        }
    }
    // An impossible count allocates no memory.
    let mut many = vec![FORMAT, 10, 7];
    put_varint(&mut many, u64::MAX);
    assert!(MetaBlock::decode(many).is_none());
}

#[test]
fn names_and_indexes_match() {
    assert_eq!(index_of_name(&name(4711)), Some(4711));
    assert!(index_of_name("embedded/x").is_none() && index_of_name("other/1").is_none());
}
