//! A text that nobody but its addressee sees: join tokens, kubeconfigs.

use std::fmt;

/// A secret text. It prints as `<redacted>`, and is only seen where `expose` stands in the code.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Takes the text over.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_redacted() {
        let secret = SecretText::new("hunter2".to_owned());
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "<redacted> Some(<redacted>)");
        assert_eq!(secret.expose(), "hunter2");
    }
}
