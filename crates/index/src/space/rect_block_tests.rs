use bolide_base::MAX_SEQUENCE;
use proptest::prelude::*;

use super::*;

fn entry(corners: [f64; 4], sequence: u64) -> RectEntry {
    RectEntry { rect: Rect::valid(corners).unwrap(), sequence, block: 7, entry: 3, repeated: false }
}

/// The entries of a block, sorted.
fn read(bytes: &[u8]) -> Vec<RectEntry> {
    let mut found = Vec::new();
    assert_eq!(visit(bytes, None, |entry| found.push(*entry)).map(|count| count as usize), Some(found.len()));
    sorted(&found)
}

fn sorted(entries: &[RectEntry]) -> Vec<RectEntry> {
    let mut sorted = entries.to_vec();
    let key = |one: &RectEntry| (one.rect.corners().map(ordered_bits), one.sequence, one.block, one.entry);
    sorted.sort_by_key(|one| (key(one), one.repeated));
    sorted
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
    // All rectangles of a block are of one kind.
    (0..kinds.len())
        .prop_flat_map(move |kind| proptest::collection::vec((kinds[kind].clone(), place.clone()), 1..80))
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
    assert!(bytes.len() <= HEADER_BYTES + entries.len() * 10, "{}", bytes.len());
    assert_eq!(read(&bytes), sorted(&entries));
    let points: Vec<RectEntry> =
        entries.iter().map(|one| RectEntry { rect: one.rect.min_corner(), ..*one }).collect();
    assert!(write(&points).len() < bytes.len() * 3 / 4);
    assert_eq!(read(&write(&points)), sorted(&points));
}

#[test]
fn other_numbers_are_stored_as_bits() {
    let third = 1.0 / 3.0;
    let entries =
        [entry([third, 0.0, third, 1e300], 5), entry([-5e-324, -1.0, third, f64::MAX], MAX_SEQUENCE)];
    let bytes = write(&entries);
    assert_eq!(bytes[2], RAW);
    assert_eq!(read(&bytes), sorted(&entries));
    // A number that is exact without digits, but not with those of the other coordinate.
    let mixed = [entry([9e15, 0.5, 9e15, 0.5], 1)];
    assert_eq!(read(&write(&mixed)), mixed);
}

#[test]
fn another_format_is_rejected() {
    let mut bytes = write(&[entry([0.0, 0.0, 1.0, 1.0], 1)]);
    assert!(RectBlock::parse(&bytes).is_some());
    bytes[0] = 2;
    assert!(RectBlock::parse(&bytes).is_none());
}

#[test]
fn a_window_includes_rectangles_that_touch_it() {
    let entries: Vec<RectEntry> =
        (0..50_u32).map(|at| entry([at.into(), 0.0, f64::from(at) + 1.0, 1.0], u64::from(at) + 1)).collect();
    let bytes = write(&entries);
    let window = Rect::new(13.0, 1.0, 18.0, 2.0).unwrap();
    let mut found = Vec::new();
    assert_eq!(visit(&bytes, Some(&window), |entry| found.push(entry.sequence)), Some(7));
    assert_eq!(found, [13, 14, 15, 16, 17, 18, 19]);
}

proptest! {
    #[test]
    fn blocks_round_trip_and_windows_find_intersecting_rectangles(
        entries in any_entries(),
        window in any_entries().prop_map(|all| all[0].rect),
    ) {
        let bytes = write(&entries);
        prop_assert_eq!(read(&bytes), sorted(&entries));
        let mut found = Vec::new();
        prop_assert!(visit(&bytes, Some(&window), |entry| found.push(*entry)).is_some());
        let expected: Vec<RectEntry> =
            entries.iter().filter(|entry| entry.rect.intersects(&window)).copied().collect();
        prop_assert_eq!(sorted(&found), sorted(&expected));
    }

    #[test]
    fn damaged_blocks_are_read_or_rejected(
        entries in any_entries(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        window in any_entries().prop_map(|all| all[0].rect),
    ) {
        let mut bytes = write(&entries);
        let cut = visit(&bytes[..cut.index(bytes.len())], None, |_| {});
        prop_assert!(cut.is_none());
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut count = 0;
        visit(&bytes, None, |entry| {
            assert!(entry.sequence <= MAX_SEQUENCE);
            count += 1;
        });
        prop_assert!(count <= MAX_ENTRIES);
        for window in [window, Rect::new(f64::MIN, f64::MIN, f64::MAX, f64::MAX).unwrap()] {
            visit(&bytes, Some(&window), |entry| assert!(entry.rect.intersects(&window), "{entry:?}"));
        }
    }
}
