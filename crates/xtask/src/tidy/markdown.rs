//! Rules for documents: links lead somewhere, every decision record stands in the index.

use crate::tree::Tree;

/// The folder of the decision records.
const RECORDS: &str = "docs/adr/";

/// The index of the decision records.
const INDEX: &str = "docs/adr/README.md";

/// One line for each breach.
pub(super) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for (path, file) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        for (number, target) in links(&file.text) {
            if let Some(problem) = dead(tree, path, &target) {
                breaches
                    .push(format!("{path}:{number}: expected the link `{target}` to lead somewhere, but {problem}"));
            }
        }
    }
    breaches.extend(unlisted_records(tree));
    breaches
}

/// Decision records without a link in their index, and records whose name has no number.
fn unlisted_records(tree: &Tree) -> Vec<String> {
    let listed: Vec<String> = tree
        .file(INDEX)
        .map(|file| links(&file.text))
        .unwrap_or_default()
        .into_iter()
        .map(|(_, target)| target)
        .collect();
    let records = tree.files().filter_map(|(path, _)| path.strip_prefix(RECORDS)).filter(|name| *name != "README.md");
    let mut breaches = Vec::new();
    for name in records.filter(|name| name.ends_with(".md")) {
        if !listed.iter().any(|target| target == name) {
            breaches.push(format!("{RECORDS}{name}: expected a link in {INDEX}, but there is none"));
        }
        let number = name.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            breaches.push(format!("{RECORDS}{name}: expected a name like 0001-what-was-decided.md, but it is another"));
        }
    }
    breaches
}

/// Why `target`, linked from the document at `path`, leads nowhere. Links to other sites are not followed.
fn dead(tree: &Tree, path: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let place = if file.is_empty() {
        path.to_owned()
    } else {
        match resolve(path, file) {
            Some(place) => place,
            None => return Some("it leaves the tree".to_owned()),
        }
    };
    if !tree.has(&place) {
        return Some(format!("there is no {place}"));
    }
    if heading.is_empty() || !place.ends_with(".md") {
        return None;
    }
    let text = tree.file(&place).map(|file| file.text.as_str()).unwrap_or_default();
    let found = headings(text).any(|known| known == heading);
    (!found).then(|| format!("{place} has no heading `{heading}`"))
}

/// The path that `file`, named in the document at `path`, has from the root.
fn resolve(path: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The targets of `[text](target)` and `[name]: target` outside of code, with line numbers from 1.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        for (start, _) in line.match_indices("](") {
            let rest = &line[start + 2..];
            if let Some(end) = rest.find(')') {
                // A title may stand behind the target.
                let target = rest[..end].split_whitespace().next().unwrap_or_default();
                found.push((number, target.to_owned()));
            }
        }
        if line.starts_with('[')
            && let Some((_, target)) = line.split_once("]: ")
        {
            found.push((number, target.split_whitespace().next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// The headings of a document as the last part of a link: lower case, words joined with `-`.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles =
        prose(text).filter_map(|(_, line)| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()));
    titles.map(|title| {
        let kept = title.to_lowercase();
        let kept = kept.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    })
}

/// The lines of a document outside of fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

/// `line` without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        breaches(&Tree::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))))
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let readme = ("README.md", "# It\n[a](docs/ARCHITECTURE.md) [b](docs) [c](https://example.org/x) [d](#it)\n");
        let architecture = ("docs/ARCHITECTURE.md", "# The life of a message\n[up](../README.md)\n");
        assert_eq!(check(&[readme, architecture]), Vec::<String>::new());
        for link in ["docs/NONE.md", "../x.md", "docs/ARCHITECTURE.md#the-death", "#none"] {
            let text = format!("# It\n[x]({link})\n");
            let breaches = check(&[("README.md", &text), architecture]);
            assert_eq!(breaches.len(), 1, "{link}: {breaches:?}");
            assert!(breaches[0].starts_with("README.md:2: "), "{breaches:?}");
        }
        let to_a_heading = ("README.md", "[x](docs/ARCHITECTURE.md#the-life-of-a-message)\n");
        assert_eq!(check(&[to_a_heading, architecture]), Vec::<String>::new());
    }

    #[test]
    fn links_in_code_are_none() {
        assert_eq!(check(&[("README.md", "`[x](none.md)`\n```\n[x](none.md)\n```\n")]), Vec::<String>::new());
    }

    #[test]
    fn every_decision_record_stands_in_the_index() {
        let index = ("docs/adr/README.md", "- [one](0001-one.md)\n");
        assert_eq!(check(&[index, ("docs/adr/0001-one.md", "")]), Vec::<String>::new());
        let breaches =
            check(&[index, ("docs/adr/0001-one.md", ""), ("docs/adr/0002-two.md", ""), ("docs/adr/three.md", "")]);
        assert_eq!(breaches.len(), 3, "{breaches:?}");
        assert!(breaches[0].starts_with("docs/adr/0002-two.md: expected a link"), "{breaches:?}");
    }
}
