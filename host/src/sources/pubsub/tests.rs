//! The ledger against every order of things: what it says is new, acknowledged and remembered.

use std::collections::HashSet;

use proptest::prelude::*;

use super::ledger::{Acks, Id, Kept, Ledger, Load, Memory, Seen};

const EXACT: Memory = Memory { window_ms: 0, retention_ms: 1_000_000 };
const ORDINARY: Memory = Memory { window_ms: 600, retention_ms: 1_000_000 };

/// Takes in one answer of messages with these ids, each with an ack id of its own.
fn deliver(ledger: &mut Ledger, ids: &[u64], tag: &str, due_ms: i64) -> (Vec<Seen>, Vec<Acks>) {
    let mut incoming = ledger.incoming();
    let seen = ids.iter().map(|id| ledger.receive(&mut incoming, Id(0, *id), &format!("{tag}{id}"), 10)).collect();
    (seen, ledger.received(incoming, due_ms))
}

fn texts(requests: &[Acks]) -> Vec<String> {
    requests.iter().flat_map(|acks| acks.iter().map(str::to_string)).collect()
}

fn handed(ids: &[u64]) -> Vec<Id> {
    ids.iter().map(|id| Id(0, *id)).collect()
}

#[test]
fn a_message_that_comes_again_underway_is_acknowledged_by_its_newest_ack_id() {
    let mut ledger = Ledger::new(EXACT);
    assert_eq!(deliver(&mut ledger, &[1, 2], "a", 100).0, [Seen::New, Seen::New]);
    let (seen, done) = deliver(&mut ledger, &[2, 2], "b", 100);
    assert_eq!(seen, [Seen::Underway, Seen::Underway]);
    assert!(done.is_empty());
    assert_eq!(ledger.unacked(), Load { messages: 2, bytes: 20 });
    let group = ledger.seal(0, Some("f".into()), handed(&[1, 2]), 0);
    let requests = ledger.commit(group);
    assert_eq!(texts(&requests), ["a1", "b2"]);
    requests.iter().for_each(|acks| ledger.confirm(acks, 5));
    assert_eq!((ledger.unacked(), ledger.remembered()), (Load::default(), 0));
    ledger.forget(5);
    assert_eq!(ledger.kept(0).count(), 0);
    assert_eq!(ledger.gone(0).collect::<Vec<_>>(), ["f"]);
    ledger.told_gone(|file| file == "f");
    assert_eq!(ledger.gone(0).count(), 0);
}

#[test]
fn what_a_former_life_committed_is_acknowledged_at_once_and_never_handed_out() {
    let mut ledger = Ledger::new(EXACT);
    ledger.restore(Kept { file: "f".into(), confirmed_ms: None }, handed(&[1, 2]), 0);
    let (seen, done) = deliver(&mut ledger, &[1, 3], "a", 100);
    assert_eq!(seen, [Seen::Done, Seen::New]);
    assert_eq!(texts(&done), ["a1"]);
    // The answer to it is lost, and the lease too.
    ledger.lose(&done[0]);
    let (seen, done) = deliver(&mut ledger, &[1], "b", 100);
    assert_eq!((seen, texts(&done)), (vec![Seen::Done], vec!["b1".to_string()]));
    ledger.confirm(&done[0], 7);
    // Of 2 nothing was heard: it is remembered for as long as the service keeps it.
    ledger.forget(999_999);
    assert_eq!(ledger.kept(0).collect::<Vec<_>>(), [Kept { file: "f".into(), confirmed_ms: None }]);
    ledger.forget(1_000_000);
    assert_eq!(ledger.kept(0).count(), 0);
}

#[test]
fn an_ordinary_subscriptions_ids_are_remembered_for_the_window_behind_the_confirmation() {
    let mut ledger = Ledger::new(ORDINARY);
    deliver(&mut ledger, &[1], "a", 100);
    let group = ledger.seal(3, Some("f".into()), handed(&[1]), 0);
    let requests = ledger.commit(group);
    ledger.confirm(&requests[0], 50);
    assert_eq!(ledger.kept(3).collect::<Vec<_>>(), [Kept { file: "f".into(), confirmed_ms: Some(50) }]);
    ledger.forget(649);
    let (seen, done) = deliver(&mut ledger, &[1], "b", 100);
    assert_eq!(seen, [Seen::Done]);
    ledger.confirm(&done[0], 649);
    ledger.forget(650);
    assert_eq!((ledger.remembered(), ledger.unacked()), (0, Load::default()));
    assert_eq!(deliver(&mut ledger, &[1], "c", 100).0, [Seen::New], "beyond the window it is at-least-once");
}

#[test]
fn leases_are_extended_before_they_end_for_what_is_not_acknowledged() {
    let mut ledger = Ledger::new(EXACT);
    deliver(&mut ledger, &[1, 2], "a", 100);
    deliver(&mut ledger, &[3], "b", 300);
    let group = ledger.seal(0, None, handed(&[1]), 0);
    let requests = ledger.commit(group);
    ledger.confirm(&requests[0], 0);
    let renewed = ledger.renew(100, 500);
    assert_eq!(texts(&renewed), ["a2"]);
    assert!(ledger.renew(299, 500).is_empty());
    ledger.not_renewed(&renewed[0], 299);
    assert_eq!(texts(&ledger.renew(299, 600)), ["a2"]);
    assert_eq!(texts(&ledger.uncommitted_acks()), ["a2", "b3"]);
}

#[test]
fn a_request_stays_below_what_the_service_takes() {
    let mut ledger = Ledger::new(EXACT);
    let ids: Vec<u64> = (0..5_000).collect();
    deliver(&mut ledger, &ids, &"x".repeat(180), 100);
    let group = ledger.seal(0, None, handed(&ids), 0);
    let requests = ledger.commit(group);
    assert_eq!(requests.iter().map(Acks::len).sum::<usize>(), 5_000);
    for acks in &requests {
        assert!(acks.len() <= 2_000 && acks.iter().map(str::len).sum::<usize>() < 450_000);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(Vec<u64>),
    Barrier,
    Confirm,
    Lose,
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(0u64..12, 1..6).prop_map(Step::Deliver),
        2 => Just(Step::Barrier),
        2 => Just(Step::Confirm),
        1 => Just(Step::Lose),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// A service that repeats whatever is not confirmed: nothing is handed out twice, and at the end nothing is left.
    #[test]
    fn nothing_is_handed_out_twice_in_any_order_of_things(steps in steps()) {
        let mut ledger = Ledger::new(EXACT);
        let (mut handed_out, mut current, mut pending): (HashSet<u64>, Vec<u64>, Vec<Acks>) = Default::default();
        let mut confirmed: HashSet<String> = HashSet::new();
        let mut turn = 0;
        let mut deliver_one = |ledger: &mut Ledger, ids: &[u64], confirmed: &HashSet<String>, pending: &mut Vec<Acks>, current: &mut Vec<u64>| {
            turn += 1;
            // What is confirmed never comes again.
            let ids: Vec<u64> = ids.iter().copied().filter(|id| !confirmed.contains(&id.to_string())).collect();
            let (seen, done) = deliver(ledger, &ids, &format!("{turn}:"), 1_000);
            pending.extend(done);
            for (id, seen) in ids.iter().zip(seen) {
                if seen == Seen::New {
                    assert!(handed_out.insert(*id), "{id} is handed out twice");
                    current.push(*id);
                }
            }
        };
        let confirm_all = |ledger: &mut Ledger, confirmed: &mut HashSet<String>, pending: &mut Vec<Acks>| {
            for acks in pending.drain(..) {
                confirmed.extend(acks.iter().filter_map(|text| text.split(':').nth(1).map(str::to_string)));
                ledger.confirm(&acks, 1);
            }
        };
        for step in steps {
            match step {
                Step::Deliver(ids) => deliver_one(&mut ledger, &ids, &confirmed, &mut pending, &mut current),
                Step::Barrier if current.is_empty() => {}
                Step::Barrier => {
                    let group = ledger.seal(0, Some("f".into()), handed(&std::mem::take(&mut current)), 0);
                    pending.extend(ledger.commit(group));
                }
                Step::Confirm => confirm_all(&mut ledger, &mut confirmed, &mut pending),
                Step::Lose => pending.drain(..).for_each(|acks| ledger.lose(&acks)),
                Step::Forget => ledger.forget(2),
            }
            let unacked = ledger.unacked();
            prop_assert_eq!(unacked.bytes, unacked.messages * 10);
        }
        // Everything comes once more, is committed and confirmed.
        let all: Vec<u64> = (0..12).collect();
        deliver_one(&mut ledger, &all, &confirmed, &mut pending, &mut current);
        let group = ledger.seal(0, None, handed(&current), 0);
        pending.extend(ledger.commit(group));
        confirm_all(&mut ledger, &mut confirmed, &mut pending);
        ledger.forget(2);
        prop_assert_eq!((ledger.unacked(), ledger.remembered()), (Load::default(), 0));
        prop_assert_eq!(ledger.kept(0).count(), 0);
    }
}
