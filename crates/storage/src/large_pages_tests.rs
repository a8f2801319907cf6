//! Tests of large pages.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::page_maker::LargePagePreallocator;

#[test]
fn memory_can_be_written_to_its_end() {
    let _alone = ALONE.lock();
    for made in [LargePages::new, LargePages::touched] {
        let memory = made(LARGE_PAGE_BYTES + 1).unwrap();
        assert_eq!(memory.len(), 2 * LARGE_PAGE_BYTES);
        assert!(memory.base().addr().get().is_multiple_of(LARGE_PAGE_BYTES));
        let (base, len) = (memory.base(), memory.len());
        for at in [0, LARGE_PAGE_BYTES - 1, LARGE_PAGE_BYTES, len - 1] {
            // SAFETY: within the mapping, which nobody else uses.
            unsafe {
                assert_eq!(base.add(at).read(), 0, "new memory is zeros");
                base.add(at).write(7);
                assert_eq!(base.add(at).read(), 7);
            }
        }
    }
}

#[test]
fn lengths_beyond_all_limits_are_refused() {
    assert!(LargePages::new(usize::MAX).is_none());
    assert!(LargePages::new(usize::MAX - LARGE_PAGE_BYTES).is_none());
}

/// Pages until none is kept, so that it is known what is kept from then on.
fn take_all() -> Vec<LargePages> {
    let mut taken = Vec::new();
    while !POOL.lock().kept.is_empty() {
        taken.push(LargePages::new(1).unwrap());
    }
    taken
}

fn kept() -> usize {
    POOL.lock().kept.len()
}

fn used() -> usize {
    POOL.lock().used
}

#[test]
fn a_page_is_kept_for_the_next_who_asks_unless_it_is_released() {
    let _alone = ALONE.lock();
    let taken = take_all();
    let before = used();
    assert_eq!(before, taken.len());
    let page = LargePages::new(1).unwrap();
    assert_eq!(used(), before + 1);
    let base = page.base();
    drop(page);
    assert_eq!((used(), kept()), (before, 1));
    let again = LargePages::new(LARGE_PAGE_BYTES).unwrap().released_when_dropped();
    assert_eq!((again.base(), kept()), (base, 0));
    drop(again);
    assert_eq!((used(), kept()), (before, 0));
    // Of several together none is kept.
    drop(LargePages::new(2 * LARGE_PAGE_BYTES));
    assert_eq!((used(), kept()), (before, 0));
}

#[test]
fn no_more_than_so_many_are_kept() {
    let _alone = ALONE.lock();
    let many = if cfg!(miri) { return } else { MAX_KEPT + 3 };
    let pages: Vec<_> = (0..many).map(|_| LargePages::new(1).unwrap()).collect();
    drop(pages);
    assert_eq!(kept(), MAX_KEPT);
}

/// Waits until so many are kept; says how many are if that takes very long.
fn wait_for(wanted: usize) -> usize {
    let started = Instant::now();
    while kept() != wanted && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    kept()
}

#[test]
fn pages_are_made_ahead_of_a_writer_a_quarter_of_those_in_use() {
    let _alone = ALONE.lock();
    let mut pages = take_all();
    pages.clear();
    while kept() > 0 {
        drop(LargePages::new(1).unwrap().released_when_dropped());
    }
    let makers = [(); 2].map(|()| Arc::new(LargePagePreallocator::default()));
    let threads = makers.clone().map(|maker| thread::spawn(move || maker.run()));
    for number in 1..=if cfg!(miri) { 9 } else { 50 } {
        let page = LargePages::new(1).unwrap();
        #[cfg(all(target_os = "linux", not(miri)))]
        if number > USED_FOR_ONE {
            assert!(is_touched(&page), "page {number} was made ahead");
        }
        pages.push(page);
        let wanted = (number / USED_FOR_ONE).min(MAX_AHEAD);
        assert_eq!(wait_for(wanted), wanted, "with {number} in use");
    }
    makers.iter().for_each(|maker| maker.stop());
    for thread in threads {
        thread.join().unwrap();
    }
    // Nobody makes any now.
    let left = kept();
    pages.extend((0..left).map(|_| LargePages::new(1).unwrap()));
    assert_eq!(kept(), 0);
    pages.into_iter().for_each(|page| drop(page.released_when_dropped()));
}

/// Who is told to stop just while it finds that there is no memory does not wait for more.
#[test]
fn a_maker_that_gets_no_memory_can_be_stopped() {
    let _alone = ALONE.lock();
    while kept() > 0 {
        drop(LargePages::new(1).unwrap().released_when_dropped());
    }
    let pages: Vec<_> = (0..USED_FOR_ONE).map(|_| LargePages::new(1).unwrap()).collect();
    let maker = Arc::new(LargePagePreallocator::default());
    let works = maker.clone();
    let thread = thread::spawn(move || {
        works.run_with(|| {
            works.stop();
            None
        });
    });
    let started = Instant::now();
    while !thread.is_finished() && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(thread.is_finished(), "it sleeps for good");
    thread.join().unwrap();
    pages.into_iter().for_each(|page| drop(page.released_when_dropped()));
}

/// Whether the system has memory for all of the page: bit 63 of each entry of `pagemap` says so.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_touched(page: &LargePages) -> bool {
    is_in_memory(page.base().addr().get(), page.len())
}

/// The same of any memory.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn is_in_memory(address: usize, bytes: usize) -> bool {
    use std::os::unix::fs::FileExt;
    let small = rustix::param::page_size();
    let mut entries = vec![0; bytes / small * 8];
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entries, (address / small * 8) as u64).unwrap();
    entries.as_chunks::<8>().0.iter().all(|entry| u64::from_ne_bytes(*entry) >> 63 == 1)
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn what_is_touched_is_there_and_what_is_new_is_not() {
    let _alone = ALONE.lock();
    let length = 2 * LARGE_PAGE_BYTES;
    assert!(!is_touched(&LargePages::new(length).unwrap()));
    assert!(is_touched(&LargePages::touched(length).unwrap()));
}
