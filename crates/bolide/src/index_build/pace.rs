//! Rate limit of a back-fill.

use std::time::Duration;

use bolide_base::Result;
use bolide_storage::Runtime;

use super::options::BuildOptions;
use crate::catalog::BuildPosition;

/// The maximum sleep between two checks whether the build continues.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// The limit of a second is divided into this number of parts.
const STRIDES_PER_SECOND: u64 = 20;

/// Delays a build so that it stays within its limits.
#[derive(Debug)]
pub(super) struct Pace {
    records_per_second: u64,
    bytes_per_second: u64,
    started_micros: u64,
    done: BuildPosition,
}

impl Pace {
    pub(super) fn new(options: &BuildOptions, runtime: &dyn Runtime) -> Self {
        let (records_per_second, bytes_per_second) = options.limits();
        let started_micros = runtime.now_micros();
        Self { records_per_second, bytes_per_second, started_micros, done: BuildPosition::default() }
    }

    /// The maximum number of records and bytes to read at a time, so that a low rate is an even one.
    pub(super) fn stride(&self) -> (u64, u64) {
        let stride = |limit: u64| if limit == 0 { u64::MAX } else { (limit / STRIDES_PER_SECOND).max(1) };
        (stride(self.records_per_second), stride(self.bytes_per_second))
    }

    /// Waits until `more` is within the limits, as long as `check` succeeds.
    pub(super) fn wait(
        &mut self,
        more: BuildPosition,
        runtime: &dyn Runtime,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        self.done.records += more.records;
        self.done.bytes += more.bytes;
        let due = self.started_micros + self.micros_due();
        loop {
            let now = runtime.now_micros();
            if now >= due {
                return Ok(());
            }
            check()?;
            runtime.sleep(Duration::from_micros(due - now).min(MAX_SLEEP));
        }
    }

    /// The earliest time after the start at which the work so far is within the limits.
    fn micros_due(&self) -> u64 {
        let due = |done: u64, limit: u64| match limit {
            0 => 0,
            _ => u64::try_from(u128::from(done) * 1_000_000 / u128::from(limit)).unwrap_or(u64::MAX / 2),
        };
        due(self.done.records, self.records_per_second).max(due(self.done.bytes, self.bytes_per_second))
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRuntime;

    use super::*;

    #[test]
    fn a_build_stays_within_both_limits_and_never_sleeps_without_one() {
        let step = BuildPosition { records: 10, bytes: 1_000, entries: 10 };
        for (options, seconds) in [
            (BuildOptions::default(), 0),
            (BuildOptions::default().records_per_second(100), 10),
            (BuildOptions::default().bytes_per_second(2_000), 50),
            (BuildOptions::default().bytes_per_second(2_000).records_per_second(1), 1_000),
        ] {
            let runtime = SimRuntime::new(1);
            let mut pace = Pace::new(&options, &runtime);
            for _ in 0..100 {
                pace.wait(step, &runtime, || Ok(())).unwrap();
            }
            let passed = runtime.now_micros() / 1_000_000;
            assert!((seconds..=seconds + 1).contains(&passed), "{options:?}: {passed} s");
        }
    }
}
