//! Header fields in the order and spelling in which they came, in memory that is taken at once.

use super::name::{Role, role};

/// Names and values, copied out of the head. Names are tokens, values hold no control character except tab.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    names: String,
    values: Vec<u8>,
    /// Not inline: heads are handed from stage to stage, and each move would copy them.
    entries: Vec<Entry>,
}

/// Fields that a head has as a rule; more make the list grow.
const USUAL_FIELDS: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Entry {
    name: (u32, u32),
    value: (u32, u32),
    role: Role,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// What the name is to us, looked up once.
    pub role: Role,
    pub name: &'a str,
    pub value: &'a [u8],
}

impl Fields {
    /// With room for the fields of a head of so many bytes.
    pub fn with_room(head_bytes: usize) -> Self {
        Self {
            names: String::with_capacity(head_bytes / 2),
            values: Vec::with_capacity(head_bytes),
            entries: Vec::with_capacity(USUAL_FIELDS),
        }
    }

    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.push_as(role(name), name, value);
    }

    /// `role` is the name's, which the caller has looked up already.
    pub fn push_as(&mut self, role: Role, name: &str, value: &[u8]) {
        let (names, values) = (self.names.len(), self.values.len());
        self.names.push_str(name);
        self.values.extend_from_slice(value);
        // Heads are at most MAX_HEAD_BYTES long, far below 4 GiB; a field that did not fit would be empty.
        let range = |from: usize, to: usize| {
            let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            (offset(from), offset(to))
        };
        self.entries.push(Entry {
            name: range(names, self.names.len()),
            value: range(values, self.values.len()),
            role,
        });
    }

    pub fn each(&self) -> impl Iterator<Item = Field<'_>> {
        self.entries.iter().map(|entry| field(&self.names, &self.values, *entry))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.each().map(|field| (field.name, field.value))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.names.len() + self.values.len()
    }

    /// All names and all values, each one after the other, for a search.
    pub fn texts(&self) -> [&[u8]; 2] {
        [self.names.as_bytes(), &self.values]
    }

    /// Changes names and values without changing their lengths. What `change` leaves must be fit for names and values.
    pub fn change_texts(&mut self, mut change: impl FnMut(&mut [u8])) {
        let mut names = std::mem::take(&mut self.names).into_bytes();
        change(&mut names);
        // Names that are no text any more are empty: nothing of them goes on.
        self.names = String::from_utf8(names).unwrap_or_default();
        change(&mut self.values);
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
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) -> bool {
        let Self { names, values, entries } = self;
        let before = entries.len();
        entries.retain(|entry| keep(field(names, values, *entry)));
        before != entries.len()
    }

    /// Takes out all fields of this name; true when there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.retain(|field| !field.name.eq_ignore_ascii_case(name))
    }
}

impl freeboard_policy::HeaderFields for Fields {
    fn each_value(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).for_each(|(_, value)| each(value));
    }
}

fn field<'a>(names: &'a str, values: &'a [u8], Entry { name, value, role }: Entry) -> Field<'a> {
    Field {
        role,
        name: names.get(name.0 as usize..name.1 as usize).unwrap_or_default(),
        value: values.get(value.0 as usize..value.1 as usize).unwrap_or_default(),
    }
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
