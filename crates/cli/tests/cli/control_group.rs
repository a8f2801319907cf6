//! The memory budget under a hard limit: a control group kills what exceeds it.
//!
//! Linux only. Without a control group that may be written, the test reports that and passes.

use std::path::{Path, PathBuf};

use crate::program::{Place, Run};

const BUDGET_BYTES: u64 = 64 << 20;
const RECORDS: u64 = 250_000;

/// A control group for memory below the one of this process, of version 1 or 2; removed when dropped.
struct ControlGroup {
    path: PathBuf,
    is_v2: bool,
}

impl ControlGroup {
    /// Creates a group with a hard limit.
    fn new(limit_bytes: u64) -> Result<Self, String> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = |controller: &str| {
            let parts = groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
            let found =
                parts.filter(|parts| parts.len() == 3 && parts[1].split(',').any(|one| one == controller));
            found.map(|parts| parts[2].trim_start_matches('/').to_owned()).next()
        };
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, own, is_v2) = match own("memory") {
            Some(own) if v1.is_dir() => (v1, own, false),
            _ => (Path::new("/sys/fs/cgroup"), own("").ok_or("no control group")?, true),
        };
        // In a container the group of the process may not be visible.
        let parent = Some(root.join(own)).filter(|parent| parent.is_dir()).unwrap_or_else(|| root.to_owned());
        let path = parent.join(format!("bolide-test-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let group = Self { path, is_v2 };
        // Without swap space, which would hide an excess.
        let limits: &[(&str, bool)] = match is_v2 {
            true => &[("memory.max", true), ("memory.swap.max", false)],
            false => &[("memory.limit_in_bytes", true), ("memory.swappiness", false)],
        };
        for (file, is_limit) in limits {
            let value = if *is_limit { limit_bytes } else { 0 };
            let written = std::fs::write(group.path.join(file), value.to_string());
            match written {
                Err(error) if *is_limit => return Err(format!("{file}: {error}")),
                _ => {}
            }
        }
        Ok(group)
    }

    /// Runs `bolide` with `arguments` in the group.
    fn run(&self, place: &Place, arguments: &str) -> Run {
        let program = env!("CARGO_BIN_EXE_bolide");
        let procs = self.path.join("cgroup.procs");
        let script = format!("echo $$ > {} && exec {program} {arguments}", procs.display());
        let mut shell = std::process::Command::new("sh");
        let output =
            shell.current_dir(place.path("")).args(["-c", &script]).output().expect("the shell starts");
        Run {
            // None: killed by a signal.
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// The number of processes that were killed, if the system counts them.
    fn killed(&self) -> u64 {
        let file = if self.is_v2 { "memory.events" } else { "memory.oom_control" };
        let text = std::fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        count.unwrap_or(0)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The kernel needs a moment after the last process.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Records with a value that many have, one that few have, and some bytes.
fn rows(from: u64, to: u64) -> String {
    let row = |id: u64| {
        let (group, rare, pad) = (id % 100, id / 3, "x".repeat(150));
        format!("{{\"id\":{id},\"group\":{group},\"rare\":{rare},\"pad\":\"{pad}{id}\"}}\n")
    };
    (from..to).map(row).collect()
}

#[test]
fn a_database_stays_within_its_budget_and_64_mib_and_a_tenth() {
    let limit = (BUDGET_BYTES + (64 << 20)) / 10 * 11;
    let group = match ControlGroup::new(limit) {
        Ok(group) => group,
        Err(why) => return println!("skipped: no control group for memory can be created: {why}"),
    };
    let place = Place::new();
    place.file("rows.ndjson", rows(0, RECORDS));
    // Updates of a fifth of the records, with other values.
    place.file("updates.ndjson", rows(0, RECORDS / 5).replace("\"rare\":", "\"rare\":7"));
    let run = |line: &str| {
        let run = group.run(&place, &format!("--memory 64MiB {line}")).expect_status(0, line);
        assert_eq!(group.killed(), 0, "bolide {line}");
        run
    };
    run("import db c rows.ndjson --key id --index group --index rare:composite");
    run("import db c updates.ndjson --key id");
    let newest = run("find db c --eq group=7 --limit 10 --format ndjson").keys();
    assert_eq!(newest[..2], [(RECORDS / 5 - 93).to_string(), (RECORDS / 5 - 193).to_string()]);
    assert_eq!(run("find db c --eq group=7 --count").stdout, format!("{{\"count\":{}}}\n", RECORDS / 100));
    // Sorted by an attribute without an index, and by the largest index.
    run("find db c --range group=0..50 --sort pad --limit 5 --format ndjson");
    run("find db c --range rare=0.. --order value --keys-only --limit 100000");
    run("compact db");
    run("check db --deep");
    // The limit is effective: a program without the budget's limit is killed, or has too little to show it.
    let excess = "head -c 600000000 /dev/zero | tail | wc -c";
    let killed = std::process::Command::new("sh")
        .args(["-c", &format!("echo $$ > {}; {excess}", group.path.join("cgroup.procs").display())])
        .output()
        .expect("the shell starts");
    assert_ne!(String::from_utf8_lossy(&killed.stdout).trim(), "600000000", "the limit has no effect");
}
