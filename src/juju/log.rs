//! The log: what happens in a run is collected, and goes to Juju's log once, when the run ends.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::client::Juju;
use super::tools::HookTools;

/// What was logged, in order: the level and the line.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl Lines {
    /// A layer that collects here.
    pub fn layer<S: Subscriber>(&self) -> impl Layer<S> + use<S> {
        Collector(self.clone())
    }

    /// Takes what has been collected.
    pub fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends what has been collected to Juju's log: neighbouring lines of one level in one call. What fails is lost.
    pub async fn send<T: HookTools>(&self, juju: &Juju<T>) {
        let lines = self.take();
        for lines in lines.chunk_by(|(one, _), (next, _)| one == next) {
            let Some((level, _)) = lines.first() else { continue };
            let text = lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n");
            // There is no place left to complain: the hook's own work is done, and must not fail for it.
            let _ = juju.log(*level, &text).await;
        }
    }
}

struct Collector(Lines);

impl<S: Subscriber> Layer<S> for Collector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::DEBUG || !event.metadata().target().starts_with("k8s_charm") {
            return;
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        let mut lines = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((*event.metadata().level(), line.0));
    }
}

/// An event's message, and its other fields after it.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let gap = if self.0.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.0, "{gap}{value:?}"),
            name => write!(self.0, "{gap}{name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn lines_are_collected_with_their_level_and_without_others_noise() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::registry().with(lines.layer());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(unit = "k8s/0", "The upgrade to {} begins", "1.32.1");
            tracing::trace!("too small");
            tracing::info!(target: "hyper", "not ours");
            tracing::warn!("odd");
        });
        let expected = [(Level::INFO, "The upgrade to 1.32.1 begins unit=\"k8s/0\""), (Level::WARN, "odd")];
        assert_eq!(lines.take(), expected.map(|(level, line)| (level, line.to_owned())));
    }
}
