//! `demo`: runs in a pipe, again over its own database, and never over another one.

use crate::program::Place;

#[test]
fn the_demo_answers_and_leaves_a_database() {
    let place = Place::new();
    let started = std::time::Instant::now();
    for _ in 0..2 {
        let run = place.ok("demo");
        assert!(run.stdout.contains("19,412 posts") && run.stdout.contains("newest"), "{}", run.stdout);
        assert!(!run.stdout.contains('\u{1b}'), "colours in a pipe: {}", run.stdout);
        assert!(run.stdout.contains("still found under r/space: 0"), "{}", run.stdout);
    }
    assert!(started.elapsed().as_secs() < 60);
    let run = place.ok("find bolide-demo posts --eq subreddit=vim --limit 3");
    let times: Vec<i64> =
        run.json().iter().map(|line| line["record"]["created_ms"].as_i64().unwrap()).collect();
    assert!(times.len() == 3 && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    place.ok("check bolide-demo --deep");
}

#[test]
fn the_demo_leaves_other_folders_unchanged() {
    let place = Place::new();
    std::fs::create_dir(place.path("mine")).unwrap();
    place.file("mine/letter.txt", "dear");
    let run = place.run("demo --dir mine").expect_status(1, "demo");
    assert!(run.stderr.contains("no database") && run.stderr.contains("--dir"), "{}", run.stderr);
    place.import("{\"id\":1}\n", "");
    let run = place.run("demo --dir db").expect_status(1, "demo");
    assert!(run.stderr.contains("no demo made"), "{}", run.stderr);
    assert_eq!(place.ok("scan db c").keys(), ["1"]);
}
