//! A description of the machine.

use std::fs;

/// Processor, cores, memory and kernel, as far as the system reports them.
pub fn machine() -> String {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let (cpu, memory, kernel) =
        (read("/proc/cpuinfo"), read("/proc/meminfo"), read("/proc/sys/kernel/osrelease"));
    let model = value(&cpu, "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kilobytes = value(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let gigabytes = kilobytes.unwrap_or(0) as f64 / f64::from(1 << 20);
    format!("{model}, {cores} cores, {gigabytes:.0} GiB, Linux {}", kernel.trim())
}

fn value(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
