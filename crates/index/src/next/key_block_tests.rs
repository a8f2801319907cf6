use std::collections::BTreeMap;

use bolide_storage::SimRng;

use super::*;
use crate::attribute::Value;

/// Keys with their entries, newest first.
type Model = BTreeMap<Vec<u8>, Vec<VersionEntry>>;

fn encode(model: &Model) -> Vec<u8> {
    let mut builder = KeyBlockBuilder::default();
    for (key, entries) in model {
        entries.iter().for_each(|entry| builder.add(key, *entry));
    }
    builder.finish()
}

/// All keys from `low` on, with their entries.
fn read(bytes: &[u8], low: &[u8]) -> Option<Model> {
    let block = KeyBlock::parse(bytes)?;
    let mut keys = block.seek(low, b"left over".to_vec())?;
    let mut model = Model::new();
    while keys.next()? {
        let mut key = Vec::new();
        keys.write_key(&mut key);
        let entries = keys.entries().map(|number| block.entry(number)).collect::<Option<_>>()?;
        assert!(model.insert(key, entries).is_none());
    }
    Some(model)
}

fn random_key(rng: &mut SimRng, sort: u64) -> Vec<u8> {
    let value = match sort {
        0 => Value::Int(rng.below(3_000) as i64 - 1_500),
        1 => Value::Float(rng.below(1 << 40) as f64 / 7.0),
        2 => Value::String("ab".repeat(rng.below(20) as usize)),
        3 => Value::String(format!("{:040}", rng.below(500))),
        _ => return vec![b'x'; rng.below(70) as usize],
    };
    let mut key = Vec::new();
    value.encode(&mut key).unwrap();
    key
}

fn random_model(rng: &mut SimRng) -> Model {
    let sort = rng.below(6);
    let (keys, repeats) = (1 + rng.below(200), rng.one_in(2));
    let (bits, max) = (rng.below(47), 1 + rng.below(4));
    let newest = 1 + rng.below(1 << bits);
    let mut model = Model::new();
    for _ in 0..keys {
        let of = if sort == 5 { rng.below(5) } else { sort };
        let mut sequences: Vec<u64> = (0..=rng.below(max)).map(|_| rng.below(newest)).collect();
        sequences.sort_unstable_by(|left, right| right.cmp(left));
        let mut entries = Vec::new();
        for sequence in sequences {
            let bits = rng.below(33);
            let (block, entry) = (rng.below(1 << bits) as u32, rng.below(60) as u32);
            entries.push(VersionEntry { sequence, block, entry, repeated: repeats && rng.one_in(3) });
        }
        model.insert(random_key(rng, of), entries);
    }
    model
}

#[test]
fn seek_returns_all_keys_from_any_bound_on() {
    let seed = 3;
    let mut rng = SimRng::new(seed);
    for round in 0..300 {
        let model = random_model(&mut rng);
        let bytes = encode(&model);
        assert_eq!(read(&bytes, &[]).as_ref(), Some(&model), "seed {seed}, round {round}");
        for _ in 0..20 {
            let sort = rng.below(5);
            let mut low = match rng.below(3) {
                0 => random_key(&mut rng, sort),
                _ => model.keys().nth(rng.below(model.len() as u64) as usize).unwrap().clone(),
            };
            match rng.below(4) {
                0 => low.push(0),
                1 => low.truncate(rng.below(low.len() as u64 + 1) as usize),
                _ => {}
            }
            let expected: Model =
                model.range(low.clone()..).map(|(key, of)| (key.clone(), of.clone())).collect();
            assert_eq!(read(&bytes, &low), Some(expected), "seed {seed}, round {round}, from {low:?}");
        }
    }
}

#[test]
fn keys_below_a_bound_are_found() {
    let mut rng = SimRng::new(5);
    for _ in 0..100 {
        let model = random_model(&mut rng);
        let bytes = encode(&model);
        let block = KeyBlock::parse(&bytes).unwrap();
        let sort = rng.below(5);
        let end = random_key(&mut rng, sort);
        let mut keys = block.keys_from_start(Vec::new());
        let mut below = 0;
        while keys.next().unwrap() && keys.is_below(&end) {
            below += 1;
        }
        assert_eq!(below, model.range(..end).count());
    }
}

#[test]
fn keys_with_one_entry_take_few_bytes() {
    let mut model = Model::new();
    for number in 0..500_i64 {
        let mut key = Vec::new();
        Value::Int(1_000_000 + 7 * number).encode(&mut key).unwrap();
        let sequence = (number * 7_919) as u64 % 250_000;
        model.insert(key, vec![VersionEntry { sequence, block: 8_000, entry: 20, repeated: false }]);
    }
    let bytes = encode(&model).len();
    // 18 bits of sequence number, 13 + 5 of location; for a key one byte of lengths and about two of its own.
    assert!(bytes < 500 * 9, "{bytes}");
}

#[test]
fn damaged_bytes_never_panic() {
    let mut rng = SimRng::new(9);
    for _ in 0..20 {
        let good = encode(&random_model(&mut rng));
        for cut in 0..good.len() {
            let _ = read(&good[..cut], b"0m");
        }
        for _ in 0..300 {
            let mut bad = good.clone();
            let at = rng.below(bad.len().min(80) as u64) as usize;
            bad[at] ^= 1 << rng.below(8);
            crate::next::fuzz_blocks(&bad, b"0m");
        }
    }
    assert!(KeyBlock::parse(&[]).is_none());
}
