//! What a drill did to the cluster, and the proof that it took effect.

use std::collections::BTreeMap;

use anyhow::bail;
use ticketrail_history::Recorder;
use ticketrail_history::format::Phase;

use crate::verdict::Vacuous;

/// The record of a drill's faults.
pub struct Nemesis {
    recorder: Recorder,
    effects: BTreeMap<&'static str, u64>,
}

impl Nemesis {
    /// A new record, on the clock of the recorder of what clients ask and are told.
    pub fn new(recorder: Recorder) -> Self {
        Self { recorder, effects: BTreeMap::new() }
    }

    /// A fault begins.
    pub fn begin(&mut self, fault: &'static str, target: &str, detail: &str) {
        self.recorder.nemesis(fault, target, Phase::Begin, detail);
    }

    /// A fault has taken effect `times` more, and `proof` says how that is known. Its name is that of the fault which
    /// began, or of what came of it.
    pub fn effect(&mut self, effect: &'static str, target: &str, proof: &str, times: u64) {
        *self.effects.entry(effect).or_default() += times;
        if times > 0 {
            self.recorder.nemesis(effect, target, Phase::Effect, proof);
        }
    }

    /// A fault is over.
    pub fn end(&mut self, fault: &'static str, target: &str, detail: &str) {
        self.recorder.nemesis(fault, target, Phase::End, detail);
    }

    /// How often an effect was seen.
    pub fn count(&self, effect: &str) -> u64 {
        self.effects.get(effect).copied().unwrap_or(0)
    }

    /// An effect must have been seen so often, else nothing was tested.
    ///
    /// # Errors
    /// [`Vacuous`] where it was not.
    pub fn demand(&self, effect: &'static str, least: u64) -> anyhow::Result<()> {
        let count = self.count(effect);
        if count < least {
            let text = format!("expected at least {least} of the effect `{effect}`, but there were {count}");
            bail!(Vacuous(text));
        }
        Ok(())
    }

    /// All effects with their counts, for the line of a drill.
    pub fn effects(&self) -> String {
        let effects: Vec<String> = self.effects.iter().map(|(effect, count)| format!("{effect} {count}")).collect();
        effects.join(", ")
    }

    /// Whether no effect was seen at all.
    pub fn is_empty(&self) -> bool {
        self.effects.values().all(|count| *count == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ticketrail_history::RunDir;

    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn an_effect_that_was_not_seen_makes_a_run_invalid() {
        let dir = tempfile::tempdir().expect("a directory");
        let recorder = Recorder::create(dir.path(), || Duration::from_nanos(7)).expect("a recorder");
        let mut nemesis = Nemesis::new(recorder.clone());
        nemesis.begin("leaders killed", "a", "SIGKILL");
        nemesis.effect("leaders killed", "a", "it lives", 0);
        assert!(nemesis.is_empty());
        assert_eq!(Verdict::of(&nemesis.demand("leaders killed", 1)), Verdict::Invalid);
        nemesis.effect("leaders killed", "a", "term 2 after 1", 1);
        nemesis.effect("leaders killed", "b", "term 3 after 2", 1);
        nemesis.end("leaders killed", "a", "started again");
        nemesis.demand("leaders killed", 2).expect("seen");
        assert_eq!(nemesis.effects(), "leaders killed 2");
        recorder.finish().expect("written");
        let lines = RunDir::new(dir.path()).nemesis().expect("the record");
        let phases: Vec<Phase> = lines.iter().map(|line| line.phase).collect();
        assert_eq!(phases, [Phase::Begin, Phase::Effect, Phase::Effect, Phase::End]);
    }
}
