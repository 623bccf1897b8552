//! What is shown while a rehearsal runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::report::{UnitRow, table};
use crate::time::SimTime;

/// How many characters the bar of a progress line has.
const BAR: usize = 24;

/// What the output goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// A terminal: the table is drawn again in its place.
    Terminal,
    /// A file or a pipe: a line for each change.
    Plain,
}

/// How far a rehearsal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Units that are where they shall be.
    pub done: usize,
    /// Units that shall be.
    pub total: usize,
    /// What is going on, `deploying`.
    pub doing: String,
}

/// A table like `juju status` with a progress line below it. It writes nothing: it gives what is to be written.
#[derive(Debug)]
pub struct Live {
    screen: Screen,
    /// Lines that were drawn last, without the time.
    drawn: Vec<String>,
    /// What was last said of each unit and, under "", of the progress.
    said: BTreeMap<String, String>,
}

impl Live {
    /// A table that has not been drawn yet.
    pub fn new(screen: Screen) -> Self {
        Self { screen, drawn: Vec::new(), said: BTreeMap::new() }
    }

    /// What to write now so that units and progress are shown; empty if nothing changed (time alone is no change).
    pub fn frame(&mut self, now: SimTime, units: &[UnitRow], progress: &Progress) -> String {
        match self.screen {
            Screen::Terminal => self.redraw(now, units, progress),
            Screen::Plain => self.say(now, units, progress),
        }
    }

    /// Goes up to where the table was drawn last, and writes over it. Line wrapping is off meanwhile: a wrapped line
    /// would be two to the terminal and one to us.
    fn redraw(&mut self, now: SimTime, units: &[UnitRow], progress: &Progress) -> String {
        let table = table::units(units);
        let lines: Vec<String> = table.into_iter().chain([String::new(), how_far(progress)]).collect();
        if lines == self.drawn {
            return String::new();
        }
        let mut frame = match self.drawn.len() {
            0 => String::new(),
            height => format!("\x1b[{height}A"),
        };
        frame.push_str("\x1b[?7l");
        for (number, line) in lines.iter().enumerate() {
            let time = if number + 1 == lines.len() { format!("  {now}") } else { String::new() };
            _ = writeln!(frame, "{line}{time}\x1b[K");
        }
        frame.push_str("\x1b[J\x1b[?7h");
        self.drawn = lines;
        frame
    }

    fn say(&mut self, now: SimTime, units: &[UnitRow], progress: &Progress) -> String {
        let mut lines = String::new();
        let of_units = units.iter().map(|row| (row.unit.as_str(), what_it_shows(row)));
        for (about, text) in of_units.chain([("", how_far(progress))]) {
            if self.said.get(about) != Some(&text) {
                _ = writeln!(lines, "{}{text}", table::pad(&now.to_string(), 10));
                self.said.insert(about.to_owned(), text);
            }
        }
        lines
    }
}

fn what_it_shows(row: &UnitRow) -> String {
    let version = row.version.as_deref().unwrap_or("-");
    let cells = [&row.unit, &row.workload, version, &row.message].map(str::to_owned);
    table::join(&cells, &[12, 11, 8, 0])
}

/// `[########----------------] 1 of 3 units: refreshing`.
fn how_far(progress: &Progress) -> String {
    let Progress { done, total, doing } = progress;
    let filled = (BAR * done.min(total)).checked_div(*total).unwrap_or(0);
    format!("[{}{}] {done} of {total} units: {doing}", "#".repeat(filled), "-".repeat(BAR - filled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::unit;

    fn refreshing(done: usize) -> Progress {
        Progress { done, total: 2, doing: "refreshing".to_owned() }
    }

    fn before() -> [UnitRow; 2] {
        [
            unit(0, "waiting", "Upgrade to 1.32.1: waiting for k8s/1", "1.31.3", "2001"),
            unit(1, "maintenance", "Upgrading to 1.32.1", "1.31.3", "2001"),
        ]
    }

    fn after() -> [UnitRow; 2] {
        [before()[0].clone(), unit(1, "active", "Upgraded to 1.32.1", "1.32.1", "2002")]
    }

    #[test]
    fn a_terminal_shows_a_table_that_is_drawn_over() {
        let mut live = Live::new(Screen::Terminal);
        let mut frames = live.frame(SimTime(5000), &before(), &refreshing(0));
        assert_eq!(live.frame(SimTime(6000), &before(), &refreshing(0)), "", "time alone is no change");
        frames += &live.frame(SimTime(65_000), &after(), &refreshing(1));
        assert_eq!(frames.replace('\x1b', "ESC"), include_str!("../../golden/live-terminal.txt"));
    }

    #[test]
    fn a_table_that_shrinks_leaves_nothing_behind() {
        let mut live = Live::new(Screen::Terminal);
        live.frame(SimTime(0), &before(), &refreshing(0));
        let frame = live.frame(SimTime(0), &before()[..1], &refreshing(0));
        assert!(frame.starts_with("\x1b[5A") && frame.ends_with("\x1b[J\x1b[?7h"), "{frame:?}");
        assert!(live.frame(SimTime(0), &before(), &refreshing(0)).starts_with("\x1b[4A"));
    }

    #[test]
    fn elsewhere_each_change_is_a_line() {
        let mut live = Live::new(Screen::Plain);
        let mut lines = live.frame(SimTime(5000), &before(), &refreshing(0));
        assert_eq!(live.frame(SimTime(6000), &before(), &refreshing(0)), "");
        lines += &live.frame(SimTime(65_000), &after(), &refreshing(1));
        assert_eq!(lines, include_str!("../../golden/live-plain.txt"));
    }

    #[test]
    fn no_units_are_no_crash() {
        assert_eq!(
            how_far(&Progress { done: 0, total: 0, doing: "x".to_owned() }),
            format!("[{}] 0 of 0 units: x", "-".repeat(24))
        );
        assert!(
            how_far(&Progress { done: 5, total: 2, doing: String::new() })
                .starts_with(&format!("[{}]", "#".repeat(24)))
        );
    }
}
