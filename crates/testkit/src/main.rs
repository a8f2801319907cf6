//! `bolide-testkit`: runs the checks of the test kit over ranges of seeds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use bolide::Layout;
use bolide_testkit::allocations::{self, AllocationOptions};
use bolide_testkit::concurrent::{self, ConcurrentOptions};
use bolide_testkit::conformance::{self, QueryShare, SuiteOptions};
use bolide_testkit::crash::{self, CrashOptions};
use bolide_testkit::damage::{self, DamageOptions};
use bolide_testkit::every_kind::{self, KindsOptions};
use bolide_testkit::fault::{self, FaultOptions};
use bolide_testkit::forks::{self, ForkOptions};
use bolide_testkit::kinds::{self, KindChoice};
use bolide_testkit::kinds_soak::{self, KindsSoakOptions};
use bolide_testkit::memory::{self, MemoryOptions};
use bolide_testkit::memory_soak::{self, MemorySoakOptions};
use bolide_testkit::metamorphic::{self, MetamorphicOptions};
use bolide_testkit::panics::{self, PanicOptions};
use bolide_testkit::pauses::{self, PauseOptions};
use bolide_testkit::repair::{self, RepairProof};
use bolide_testkit::seeds::{Counts, Outcome, SeedRun, parse_seeds};
use bolide_testkit::soak::{self, SoakOptions};
use bolide_testkit::transactions::{self, HistoryOfTransactions};
use bolide_testkit::workloads::{self, WorkloadOptions};

mod failing_allocator;

const USAGE: &str = "\
usage: bolide-testkit CHECK [--seeds A..B] [--threads N] [options]

crashes      power cuts at every sync point      --steps N (60)   --nested N (25; 0 = never)
faults       an error at every I/O call          --steps N (30)   --stride N (1)
panics       a panic at every call                --steps N (60)   --stride N (7)
allocations  allocations that fail                --steps N (60)   --failures N (60)   --stride N (7)
workloads    power cuts at every disk operation of all workloads of --operations N (3)  --part I/N (1/1)
planted      every planted bug, detected by the rule that it breaks
flips        every bit of every file             --records N (12) --stride N (1)   --bits all|one (all)
forks        files of a diverged copy                --records N (10)
memory       a tiny memory budget                    --steps N (60)
repair       repair of damaged databases             --damages N (24; per database)  --steps N (40)
metamorphic  one history under many settings     --steps N (250)  --setups N|all (12)
kinds        one history with every kind of index --steps N (150)
threads      many threads on one database         --writers N (3)  --readers N (3)  --batches N (400)  --cuts N (4)
transactions histories of 2 to 8 threads            --transactions N (30; per thread)  --cuts N (2)
conformance  the suite of index kinds             --kind TEXT (all; a specification after its attributes)
pauses       puts while an index is built         --directory PATH (/tmp)  --records N (300000)  --rate N (2000)
             per second  --seconds N (5, without a build)
soak         uniform writes into partitions        --directory PATH (/tmp)  --records N (400000)  --rate N (10000)
             per second  --seconds N (60)  --memtable-kib N (4096)
memory-soak  threads within a memory budget       --directory PATH (/tmp)  --memory-mib N (64)  --records N (60000;
             per writer)  --seconds N (10; per layout)
kinds-soak   updates with every kind of index     --directory PATH (/tmp)  --records N (2000)  --seconds N (60)
steps        prints the steps of a crash history  --steps N (60)

crashes, faults, panics, flips, forks, repair and steps take --kind NAME: only indexes of this kind, with all its options.
crashes, faults, panics, workloads, flips, repair, metamorphic, kinds, memory-soak and conformance take --layout NAME: all collections
in this layout.
The seeds A..B are A to B - 1; default 0..10. Exit status: 0 all held, 1 one failed, 2 wrong usage.";

fn main() -> ExitCode {
    if allocations::run_as_child() {
        return ExitCode::SUCCESS;
    }
    let command_line: Vec<String> = std::env::args().skip(1).collect();
    let Some((check, arguments)) =
        command_line.split_first().and_then(|(check, rest)| Some((check, Arguments::parse(rest)?)))
    else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let Some(result) = run(check, &arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let seconds = started.elapsed().as_secs_f64();
    let Range { start, end } = arguments.seeds;
    match result {
        Ok(counts)
            if ["conformance", "pauses", "soak", "memory-soak", "kinds-soak", "workloads", "planted"]
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

/// Runs the named check; `None` if the check or one of the options is unknown.
fn run(check: &str, arguments: &Arguments) -> Option<Outcome<Counts>> {
    let run = arguments.seed_run(check);
    match check {
        "crashes" => check_crashes(arguments, &run),
        "faults" => check_faults(arguments, &run),
        "panics" => check_panics(arguments, &run),
        "allocations" => check_allocations(arguments, &run),
        "workloads" => check_workloads(arguments, &run),
        "planted" => arguments.allow_only(&[]).map(|()| bolide_testkit::expected::check()),
        "flips" => check_flips(arguments, &run),
        "forks" => check_forks(arguments, &run),
        "memory" => check_memory(arguments, &run),
        "repair" => check_repairs(arguments, &run),
        "metamorphic" => check_settings(arguments, &run),
        "kinds" => check_kinds(arguments, &run),
        "threads" => check_threads(arguments, &run),
        "transactions" => check_transactions(arguments, &run),
        "conformance" => check_conformance(arguments),
        "pauses" => measure_pauses(arguments),
        "soak" => check_soak(arguments),
        "memory-soak" => check_memory_soak(arguments),
        "kinds-soak" => check_kinds_soak(arguments),
        "steps" => print_steps(arguments, &run),
        _ => None,
    }
}

fn check_crashes(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["steps", "nested", "kind", "layout"])?;
    let defaults = CrashOptions::default();
    let crash = CrashOptions {
        steps: arguments.size("steps", defaults.steps)?,
        nested_one_in: arguments.number("nested", defaults.nested_one_in)?,
        planted: None,
        kinds: arguments.kinds()?,
        layout: arguments.layout()?,
    };
    Some(run.run(|seed| crash::check(seed, crash)))
}

fn check_faults(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["steps", "stride", "kind", "layout"])?;
    let defaults = FaultOptions::default();
    let fault = FaultOptions {
        steps: arguments.size("steps", defaults.steps)?,
        stride: arguments.number("stride", defaults.stride)?,
        kinds: arguments.kinds()?,
        layout: arguments.layout()?,
    };
    Some(run.run(|seed| fault::check(seed, fault)))
}

fn check_panics(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["steps", "stride", "kind", "layout"])?;
    let defaults = PanicOptions::default();
    let panic = PanicOptions {
        steps: arguments.size("steps", defaults.steps)?,
        stride: arguments.number("stride", defaults.stride)?,
        kinds: arguments.kinds()?,
        layout: arguments.layout()?,
        ..defaults
    };
    Some(run.run(|seed| panics::check(seed, panic)))
}

fn check_allocations(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["steps", "failures", "stride"])?;
    let defaults = AllocationOptions::default();
    let allocation = AllocationOptions {
        steps: arguments.size("steps", defaults.steps)?,
        failures: arguments.number("failures", defaults.failures)?,
        stride: arguments.size("stride", defaults.stride)?,
        planted: None,
    };
    let child = allocations::Child::new(&[]).ok()?;
    Some(run.run(|seed| allocations::check(seed, allocation, &child)))
}

fn check_workloads(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["operations", "part", "layout"])?;
    let total = workloads::count(arguments.number("operations", 3)?.try_into().ok()?);
    let (part, parts) = arguments.text("part").unwrap_or("1/1").split_once('/')?;
    let seeds = match arguments.seeds_given {
        true => arguments.seeds.clone(),
        false => workloads::part(total, part.parse().ok()?, parts.parse().ok()?)?,
    };
    let workload = WorkloadOptions { layout: arguments.layout()?.unwrap_or_default(), planted: None };
    Some(SeedRun { seeds, ..run.clone() }.run(|number| workloads::check(number, workload)))
}

fn check_flips(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["records", "stride", "bits", "kind", "layout"])?;
    let defaults = DamageOptions::default();
    let damage = DamageOptions {
        records: arguments.size("records", defaults.records)?,
        stride: arguments.size("stride", defaults.stride)?,
        every_bit: match arguments.text("bits") {
            None | Some("all") => true,
            Some("one") => false,
            Some(_) => return None,
        },
        kinds: arguments.kinds()?,
        layout: arguments.layout()?,
        ..defaults
    };
    Some(run.run(|seed| damage::check(seed, damage)))
}

fn check_memory(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    let options = MemoryOptions { steps: arguments.size("steps", 60)?, planted: None };
    Some(run.run(|seed| memory::check(seed, options)))
}

fn check_forks(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["records", "kind"])?;
    let records = arguments.size("records", ForkOptions::default().records)?;
    let forks = ForkOptions { records, kinds: arguments.kinds()?, same_tags: false };
    Some(run.run(|seed| forks::check(seed, forks)))
}

fn check_repairs(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["damages", "steps", "kind", "layout"])?;
    let defaults = RepairProof::default();
    let proof = RepairProof {
        damages: arguments.number("damages", defaults.damages)?,
        steps: arguments.size("steps", defaults.steps)?,
        kinds: arguments.kinds()?,
        layout: arguments.layout()?,
        planted: None,
    };
    Some(run.run(|seed| repair::check(seed, proof)))
}

fn check_settings(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["steps", "setups", "layout"])?;
    let defaults = MetamorphicOptions::default();
    let metamorphic = MetamorphicOptions {
        steps: arguments.size("steps", defaults.steps)?,
        setups: match arguments.text("setups") {
            None => defaults.setups,
            Some("all") => None,
            Some(count) => Some(count.parse().ok()?),
        },
        layout: arguments.layout()?,
    };
    Some(run.run(|seed| metamorphic::check(seed, metamorphic)))
}

fn check_kinds(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["steps", "layout"])?;
    let layout = arguments.layout()?;
    let steps = arguments.size("steps", KindsOptions::default().steps)?;
    Some(run.run(|seed| every_kind::check(seed, KindsOptions { steps, layout })))
}

fn check_threads(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["writers", "readers", "batches", "cuts"])?;
    let defaults = ConcurrentOptions::default();
    let concurrent = ConcurrentOptions {
        writers: arguments.size("writers", defaults.writers)?,
        readers: arguments.size("readers", defaults.readers)?,
        batches: arguments.number("batches", defaults.batches)?,
        cuts: arguments.number("cuts", defaults.cuts)?,
    };
    Some(run.run(|seed| concurrent::check(seed, concurrent)))
}

fn check_transactions(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["transactions", "cuts"])?;
    let defaults = HistoryOfTransactions::default();
    let history = HistoryOfTransactions {
        transactions: arguments.number("transactions", defaults.transactions)?,
        cuts: arguments.number("cuts", defaults.cuts)?,
        planted: None,
    };
    Some(run.run(|seed| transactions::check(seed, history)))
}

fn check_conformance(arguments: &Arguments) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["kind", "layout"])?;
    let layout = arguments.layout()?;
    Some(match arguments.text("kind") {
        Some(kind) => check_kind(kind, layout),
        None => check_all_kinds(layout),
    })
}

fn measure_pauses(arguments: &Arguments) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["directory", "records", "rate", "seconds"])?;
    let defaults = PauseOptions::default();
    let pause = PauseOptions {
        records: arguments.number("records", defaults.records)?,
        rate: arguments.number("rate", defaults.rate)?,
        seconds: arguments.number("seconds", defaults.seconds)?,
    };
    Some(pauses::measure(&arguments.directory(), pause).map(|()| Counts::default()))
}

fn check_soak(arguments: &Arguments) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["directory", "records", "rate", "seconds", "memtable-kib"])?;
    let defaults = SoakOptions::default();
    let soak = SoakOptions {
        records: arguments.number("records", defaults.records)?,
        rate: arguments.number("rate", defaults.rate)?,
        seconds: arguments.number("seconds", defaults.seconds)?,
        memtable_bytes: 1024 * arguments.size("memtable-kib", defaults.memtable_bytes / 1024)?,
        seed: arguments.seeds.start,
    };
    Some(soak::check(&arguments.directory(), soak))
}

fn check_memory_soak(arguments: &Arguments) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["directory", "memory-mib", "records", "seconds", "layout"])?;
    let defaults = MemorySoakOptions::default();
    let soak = MemorySoakOptions {
        budget_bytes: arguments.number("memory-mib", defaults.budget_bytes >> 20)? << 20,
        records: arguments.number("records", defaults.records)?,
        seconds: arguments.number("seconds", defaults.seconds)?,
        layout: arguments.layout()?,
        seed: arguments.seeds.start,
    };
    Some(memory_soak::check(&arguments.directory(), soak))
}

fn check_kinds_soak(arguments: &Arguments) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["directory", "records", "seconds"])?;
    let defaults = KindsSoakOptions::default();
    let soak = KindsSoakOptions {
        records: arguments.number("records", defaults.records)?,
        seconds: arguments.number("seconds", defaults.seconds)?,
        seed: arguments.seeds.start,
    };
    Some(kinds_soak::check(&arguments.directory(), soak))
}

fn print_steps(arguments: &Arguments, run: &SeedRun) -> Option<Outcome<Counts>> {
    arguments.allow_only(&["steps", "kind"])?;
    let kinds = arguments.kinds()?;
    let steps = arguments.size("steps", CrashOptions::default().steps)?;
    Some(run.run(|seed| {
        for (i, step) in crash::steps(seed, steps, kinds).iter().enumerate() {
            println!("{i:>4} {step}");
        }
        Ok(Counts::default())
    }))
}

/// Runs the conformance suite with all queries and one kind.
fn check_kind(kind: &str, layout: Option<Layout>) -> Outcome<Counts> {
    conformance::check(kind, SuiteOptions { layout, share: QueryShare::All })
}

/// Runs the conformance suite with all implemented and planned kinds.
fn check_all_kinds(layout: Option<Layout>) -> Outcome<Counts> {
    let mut counts = Counts::default();
    for kind in kinds::IMPLEMENTED.into_iter().chain(kinds::PLANNED) {
        let started = Instant::now();
        let kind_counts = check_kind(kind, layout)?;
        println!("{kind}: {kind_counts}, {:.1} s", started.elapsed().as_secs_f64());
        counts.merge(&kind_counts);
    }
    Ok(counts)
}

/// The options of the command line.
struct Arguments {
    seeds: Range<u64>,
    seeds_given: bool,
    threads: usize,
    options: BTreeMap<String, String>,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Option<Self> {
        let mut options = BTreeMap::new();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return None };
            options.insert(name.strip_prefix("--")?.to_owned(), value.clone());
        }
        let seeds_given = options.contains_key("seeds");
        let seeds = match options.remove("seeds") {
            None => 0..10,
            Some(text) => parse_seeds(&text)?,
        };
        let threads = match options.remove("threads") {
            None => std::thread::available_parallelism().map_or(1, usize::from),
            Some(text) => text.parse().ok()?,
        };
        Some(Self { seeds, seeds_given, threads, options })
    }

    /// `None` if there is an option with another name.
    fn allow_only(&self, names: &[&str]) -> Option<()> {
        self.options.keys().all(|name| names.contains(&name.as_str())).then_some(())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The parent directory of databases on a real disk.
    fn directory(&self) -> std::path::PathBuf {
        self.text("directory").map_or_else(std::env::temp_dir, std::path::PathBuf::from)
    }

    fn number(&self, name: &str, default: u64) -> Option<u64> {
        self.text(name).map_or(Some(default), |text| text.parse().ok())
    }

    fn size(&self, name: &str, default: usize) -> Option<usize> {
        self.text(name).map_or(Some(default), |text| text.parse().ok())
    }

    fn seed_run(&self, check: &str) -> SeedRun {
        let options: String = self.options.iter().map(|(name, value)| format!(" --{name} {value}")).collect();
        SeedRun {
            command: format!("{check}{options}"),
            seeds: self.seeds.clone(),
            threads: self.threads,
            progress: true,
        }
    }

    /// The layout of all collections, if set; `None` for an unknown name.
    fn layout(&self) -> Option<Option<Layout>> {
        match self.text("layout") {
            None => Some(None),
            Some(name) => name.parse().ok().map(Some),
        }
    }

    /// The kinds of the indexes of a run.
    fn kinds(&self) -> Option<KindChoice> {
        self.text("kind").map_or(Some(KindChoice::default()), KindChoice::only)
    }
}
