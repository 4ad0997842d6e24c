//! The canary scan: the real secret must appear nowhere that a guest can read, in no form that we scrub, nor in a log.

use base64::Engine as _;

/// A secret with every form in which it is looked for.
#[derive(Debug, Clone)]
pub struct Canary {
    forms: Vec<(&'static str, Vec<u8>)>,
}

impl Canary {
    pub fn new(secret: &str) -> Self {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let engine = base64::engine::general_purpose::STANDARD_NO_PAD;
        let mut forms = vec![
            ("plain", secret.as_bytes().to_vec()),
            ("hex", hex.clone().into_bytes()),
            ("hex, upper case", hex.to_uppercase().into_bytes()),
            ("percent", percent.clone().into_bytes()),
            ("percent, upper case", percent.to_uppercase().into_bytes()),
        ];
        // Base64 depends on where the secret begins in its group of three: cut off the characters that neighbours touch.
        for (before, name) in
            ["base64", "base64, shifted by 1", "base64, shifted by 2"].into_iter().enumerate()
        {
            let mut text = vec![0; before];
            text.extend_from_slice(secret.as_bytes());
            let encoded = engine.encode(&text);
            let start = if before == 0 { 0 } else { before + 1 };
            let end = encoded.len() - 2;
            forms.push((name, encoded.as_bytes()[start..end].to_vec()));
        }
        Self { forms }
    }

    /// The first form that is found in `haystack`.
    pub fn found_in(&self, haystack: &[u8]) -> Option<&'static str> {
        let contains = |needle: &[u8]| haystack.windows(needle.len()).any(|window| window == needle);
        self.forms.iter().find(|(_, form)| contains(form)).map(|(name, _)| *name)
    }

    /// Fails when a form is found.
    pub fn assert_absent(&self, place: &str, haystack: &[u8]) {
        if let Some(form) = self.found_in(haystack) {
            panic!("the secret is in {place} ({form}): {}", String::from_utf8_lossy(haystack));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_planted_secret_in_every_form() {
        let secret = "canary-5f3c9e0b7a";
        let canary = Canary::new(secret);
        let engine = base64::engine::general_purpose::STANDARD;
        let plants = [
            format!("x{secret}x"),
            engine.encode(format!("Bearer {secret}")),
            engine.encode(format!("user:{secret}")),
            engine.encode(format!("u:{secret}!!")),
            secret.bytes().map(|byte| format!("{byte:02X}")).collect(),
            secret.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        ];
        for plant in plants {
            assert!(canary.found_in(plant.as_bytes()).is_some(), "{plant}");
        }
        assert_eq!(canary.found_in(b"canary-5f3c9e0b7"), None);
    }
}
