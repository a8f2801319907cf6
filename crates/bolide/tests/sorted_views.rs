//! Collections and their stand-alone indexes have sorted views if their layout has partitions, or is tiered and views
//! are enabled.

use bolide::{CollectionOptions, Components, Db, Layout, Options, Query, SortedViews};

/// A database in which every tenth record has the same value, in several sorted runs.
fn database(layout: Layout, views: impl Into<SortedViews>) -> Db {
    let options = Options::default().memtable_bytes(64 << 10).background_threads(0).sorted_views(views);
    let db = Db::open_with("db", options, Components::in_memory()).unwrap();
    let options = CollectionOptions::default()
        .layout(layout)
        .target_file_bytes(16 << 10)
        .index("group:composite".parse().unwrap());
    let notes = db.create_collection("notes", options).unwrap();
    for round in 0..6_u64 {
        for number in 0..400_u64 {
            let key = (number * 7 + round) % 1_000;
            let record = format!(r#"{{"group":{},"round":{round},"text":"{:040}"}}"#, key % 10, number);
            notes.put(format!("note{key:05}").as_bytes(), record.as_bytes()).unwrap();
        }
        db.flush().unwrap();
    }
    db
}

#[test]
fn index_trees_have_sorted_views() {
    for (layout, views) in
        [(Layout::Tiered, SortedViews::Always), (Layout::Partitioned, SortedViews::Partitions)]
    {
        let (with, without) = (database(layout, views), database(layout, SortedViews::Never));
        let stats = with.stats();
        let collection = &stats.collections[0];
        let index = &collection.indexes[0];
        assert!(collection.table.sorted_view_file_bytes > 0, "{layout:?}: {:?}", collection.table);
        assert!(index.tree.sorted_view_file_bytes > 0, "{layout:?}: {:?}", index.tree);
        for group in 0..10 {
            let query = Query::new().eq("group", group);
            let keys = |db: &Db| -> Vec<Vec<u8>> {
                let answers = db.collection("notes").unwrap().find(&query).unwrap();
                answers.iter().map(|answer| answer.key.to_vec()).collect()
            };
            let (one, other) = (keys(&with), keys(&without));
            assert!(one.len() > 50 && one == other, "{layout:?}, group {group}");
        }
        assert!(with.check(true).unwrap().is_sound(), "{layout:?}");
    }
}
