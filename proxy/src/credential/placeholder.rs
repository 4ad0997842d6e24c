//! Values that stand for a credential inside a sandbox, for programs that insist on having a key.
//!
//! In: the APIs of a policy. Out: a variable for each guest, and a look at requests for values that are where they do not
//! belong. A placeholder is worth nothing anywhere: at its own API the real credential takes its place, and a request that
//! carries it to another place shows that something collects keys (a canary).

use std::sync::{Arc, OnceLock};

use freeboard_policy::{Host, PlaceholderView, Policy};
use sha2::{Digest as _, Sha256};

use super::Scrubber;
use crate::request::{Name, RequestHead};

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The placeholders of one policy generation.
#[derive(Debug, Default)]
pub struct Placeholders {
    all: Vec<Placeholder>,
}

/// One of them.
#[derive(Debug)]
pub struct Placeholder {
    pub api: Arc<str>,
    pub variable: String,
    pub value: String,
    /// Where it belongs: the API's hosts and its alias.
    hosts: Vec<Host>,
    /// Finds it as it is and in the encodings that programs use.
    finder: Scrubber,
}

impl Placeholders {
    /// The values are the same in every generation of one process, so that a reload does not take them from running
    /// programs, and different in every process.
    pub fn new(policy: &Policy) -> Self {
        let all = policy.apis().filter_map(|api| {
            let PlaceholderView { variable, form } = api.placeholder.as_ref()?;
            let value = value(&api.name, form);
            let finder = Scrubber::new(&[value.as_bytes()]);
            let hosts = api.origins.iter().map(|(host, _)| host.clone()).chain(api.alias.clone()).collect();
            Some(Placeholder { api: Arc::clone(&api.name), variable: variable.clone(), value, hosts, finder })
        });
        Self { all: all.collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn of(&self, api: &str) -> Option<&Placeholder> {
        self.all.iter().find(|placeholder| *placeholder.api == *api)
    }

    /// A placeholder in the head of a request that does not go to its API.
    pub fn astray(&self, head: &RequestHead) -> Option<&Placeholder> {
        let target = head.target.as_ref().map(|target| target.wire().as_bytes()).unwrap_or_default();
        let at_home = |placeholder: &Placeholder| matches!(&head.place.name, Name::Host(host) if placeholder.hosts.contains(host));
        self.all.iter().filter(|placeholder| !at_home(placeholder)).find(|placeholder| {
            let [names, values] = head.fields.texts();
            [names, values, target].iter().any(|text| placeholder.finder.contains(text))
        })
    }
}

/// The form with its stars replaced by letters and digits.
fn value(api: &str, form: &str) -> String {
    static PROCESS: OnceLock<[u8; 32]> = OnceLock::new();
    let process = PROCESS.get_or_init(|| {
        let mut random = [0; 32];
        // Without it the values can be guessed: they are worth nothing, only the canary is easier to avoid.
        let _ = getrandom::fill(&mut random);
        random
    });
    let mut stars = 0_u64;
    form.chars()
        .map(|letter| match letter {
            '*' => {
                stars += 1;
                let digest = Sha256::new()
                    .chain_update(process)
                    .chain_update(api.as_bytes())
                    .chain_update(stars.to_be_bytes())
                    .finalize();
                let byte = digest.first().copied().unwrap_or_default();
                LETTERS.get(usize::from(byte) % LETTERS.len()).copied().map_or('0', char::from)
            }
            letter => letter,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h51_a_placeholder_has_the_form_that_the_program_wants() {
        let one = value("slack", "xoxb-************-end");
        assert!(one.starts_with("xoxb-") && one.ends_with("-end") && !one.contains('*'), "{one}");
        assert_eq!(one, value("slack", "xoxb-************-end"), "the same after a reload");
        assert_ne!(one, value("other", "xoxb-************-end"));
    }
}
