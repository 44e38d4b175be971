//! What the log had made durable, noted apart from it: so that a log which comes up with less is caught.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use ticketrail_core::GroupId;

use crate::error::OpenError;
use crate::log::{LeaderId, LogId, Vote};
use crate::sealed::{self, Kind};

const KIND: Kind = Kind {
    name: "ticketrail-watermark",
    format: 1,
    way_out: "without it nothing tells whether the raft log is complete; treat the disk as lost: remove the member from \
              the cluster, empty the data directory and let the node join again",
};

/// What was durable in the log of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermark {
    /// The vote.
    pub vote: Option<Vote>,
    /// The last entry.
    pub last: Option<LogId>,
}

/// The watermarks of all groups.
pub type Watermarks = BTreeMap<GroupId, Watermark>;

/// Writes `marks` to the file `path`, durably.
pub fn write(path: &Path, marks: &Watermarks) -> io::Result<()> {
    let lines: Vec<String> = marks.iter().map(|(group, mark)| format!("group {} = {mark}", group.0)).collect();
    sealed::write(&KIND, path, &lines)
}

/// The watermarks in the file `path`; `None` if there is no such file.
pub fn read(path: &Path) -> Result<Option<Watermarks>, OpenError> {
    let Some(lines) = sealed::read(&KIND, path)? else { return Ok(None) };
    let mut marks = Watermarks::new();
    for line in &lines {
        let Some((group, mark)) = parse(line) else {
            return Err(OpenError::corrupt(path, format!("its line {line:?} makes no sense"), KIND.way_out));
        };
        marks.insert(group, mark);
    }
    Ok(Some(marks))
}

/// The error of a file that should be there and is not.
#[cfg(feature = "rocksdb")]
pub(crate) fn missing(path: &Path) -> OpenError {
    OpenError::corrupt(path, "it is missing beside a raft log", KIND.way_out)
}

impl fmt::Display for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vote {
            Some(Vote { leader, committed }) => write!(f, "vote {}.{}.{}", leader.term, leader.node, committed as u8)?,
            None => write!(f, "vote -")?,
        }
        match self.last {
            Some(LogId { leader, index }) => write!(f, " last {}.{}.{index}", leader.term, leader.node),
            None => write!(f, " last -"),
        }
    }
}

/// Reads `group 1 = vote 3.2.1 last 3.2.105`.
fn parse(line: &str) -> Option<(GroupId, Watermark)> {
    let (group, mark) = line.strip_prefix("group ")?.split_once(" = ")?;
    let (vote, last) = mark.strip_prefix("vote ")?.split_once(" last ")?;
    let vote = match parse_three(vote)? {
        Some((leader, committed @ (0 | 1))) => Some(Vote { leader, committed: committed == 1 }),
        Some(_) => return None,
        None => None,
    };
    let last = parse_three(last)?.map(|(leader, index)| LogId { leader, index });
    Some((GroupId(group.parse().ok()?), Watermark { vote, last }))
}

fn parse_three(text: &str) -> Option<Option<(LeaderId, u64)>> {
    if text == "-" {
        return Some(None);
    }
    let mut parts = text.split('.').map(|part| part.parse::<u64>().ok());
    let (term, node, third) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    Some(Some((LeaderId { term, node }, third)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("WATERMARK");
        assert_eq!(read(&path), Ok(None));
        let leader = LeaderId { term: 3, node: 2 };
        let marks = Watermarks::from([
            (GroupId(0), Watermark::default()),
            (
                GroupId(1),
                Watermark { vote: Some(Vote { leader, committed: true }), last: Some(LogId { leader, index: 105 }) },
            ),
        ]);
        write(&path, &marks).unwrap();
        assert_eq!(read(&path), Ok(Some(marks)));
    }

    #[test]
    fn nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("WATERMARK");
        for line in ["group 1 = vote 1.1.2 last -", "group x = vote - last -", "group 1 = vote - last 1.1", "hello"] {
            sealed::write(&KIND, &path, &[line.to_string()]).unwrap();
            assert!(matches!(read(&path), Err(OpenError::Corrupt { .. })), "{line}");
        }
        fs::write(&path, "").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("WATERMARK") && error.contains("empty"), "{error}");
    }
}
