//! The report for programs.

use crate::report::RunReport;

/// The report as one JSON object with the keys `verdict`, `units`, `timeline`, `violations` and `costs`, ending in a
/// newline.
///
/// # Errors
///
/// `serde_json`'s, which these values give no cause for.
pub fn json(report: &RunReport) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::report::{Verdict, example};

    #[test]
    fn a_report_as_json() {
        assert_eq!(super::json(&example::report()).unwrap(), include_str!("../../golden/report.json"));
    }

    #[test]
    fn its_keys_are_these_and_no_others() {
        let mut report = example::report();
        report.verdict = Verdict::Passed;
        let value: Value = serde_json::from_str(&super::json(&report).unwrap()).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&value), ["costs", "timeline", "units", "verdict", "violations"]);
        assert_eq!(keys(&value["costs"]), ["calls", "cpu_ms", "hooks", "peak_rss_mb", "processes", "wakeups"]);
        assert_eq!(value["verdict"], json!({"outcome": "passed", "reasons": []}));
    }
}
