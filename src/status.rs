//! The one place that chooses a unit's status.
//!
//! Pure. What is going on comes before what may come; the upgrade before everything but removal.

use crate::settings::BadOption;
use crate::upgrade::messages::{self, Message, Tone};

/// Everything that may have a word to say, after a hook's work.
#[derive(Debug, Clone, Default)]
pub struct Voices {
    /// The unit is being removed.
    pub removal: Option<Message>,
    /// The charm's own files or the resource can't be used.
    pub installation: Option<Message>,
    /// The leader's checks stand against the upgrade.
    pub checks: Option<Message>,
    /// What the unit says of the upgrade.
    pub upgrade: Option<Message>,
    /// Options that can't be used.
    pub bad_options: Vec<BadOption>,
    /// How far the unit is into the cluster.
    pub entry: Option<Message>,
    /// What of the node isn't well.
    pub health: Option<Message>,
    /// What is still to come though this unit is ready, `features follow when 3 workers are refreshed`.
    pub remark: Option<String>,
}

/// The status to show.
pub fn choose(voices: Voices, application: &str) -> Message {
    let (upgrade, done) = match voices.upgrade {
        Some(message) if message.tone == Tone::Active => (None, Some(message)),
        other => (other, None),
    };
    let bad = voices.bad_options.first();
    let bad = bad.map(|bad| messages::bad_option(application, bad.option, bad.allowed, bad.example));
    let first = [voices.removal, voices.installation, voices.checks, upgrade, bad, voices.entry, voices.health, done];
    first.into_iter().flatten().next().unwrap_or_else(|| ready(voices.remark.as_deref()))
}

fn ready(remark: Option<&str>) -> Message {
    let remark = remark.map(|remark| format!(" ({remark})")).unwrap_or_default();
    Message::new(Tone::Active, format!("Ready{remark}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upgrade_comes_first_but_what_is_done_hides_no_trouble() {
        let trouble = Voices { health: Some(Message::new(Tone::Waiting, "Waiting for k8sd")), ..Voices::default() };
        let at_work =
            Voices { upgrade: Some(Message::new(Tone::Maintenance, "Upgrading to 1.32.1")), ..trouble.clone() };
        assert_eq!(choose(at_work, "k8s").text, "Upgrading to 1.32.1");
        let done = Voices { upgrade: Some(Message::new(Tone::Active, "Upgraded to 1.32.1")), ..trouble };
        assert_eq!(choose(done.clone(), "k8s").text, "Waiting for k8sd");
        assert_eq!(choose(Voices { health: None, ..done }, "k8s").text, "Upgraded to 1.32.1");
    }

    #[test]
    fn a_bad_option_is_blocked_with_the_command_that_mends_it() {
        let bad = BadOption { option: "pause-after-unit-refresh", allowed: "none, first or all", example: "none" };
        let status = choose(Voices { bad_options: vec![bad], ..Voices::default() }, "k8s");
        let text = "Config pause-after-unit-refresh: none, first or all. \
                    Set it: juju config k8s pause-after-unit-refresh=none";
        assert_eq!((status.tone, status.text.as_str()), (Tone::Blocked, text));
    }

    #[test]
    fn without_a_word_the_unit_is_ready() {
        assert_eq!(choose(Voices::default(), "k8s").text, "Ready");
        let remark = Some("features follow when 3 workers are refreshed".to_owned());
        let status = choose(Voices { remark, ..Voices::default() }, "k8s");
        assert_eq!(status.text, "Ready (features follow when 3 workers are refreshed)");
    }
}
