use std::collections::BTreeMap;

use bolide_storage::{MemVfs, SimRuntime};
use bolide_table::BlockCache;

use super::*;
use crate::options::{StoreOptions, SyncMode, TreeOptions};
use crate::{Store, StoreBatch, StoreComponents};

const DIR: &str = "db";

type Records = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn components(vfs: &Arc<dyn Vfs>) -> StoreComponents {
    let runtime = Arc::new(SimRuntime::new(7));
    StoreComponents { vfs: vfs.clone(), runtime, cache: BlockCache::new(1 << 20) }
}

fn store(vfs: &Arc<dyn Vfs>) -> Store {
    let mut options = StoreOptions::new(DIR);
    options.background_threads = 0;
    let store = Store::open(options, components(vfs)).unwrap();
    store.start();
    store
}

/// Two trees with sstables, a range tombstone, and entries in the log alone.
fn sample() -> (Arc<dyn Vfs>, [TreeId; 2], Records) {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let store = store(&vfs);
    let one = store.create_tree(TreeOptions::default(), b"one").unwrap();
    let other = store.create_tree(TreeOptions::default(), b"other").unwrap();
    let mut records = Records::new();
    let mut put = |number: u64, round: u64| {
        let (key, value) = (format!("key{number:03}").into_bytes(), vec![round as u8; 40]);
        let mut batch = StoreBatch::new();
        batch.put(one, &key, &value).unwrap();
        batch.put_derived(other, &key, b"", None).unwrap();
        let sequence = store.commit(batch, None, SyncMode::Always).unwrap();
        records.insert(key, (sequence, value));
    };
    (0..200).for_each(|number| put(number, 1));
    store.flush().unwrap();
    (0..200).step_by(3).for_each(|number| put(number, 2));
    store.flush().unwrap();
    (0..200).step_by(7).for_each(|number| put(number, 3));
    let mut batch = StoreBatch::new();
    batch.delete_range(one, b"key020", b"key030").unwrap();
    batch.delete(one, b"key100").unwrap();
    store.commit(batch, None, SyncMode::Always).unwrap();
    drop(store);
    records.retain(|key, _| !(b"key020".as_slice() <= key && key.as_slice() < b"key030".as_slice()));
    records.remove(b"key100".as_slice());
    (vfs, [one, other], records)
}

fn files(vfs: &Arc<dyn Vfs>, end: &str) -> Vec<PathBuf> {
    let names = vfs.list(Path::new(DIR)).unwrap().into_iter();
    names.filter(|name| name.contains(end)).map(|name| Path::new(DIR).join(name)).collect()
}

/// Rewrites a file with a change of its bytes.
fn damage(vfs: &Arc<dyn Vfs>, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let file = vfs.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    change(&mut bytes);
    vfs.remove(path).unwrap();
    vfs.create(path).unwrap().append(&bytes).unwrap();
}

fn salvage(vfs: &Arc<dyn Vfs>, tree: TreeId) -> (Records, Salvage) {
    let mut salvage = Salvage::open(vfs.clone(), Path::new(DIR), Path::new("new/scratch")).unwrap();
    salvage.read_logs(&|wanted| wanted == tree).unwrap();
    let mut found = Records::new();
    salvage
        .visit_newest(tree, &mut |key, sequence, value| {
            found.insert(key.to_vec(), (sequence, value.to_vec()));
            Ok(())
        })
        .unwrap();
    salvage.remove_scratch().unwrap();
    (found, salvage)
}

#[test]
fn an_intact_store_is_read_exactly() {
    let (vfs, [one, other], records) = sample();
    let (found, intact) = salvage(&vfs, one);
    assert_eq!(found, records);
    assert!(intact.is_intact() && intact.losses().is_empty() && intact.notes().is_empty());
    let last = store(&vfs).published_sequence();
    assert_eq!(intact.last_sequence(), last);
    let trees = intact.trees();
    assert_eq!(trees.iter().map(|tree| tree.id).collect::<Vec<_>>(), [one, other]);
    assert_eq!(trees[0].options, Some(TreeOptions::default().encode()));
}

#[test]
fn without_current_the_only_manifest_is_used_whole() {
    let (vfs, [one, _], records) = sample();
    vfs.remove(&FileName::Current.path(Path::new(DIR))).unwrap();
    let (found, salvage) = salvage(&vfs, one);
    assert_eq!(found, records);
    assert!(salvage.is_intact() && salvage.losses().is_empty());
    assert!(salvage.notes()[0].contains("MANIFEST"), "{:?}", salvage.notes());
}

#[test]
fn without_a_manifest_sstables_and_logs_identify_themselves() {
    let (vfs, [one, other], records) = sample();
    for path in files(&vfs, "MANIFEST").into_iter().chain(files(&vfs, "CURRENT")) {
        vfs.remove(&path).unwrap();
    }
    let (found, salvage) = salvage(&vfs, one);
    assert!(!salvage.is_intact());
    assert_eq!(salvage.losses().len(), 1, "{:?}", salvage.losses());
    assert_eq!(salvage.losses()[0].kind, LossKind::Manifest);
    let trees = salvage.trees();
    assert_eq!(trees.len(), 2);
    assert_eq!((trees[0].id, trees[0].descriptor.as_deref()), (one, Some(&b"one"[..])));
    assert_eq!((trees[1].id, trees[1].descriptor.as_deref()), (other, Some(&b"other"[..])));
    // The tombstones are in the log, which is read whole.
    assert_eq!(found, records);
}

#[test]
fn damaged_log_records_are_skipped_with_their_numbers() {
    let (vfs, [one, _], records) = sample();
    let path = files(&vfs, ".wal").pop().unwrap();
    let length = vfs.open(&path).unwrap().len().unwrap() as usize;
    for at in (64..length).step_by(11) {
        let (vfs, ..) = sample();
        damage(&vfs, &path, |bytes| bytes[at] ^= 1);
        let (found, salvage) = salvage(&vfs, one);
        let losses = salvage.losses();
        assert!(losses.iter().all(|loss| loss.kind == LossKind::Log), "byte {at}: {losses:?}");
        for (key, record) in &records {
            let (sequence, _) = record;
            // Only before the very first record is the start of the lost numbers unknown.
            let is_lost = losses.iter().any(|loss| match &loss.sequences {
                Some(sequences) => sequences.contains(sequence),
                None => loss.bytes.as_ref().is_some_and(|bytes| bytes.start == 64),
            });
            assert!(
                is_lost || found.get(key) == Some(record),
                "byte {at}: {key:?} of {sequence}: {losses:?}"
            );
        }
        assert!(!losses.is_empty() || found == records, "byte {at}");
    }
}

#[test]
fn a_lost_sstable_and_a_lost_segment_are_reported() {
    let (vfs, [one, _], records) = sample();
    let tables = files(&vfs, ".sst");
    let path = tables.iter().find(|path| {
        let source = FileSource::direct("x", vfs.open(path).unwrap());
        let table = TableSalvage::open(source, None).unwrap();
        table.properties().unwrap().owner.as_ref().unwrap().tree == one
    });
    vfs.remove(path.unwrap()).unwrap();
    let (found, with_loss) = salvage(&vfs, one);
    assert_ne!(found, records);
    let [loss] = with_loss.losses() else { panic!("{:?}", with_loss.losses()) };
    let keys = loss.keys.as_ref().unwrap();
    for key in records.keys().filter(|key| found.get(*key) != records.get(*key)) {
        assert!(keys.contains(key), "{key:?}: {loss}");
    }
    assert_eq!((loss.kind, loss.tree), (LossKind::Table, Some(one)));
    assert!(loss.entries.unwrap() > 0 && loss.keys.is_some() && loss.what.contains("missing"), "{loss}");

    let (vfs, [one, _], _) = sample();
    let path = files(&vfs, ".wal").pop().unwrap();
    vfs.remove(&path).unwrap();
    let (_, salvage) = salvage(&vfs, one);
    let [loss] = salvage.losses() else { panic!("{:?}", salvage.losses()) };
    assert_eq!(loss.kind, LossKind::Log);
    assert!(loss.what.contains("missing"), "{loss}");
}

#[test]
fn a_named_segment_without_a_header_is_lost() {
    for damage_of in [
        (|bytes: &mut Vec<u8>| bytes.fill(0)) as fn(&mut Vec<u8>),
        |bytes| bytes.clear(),
        |bytes| bytes.truncate(10),
        |bytes| bytes.truncate(63),
    ] {
        let (vfs, [one, _], records) = sample();
        let path = files(&vfs, ".wal").pop().unwrap();
        // The state after writes none of which was synced.
        vfs.remove(&FileName::Marker.path(Path::new(DIR))).unwrap();
        damage(&vfs, &path, damage_of);
        let (found, salvage) = salvage(&vfs, one);
        assert_ne!(found, records);
        let losses = salvage.losses();
        assert!(losses.iter().any(|loss| loss.kind == LossKind::Log), "{losses:?}");
    }
}

#[test]
fn directories_without_a_database_of_this_version_are_rejected() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    vfs.create(&Path::new(DIR).join("notes.txt")).unwrap();
    let open = || Salvage::open(vfs.clone(), Path::new(DIR), Path::new("scratch")).map(drop);
    assert_eq!(open().unwrap_err().kind(), ErrorKind::NotFound);
    // Of another version: no file is readable.
    let current = vfs.create(&FileName::Current.path(Path::new(DIR))).unwrap();
    current
        .append(b"bolide-current 1 MANIFEST-000003 00000000000000b0 4711 open 0123456789abcdef\n")
        .unwrap();
    assert_eq!(open().unwrap_err().kind(), ErrorKind::Unsupported);
}
