//! Durability of a simulated region by cache line.
//!
//! A processor writes changed lines of 64 bytes to memory at any time, at the latest at the fence after a persist. So after a
//! power cut a line has one of its contents since it was last durable: the model stores all of them. Words of 8 bytes are never
//! torn, and a line is written back as a whole; different lines are independent.
//!
//! A persist covers the content at its time; a fence waits for the persists of its own thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use super::extent::ExtentTable;
use super::layout::{LINE_BYTES, Place};
use super::sync::Mutex;

/// Words of a line.
const LINE_WORDS: usize = LINE_BYTES / 8;
/// The content of a line.
pub(super) type LineContent = [u64; LINE_WORDS];

/// Called before each fence.
pub(super) type FenceHook = Arc<dyn Fn() + Send + Sync>;

/// The lines of a region whose current content is not durable.
#[derive(Default)]
pub(super) struct LineModel {
    lines: Mutex<BTreeMap<Place, PendingLine>>,
    hook: Mutex<Option<FenceHook>>,
}

#[derive(Debug, Clone)]
struct PendingLine {
    /// The last durable content, then all later contents. At least two.
    contents: Vec<LineContent>,
    /// Persists without a fence: the thread, and the index of the content.
    persists: Vec<(ThreadId, usize)>,
}

impl LineModel {
    /// Runs `change`, which changes the word at `at`. Changes are serialized.
    pub(super) fn change<T>(&self, table: &ExtentTable, at: Place, change: impl FnOnce() -> T) -> T {
        let mut lines = self.lines.lock();
        let start = at - at % LINE_BYTES as Place;
        let before = content(table, start);
        let result = change();
        let after = content(table, start);
        if after != before {
            let line = lines.entry(start);
            let line = line.or_insert_with(|| PendingLine { contents: vec![before], persists: Vec::new() });
            line.contents.push(after);
        }
        result
    }

    /// Persists `count` lines from `first` on.
    pub(super) fn persist(&self, first: Place, count: u64) {
        let mut lines = self.lines.lock();
        let end = first + count * LINE_BYTES as Place;
        for (_, line) in lines.range_mut(first..end) {
            line.persists.push((thread::current().id(), line.contents.len() - 1));
        }
    }

    /// Sets what is called before each fence.
    pub(super) fn set_hook(&self, hook: Option<FenceHook>) {
        *self.hook.lock() = hook;
    }

    /// Waits for the persists of this thread.
    pub(super) fn fence(&self) {
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook();
        }
        let current = thread::current().id();
        self.lines.lock().retain(|_, line| {
            let newest =
                line.persists.iter().filter(|(thread, _)| *thread == current).map(|&(_, index)| index).max();
            if let Some(durable) = newest {
                line.contents.drain(..durable);
                line.persists.retain(|&(_, index)| index > durable);
                line.persists.iter_mut().for_each(|(_, index)| *index -= durable);
            }
            line.contents.len() > 1
        });
    }

    /// The lines whose current content is not durable: offset and possible contents, the oldest first. `snapshot` runs without
    /// concurrent changes.
    pub(super) fn unflushed<T>(&self, snapshot: impl FnOnce() -> T) -> (T, Vec<(Place, Vec<LineContent>)>) {
        let lines = self.lines.lock();
        let snapshot = snapshot();
        (snapshot, lines.iter().map(|(&start, line)| (start, line.contents.clone())).collect())
    }
}

fn content(table: &ExtentTable, start: Place) -> LineContent {
    let mut content = [0; LINE_WORDS];
    let words = table.words(start, LINE_WORDS).unwrap_or_default();
    content.iter_mut().zip(words).for_each(|(into, word)| *into = word.get());
    content
}

impl fmt::Debug for LineModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines are not durable", self.lines.lock().len())
    }
}
