//! Which files a path with wildcards means. Owns the pattern's rules; lists nothing.

/// True if a path has wildcards in it.
pub fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// The folder before the first part with a wildcard, and the rest; for a path without, its folder and name.
pub fn split(path: &str) -> (&str, &str) {
    let fixed = path.find(['*', '?', '[']).unwrap_or(path.len());
    match path[..fixed].rfind('/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => ("", path),
    }
}

/// Whether `pattern` means `name`. `*` stands for any text without `/`, `?` for one such character, `[a-z]` and `[!a-z]` for one
/// of some, and `**` as a whole part for any number of parts. A leading dot needs one in the pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), name.split('/').collect());
    parts(&pattern, &name)
}

fn parts(pattern: &[&str], name: &[&str]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), Some((first, others))) => parts(rest, name) || (!first.starts_with('.') && parts(pattern, others)),
        (Some((&"**", rest)), None) => parts(rest, name),
        (Some((first, rest)), Some((part, others))) => {
            let hidden = part.starts_with('.') && !first.starts_with('.');
            let (first, part): (Vec<char>, Vec<char>) = (first.chars().collect(), part.chars().collect());
            !hidden && characters(&first, &part) && parts(rest, others)
        }
        _ => false,
    }
}

fn characters(pattern: &[char], name: &[char]) -> bool {
    // Where the newest `*` stands, and what it has swallowed so far: going back to it is enough.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match one(&pattern[p..], name[n]) {
            _ if pattern.get(p) == Some(&'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(width) => (p, n) = (p + width, n + 1),
            None => match star {
                Some((at, swallowed)) => {
                    star = Some((at, swallowed + 1));
                    (p, n) = (at + 1, swallowed + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// How much of the pattern takes the character, if it does.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => {
            let negated = pattern.get(1) == Some(&'!');
            let from = 1 + usize::from(negated);
            // A bracket that stands first is one of the characters.
            let close = from + 1 + pattern.get(from + 1..)?.iter().position(|c| *c == ']')?;
            let (mut at, mut within) = (from, false);
            while at < close {
                let ranged = at + 2 < close && pattern[at + 1] == '-';
                let last = if ranged { pattern[at + 2] } else { pattern[at] };
                within |= (pattern[at]..=last).contains(&c);
                at += if ranged { 3 } else { 1 };
            }
            (within != negated).then_some(close + 1)
        }
        other => (*other == c).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_a_shell_takes_it_for() {
        for (pattern, name) in [
            ("*.jsonl", "a.jsonl"),
            ("a*b*c", "aXbXbc"),
            ("a?c", "aüc"),
            ("part-[0-9][!x]", "part-7y"),
            ("[]a]", "]"),
            ("**/*.gz", "x.gz"),
            ("**/*.gz", "a/b/x.gz"),
            ("a/**/b", "a/b"),
            ("a/**", "a/b/c"),
            ("*", "anything"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*.jsonl", "a.jsonl.gz"),
            ("*.jsonl", "a/b.jsonl"),
            ("*", ".hidden"),
            ("**/*.gz", ".weir/x.gz"),
            ("a?c", "ac"),
            ("[!a]", "a"),
            ("[a", "a"),
            ("a/*/c", "a/c"),
            ("a*b", "ac"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_path_is_split_before_its_first_wildcard() {
        assert_eq!(split("/a/b/*.x"), ("/a/b", "*.x"));
        assert_eq!(split("/a/b*/c/d"), ("/a", "b*/c/d"));
        assert_eq!(split("/a/b"), ("/a", "b"));
        assert_eq!(split("/*"), ("", "*"));
        assert_eq!(split("s3://bucket/x/**/a?"), ("s3://bucket/x", "**/a?"));
    }
}
