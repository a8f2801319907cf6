//! `bolide-testkit`: runs the checks of the test kit over ranges of seeds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use bolide::Layout;
use bolide_testkit::allocations::{self, AllocationOptions};
use bolide_testkit::concurrent::{self, ConcurrentOptions};
use bolide_testkit::conformance;
use bolide_testkit::crash::{self, CrashOptions};
use bolide_testkit::damage::{self, DamageOptions};
use bolide_testkit::every_kind::{self, KindsOptions};
use bolide_testkit::fault::{self, FaultOptions};
use bolide_testkit::forks::{self, ForkOptions};
use bolide_testkit::kinds::{self, KindChoice};
use bolide_testkit::kinds_soak::{self, KindsSoakOptions};
use bolide_testkit::metamorphic::{self, MetamorphicOptions};
use bolide_testkit::panics::{self, PanicOptions};
use bolide_testkit::pauses::{self, PauseOptions};
use bolide_testkit::repair::{self, RepairProof};
use bolide_testkit::seeds::{Counts, Outcome, SeedRun, parse_seeds};
use bolide_testkit::soak::{self, SoakOptions};
use bolide_testkit::workloads::{self, WorkloadOptions};

mod failing_allocator;

const USAGE: &str = "\
usage: bolide-testkit CHECK [--seeds A..B] [--threads N] [options]

crashes      power cuts at every sync point      --steps N (60)   --nested N (25; 0 = never)
faults       an error at every I/O call          --steps N (30)   --stride N (1)
panics       a panic at every call                --steps N (60)   --stride N (7)
allocations  allocations that fail                --steps N (60)   --failures N (60)   --stride N (7)
workloads    power cuts at every disk operation of all workloads of --operations N (3)  --part I/N (1/1)
planted      every planted mistake, by the rule that it breaks
flips        every bit of every file             --records N (12) --stride N (1)   --bits all|one (all)
forks        files of a copy that went on by itself  --records N (10)
repair       files damaged, the database repaired  --damages N (24; of each database)  --steps N (40)
metamorphic  one history under many settings     --steps N (250)  --setups N|all (12)
kinds        one history with every kind of index --steps N (150)
threads      many threads on one database         --writers N (3)  --readers N (3)  --batches N (400)  --cuts N (4)
conformance  the cases that every kind must pass  --kind TEXT (all; a specification behind its attributes)
pauses       puts while an index is built         --directory PATH (/tmp)  --records N (300000)  --rate N (2000)
             a second  --seconds N (5, without a build)
soak         uniform writes into partitions        --directory PATH (/tmp)  --records N (400000)  --rate N (10000)
             a second  --seconds N (60)  --memtable-kib N (4096)
kinds-soak   updates with every kind of index     --directory PATH (/tmp)  --records N (2000)  --seconds N (60)
steps        prints the steps of a crash history  --steps N (60)

crashes, faults, panics, flips, forks, repair and steps know --kind NAME: indexes of this kind alone, with all its options.
crashes, workloads, faults, panics, flips, repair, metamorphic, kinds and conformance know --layout NAME: all collections in this layout.
The seeds are 0..10 unless given. Exit status: 0 all held, 1 one failed, 2 wrong usage.";

fn main() -> ExitCode {
    if allocations::run_as_child() {
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((check, options)) =
        arguments.split_first().and_then(|(check, rest)| Some((check, Options::parse(rest)?)))
    else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let Some(result) = run(check, &options) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let seconds = started.elapsed().as_secs_f64();
    let Range { start, end } = options.seeds;
    match result {
        Ok(counts)
            if ["conformance", "pauses", "soak", "kinds-soak", "workloads", "planted"]
                .contains(&check.as_str()) =>
        {
            println!("{check}: held in {seconds:.1} s: {counts}");
            ExitCode::SUCCESS
        }
        Ok(counts) => {
            println!("{check}: seeds {start}..{end} held in {seconds:.1} s: {counts}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{check}: FAILED after {seconds:.1} s\n{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the named check; `None` if there is none of this name, or an option is not one of its own.
fn run(check: &str, options: &Options) -> Option<Outcome<Counts>> {
    let run = options.seed_run(check);
    match check {
        "crashes" => {
            options.knows(&["steps", "nested", "kind", "layout"])?;
            let defaults = CrashOptions::default();
            let crash = CrashOptions {
                steps: options.number("steps", defaults.steps as u64)? as usize,
                nested_one_in: options.number("nested", defaults.nested_one_in)?,
                planted: None,
                kinds: options.kinds()?,
                layout: options.layout()?,
            };
            Some(run.run(|seed| crash::check(seed, crash)))
        }
        "faults" => {
            options.knows(&["steps", "stride", "kind", "layout"])?;
            let defaults = FaultOptions::default();
            let fault = FaultOptions {
                steps: options.number("steps", defaults.steps as u64)? as usize,
                stride: options.number("stride", defaults.stride)?,
                kinds: options.kinds()?,
                layout: options.layout()?,
            };
            Some(run.run(|seed| fault::check(seed, fault)))
        }
        "panics" => {
            options.knows(&["steps", "stride", "kind", "layout"])?;
            let defaults = PanicOptions::default();
            let panic = PanicOptions {
                steps: options.number("steps", defaults.steps as u64)? as usize,
                stride: options.number("stride", defaults.stride)?,
                kinds: options.kinds()?,
                layout: options.layout()?,
                ..defaults
            };
            Some(run.run(|seed| panics::check(seed, panic)))
        }
        "allocations" => {
            options.knows(&["steps", "failures", "stride"])?;
            let defaults = AllocationOptions::default();
            let allocation = AllocationOptions {
                steps: options.number("steps", defaults.steps as u64)? as usize,
                failures: options.number("failures", defaults.failures)?,
                stride: options.number("stride", defaults.stride as u64)? as usize,
                planted: None,
            };
            let child = allocations::Child::new(&[]).ok()?;
            Some(run.run(|seed| allocations::check(seed, allocation, &child)))
        }
        "workloads" => {
            options.knows(&["operations", "part", "layout"])?;
            let total = workloads::count(options.number("operations", 3)?.try_into().ok()?);
            let (part, parts) = options.text("part").unwrap_or("1/1").split_once('/')?;
            let seeds = match options.seeds_given {
                true => options.seeds.clone(),
                false => workloads::part(total, part.parse().ok()?, parts.parse().ok()?)?,
            };
            let layout = options.layout()?.unwrap_or_default();
            let workload = WorkloadOptions { layout, planted: None };
            Some(SeedRun { seeds, ..run }.run(|number| workloads::check(number, workload)))
        }
        "planted" => options.knows(&[]).map(|()| bolide_testkit::expected::check()),
        "flips" => {
            options.knows(&["records", "stride", "bits", "kind", "layout"])?;
            let defaults = DamageOptions::default();
            let damage = DamageOptions {
                records: options.number("records", defaults.records as u64)? as usize,
                stride: options.number("stride", defaults.stride as u64)? as usize,
                every_bit: match options.text("bits") {
                    None | Some("all") => true,
                    Some("one") => false,
                    Some(_) => return None,
                },
                kinds: options.kinds()?,
                layout: options.layout()?,
                ..defaults
            };
            Some(run.run(|seed| damage::check(seed, damage)))
        }
        "forks" => {
            options.knows(&["records", "kind"])?;
            let records = options.number("records", ForkOptions::default().records as u64)? as usize;
            let forks = ForkOptions { records, kinds: options.kinds()?, same_tags: false };
            Some(run.run(|seed| forks::check(seed, forks)))
        }
        "repair" => {
            options.knows(&["damages", "steps", "kind", "layout"])?;
            let defaults = RepairProof::default();
            let proof = RepairProof {
                damages: options.number("damages", defaults.damages)?,
                steps: options.number("steps", defaults.steps as u64)? as usize,
                kinds: options.kinds()?,
                layout: options.layout()?,
                planted: None,
            };
            Some(run.run(|seed| repair::check(seed, proof)))
        }
        "metamorphic" => {
            options.knows(&["steps", "setups", "layout"])?;
            let defaults = MetamorphicOptions::default();
            let metamorphic = MetamorphicOptions {
                steps: options.number("steps", defaults.steps as u64)? as usize,
                setups: match options.text("setups") {
                    None => defaults.setups,
                    Some("all") => None,
                    Some(count) => Some(count.parse().ok()?),
                },
                layout: options.layout()?,
            };
            Some(run.run(|seed| metamorphic::check(seed, metamorphic)))
        }
        "conformance" => {
            options.knows(&["kind", "layout"])?;
            let layout = options.layout()?;
            Some(match options.text("kind") {
                Some(kind) => check_kind(kind, layout),
                None => check_all_kinds(layout),
            })
        }
        "kinds" => {
            options.knows(&["steps", "layout"])?;
            let layout = options.layout()?;
            let steps = options.number("steps", KindsOptions::default().steps as u64)? as usize;
            Some(run.run(|seed| every_kind::check(seed, KindsOptions { steps, layout })))
        }
        "pauses" => {
            options.knows(&["directory", "records", "rate", "seconds"])?;
            let defaults = PauseOptions::default();
            let pause = PauseOptions {
                records: options.number("records", defaults.records)?,
                rate: options.number("rate", defaults.rate)?,
                seconds: options.number("seconds", defaults.seconds)?,
            };
            Some(pauses::measure(&options.directory(), pause).map(|()| Counts::default()))
        }
        "soak" => {
            options.knows(&["directory", "records", "rate", "seconds", "memtable-kib"])?;
            let defaults = SoakOptions::default();
            let soak = SoakOptions {
                records: options.number("records", defaults.records)?,
                rate: options.number("rate", defaults.rate)?,
                seconds: options.number("seconds", defaults.seconds)?,
                memtable_bytes: 1024
                    * options.number("memtable-kib", defaults.memtable_bytes as u64 / 1024)? as usize,
                seed: options.seeds.start,
            };
            Some(soak::check(&options.directory(), soak))
        }
        "kinds-soak" => {
            options.knows(&["directory", "records", "seconds"])?;
            let defaults = KindsSoakOptions::default();
            let soak = KindsSoakOptions {
                records: options.number("records", defaults.records)?,
                seconds: options.number("seconds", defaults.seconds)?,
                seed: options.seeds.start,
            };
            Some(kinds_soak::check(&options.directory(), soak))
        }
        "steps" => {
            options.knows(&["steps", "kind"])?;
            let kinds = options.kinds()?;
            let steps = options.number("steps", CrashOptions::default().steps as u64)? as usize;
            Some(run.run(|seed| {
                for (i, step) in crash::steps(seed, steps, kinds).iter().enumerate() {
                    println!("{i:>4} {step}");
                }
                Ok(Counts::default())
            }))
        }
        "threads" => {
            options.knows(&["writers", "readers", "batches", "cuts"])?;
            let defaults = ConcurrentOptions::default();
            let concurrent = ConcurrentOptions {
                writers: options.number("writers", defaults.writers as u64)? as usize,
                readers: options.number("readers", defaults.readers as u64)? as usize,
                batches: options.number("batches", defaults.batches)?,
                cuts: options.number("cuts", defaults.cuts)?,
            };
            Some(run.run(|seed| concurrent::check(seed, concurrent)))
        }
        _ => None,
    }
}

/// The conformance suite with one kind.
fn check_kind(kind: &str, layout: Option<Layout>) -> Outcome<Counts> {
    layout.map_or_else(|| conformance::check(kind), |layout| conformance::check_in(kind, layout))
}

/// The conformance suite with every kind that there is, or is to be.
fn check_all_kinds(layout: Option<Layout>) -> Outcome<Counts> {
    let mut counts = Counts::default();
    for kind in kinds::BUILT.into_iter().chain(kinds::ANNOUNCED) {
        let started = Instant::now();
        let these = check_kind(kind, layout)?;
        println!("{kind}: {these}, {:.1} s", started.elapsed().as_secs_f64());
        counts.merge(&these);
    }
    Ok(counts)
}

/// The options of the command line.
struct Options {
    seeds: Range<u64>,
    seeds_given: bool,
    threads: usize,
    others: BTreeMap<String, String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Option<Self> {
        let mut others = BTreeMap::new();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return None };
            others.insert(name.strip_prefix("--")?.to_owned(), value.clone());
        }
        let seeds_given = others.contains_key("seeds");
        let seeds = match others.remove("seeds") {
            None => 0..10,
            Some(text) => parse_seeds(&text)?,
        };
        let threads = match others.remove("threads") {
            None => std::thread::available_parallelism().map_or(1, usize::from),
            Some(text) => text.parse().ok()?,
        };
        Some(Self { seeds, seeds_given, threads, others })
    }

    /// `None` if there is an option of another name.
    fn knows(&self, names: &[&str]) -> Option<()> {
        self.others.keys().all(|name| names.contains(&name.as_str())).then_some(())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.others.get(name).map(String::as_str)
    }

    /// Where databases on a real disk lie.
    fn directory(&self) -> std::path::PathBuf {
        self.text("directory").map_or_else(std::env::temp_dir, std::path::PathBuf::from)
    }

    fn number(&self, name: &str, default: u64) -> Option<u64> {
        self.text(name).map_or(Some(default), |text| text.parse().ok())
    }

    fn seed_run(&self, check: &str) -> SeedRun {
        let others: String = self.others.iter().map(|(name, value)| format!(" --{name} {value}")).collect();
        SeedRun {
            command: format!("{check}{others}"),
            seeds: self.seeds.clone(),
            threads: self.threads,
            progress: true,
        }
    }

    /// The layout of all collections, if one is wanted; `None` for a wrong name.
    fn layout(&self) -> Option<Option<Layout>> {
        match self.text("layout") {
            None => Some(None),
            Some(name) => Layout::ALL.into_iter().find(|layout| layout.name() == name).map(Some),
        }
    }

    /// The kinds that the indexes of a run are of.
    fn kinds(&self) -> Option<KindChoice> {
        self.text("kind").map_or(Some(KindChoice::default()), KindChoice::only)
    }
}
