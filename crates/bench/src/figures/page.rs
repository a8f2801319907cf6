//! All figures as one page of Markdown: what they found in short, then each with its chart, its tables
//! and its claims.

use super::report::FigureReport;

/// What stands above the figures.
const HEAD: &str = "\
# Evidence

Figures and tables of the papers, measured again. Each figure measures, draws its chart and checks
claims about its shape; a claim that does not hold fails the run. A claim marked *other than in the paper* says what was
found there, and why it is not so here. All data is in the JSON files beside the charts.

```sh
cargo run --release -p bolide-bench -- figure list    # what there is
cargo run --release -p bolide-bench -- figure all --questions 200 --out docs/figures    # measure, draw, check
cargo run --release -p bolide-bench -- figure perseid-all --out docs/figures    # those of one paper
cargo run --release -p bolide-bench -- figure page --out docs/figures    # print this page
```

Databases are small, so that a figure ends within minutes; memtables, sstables and the block cache are made
small with them, so that nearly all records and index entries lie in files, as in the papers. Absolute figures are
therefore not those of a database as shipped: those are in [PERFORMANCE.md](PERFORMANCE.md). Times are CPU times, since other
programs ran beside; compare them within one figure. File accesses are calls that read or write a file, counted by
what the thread worked for; whether the operating system had the page in memory makes no difference to them.

The figures of Perseid need a machine on which nothing else runs: where several threads work, where records are fetched in
parallel and where a database opens, time is that of the clock. The load average at the beginning of each figure stands among its
settings. The memory of regions is ordinary memory; panels with delays model a slower one, and `--pm-read-nanos` and
`--pm-write-nanos` set what 256 bytes take. *PS-Tree*, *composite* and *log* are indexes alone, without a database, all validated
by the same kind of version table; *LSM* is a composite index of a database, validated by a tree of primary keys. They are in
`crates/bench/src/pm_baselines`, where a test holds each to a model.

In the figures of NEXT, *eager* is a B-tree or an R-tree in memory that reads the old record at each put; *in sstables, no global index* is
kind `next` with `global=off`; *composite, memo* is a composite index (of space: of cells of four grids along a Z-curve) with an
update memo in memory. They are in `crates/bench/src/next_baselines`, where a test holds each to a model. With `--data DIR` the whole data
sets are taken, else the bundled parts of them.

The figures of REMIX compare sorted views with merging cursors and Bloom filters over sstables alone (11 to 13), and the layouts of
Bolide with each other (14 to 18), each with its sorted views: *partitioned, tags* has no Bloom filters, and gets go through views with tags; *views delayed* renews a view when
a fifth of what it has was written; *tiered, no view* merges its runs. Built with `--features peers`, the other
stores stand beside them. Keys have 16 bytes. The compared ones take turns, round by round, and the least time of each counts.
Memtables are a thirty-second of the data, sstables a quarter of a memtable; the block cache is as small beside the data as in
the paper, but for figures 11 to 13, where all blocks are in it. `--records` is the number of records of an sstable (11 to 13); a store has twice as many (14), half as many to eight times as many (15)
or four times as many (16 to 18); a round has three operations for each of `--questions`, in figure 18 forty.
";

/// The page for `reports`, whose charts are below `charts`.
pub fn page(reports: &[FigureReport], charts: &str) -> String {
    let mut text = HEAD.to_owned();
    let mut machines: Vec<&str> = reports.iter().map(|report| report.machine.as_str()).collect();
    machines.dedup();
    text += &format!("\nMachine: {}.\n", machines.join("; "));
    text += "\n| figure | | as in the paper | other | do not hold |\n|---|---|---:|---:|---:|\n";
    for report in reports {
        let broken = report.broken().count();
        let held = report.shapes.iter().filter(|shape| shape.holds);
        let (other, same): (Vec<_>, Vec<_>) = held.partition(|shape| shape.departs.is_some());
        // Headings are `NAME: TITLE`, and the anchors are made of them.
        let anchor: String = format!("{}: {}", report.name, report.title)
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        text += &format!(
            "| [{}](#{anchor}) | {} | {} | {} | {broken} |\n",
            report.name,
            report.title,
            same.len(),
            other.len()
        );
    }
    for report in reports {
        text += &format!("\n{}\n![{}]({charts}/{}.svg)\n", report.markdown(), report.title, report.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_claims_and_links_to_figures() {
        let mut report = FigureReport::new("x-1", "Bars, and lines", "X, figure 1");
        report.claim("a is small", true, "1 < 2".into());
        report.departs("b is large", true, "3 > 2".into(), "it is.");
        report.claim("c is even", false, "3".into());
        let text = page(&[report], "charts");
        assert!(text.contains("| [x-1](#x-1-bars-and-lines) | Bars, and lines | 1 | 1 | 1 |"), "{text}");
        assert!(text.contains("## x-1: Bars, and lines\n"), "{text}");
        assert!(text.ends_with("![Bars, and lines](charts/x-1.svg)\n"), "{text}");
    }
}
