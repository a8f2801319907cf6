//! The memory budget under a hard limit: a control group kills what exceeds it.
//!
//! Linux only. Without a control group that may be written, the tests report that and pass.

use std::path::{Path, PathBuf};
use std::process::Command;

use bolide_testkit::memory_soak::hard_limit;

/// A control group for memory, of version 1 or 2; removed when dropped.
struct ControlGroup(PathBuf);

impl ControlGroup {
    fn new(name: &str, limit_bytes: u64) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for (root, limit, swap) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness"),
            ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
        ] {
            let path = Path::new(root).join(format!("bolide-{name}-{}", std::process::id()));
            let created = std::fs::create_dir(&path).map(|()| Self(path.clone()));
            let limited = created.and_then(|group| {
                // Without the memory controller the group has no such file.
                std::fs::metadata(path.join(limit))?;
                std::fs::write(path.join(limit), limit_bytes.to_string())?;
                let _ = std::fs::write(path.join(swap), "0");
                Ok(group)
            });
            match limited {
                Ok(group) => return Ok(group),
                Err(error) => reasons.push(format!("{}: {error}", path.display())),
            }
        }
        Err(reasons.join("; "))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The kernel needs a moment after the last process.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Runs the soak with a budget of `mib` MiB in a group with its hard limit.
fn soak(mib: u64, arguments: &str) {
    let group = match ControlGroup::new(&format!("soak-{mib}"), hard_limit(mib << 20)) {
        Ok(group) => group,
        Err(why) => return println!("skipped: no control group for memory can be created: {why}"),
    };
    let program = env!("CARGO_BIN_EXE_bolide-testkit");
    let procs = group.0.join("cgroup.procs");
    let script =
        format!("echo $$ > {} && exec {program} memory-soak --memory-mib {mib} {arguments}", procs.display());
    let output = Command::new("sh").args(["-c", &script]).output().expect("the shell starts");
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Without a code it was killed by a signal.
    assert_eq!(output.status.code(), Some(0), "{}: {out}{errors}", output.status);
}

#[test]
#[ignore = "the process exceeds the limit by some MiB: sorts and allocators take memory that is not counted"]
fn writers_queries_and_compactions_stay_within_a_small_budget_in_every_layout() {
    soak(64, "--seconds 4 --records 40000");
}

#[test]
#[ignore = "takes minutes, and several GB of disk space"]
fn writers_queries_and_compactions_stay_within_a_gigabyte_in_every_layout() {
    soak(1024, "--seconds 120 --records 1500000");
}
