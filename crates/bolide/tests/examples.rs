//! Runs the examples for users: each asserts its output.

#[path = "../examples/batches.rs"]
mod batches;
#[path = "../examples/change_stream.rs"]
mod change_stream;
#[path = "../examples/first_steps.rs"]
mod first_steps;
#[path = "../examples/own_extractor.rs"]
mod own_extractor;
#[path = "../examples/places.rs"]
mod places;
#[path = "../examples/snapshots_and_paging.rs"]
mod snapshots_and_paging;

#[test]
fn first_steps_run() {
    first_steps::main().unwrap();
}

#[test]
fn batches_run() {
    batches::main().unwrap();
}

#[test]
fn snapshots_and_paging_run() {
    snapshots_and_paging::main().unwrap();
}

#[test]
fn places_run() {
    places::main().unwrap();
}

#[test]
fn an_own_extractor_runs() {
    own_extractor::main().unwrap();
}

#[test]
fn a_change_stream_runs() {
    change_stream::main().unwrap();
}
