//! Parts that threads read at the same time, delivered in the order of the parts.
//!
//! ```text
//! part     0      1      2      3      4 …
//!        read   being  being  not begun
//!               read   read
//!          │      │      │
//!          ▼      ▼      ▼
//!        queue  queue  queue      a window of parts; a queue is bounded
//!          └──> consumer
//! ```
//!
//! The consumer takes from the first queue until its part has ended. A thread begins the next part only within the window,
//! and waits while the queue of its part is full. The first part always has a thread, so the consumer never waits for a
//! thread that waits for it.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Items of a part that wait for the consumer.
const MAX_QUEUED: usize = 8;

/// Reads the part of this number: passes its items on until that breaks.
type ReadPart<B, E> =
    dyn Fn(usize, &mut dyn FnMut(B) -> ControlFlow<()>) -> std::result::Result<(), E> + Send + Sync;

/// The items of parts that several threads read, in order.
///
/// A panic of a thread goes on in the consumer. Dropping the stream ends the threads, after the item that each is reading.
///
/// ```
/// use bolide_arrow::PartStream;
/// let parts = PartStream::start(10, 4, |part, pass| {
///     let _ = (0..3).try_for_each(|item| pass(3 * part + item));
///     Ok::<(), ()>(())
/// })?;
/// assert_eq!(parts.collect::<Result<Vec<_>, _>>(), Ok((0..30).collect()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PartStream<B, E> {
    shared: Arc<Shared<B, E>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<B, E> {
    parts: usize,
    /// The number of parts that are begun before the first of them has ended.
    window: usize,
    state: Mutex<State<B, E>>,
    changed: Condvar,
}

struct State<B, E> {
    /// The number of the part of the first queue.
    first: usize,
    /// The parts that were begun and are not delivered.
    queues: VecDeque<PartQueue<B, E>>,
    is_stopped: bool,
}

struct PartQueue<B, E> {
    items: VecDeque<B>,
    end: Option<PartEnd<E>>,
}

enum PartEnd<E> {
    Complete,
    Failed(E),
    Panicked(Box<dyn Any + Send>),
}

impl<B: Send + 'static, E: Send + 'static> PartStream<B, E> {
    /// Starts at most `threads` threads that read the parts from 0 to `parts`.
    ///
    /// # Errors
    /// If the system starts no thread. One that it does not start in addition is left out.
    pub fn start(
        parts: usize,
        threads: usize,
        read: impl Fn(usize, &mut dyn FnMut(B) -> ControlFlow<()>) -> std::result::Result<(), E>
        + Send
        + Sync
        + 'static,
    ) -> io::Result<Self> {
        let threads = threads.min(parts).max(1);
        let state = State { first: 0, queues: VecDeque::new(), is_stopped: false };
        let shared = Arc::new(Shared {
            parts,
            window: 2 * threads,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let read: Arc<ReadPart<B, E>> = Arc::new(read);
        let mut stream = Self { shared, threads: Vec::with_capacity(threads) };
        for _ in 0..threads {
            let (shared, read) = (stream.shared.clone(), read.clone());
            match Builder::new().name("bolide-parts".to_owned()).spawn(move || shared.read_parts(&*read)) {
                Ok(thread) => stream.threads.push(thread),
                Err(error) if stream.threads.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(stream)
    }
}

impl<B, E> Shared<B, E> {
    fn lock(&self) -> MutexGuard<'_, State<B, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State<B, E>>) -> MutexGuard<'s, State<B, E>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one part after the other, until none is left or the stream is dropped.
    fn read_parts(&self, read: &ReadPart<B, E>) {
        while let Some(part) = self.begin_part() {
            let mut pass = |item| self.pass(part, item);
            let end = match catch_unwind(AssertUnwindSafe(|| read(part, &mut pass))) {
                Ok(Ok(())) => PartEnd::Complete,
                Ok(Err(error)) => PartEnd::Failed(error),
                Err(panic) => PartEnd::Panicked(panic),
            };
            if let Some(queue) = self.lock().queue_mut(part) {
                queue.end = Some(end);
            }
            self.changed.notify_all();
        }
    }

    fn begin_part(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            let next = state.first + state.queues.len();
            if state.is_stopped || next >= self.parts {
                return None;
            }
            if state.queues.len() < self.window {
                state.queues.push_back(PartQueue { items: VecDeque::new(), end: None });
                return Some(next);
            }
            state = self.wait(state);
        }
    }

    fn pass(&self, part: usize, item: B) -> ControlFlow<()> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return ControlFlow::Break(());
            }
            let Some(queue) = state.queue_mut(part) else { return ControlFlow::Break(()) };
            if queue.items.len() < MAX_QUEUED {
                queue.items.push_back(item);
                drop(state);
                self.changed.notify_all();
                return ControlFlow::Continue(());
            }
            state = self.wait(state);
        }
    }

    fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }
}

impl<B, E> State<B, E> {
    fn queue_mut(&mut self, part: usize) -> Option<&mut PartQueue<B, E>> {
        self.queues.get_mut(part.checked_sub(self.first)?)
    }
}

impl<B, E> Iterator for PartStream<B, E> {
    type Item = std::result::Result<B, E>;

    /// The next item. After an error there is none.
    fn next(&mut self) -> Option<Self::Item> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        loop {
            if state.is_stopped || state.first >= shared.parts {
                return None;
            }
            let Some(queue) = state.queues.front_mut() else {
                state = shared.wait(state);
                continue;
            };
            if let Some(item) = queue.items.pop_front() {
                drop(state);
                shared.changed.notify_all();
                return Some(Ok(item));
            }
            match queue.end.take() {
                None => state = shared.wait(state),
                Some(end) => {
                    state.queues.pop_front();
                    state.first += 1;
                    state.is_stopped = !matches!(end, PartEnd::Complete);
                    shared.changed.notify_all();
                    match end {
                        PartEnd::Complete => {}
                        PartEnd::Failed(error) => return Some(Err(error)),
                        PartEnd::Panicked(panic) => {
                            drop(state);
                            resume_unwind(panic)
                        }
                    }
                }
            }
        }
    }
}

impl<B, E> Drop for PartStream<B, E> {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // Panics of a part were caught.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// The number of items of a part, and a pause after some of them.
    fn items_of(part: usize) -> usize {
        (part * 7 + 3) % 23
    }

    fn start(parts: usize, threads: usize, alive: &Arc<AtomicUsize>) -> PartStream<(usize, usize), String> {
        let alive = alive.clone();
        PartStream::start(parts, threads, move |part, pass| {
            for item in 0..items_of(part) {
                if (part + item).is_multiple_of(5) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                alive.fetch_add(1, Ordering::Relaxed);
                if pass((part, item)).is_break() {
                    return Ok(());
                }
            }
            Ok(())
        })
        .unwrap()
    }

    #[test]
    fn items_come_in_order_and_are_bounded() {
        for threads in [1, 2, 5] {
            for parts in [0, 1, 2, 40] {
                let made = Arc::new(AtomicUsize::new(0));
                let mut expected =
                    (0..parts).flat_map(|part| (0..items_of(part)).map(move |item| (part, item)));
                for (taken, found) in start(parts, threads, &made).enumerate() {
                    assert_eq!(found.ok(), expected.next());
                    let waiting = made.load(Ordering::Relaxed).saturating_sub(taken);
                    assert!(
                        waiting <= (2 * threads) * (MAX_QUEUED + 1) + 1,
                        "{waiting} items of {threads} threads"
                    );
                }
                assert_eq!(expected.next(), None);
            }
        }
    }

    #[test]
    fn a_dropped_stream_ends_its_threads() {
        for taken in [0, 1, 30] {
            let made = Arc::new(AtomicUsize::new(0));
            let mut stream = start(1_000, 3, &made);
            assert_eq!(stream.by_ref().take(taken).count(), taken);
            drop(stream);
            let after = made.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(made.load(Ordering::Relaxed), after);
        }
    }

    #[test]
    fn errors_and_panics_come_in_their_place() {
        for fails in [true, false] {
            let mut stream = PartStream::start(10, 3, move |part, pass| match part {
                4 if fails => Err("a fault"),
                4 => panic!("a fault"),
                _ => {
                    let _ = pass(part);
                    Ok(())
                }
            })
            .unwrap();
            let before: Vec<_> = stream.by_ref().take(4).collect();
            assert_eq!(before, [Ok(0), Ok(1), Ok(2), Ok(3)]);
            let next = catch_unwind(AssertUnwindSafe(|| stream.next()));
            assert_eq!(next.ok(), fails.then_some(Some(Err("a fault"))));
            assert_eq!(stream.next(), None);
        }
    }
}
