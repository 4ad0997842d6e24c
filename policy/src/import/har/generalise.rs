//! Many different words in one place of otherwise equal paths are data: they become a type.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::Entry;
use super::segment::Segment;
use crate::import::{Kind, Report};
use crate::route::pattern::{Kind as Type, Pattern};

/// Words in one place of an API that are still read as its words. Most resources have fewer sub-resources; more are names that
/// people gave.
const SIBLINGS_MAX: usize = 12;

/// Replaces such words, place by place from the left.
pub(super) fn siblings(mut rows: Vec<Entry>, report: &mut Report) -> Vec<Entry> {
    let mut by_origin: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        by_origin.entry(row.origin.clone()).or_default().push(index);
    }
    let mut open: Vec<(usize, Vec<usize>)> = by_origin.into_values().map(|indices| (0, indices)).collect();
    while let Some((depth, indices)) = open.pop() {
        let mut groups: BTreeMap<Segment, Vec<usize>> = BTreeMap::new();
        for index in replaced(&mut rows, depth, &indices, report) {
            let segment = rows.get(index).and_then(|row| row.segments.get(depth)).cloned();
            groups.entry(segment.unwrap_or(Segment::Any)).or_default().push(index);
        }
        open.extend(groups.into_values().map(|indices| (depth + 1, indices)));
    }
    rows
}

/// The rows that have a segment there, after its words were replaced where they are too many.
fn replaced(rows: &mut [Entry], depth: usize, indices: &[usize], report: &mut Report) -> Vec<usize> {
    let there: Vec<usize> = indices
        .iter()
        .copied()
        .filter(|index| rows.get(*index).is_some_and(|row| row.segments.len() > depth))
        .collect();
    let word = |index: &usize| match rows.get(*index)?.segments.get(depth)? {
        Segment::Word(word) => Some(word.clone()),
        _ => None,
    };
    let words: BTreeSet<String> = there.iter().filter_map(word).collect();
    if words.len() <= SIBLINGS_MAX {
        return there;
    }
    let slugs = words.iter().all(|word| Pattern::Kind(Type::Slug).matches(word.as_bytes()));
    let replacement = if slugs { Segment::Type("slug") } else { Segment::Any };
    for index in &there {
        if let Some(segment) = rows.get_mut(*index).and_then(|row| row.segments.get_mut(depth))
            && matches!(segment, Segment::Word(_))
        {
            *segment = replacement.clone();
        }
    }
    let reason = format!("{} different words in one place became `{}`", words.len(), replacement.written());
    let subject = there.first().and_then(|index| rows.get(*index)).map(Entry::subject).unwrap_or_default();
    report.add(Kind::Wider, subject, reason);
    there
}
