//! A full disk: deletes work with an index of every kind.

mod support;

use std::sync::Arc;

use bolide::storage::{SimRuntime, SimVfs, Vfs};
use bolide::{Collection, Components, Db, ErrorKind, Query};
use support::{dump, tiny, tiny_collection};

fn open(vfs: &SimVfs) -> bolide::Result<Db> {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    Db::open_with("db", tiny(), Components::system().vfs(vfs).runtime(Arc::new(SimRuntime::new(1))))
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:04}").into_bytes()
}

fn put(collection: &Collection, number: u32) -> bolide::Result<()> {
    collection.put(&key(number), format!(r#"{{"a":{}}}"#, number % 9).as_bytes())
}

#[test]
fn deletes_need_no_free_space_with_an_index_of_any_kind() {
    let kinds = [
        "ps-tree",
        "ps-tree:skey=trie",
        "composite",
        "composite:maintenance=synchronous",
        "composite:validation=key-index",
        "lazy",
        "lazy:maintenance=synchronous",
        "eager",
        "eager:split=off,maintenance=synchronous",
        "embedded",
        "next",
    ];
    for kind in kinds {
        let vfs = SimVfs::new(1);
        let mut db = open(&vfs).unwrap();
        let options = tiny_collection().index(format!("a:{kind}").parse().unwrap());
        let mut one = db.create_collection("one", options).unwrap();
        (0..400).for_each(|number| put(&one, number).unwrap());
        vfs.set_capacity(Some(vfs.used_bytes()));
        let mut refused = 400;
        let refusal = loop {
            match put(&one, refused) {
                Ok(()) => refused += 1,
                Err(refusal) => break refusal,
            }
            assert!(refused < 5_000, "{kind}: the disk does not become full");
        };
        assert_eq!(refusal.kind(), ErrorKind::NoSpace, "{kind}: {refusal}");
        for number in 0..60 {
            one.delete(&key(number)).unwrap_or_else(|error| panic!("{kind}: delete: {error}"));
            if number % 10 == 9 {
                drop((one, db));
                db = open(&vfs).unwrap_or_else(|error| panic!("{kind}: open: {error}"));
                one = db.collection("one").unwrap();
            }
        }
        assert_eq!(dump(&one).len(), refused as usize - 60, "{kind}");
        let threes = (60..refused).filter(|number| number % 9 == 3).count();
        let found = one.find(&Query::new().eq("a", 3).using_index("a")).unwrap();
        assert_eq!(found.len(), threes, "{kind}");
        vfs.set_capacity(None);
        put(&one, 0).unwrap_or_else(|error| panic!("{kind}: put with free space: {error}"));
        assert!(db.check(true).unwrap().is_sound(), "{kind}");
    }
}
