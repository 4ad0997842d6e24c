//! Header fields in the order and spelling in which they came, in one allocation.

use smallvec::SmallVec;

/// Names and values, copied out of the head. Names are tokens, values hold no control character except tab.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    text: Vec<u8>,
    entries: SmallVec<[Entry; 24]>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    value: u32,
    end: u32,
}

impl Fields {
    pub fn push(&mut self, name: &str, value: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(name.as_bytes());
        let middle = self.text.len();
        self.text.extend_from_slice(value);
        // Heads are at most MAX_HEAD_BYTES long, far below 4 GiB; a field that did not fit would be empty.
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.entries.push(Entry {
            start: offset(start),
            value: offset(middle),
            end: offset(self.text.len()),
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|entry| self.entry(*entry))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// All names and values, one after the other, for a search.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Changes names and values without changing their lengths. What `change` leaves must be fit for names and values.
    pub fn change_text(&mut self, change: impl FnOnce(&mut [u8])) {
        change(&mut self.text);
    }

    /// Values of all fields of this name, whatever its case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The first value of this name.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Keeps the fields that `keep` wants; true when one was taken out.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &[u8]) -> bool) -> bool {
        let before = self.entries.len();
        let text = std::mem::take(&mut self.text);
        self.entries.retain(|entry| {
            let (name, value) = split(&text, *entry);
            keep(name, value)
        });
        self.text = text;
        before != self.entries.len()
    }

    /// Takes out all fields of this name; true when there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        if self.first(name).is_none() {
            return false;
        }
        self.retain(|other, _| !other.eq_ignore_ascii_case(name))
    }

    fn entry(&self, entry: Entry) -> (&str, &[u8]) {
        split(&self.text, entry)
    }
}

impl freeboard_policy::HeaderFields for Fields {
    fn each_value(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).for_each(|(_, value)| each(value));
    }
}

fn split(text: &[u8], entry: Entry) -> (&str, &[u8]) {
    let part = |from: u32, to: u32| text.get(from as usize..to as usize).unwrap_or_default();
    let name = std::str::from_utf8(part(entry.start, entry.value)).unwrap_or_default();
    (name, part(entry.value, entry.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h57_keeps_order_case_and_repeats() {
        let mut fields = Fields::default();
        fields.push("X-One", b"1");
        fields.push("accept", b"a");
        fields.push("Accept", b"\xff");
        let seen: Vec<_> = fields.iter().collect();
        assert_eq!(seen, [("X-One", &b"1"[..]), ("accept", b"a"), ("Accept", b"\xff")]);
        assert!(fields.remove("ACCEPT"));
        assert!(!fields.remove("accept"));
        assert_eq!(fields.len(), 1);
    }
}
