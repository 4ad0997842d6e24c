//! Did you mean: the known word nearest to a misspelt one.

/// The nearest candidate, if it is near enough to be meant.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap of neighbours) between two words, ignoring ASCII case.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.to_ascii_lowercase().chars().collect();
    let right: Vec<char> = right.to_ascii_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, r) in right.iter().enumerate() {
            let at = |cells: &[usize], index: usize| cells.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut best = (at(&row, j) + usize::from(l != r)).min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            let swapped = i > 0 && j > 0 && left.get(i - 1) == Some(r) && right.get(j - 1) == Some(l);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn suggests_what_is_near_and_nothing_else() {
        let words = ["callers", "floor", "ttl", "expires", "budget", "allow", "deny"];
        for (typed, meant) in [
            ("caller", "callers"),
            ("flor", "floor"),
            ("tll", "ttl"),
            ("alow", "allow"),
            ("Budget", "budget"),
        ] {
            assert_eq!(nearest(typed, words), Some(meant), "{typed}");
        }
        assert_eq!(nearest("hosts", words), None);
        assert_eq!(nearest("", words), None);
    }
}
