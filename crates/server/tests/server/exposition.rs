//! Reads the text format of Prometheus, and refuses what is not exactly in it.

use std::collections::{BTreeMap, BTreeSet};

/// One line of figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// A page that was read.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The kind of each family.
    pub(crate) kinds: BTreeMap<String, String>,
    pub(crate) samples: Vec<Sample>,
}

impl Page {
    /// Reads a page; says what is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if !text.ends_with('\n') {
            return Err("expected a line feed at the end".into());
        }
        let mut page = Page::default();
        let (mut helped, mut family) = (None::<String>, String::new());
        let mut series = BTreeSet::new();
        for line in text.lines() {
            let wrong = |why: &str| format!("{why}: {line:?}");
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("expected a help text"))?;
                if helped.is_some() || help.trim().is_empty() || !help.ends_with('.') {
                    return Err(wrong("expected one sentence of help before each type"));
                }
                helped = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("expected a kind"))?;
                if helped.take().as_deref() != Some(name) || !["counter", "gauge", "histogram"].contains(&kind) {
                    return Err(wrong("expected the type of the family that has its help above"));
                }
                if page.kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                    return Err(wrong("expected each family once"));
                }
                family = name.to_owned();
            } else {
                let sample = Sample::read(line).map_err(|why| wrong(&why))?;
                let kind = page.kinds.get(&family).ok_or_else(|| wrong("expected a type first"))?;
                check_name(&family, kind, &sample).map_err(|why| wrong(&why))?;
                if !series.insert((sample.name.clone(), sample.labels.clone())) {
                    return Err(wrong("expected each series once"));
                }
                page.samples.push(sample);
            }
        }
        page.check_histograms()?;
        Ok(page)
    }

    /// The value of one series.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples.iter().find(|sample| sample.name == name && sample.labels == labels).map(|sample| sample.value)
    }

    fn check_histograms(&self) -> Result<(), String> {
        let histograms = self.kinds.iter().filter(|(_, kind)| kind.as_str() == "histogram");
        for (family, _) in histograms {
            let mut buckets: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
            for sample in self.samples.iter().filter(|sample| sample.name == format!("{family}_bucket")) {
                let mut labels = sample.labels.clone();
                let bound = labels.remove("le").and_then(|bound| number(&bound)).ok_or("expected a bound")?;
                buckets.entry(labels).or_default().push((bound, sample.value));
            }
            for (labels, buckets) in buckets {
                let ascending = buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
                let of = |part: &str| {
                    let name = format!("{family}_{part}");
                    let mut found = self.samples.iter().filter(|sample| sample.name == name && sample.labels == labels);
                    found.next().map(|sample| sample.value)
                };
                let last = buckets.last().copied();
                if !ascending || last.map(|(bound, _)| bound) != Some(f64::INFINITY) {
                    return Err(format!(
                        "{family}{labels:?}: expected ascending buckets up to +Inf, but got {buckets:?}"
                    ));
                }
                if of("count") != last.map(|(_, count)| count) || of("sum").is_none() {
                    return Err(format!("{family}{labels:?}: expected a sum, and the count of the last bucket"));
                }
            }
        }
        Ok(())
    }
}

impl Sample {
    fn read(line: &str) -> Result<Self, String> {
        let (series, value) = line.rsplit_once(' ').ok_or("expected a value")?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, read_labels(labels.strip_suffix('}').ok_or("expected a closing brace")?)?),
            None => (series, BTreeMap::new()),
        };
        if !is_name(name) {
            return Err(format!("expected a name, but got {name:?}"));
        }
        let value = number(value).ok_or_else(|| format!("expected a number, but got {value:?}"))?;
        Ok(Self { name: name.to_owned(), labels, value })
    }
}

fn read_labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").ok_or("expected a label")?;
        if !is_name(name) || name.contains(':') {
            return Err(format!("expected a label's name, but got {name:?}"));
        }
        let (mut value, mut chars, mut closed) = (String::new(), behind.char_indices(), None);
        while let Some((at, char)) = chars.next() {
            match char {
                '"' => {
                    closed = Some(at);
                    break;
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                    other => return Err(format!("expected an escape, but got {other:?}")),
                },
                char => value.push(char),
            }
        }
        let closed = closed.ok_or("expected a closing quote")?;
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("expected label {name:?} once"));
        }
        let behind = &behind[closed + 1..];
        rest = match behind.strip_prefix(',') {
            Some(next) if !next.is_empty() => next,
            None if behind.is_empty() => behind,
            Some(_) | None => return Err(format!("expected a comma and a label, but got {behind:?}")),
        };
    }
    Ok(labels)
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|char| char.is_ascii_alphabetic() || char == '_');
    first && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        text => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

fn check_name(family: &str, kind: &str, sample: &Sample) -> Result<(), String> {
    let part = sample.name.strip_prefix(family).ok_or_else(|| format!("expected a sample of {family}"))?;
    let fits = match kind {
        "counter" => part.is_empty() && family.ends_with("_total") && sample.value >= 0.0,
        "gauge" => part.is_empty() && !family.ends_with("_total"),
        _ => ["_bucket", "_sum", "_count"].contains(&part) && sample.labels.contains_key("le") == (part == "_bucket"),
    };
    if fits { Ok(()) } else { Err(format!("expected a sample of the {kind} {family}")) }
}

#[test]
fn pages_that_are_not_in_the_format_are_refused() {
    let good = "# HELP a_total All.\n# TYPE a_total counter\na_total{x=\"q\\\"\\\\,}\",y=\"\"} 3\n";
    let page = Page::read(good).expect("a page");
    assert_eq!(page.value("a_total", &[("x", "q\"\\,}"), ("y", "")]), Some(3.0));
    let histogram =
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
    assert!(Page::read(histogram).is_ok());
    for wrong in [
        good.trim_end().to_owned(),
        good.replace(" 3", " NaN"),
        good.replace(" 3", " -3"),
        good.replace("counter", "gauge"),
        good.replace("# HELP a_total All.\n", ""),
        good.replace("# TYPE a_total counter\n", ""),
        good.replace(",y", ",,y"),
        good.replace("y=", "x="),
        format!("{good}{good}"),
        format!("{good}a_total{{x=\"q\\\"\\\\,}}\",y=\"\"}} 4\n"),
        format!("{good}b_total 4\n"),
        histogram.replace("h_count 2", "h_count 3"),
        histogram.replace("+Inf\"} 2", "+Inf\"} 0"),
        histogram.replace("h_sum 3\n", ""),
        histogram.replace("+Inf", "2"),
    ] {
        assert!(Page::read(&wrong).is_err(), "{wrong}");
    }
}
