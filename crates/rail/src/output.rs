//! What commands print: tables for people, JSON for programs. Data goes to stdout, talk to stderr.

use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use serde::Serialize;

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document: an array for lists.
    Json,
    /// One JSON document a line.
    Jsonl,
}

/// A line of a list.
pub(crate) trait Row: Serialize {
    /// The columns' heads.
    const COLUMNS: &'static [&'static str];
    /// One cell for each column.
    fn cells(&self) -> Vec<String>;
}

/// One thing in full.
pub(crate) trait Card: Serialize {
    /// Names and values, in the order to print them.
    fn fields(&self) -> Vec<(&'static str, String)>;
}

/// Prints a list.
pub(crate) fn list<R: Row>(format: Format, rows: &[R]) -> io::Result<()> {
    print(&list_text(format, rows)?)
}

/// Prints one thing.
pub(crate) fn card<C: Card>(format: Format, card: &C) -> io::Result<()> {
    print(&card_text(format, card)?)
}

fn list_text<R: Row>(format: Format, rows: &[R]) -> io::Result<String> {
    Ok(match format {
        Format::Table => table(R::COLUMNS.iter().map(|head| (*head).to_owned()), rows.iter().map(Row::cells)),
        Format::Json => serde_json::to_string_pretty(rows)? + "\n",
        Format::Jsonl => lines(rows)?,
    })
}

fn card_text<C: Card>(format: Format, card: &C) -> io::Result<String> {
    Ok(match format {
        Format::Table => {
            let fields = card.fields();
            let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            fields.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
        }
        Format::Json => serde_json::to_string_pretty(card)? + "\n",
        Format::Jsonl => lines(std::slice::from_ref(card))?,
    })
}

fn lines<T: Serialize>(items: &[T]) -> io::Result<String> {
    let mut text = String::new();
    for item in items {
        text.push_str(&serde_json::to_string(item)?);
        text.push('\n');
    }
    Ok(text)
}

/// Columns with two spaces between them and nothing around them: easy to read, easy to cut.
fn table(heads: impl Iterator<Item = String>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(heads);
    for row in rows {
        table.add_row(row.into_iter().map(|cell| if cell.is_empty() { "-".to_owned() } else { cell }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Writes to stdout; a reader that has gone away, such as `head`, is no failure.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Says something to the person: on stderr.
pub(crate) fn say(text: impl std::fmt::Display) {
    // A person who has closed stderr does not want to hear it.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A duration for people, in its two largest units: `1h 5m`, `12s`, `350ms`.
pub(crate) fn short(duration: Duration) -> String {
    let rounded = match duration {
        d if d >= Duration::from_secs(3_600) => Duration::from_secs(d.as_secs() / 60 * 60),
        d if d >= Duration::from_secs(10) => Duration::from_secs(d.as_secs()),
        d => Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
    };
    humantime::format_duration(rounded).to_string()
}

/// A time as RFC 3339 in UTC, to the millisecond.
pub(crate) fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// Milliseconds, for JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How many letters must be changed, added or left out to make one word of another.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let next = (corner + usize::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[other.len()]
}

/// Text cut to `width` characters, line ends shown as spaces.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(width + 1).collect();
    if clean.chars().count() <= width {
        return clean;
    }
    clean.chars().take(width.saturating_sub(1)).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Pair {
        name: &'static str,
        ready: u64,
    }

    impl Row for Pair {
        const COLUMNS: &'static [&'static str] = &["NAME", "READY"];
        fn cells(&self) -> Vec<String> {
            vec![self.name.to_owned(), self.ready.to_string()]
        }
    }

    impl Card for Pair {
        fn fields(&self) -> Vec<(&'static str, String)> {
            vec![("name", self.name.to_owned()), ("messages ready", self.ready.to_string())]
        }
    }

    const PAIRS: [Pair; 2] = [Pair { name: "orders", ready: 12 }, Pair { name: "", ready: 0 }];

    #[test]
    fn a_table_is_as_short_as_it_can_be() {
        let text = list_text(Format::Table, &PAIRS).expect("text");
        assert_eq!(text, "NAME    READY\norders  12\n-       0\n");
    }

    #[test]
    fn an_empty_list_is_its_heads_or_an_empty_array() {
        assert_eq!(list_text::<Pair>(Format::Table, &[]).expect("text"), "NAME  READY\n");
        assert_eq!(list_text::<Pair>(Format::Json, &[]).expect("text"), "[]\n");
        assert_eq!(list_text::<Pair>(Format::Jsonl, &[]).expect("text"), "");
    }

    #[test]
    fn json_and_jsonl_hold_the_same() {
        let json: serde_json::Value =
            serde_json::from_str(&list_text(Format::Json, &PAIRS).expect("text")).expect("json");
        let jsonl = list_text(Format::Jsonl, &PAIRS).expect("text");
        let lines: Vec<serde_json::Value> =
            jsonl.lines().map(|line| serde_json::from_str(line).expect("json")).collect();
        assert_eq!(json, serde_json::Value::Array(lines));
        assert_eq!(jsonl.lines().next(), Some(r#"{"name":"orders","ready":12}"#));
    }

    #[test]
    fn a_card_lines_its_values_up() {
        let text = card_text(Format::Table, &PAIRS[0]).expect("text");
        assert_eq!(text, "name            orders\nmessages ready  12\n");
        let json = card_text(Format::Json, &PAIRS[0]).expect("text");
        assert!(json.starts_with("{\n"), "an object and no array: {json}");
    }

    #[test]
    fn words_are_near_or_far() {
        assert_eq!(distance("max_depth", "max_depth"), 0);
        assert_eq!(distance("max_depth", "max_dept"), 1);
        assert_eq!(distance("lease", "please"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn durations_and_texts_are_cut_for_people() {
        assert_eq!(short(Duration::from_millis(350)), "350ms");
        assert_eq!(short(Duration::from_millis(12_345)), "12s");
        assert_eq!(short(Duration::from_secs(3_905)), "1h 5m");
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "long…");
        assert_eq!(cut("a\nb", 5), "a b");
        assert_eq!(timestamp(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }
}
