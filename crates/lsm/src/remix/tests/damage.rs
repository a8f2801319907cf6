//! REMIX files: round trips, damage, and runs that do not belong to them.

use bolide_base::ErrorKind;
use bolide_storage::File;

use super::*;
use crate::remix::Remix;

const IDENTITY: FileIdentity = FileIdentity { file_number: 900, tag: DATABASE };

fn file_of(bytes: &[u8]) -> Arc<dyn File> {
    let vfs = MemVfs::new();
    let file = vfs.create(Path::new("f")).unwrap();
    file.append(bytes).unwrap();
    file
}

fn bytes_of(remix: &Remix) -> Vec<u8> {
    let file = file_of(&[]);
    let len = remix.write(&*file, IDENTITY).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(len, bytes.len() as u64);
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Remix> {
    Remix::read(&*file_of(bytes), "f", IDENTITY)
}

fn sample(seed: u64, runs: usize) -> (Model, Vec<Arc<ViewRun>>, Remix) {
    let mut rng = SimRng::new(seed);
    let model = Model::random(&mut rng, runs);
    let runs = model.runs(&mut Writer::new(1 << 20), runs, &mut rng).unwrap();
    let remix = Remix::build(&runs, &random_options(&mut rng)).unwrap();
    (model, runs, remix)
}

#[test]
fn files_round_trip() {
    for seed in 0..60 {
        let (model, runs, remix) = sample(seed, 1 + seed as usize % 9);
        let bytes = bytes_of(&remix);
        let again = read(&bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(bytes_of(&again), bytes, "seed {seed}");
        let view = SortedView::new(again, runs).unwrap();
        let mut cursor = view.cursor(true);
        cursor.seek_to_first().unwrap();
        assert_eq!(current(&cursor), expected(model.entries.first()), "seed {seed}");
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let (_, _, remix) = sample(3, 5);
    let bytes = bytes_of(&remix);
    let mut rng = SimRng::new(1);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << rng.below(8);
        let error = read(&damaged).expect_err(&format!("a flipped bit in byte {at}"));
        assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "byte {at}: {error}");
        assert!(read(&bytes[..at]).is_err(), "truncated at {at}");
    }
    assert!(read(&[&bytes[..], b"x"].concat()).is_err());
}

#[test]
fn a_file_of_another_number_or_database_is_rejected() {
    let (_, _, remix) = sample(4, 3);
    let bytes = bytes_of(&remix);
    for identity in
        [FileIdentity { file_number: 901, ..IDENTITY }, FileIdentity { tag: DATABASE + 1, ..IDENTITY }]
    {
        let error = Remix::read(&*file_of(&bytes), "f", identity).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
    let mut foreign = bytes.clone();
    foreign[..8].copy_from_slice(b"notremix");
    assert_eq!(read(&foreign).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn runs_that_a_remix_was_not_built_from_are_rejected() {
    let (_, mut runs, remix) = sample(6, 4);
    let bytes = bytes_of(&remix);
    runs.swap(0, 1);
    assert!(SortedView::new(read(&bytes).unwrap(), runs.clone()).unwrap_err().is_corruption());
    runs.swap(0, 1);
    runs.pop();
    assert!(SortedView::new(read(&bytes).unwrap(), runs).unwrap_err().is_corruption());
}

/// The fuzz target with parts that are nearly valid.
#[test]
fn any_parts_are_rejected_or_read() {
    let mut read = 0;
    for seed in 0..400 {
        let (_, _, remix) = sample(seed % 20, 1 + seed as usize % 5);
        let layout = &remix.segments.layout;
        if remix.entries > 255 || remix.segments() > 255 {
            continue;
        }
        read += 1;
        let mut input = vec![
            (layout.width.ilog2() - 4) as u8
                | u8::from(layout.tags) << 2
                | u8::from(layout.forks) << 3
                | (layout.offset_bytes as u8 - 1) << 4,
            remix.runs() as u8,
            remix.entries as u8,
            remix.segments() as u8,
        ];
        bolide_base::coding::put_bytes(&mut input, &crate::remix::format::encode_tables(&remix));
        bolide_base::coding::put_bytes(&mut input, remix.segments.bytes());
        input.extend_from_slice(&remix.anchors.encode());
        crate::remix::fuzzing::parts(&input);
        let mut rng = SimRng::new(seed);
        for _ in 0..20 {
            let mut damaged = input.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] ^= 1 << rng.below(8);
            }
            damaged.truncate(damaged.len() - (rng.below(3) / 2) as usize);
            crate::remix::fuzzing::parts(&damaged);
            crate::remix::fuzzing::file(&damaged);
        }
    }
    assert!(read > 50, "only {read} small samples");
}

/// A REMIX with changed selectors and valid checksums yields a wrong order or reports corruption.
#[test]
fn a_remix_with_wrong_selectors_is_harmless() {
    for seed in 0..200 {
        let mut rng = SimRng::new(seed);
        let count = 2 + rng.below(5) as usize;
        let model = Model::random(&mut rng, count);
        let runs = model.runs(&mut Writer::new(1 << 20), count, &mut rng).unwrap();
        let valid = Remix::build(&runs, &random_options(&mut rng)).unwrap();
        let mut bytes = valid.segments.bytes().to_vec();
        if bytes.is_empty() {
            continue;
        }
        for _ in 0..1 + rng.below(8) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        let layout = valid.segments.layout.clone();
        let segments = crate::remix::segments::Segments::new(layout, bytes).unwrap();
        if !segments.are_sound() {
            continue;
        }
        let remix = Remix { segments, ..valid };
        let view = SortedView::new(remix, runs).unwrap();
        let mut cursor = view.cursor(true);
        for _ in 0..200 {
            let key = &model.keys[rng.below(model.keys.len() as u64) as usize];
            let moved = match rng.below(5) {
                0 => cursor.seek(key, 7),
                1 => cursor.seek_before(key),
                2 => cursor.prev(),
                3 => view.get(key, 9).map(drop),
                _ => cursor.next(),
            };
            if let Err(error) = moved {
                assert!(error.is_corruption(), "seed {seed}: {error}");
            }
        }
    }
}
