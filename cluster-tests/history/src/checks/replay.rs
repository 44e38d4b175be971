//! The log replayed against the reference model: each outcome is the one that the model gives.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::model::Stop;

#[derive(Default)]
pub(super) struct Replay {
    stopped: bool,
}

impl Check for Replay {
    fn name(&self) -> &'static str {
        "replay: the model gives each outcome"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        if self.stopped {
            return;
        }
        out.looked += 1;
        let Some(stop) = at.stop else { return };
        self.stopped = true;
        let line = at.line;
        let whose = at.op.map_or_else(|| "no client's operation".to_owned(), |op| at.case.story.name(op));
        let asked = shorten(format!("{:?}", line.c));
        match stop {
            Stop::Wrong(mismatch) => out.violation(|| {
                let (rule, text) = (mismatch.rule, &mismatch.text);
                let (cp, ts) = (line.cp, line.ts);
                format!("at position {cp} (cluster time {ts}, {whose}), asked {asked}: {text} [rule: {rule}]; not replayed further")
            }),
            Stop::Unsure(text) => out.notes.push(format!("replayed up to position {} only: {text}", line.cp)),
        }
    }

    fn end(&mut self, _: &Case, after: &After<'_>, out: &mut Findings) {
        if after.lines == 0 {
            out.notes.push("there is no audit to replay".to_owned());
        }
    }
}

fn shorten(text: String) -> String {
    if text.len() <= 600 { text } else { format!("{} …", text.chars().take(600).collect::<String>()) }
}
