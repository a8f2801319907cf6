//! The cost of the operations of a region, in nanoseconds of one thread.
//!
//! `cargo run --release -p bolide-bench --example region_costs`
#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use bolide_storage::SimRng;
use bolide_storage::pmem::{PAGE_BYTES, Place, Region, RegionOptions};

/// Blocks of 512 bytes in the region.
const BLOCKS: usize = 500_000;
const ROUNDS: usize = 4_000_000;

/// Prints the mean of the fastest of 20 parts, which reduces disturbances by other programs.
fn timed(what: &str, rounds: usize, mut act: impl FnMut(usize)) {
    let part = rounds / 20;
    let parts = (0..20).map(|index| {
        let start = Instant::now();
        (index * part..(index + 1) * part).for_each(&mut act);
        start.elapsed().as_nanos() as f64 / part as f64
    });
    let nanos = parts.fold(f64::INFINITY, f64::min);
    println!("{what:<52} {nanos:>8.1} ns");
}

fn main() -> bolide_base::Result<()> {
    let region = Region::in_memory(RegionOptions::new())?;
    let mut rng = SimRng::new(1);
    let mut places: Vec<Place> = Vec::new();
    let text = vec![b'x'; 512];
    {
        let writer = region.writer();
        timed("allocate 512 bytes, fresh, and fill them", BLOCKS, |_| {
            let at = writer.allocate(512).unwrap();
            writer.write(at, &text).unwrap();
            places.push(at);
        });
    }
    let random: Vec<Place> = (0..1 << 16).map(|_| places[rng.below(BLOCKS as u64) as usize]).collect();
    let near: [Place; 256] = std::array::from_fn(|index| random[index]);
    let cached = |round: usize| near[round & 255];
    timed("load, cached", ROUNDS, |round| drop(black_box(region.load(cached(round)))));
    timed("words of 512 bytes and 8 loads, cached", ROUNDS, |round| {
        let words = region.words(cached(round), 512).unwrap();
        black_box(words.iter().step_by(8).map(|word| word.get()).fold(0, |sum, word| sum ^ word));
    });
    let (key, odd) = ([b'x'; 24], [b'x'; 21]);
    timed("compare 24 bytes, cached, aligned", ROUNDS, |round| {
        drop(black_box(region.compare(cached(round), 24, &key)));
    });
    timed("compare 21 bytes, cached, not aligned", ROUNDS, |round| {
        drop(black_box(region.compare(cached(round) + 3, 21, &odd)));
    });
    let mut out = Vec::with_capacity(64);
    timed("read 24 bytes, cached", ROUNDS, |round| {
        out.clear();
        region.read(cached(round), 24, &mut out).unwrap();
        black_box(&out);
    });
    timed("load at random from 256 MB", ROUNDS, |round| {
        drop(black_box(region.load(random[(round * 7919) & 0xffff] + 64)));
    });
    timed("pin and unpin", ROUNDS, |_| drop(black_box(region.pin())));
    // The parts of a pin: a compare-exchange and a store on a cache line of the thread, with a fence between them.
    let slot = AtomicU64::new(0);
    let claim_slot = |fenced: bool| {
        let _ = black_box(slot.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed));
        if fenced {
            fence(Ordering::SeqCst);
        }
        slot.store(0, Ordering::Release);
    };
    timed("claim and release a slot", ROUNDS, |_| claim_slot(false));
    timed("claim and release a slot, with the fence of a pin", ROUNDS, |_| claim_slot(true));
    timed("writer, created and dropped", ROUNDS, |_| drop(black_box(region.writer())));
    {
        let writer = region.writer();
        timed("store, cached", ROUNDS, |round| writer.store(cached(round), round as u64).unwrap());
        timed("compare_exchange, cached", ROUNDS, |round| {
            drop(black_box(writer.compare_exchange(cached(round), 0, 0)));
        });
        timed("allocate and free 512 bytes, used before", ROUNDS / 4, |_| {
            let at = writer.allocate(512).unwrap();
            writer.free(at, 512);
        });
    }
    checkpoints(&region, &places)
}

/// Checkpoints of all pages and of a part, with and without concurrent stores.
fn checkpoints(region: &Region, places: &[Place]) -> bolide_base::Result<()> {
    let mut checkpoint = region.checkpoint()?;
    let (pages, start) = (checkpoint.pages(), Instant::now());
    let mut sum = 0_u64;
    while let Some((page, bytes)) = checkpoint.next_page() {
        sum ^= page ^ u64::from(bytes[17]);
    }
    let seconds = start.elapsed().as_secs_f64();
    checkpoint.finish()?;
    black_box(sum);
    let rate = (pages * PAGE_BYTES) as f64 / seconds / 1e9;
    println!("a checkpoint of {pages} pages, read in {:.1} ms: {rate:.2} GB/s", seconds * 1e3);
    for share in [100, 1] {
        let writer = region.writer();
        places.iter().step_by(share).try_for_each(|&at| writer.store(at, 1))?;
        drop(writer);
        let start = Instant::now();
        let checkpoint = region.checkpoint()?;
        let fixed = start.elapsed();
        println!(
            "a checkpoint of {} pages is taken in {:.1} us",
            checkpoint.pages(),
            fixed.as_secs_f64() * 1e6
        );
        let writer = region.writer();
        let rewritten: Vec<Place> = places.iter().step_by(share * 8).copied().collect();
        timed("first store to a page of a checkpoint", rewritten.len(), |index| {
            writer.store(rewritten[index], 2).unwrap()
        });
        drop(writer);
        drop(checkpoint);
        let mut checkpoint = region.checkpoint()?;
        while checkpoint.next_page().is_some() {}
        checkpoint.finish()?;
    }
    Ok(())
}
