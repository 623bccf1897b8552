//! The report for people.

use crate::report::table::{self, wrap};
use crate::report::{Costs, Line, RunReport, Verdict, Violation, WIDTH};

/// How wide the hook's column may become; a longer name has its deeds in the line below.
const WIDEST_HOOK: usize = 28;

/// The report as text, readable at 120 columns: timeline, units, broken invariants, costs, and the verdict at the end,
/// where the eye is.
pub fn text(report: &RunReport) -> String {
    let mut lines = vec!["Timeline".to_owned()];
    lines.extend(timeline(&report.timeline));
    lines.extend([String::new(), "Units at the end".to_owned()]);
    lines.extend(table::units(&report.units));
    if !report.violations.is_empty() {
        lines.extend([String::new(), "Broken invariants".to_owned()]);
        lines.extend(violations(&report.violations));
    }
    lines.extend([String::new(), costs(&report.costs), String::new()]);
    lines.extend(verdict(&report.verdict));
    lines.join("\n") + "\n"
}

fn timeline(timeline: &[Line]) -> Vec<String> {
    let header = [["Time", "Unit", "Hook"].map(str::to_owned)];
    let cells = timeline.iter().map(|line| [line.time.to_string(), line.unit.clone(), line.hook.clone()]);
    let cells: Vec<[String; 3]> = header.into_iter().chain(cells).collect();
    let widest = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [widest(0), widest(1), widest(2).min(WIDEST_HOOK)];
    let indent = widths.iter().map(|width| width + table::GAP).sum();

    let mut lines = vec![beside(&table::join(&cells[0], &widths), indent, vec!["What it did".to_owned()])];
    for (cells, line) in cells[1..].iter().zip(timeline) {
        lines.push(beside(&table::join(cells, &widths), indent, deeds(line, WIDTH.saturating_sub(indent))));
    }
    lines
}

/// What a hook did and, from a new line on, the status that it set.
fn deeds(line: &Line, width: usize) -> Vec<String> {
    let mut deeds = wrap(&line.did.join("; "), width);
    if let Some(status) = &line.status {
        let status = wrap(status, width.saturating_sub(2));
        deeds.extend(status.iter().enumerate().map(|(n, part)| format!("{} {part}", if n == 0 { ">" } else { " " })));
    }
    deeds
}

/// Lines of text beside a label; below it where the label is too wide.
fn beside(label: &str, indent: usize, text: Vec<String>) -> String {
    let mut text = text.into_iter();
    let fits = label.chars().count() < indent;
    let first = if fits { text.next() } else { None };
    let mut lines = vec![first.map_or_else(|| label.to_owned(), |first| table::pad(label, indent) + &first)];
    lines.extend(text.map(|line| table::pad("", indent) + &line));
    lines.join("\n")
}

fn violations(violations: &[Violation]) -> Vec<String> {
    let rows = violations.iter().map(|v| [v.time.to_string(), v.invariant.clone(), v.text.clone()]);
    table::align(&rows.collect::<Vec<_>>())
}

fn costs(costs: &Costs) -> String {
    let Costs { hooks, wakeups, calls, processes, cpu_ms, peak_rss_mb } = costs;
    format!(
        "Costs: {hooks} hooks, {wakeups} wake-ups, {calls} hook-tool calls in {processes} processes, \
         {cpu_ms:.1} ms of CPU, {peak_rss_mb:.1} MB at most"
    )
}

fn verdict(verdict: &Verdict) -> Vec<String> {
    match verdict {
        Verdict::Passed => {
            vec!["PASSED: every unit is at its version and idle, and no invariant was broken".to_owned()]
        }
        Verdict::Failed { reasons } => {
            let reasons = reasons.iter().map(|reason| format!("  {reason}"));
            std::iter::once("FAILED:".to_owned()).chain(reasons).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn a_report_as_text() {
        assert_eq!(text(&example::report()), include_str!("../../golden/report.txt"));
    }

    #[test]
    fn it_is_readable_at_120_columns() {
        for line in text(&example::report()).lines() {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }

    #[test]
    fn the_verdict_comes_last() {
        let mut report = example::report();
        report.verdict = Verdict::Passed;
        report.violations.clear();
        let text = text(&report);
        assert!(text.lines().last().unwrap().starts_with("PASSED"), "{text}");
        assert!(!text.contains("invariants\n"), "{text}");
    }
}
