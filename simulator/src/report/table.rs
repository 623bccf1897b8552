//! Aligned columns, and text wrapped beside them.

use std::iter::repeat_n;

use crate::report::UnitRow;

/// What stands between two columns.
pub(super) const GAP: usize = 2;

/// Rows as lines, each column as wide as its widest cell.
pub(super) fn align<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    rows.iter().map(|row| join(row, &widths)).collect()
}

/// Cells in columns of these widths; a cell that is wider pushes the next ones.
pub(super) fn join(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, &width)| pad(cell, width + GAP));
    padded.collect::<String>().trim_end().to_owned()
}

/// The text with spaces after it, up to a width.
pub(super) fn pad(text: &str, width: usize) -> String {
    text.chars().chain(repeat_n(' ', width.saturating_sub(text.chars().count()))).collect()
}

/// The text in lines of at most `width` columns, broken between words; a word that is longer has a line of its own.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Units in the columns of `juju status`, with the snap's version and revision.
pub(super) fn units(units: &[UnitRow]) -> Vec<String> {
    let header = ["Unit", "Workload", "Agent", "Machine", "Version", "Rev", "Message"].map(str::to_owned);
    let rows = units.iter().map(|row| {
        let leader = if row.leader { "*" } else { "" };
        [
            format!("{}{leader}", row.unit),
            row.workload.clone(),
            row.agent.clone(),
            row.machine.clone(),
            row.version.clone().unwrap_or_default(),
            row.revision.clone().unwrap_or_default(),
            row.message.clone(),
        ]
    });
    align(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters_not_bytes() {
        let rows = [["ä", "b", "x"], ["ccc", "", "y"], ["", "d", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(align(&rows), ["ä    b  x", "ccc     y", "     d"]);
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrap("one two three  four", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("a incomprehensibilities b", 5), ["a", "incomprehensibilities", "b"]);
        assert!(wrap(" ", 5).is_empty());
    }
}
