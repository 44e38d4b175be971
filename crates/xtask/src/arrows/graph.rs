//! Who depends on whom, and what breaks the table.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata};

use super::table::{CRATES, ONLY, OPTIONAL, Row};

/// The dependencies of the workspace.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// The packages of the workspace.
    members: BTreeSet<String>,
    /// What their Cargo.toml files name.
    arrows: Vec<Arrow>,
    /// What each package, of ours or not, uses outside of builds and tests.
    uses: BTreeMap<String, BTreeSet<String>>,
}

/// One line of a Cargo.toml.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Arrow {
    from: String,
    to: String,
    /// Only for tests.
    test: bool,
    optional: bool,
}

impl Graph {
    /// The graph of `metadata`, which must hold its resolution.
    pub(super) fn of(metadata: &Metadata) -> Graph {
        let mut graph = Graph::default();
        for package in metadata.workspace_packages() {
            graph.members.insert(package.name.to_string());
            graph.arrows.extend(package.dependencies.iter().map(|dependency| Arrow {
                from: package.name.to_string(),
                to: dependency.name.clone(),
                test: dependency.kind == DependencyKind::Development,
                optional: dependency.optional,
            }));
        }
        let names: BTreeMap<_, _> = metadata.packages.iter().map(|package| (&package.id, &package.name)).collect();
        for node in metadata.resolve.iter().flat_map(|resolve| &resolve.nodes) {
            let normal =
                |kinds: &[cargo_metadata::DepKindInfo]| kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            let used = node.deps.iter().filter(|dep| normal(&dep.dep_kinds)).filter_map(|dep| names.get(&dep.pkg));
            let used: Vec<String> = used.map(ToString::to_string).collect();
            if let Some(name) = names.get(&node.id) {
                graph.uses.entry(name.to_string()).or_default().extend(used);
            }
        }
        graph
    }

    /// One line for each arrow that the table forbids.
    pub(super) fn breaches(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        for member in &self.members {
            match CRATES.iter().find(|row| row.package == member) {
                Some(row) => breaches.extend(self.breaches_of(row)),
                None => breaches.push(format!(
                    "{member}: expected a row in crates/xtask/src/arrows/table.rs that says what it may use, but there is none"
                )),
            }
        }
        breaches
    }

    fn breaches_of(&self, row: &Row) -> Vec<String> {
        let mut breaches = Vec::new();
        for arrow in self.arrows.iter().filter(|arrow| arrow.from == row.package) {
            let (from, to) = (row.package, arrow.to.as_str());
            if self.members.contains(to) {
                // A package may use itself in its tests, to switch features of its own on.
                let itself_in_tests = arrow.test && to == from;
                if !itself_in_tests && !row.uses.contains(&to) {
                    breaches
                        .push(format!("{from} -> {to}: expected one of {:?}, but its Cargo.toml names {to}", row.uses));
                }
            } else {
                let closed = row.outside.is_some_and(|outside| !outside.contains(&to));
                if closed && !(arrow.test && row.outside_in_tests.contains(&to)) {
                    breaches.push(format!(
                        "{from} -> {to}: expected nothing from outside but {:?} (and {:?} in tests), but its Cargo.toml names {to}",
                        row.outside.unwrap_or_default(),
                        row.outside_in_tests
                    ));
                }
            }
            if let Some((_, owners)) = ONLY.iter().find(|(package, _)| *package == to)
                && !owners.contains(&from)
            {
                breaches.push(format!("{from} -> {to}: expected only {owners:?} to use {to}, but {from} names it"));
            }
            if OPTIONAL.contains(&(from, to)) && !arrow.optional {
                breaches.push(format!("{from} -> {to}: expected this to be optional, but it is not"));
            }
        }
        for never in row.never_reaches {
            if let Some(path) = self.path(row.package, never) {
                breaches.push(format!("{}: expected never to reach {never}, but {}", row.package, path.join(" -> ")));
            }
        }
        breaches
    }

    /// The shortest way from one package to another, if there is any.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut seen = BTreeSet::from([from]);
        let mut ways = vec![vec![from]];
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                let last = way.last().copied()?;
                if last == to {
                    return Some(way.into_iter().map(str::to_owned).collect());
                }
                for next in self.uses.get(last).into_iter().flatten() {
                    if seen.insert(next) {
                        longer.push([way.as_slice(), &[next.as_str()]].concat());
                    }
                }
            }
            ways = longer;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of the workspace's arrows as they may be, with `extra` planted.
    fn graph(extra: &[Arrow]) -> Graph {
        let mut graph = Graph::default();
        for row in CRATES {
            graph.members.insert(row.package.to_owned());
            let outside = row.outside.unwrap_or_default();
            for to in row.uses.iter().chain(outside) {
                graph.arrows.push(arrow(row.package, to, OPTIONAL.contains(&(row.package, to))));
            }
        }
        graph.arrows.push(arrow("ticketrail-storage", "rocksdb", true));
        graph.arrows.push(Arrow { test: true, ..arrow("ticketrail-core", "proptest", false) });
        graph.arrows.extend_from_slice(extra);
        let mut uses = BTreeMap::<String, BTreeSet<String>>::new();
        for arrow in graph.arrows.iter().filter(|arrow| !arrow.test) {
            uses.entry(arrow.from.clone()).or_default().insert(arrow.to.clone());
        }
        graph.uses = uses;
        graph
    }

    fn arrow(from: &str, to: &str, optional: bool) -> Arrow {
        Arrow { from: from.to_owned(), to: to.to_owned(), test: false, optional }
    }

    #[track_caller]
    fn assert_caught(planted: Arrow, text: &str) {
        let breaches = graph(std::slice::from_ref(&planted)).breaches();
        assert!(breaches.iter().any(|breach| breach.contains(text)), "{planted:?} gave {breaches:#?}");
    }

    #[test]
    fn the_arrows_of_the_table_are_fine() {
        assert_eq!(graph(&[]).breaches(), Vec::<String>::new());
    }

    #[test]
    fn a_planted_arrow_between_crates_is_caught() {
        assert_caught(arrow("ticketrail-core", "ticketrail-storage", false), "ticketrail-core -> ticketrail-storage");
        assert_caught(arrow("ticketrail-client", "ticketrail-core", false), "ticketrail-client -> ticketrail-core");
        assert_caught(arrow("ticketrail-api", "ticketrail-storage", true), "ticketrail-api -> ticketrail-storage");
        assert_caught(arrow("ticketrail", "ticketrail-node", false), "ticketrail -> ticketrail-node");
    }

    #[test]
    fn a_planted_arrow_in_tests_is_caught() {
        let planted = Arrow { test: true, ..arrow("ticketrail-core", "tempfile", false) };
        assert_caught(planted, "expected nothing from outside but");
        let planted = Arrow { test: true, ..arrow("ticketrail-client", "ticketrail-server", false) };
        assert_caught(planted, "ticketrail-client -> ticketrail-server");
    }

    #[test]
    fn a_planted_library_in_the_wrong_crate_is_caught() {
        assert_caught(arrow("ticketrail-node", "rocksdb", false), "expected only [\"ticketrail-storage\"]");
        assert_caught(arrow("ticketrail-storage", "openraft", false), "expected only [\"ticketrail-node\"]");
        assert_caught(arrow("ticketrail-storage", "tonic", false), "to use tonic");
        assert_caught(arrow("ticketrail-server", "clap", false), "to use clap");
        assert_caught(arrow("ticketrail-core", "tokio", false), "expected nothing from outside but");
        assert_caught(arrow("ticketrail-xtask", "anyhow", false), "expected nothing from outside but");
    }

    #[test]
    fn a_planted_detour_is_caught() {
        let mut graph = graph(&[arrow("ticketrail-client", "innocent", false)]);
        graph.uses.entry("innocent".to_owned()).or_default().insert("librocksdb-sys".to_owned());
        let breaches = graph.breaches();
        let detour = "ticketrail-client -> innocent -> librocksdb-sys";
        assert!(breaches.iter().any(|breach| breach.ends_with(detour)), "{breaches:#?}");
    }

    #[test]
    fn an_arrow_that_must_be_optional_is_caught_when_it_is_not() {
        assert_caught(arrow("ticketrail", "ticketrail-server", false), "expected this to be optional");
    }

    #[test]
    fn a_crate_without_a_row_is_caught() {
        let mut graph = graph(&[]);
        graph.members.insert("ticketrail-outbox".to_owned());
        assert!(graph.breaches().iter().any(|breach| breach.starts_with("ticketrail-outbox: expected a row")));
    }
}
