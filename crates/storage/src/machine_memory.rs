//! The memory that the process may use: that of the machine, or the limit of its control group.
//!
//! ```text
//! /proc/meminfo                                   MemTotal of the machine, in KiB
//! /proc/self/cgroup                               the paths of the process in the hierarchies of control groups
//! /sys/fs/cgroup/PATH/memory.max                  version 2: the limit in bytes, or "max"
//! /sys/fs/cgroup/memory/PATH/memory.limit_in_bytes    version 1: the limit in bytes, about 2^63 for none
//! ```
//!
//! Every ancestor of a group limits it too. A path may be that of the host, which a container does not have: then the root of
//! the hierarchy in the container has the limit.

/// Mount points of version 2, alone and beside version 1.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The mount point of version 1.
const OF_MEMORY: &str = "/sys/fs/cgroup/memory";
/// Limits from here on mean none.
const UNLIMITED: u64 = 1 << 60;

/// The bytes that the process may use; 0 if unknown. `read` returns the content of a file, or `None`.
pub(crate) fn machine_memory_bytes(read: &dyn Fn(&str) -> Option<String>) -> u64 {
    let machine = read("/proc/meminfo").and_then(|text| total_of(&text));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(|line| limit_of_group(line, read));
    limits.chain(machine).min().unwrap_or(0)
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of the group in a line `hierarchy:controllers:path` of `/proc/self/cgroup`, and of its ancestors.
fn limit_of_group(line: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if controllers.is_empty() {
        UNIFIED.iter().filter_map(|mount| smallest_limit(mount, path, "memory.max", read)).min()
    } else if controllers.split(',').any(|controller| controller == "memory") {
        smallest_limit(OF_MEMORY, path, "memory.limit_in_bytes", read)
    } else {
        None
    }
}

/// The smallest number in the files `name` of the folder `path` under `mount` and of all folders above it, `mount` included.
fn smallest_limit(mount: &str, path: &str, name: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let mut path = path.trim_end_matches('/');
    let mut smallest: Option<u64> = None;
    loop {
        let limit = read(&format!("{mount}{path}/{name}")).and_then(|text| text.trim().parse().ok());
        smallest = smallest.into_iter().chain(limit.filter(|&limit| limit < UNLIMITED)).min();
        match path.rfind('/') {
            Some(end) => path = &path[..end],
            None => return smallest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal:        8000000 kB\nMemFree: 1 kB\n");

    fn bytes_with(files: &[(&str, &str)]) -> u64 {
        machine_memory_bytes(&|path| {
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_machine_is_the_limit_without_a_group() {
        assert_eq!(bytes_with(&[MEMINFO]), 8_000_000 * 1024);
        assert_eq!(bytes_with(&[MEMINFO, ("/proc/self/cgroup", "0::/\n")]), 8_000_000 * 1024);
        assert_eq!(bytes_with(&[]), 0);
        assert_eq!(bytes_with(&[("/proc/meminfo", "MemTotal: x kB\n")]), 0);
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_its_ancestors_counts() {
        let v2 = [
            MEMINFO,
            ("/proc/self/cgroup", "0::/app.slice/db.service\n"),
            ("/sys/fs/cgroup/app.slice/db.service/memory.max", "max\n"),
            ("/sys/fs/cgroup/app.slice/memory.max", "1073741824\n"),
        ];
        assert_eq!(bytes_with(&v2), 1 << 30);
        let v1 = [
            MEMINFO,
            ("/proc/self/cgroup", "9:cpu:/a\n8:memory:/a/b\n1:name=systemd:/\n0::/x\n"),
            ("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "536870912\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(bytes_with(&v1), 512 << 20);
    }

    #[test]
    fn a_container_without_the_folders_of_the_host_has_the_limit_of_its_root() {
        let hidden = [
            MEMINFO,
            ("/proc/self/cgroup", "5:memory:/docker/0123\n0::/docker/0123\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
        ];
        assert_eq!(bytes_with(&hidden), 256 << 20);
    }

    #[test]
    fn a_limit_above_the_memory_of_the_machine_does_not_count() {
        let files = [
            MEMINFO,
            ("/proc/self/cgroup", "0::/a:b\n"),
            ("/sys/fs/cgroup/a:b/memory.max", "99999999999999"),
        ];
        assert_eq!(bytes_with(&files), 8_000_000 * 1024);
    }
}
