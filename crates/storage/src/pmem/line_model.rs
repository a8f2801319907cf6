//! What is durable of a simulated region, line by line.
//!
//! A processor holds changed lines of 64 bytes back and writes them to memory when it likes, or by the fence that
//! follows a persist at the latest. So after a power cut a line has one of the contents that it had since it was last
//! known to be durable: the model keeps them all. Words of 8 bytes are never torn, and a line is written back
//! as a whole; different lines know nothing of each other.
//!
//! A persist counts for the content at its time; a fence waits for the persists of its own thread.

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

/// The lines of a region that are not durable as they are.
#[derive(Default)]
pub(super) struct LineModel {
    lines: Mutex<BTreeMap<Place, PendingLine>>,
    hook: Mutex<Option<FenceHook>>,
}

#[derive(Debug, Clone)]
struct PendingLine {
    /// What it was when it was durable last, then everything that it was since. At least two.
    contents: Vec<LineContent>,
    /// Persists that no fence has waited for: by whom, and of which content.
    persists: Vec<(ThreadId, usize)>,
}

impl LineModel {
    /// Runs `change`, which changes the word at `at`. All changes come one after the other.
    pub(super) fn change<T>(&self, table: &ExtentTable, at: Place, change: impl FnOnce() -> T) -> T {
        let mut lines = self.lines.lock();
        let place = at - at % LINE_BYTES as Place;
        let before = content(table, place);
        let result = change();
        let after = content(table, place);
        if after != before {
            let line = lines.entry(place);
            let line = line.or_insert_with(|| PendingLine { contents: vec![before], persists: Vec::new() });
            line.contents.push(after);
        }
        result
    }

    /// Asks for `count` lines from `first` on to be written back.
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

    /// Waits for what this thread persisted.
    pub(super) fn fence(&self) {
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook();
        }
        let me = thread::current().id();
        self.lines.lock().retain(|_, line| {
            let newest = line.persists.iter().filter(|(who, _)| *who == me).map(|&(_, of)| of).max();
            if let Some(durable) = newest {
                line.contents.drain(..durable);
                line.persists.retain(|&(_, of)| of > durable);
                line.persists.iter_mut().for_each(|(_, of)| *of -= durable);
            }
            line.contents.len() > 1
        });
    }

    /// The lines that are not durable as they are: place and possible contents, the oldest first. `snapshot` runs
    /// while nothing changes.
    pub(super) fn unflushed<T>(&self, snapshot: impl FnOnce() -> T) -> (T, Vec<(Place, Vec<LineContent>)>) {
        let lines = self.lines.lock();
        let taken = snapshot();
        (taken, lines.iter().map(|(&place, line)| (place, line.contents.clone())).collect())
    }
}

fn content(table: &ExtentTable, place: Place) -> LineContent {
    let mut content = [0; LINE_WORDS];
    let words = table.words(place, LINE_WORDS).unwrap_or_default();
    content.iter_mut().zip(words).for_each(|(into, word)| *into = word.get());
    content
}

impl fmt::Debug for LineModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines are not durable", self.lines.lock().len())
    }
}
