//! All figures as Markdown: a page of verdicts, and one page for each figure with its chart, tables and claims.

use super::report::{Claim, FigureReport};

/// The text above the verdicts.
const HEAD: &str = "\
# Evidence

Figures and tables of the papers, measured again. Each figure measures, draws its chart and checks
claims about its shape; a claim that does not hold fails the run. A claim that *differs* from the paper states what was
found instead, and why. This page and the pages of the figures are generated from the JSON files in [figures/](figures/).

```sh
cargo run --release -p bolide-bench -- figure list    # names and titles
cargo run --release -p bolide-bench -- figure all --queries 200 --out docs/figures    # measure, draw, check
cargo run --release -p bolide-bench -- figure perseid-all --out docs/figures    # those of one paper
cargo run --release -p bolide-bench -- figure pages --out docs/figures    # write these pages
```

## How to read them

Databases are small, so that a figure takes minutes. Memtables, sstables and the block cache are scaled down with them: nearly all
records and index entries are in files, as in the papers. Absolute figures of a database as shipped are in
[PERFORMANCE.md](PERFORMANCE.md). Times are CPU times: compare them within one figure. File accesses are calls that read or write a
file, also if the operating system has the page in memory.

| paper | setup |
|---|---|
| LevelDB++ | indexes of every kind over posts, with and without the options of Bolide that the paper does not have |
| Perseid | *PS-Tree*, *composite* and *log* are indexes alone, without a database, validated by the same kind of version table; *LSM* is a composite index of a database, validated by a tree of primary keys (`crates/bench/src/pm_baselines`). Memory of regions is ordinary memory; panels with delays model a slower one (`--pm-read-nanos`, `--pm-write-nanos`). Figures of several threads, of parallel fetches and of recovery are wall time on an idle machine |
| NEXT | *eager* is a B-tree or an R-tree in memory that reads the old record at each put; *in sstables, no global index* is kind `next` with `global=off`; *composite, memo* is a composite index with an update memo in memory (`crates/bench/src/next_baselines`). `--data DIR` takes the whole data sets, else their bundled parts |
| REMIX | 11 to 13: sorted views, merging cursors and Bloom filters over sstables alone, all blocks cached. 14 to 18: the layouts of Bolide; *partitioned, tags* has no Bloom filters, *views delayed* renews a view when a fifth of its data was written, *tiered, no view* merges its runs. Keys have 16 bytes; the subjects run in turn, and the minimum time of each counts |

";

/// The page of verdicts: for each figure of `reports` how many claims hold, differ from the paper, and do not hold.
pub fn verdicts(reports: &[FigureReport]) -> String {
    let mut text = HEAD.to_owned();
    let mut machines: Vec<&str> = reports.iter().map(|report| report.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    text += &format!("Machines: {}.\n\n## Verdicts\n\n", machines.join("; "));
    text += "| figure | title | verdict | as in the paper | differ | do not hold |\n|---|---|---|---:|---:|---:|\n";
    for report in reports {
        let broken = report.broken().count();
        let differ = report.shapes.iter().filter(|claim| differs(claim)).count();
        let same = report.shapes.len() - broken - differ;
        let verdict = match (same, differ, broken) {
            (_, _, 1..) => "fails",
            (_, 0, 0) => "as in the paper",
            (0, _, 0) => "differs",
            _ => "as in the paper in part",
        };
        let (name, title) = (&report.name, &report.title);
        text += &format!(
            "| [{name}](evidence/{name}.md) | {title} | {verdict} | {same} | {differ} | {broken} |\n"
        );
    }
    text += "\n## Findings that differ\n\nThe page of the figure has the reason.\n\n| figure | finding |\n|---|---|\n";
    for report in reports {
        for claim in report.shapes.iter().filter(|claim| differs(claim)) {
            text += &format!("| {} | {} |\n", report.name, claim.claim.replace('|', "\\|"));
        }
    }
    text
}

fn differs(claim: &Claim) -> bool {
    claim.holds && claim.departs.is_some()
}

/// The page of one figure, whose chart is below `charts`.
pub fn figure(report: &FigureReport, charts: &str) -> String {
    let text = report.markdown();
    // The page has one heading, of the first level.
    let text = text.strip_prefix('#').unwrap_or(&text);
    format!("{text}\nMachine: {}.\n\n![{}]({charts}/{}.svg)\n", report.machine, report.title, report.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> FigureReport {
        let mut report = FigureReport::new("x-1", "Bars, and lines", "X, figure 1");
        report.claim("a is small", true, "1 < 2".into());
        report.departs("b is large", true, "3 > 2".into(), "it is.");
        report
    }

    #[test]
    fn verdicts_count_claims_and_list_what_differs() {
        let text = verdicts(&[report()]);
        let row = "| [x-1](evidence/x-1.md) | Bars, and lines | as in the paper in part | 1 | 1 | 0 |";
        assert!(text.contains(row), "{text}");
        assert!(text.ends_with("| x-1 | b is large |\n"), "{text}");
    }

    #[test]
    fn a_broken_claim_fails_its_figure() {
        let mut report = report();
        report.claim("c is even", false, "3".into());
        assert!(verdicts(&[report]).contains("| fails | 1 | 1 | 1 |"));
    }

    #[test]
    fn a_page_of_a_figure_has_one_heading_and_its_chart() {
        let text = figure(&report(), "../figures");
        assert!(text.starts_with("# x-1: Bars, and lines\n"), "{text}");
        assert!(text.ends_with("![Bars, and lines](../figures/x-1.svg)\n"), "{text}");
    }
}
