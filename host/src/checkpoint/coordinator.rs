//! The decisions of the checkpoint protocol, as functions from facts: no I/O, no clock.

use crate::checkpoint::store::Created;
use crate::error::{Error, Result};
use crate::sink::{Epoch, Recovered};

/// What the attempt to create an epoch's manifest came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The epoch is ours: go on to commit.
    Ours,
    /// Another process took the number, and no manifest has ever named what we prepared: stop at once, discard it.
    Beaten,
    /// Another process has gone on from a manifest of this number that is, or may have been, ours: stop at once and leave
    /// what we prepared alone, since it was committed there.
    Superseded,
    /// Nothing was created: try again.
    Again,
}

/// Decides on a create. `found` is the attempt named by the manifest that is there now, `newest` the highest epoch listed after the create.
///
/// A store may retry its own landed write and then say AlreadyExists: whose it is tells the manifest itself.
pub fn claim(created: Created, mine: &str, found: Option<&str>, epoch: Epoch, newest: Option<Epoch>) -> Claim {
    let ours = match (created, found) {
        (Created::New, _) => true,
        (Created::Exists, Some(attempt)) => attempt == mine,
        (Created::Exists, None) => return Claim::Again,
    };
    let followed_by = |later: u64| newest.is_some_and(|newest| newest.0 > epoch.0 + later);
    match ours {
        true if followed_by(0) => Claim::Superseded,
        true => Claim::Ours,
        // Two manifests on, this one may be a second of its number: ours was taken over and swept before we read it.
        false if followed_by(1) => Claim::Superseded,
        false => Claim::Beaten,
    }
}

/// What recovery does with the newest manifest's epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Every sink has it or can take it: commit those that need it, then go on behind it.
    Commit(Vec<String>),
    /// Some prepared work is gone and nothing is visible: go back one epoch.
    Abandon,
}

/// Decides on an epoch from what each sink says of it. Some lost, some visible contradicts itself: stop and name both.
pub fn settle(epoch: Epoch, answers: &[(String, Recovered)]) -> Result<Settled> {
    let named =
        |wanted: Recovered| answers.iter().filter(|(_, r)| *r == wanted).map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (lost, committed) = (named(Recovered::Lost), named(Recovered::Committed));
    match (lost.is_empty(), committed.is_empty()) {
        (true, _) => Ok(Settled::Commit(named(Recovered::NeedsCommit))),
        (false, true) => Ok(Settled::Abandon),
        (false, false) => Err(Error::corrupt(
            "one sink shows the epoch and another has lost what it prepared: restore the lost files or choose which sink to trust",
        )
        .with("epoch", epoch)
        .with("visible", committed.join(","))
        .with("lost", lost.join(","))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_create_that_says_exists_is_ours_only_if_the_manifest_names_us() {
        let e = Epoch(7);
        assert_eq!(claim(Created::New, "me", None, e, Some(e)), Claim::Ours);
        assert_eq!(claim(Created::Exists, "me", Some("me"), e, Some(e)), Claim::Ours);
        assert_eq!(claim(Created::Exists, "me", Some("you"), e, Some(e)), Claim::Beaten);
        assert_eq!(claim(Created::Exists, "me", Some("you"), e, Some(Epoch(8))), Claim::Beaten);
        assert_eq!(claim(Created::Exists, "me", None, e, None), Claim::Again);
    }

    #[test]
    fn what_a_successor_may_have_committed_is_never_called_unclaimed() {
        let (e, next, later) = (Epoch(7), Some(Epoch(8)), Some(Epoch(9)));
        assert_eq!(claim(Created::New, "me", None, e, next), Claim::Superseded);
        assert_eq!(claim(Created::Exists, "me", Some("me"), e, next), Claim::Superseded);
        assert_eq!(claim(Created::Exists, "me", Some("you"), e, later), Claim::Superseded);
    }

    #[test]
    fn recovery_never_skips_what_is_half_visible() {
        let answers = |list: &[Recovered]| list.iter().enumerate().map(|(i, r)| (format!("s{i}"), *r)).collect::<Vec<_>>();
        use Recovered::*;
        assert_eq!(settle(Epoch(1), &answers(&[Committed, NeedsCommit])).unwrap(), Settled::Commit(vec!["s1".into()]));
        assert_eq!(settle(Epoch(1), &answers(&[Lost, NeedsCommit])).unwrap(), Settled::Abandon);
        assert_eq!(settle(Epoch(1), &[]).unwrap(), Settled::Commit(vec![]));
        let error = settle(Epoch(1), &answers(&[Lost, Committed])).unwrap_err();
        assert!(error.to_string().contains("visible=s1 lost=s0"), "{error}");
    }
}
