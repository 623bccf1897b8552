//! RFC 3339, as databags and snapd write instants.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::names::Timestamp;

/// Reads an instant with any offset; a fraction of a second is dropped.
pub fn parse(text: &str) -> Option<Timestamp> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(|instant| Timestamp(instant.unix_timestamp()))
}

/// Writes an instant in UTC, `2026-01-01T00:00:00Z`.
pub fn format(instant: Timestamp) -> String {
    // Out of the range of years that RFC 3339 can write: the epoch, which reads as "long ago".
    let instant = OffsetDateTime::from_unix_timestamp(instant.0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    instant.format(&Rfc3339).unwrap_or_else(|_| "1970-01-01T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_with_offset_and_fraction_and_written_in_utc() {
        let instant = parse("2026-12-01T04:09:17.871430684+02:00").unwrap();
        assert_eq!(format(instant), "2026-12-01T02:09:17Z");
        assert_eq!(parse(&format(instant)), Some(instant));
        for bad in ["", "yesterday", "2026-12-01", "2026-13-01T00:00:00Z"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
