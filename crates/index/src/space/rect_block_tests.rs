use proptest::prelude::*;

use super::*;

fn entry(corners: [f64; 4], sequence: u64) -> RectEntry {
    RectEntry { rect: Rect::valid(corners).unwrap(), sequence, block: 7, entry: 3, repeated: false }
}

fn read(bytes: &[u8]) -> Vec<RectEntry> {
    let block = RectBlock::parse(bytes).unwrap();
    (0..block.entries()).map(|number| block.entry(number).unwrap()).collect()
}

fn any_entries() -> impl Strategy<Value = Vec<RectEntry>> {
    let coordinate = prop_oneof![
        4 => (-1_800_000_000..1_800_000_000_i64).prop_map(|whole| whole as f64 / 1e7),
        1 => any::<f64>().prop_filter("finite", |one| one.is_finite()),
        1 => prop_oneof![Just(f64::MAX), Just(f64::MIN), Just(5e-324), Just(0.0), Just(9.1e15)],
    ];
    let decimal = (-1_800_000_000..1_800_000_000_i64).prop_map(|whole| whole as f64 / 1e7);
    let rect = |coordinate: BoxedStrategy<f64>, is_point: bool| {
        [coordinate.clone(), coordinate.clone(), coordinate.clone(), coordinate].prop_map(
            move |[a, b, c, d]| {
                let (c, d) = if is_point { (a, b) } else { (c, d) };
                Rect::valid([a.min(c), b.min(d), a.max(c), b.max(d)]).unwrap()
            },
        )
    };
    let kinds = [
        rect(coordinate.clone().boxed(), false).boxed(),
        rect(coordinate.boxed(), true).boxed(),
        rect(decimal.clone().boxed(), false).boxed(),
        rect(decimal.boxed(), true).boxed(),
    ];
    let place = (0..=MAX_SEQUENCE, any::<u32>(), any::<u32>(), any::<bool>());
    // All of a block are of one kind, as a rule.
    (0..kinds.len())
        .prop_flat_map(move |kind| proptest::collection::vec((kinds[kind].clone(), place.clone()), 1..40))
        .prop_map(|all| {
            let of = |(rect, (sequence, block, entry, repeated))| RectEntry {
                rect,
                sequence,
                block,
                entry,
                repeated,
            };
            all.into_iter().map(of).collect()
        })
}

#[test]
fn decimals_take_a_few_bytes_each() {
    let entries: Vec<RectEntry> = (0..256_u32)
        .map(|number| {
            let (x, y) = (f64::from(number % 16) * 0.0011357, f64::from(number / 16) * 0.0009573);
            let round = |one: f64| (one * 1e7).round() / 1e7;
            let rect = Rect::valid([x - 0.1, y + 51.5, x - 0.099, y + 51.501].map(round)).unwrap();
            RectEntry {
                rect,
                sequence: 1_000 + u64::from(number),
                block: number,
                entry: number % 20,
                repeated: false,
            }
        })
        .collect();
    let bytes = write(&entries);
    assert_eq!(bytes[2], 7, "digits");
    assert!(bytes.len() <= HEADER_BYTES + entries.len() * 13, "{}", bytes.len());
    assert_eq!(read(&bytes), entries);
    let points: Vec<RectEntry> =
        entries.iter().map(|one| RectEntry { rect: one.rect.min_corner(), ..*one }).collect();
    assert!(write(&points).len() < bytes.len() * 3 / 4);
    assert_eq!(read(&write(&points)), points);
}

#[test]
fn what_is_no_decimal_keeps_its_bits() {
    let third = 1.0 / 3.0;
    let entries =
        [entry([third, 0.0, third, 1e300], 5), entry([-5e-324, -1.0, third, f64::MAX], MAX_SEQUENCE)];
    let bytes = write(&entries);
    assert_eq!(bytes[2], RAW);
    assert_eq!(read(&bytes), entries);
    assert_eq!(
        bytes.len() - HEADER_BYTES,
        (RectBlock::parse(&bytes).unwrap().entry_bits * 2).div_ceil(8) as usize
    );
    // A number that fits without digits, and does not with those of another.
    let mixed = [entry([9e15, 0.5, 9e15, 0.5], 1)];
    assert_eq!(read(&write(&mixed)), mixed);
}

#[test]
fn a_window_takes_what_it_touches() {
    let entries: Vec<RectEntry> =
        (0..10).map(|at| entry([at.into(), 0.0, f64::from(at) + 1.0, 1.0], 1)).collect();
    let bytes = write(&entries);
    let block = RectBlock::parse(&bytes).unwrap();
    let window = Rect::new(3.0, 1.0, 4.0, 2.0).unwrap();
    let met =
        (0..block.entries()).filter(|&number| block.entry_within(number, Some(&window)).unwrap().is_some());
    assert_eq!(met.collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(block.entry(10), None);
}

proptest! {
    #[test]
    fn blocks_round_trip(entries in any_entries()) {
        prop_assert_eq!(read(&write(&entries)), entries);
    }

    #[test]
    fn damage_is_read_or_refused(
        entries in any_entries(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = write(&entries);
        prop_assert!(RectBlock::parse(&bytes[..cut.index(bytes.len())]).is_none());
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(block) = RectBlock::parse(&bytes) {
            for number in 0..block.entries().min(100) {
                if let Some(entry) = block.entry(number) {
                    prop_assert!(entry.sequence <= MAX_SEQUENCE);
                }
            }
        }
    }
}
