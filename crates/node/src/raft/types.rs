//! The types that openraft works with. Only [`Types`] knows the runtime.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use bytes::Bytes;
use openraft::{AsyncRuntime, EntryPayload, OptionalSend, RaftTypeConfig, impls};
use ticketrail_core::{Rejection, Reply};

use super::leader::{Elected, LeaderId};
use crate::member::Member;

/// openraft's type configuration on the runtime `R`. Written by hand because the macro knows no parameters.
pub(crate) struct Types<R>(PhantomData<fn() -> R>);

impl<R: AsyncRuntime> RaftTypeConfig for Types<R> {
    type D = Proposal;
    type R = Replies;
    type NodeId = u64;
    type Node = Member;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type Responder<T>
        = impls::ProgressResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type AsyncRuntime = R;
    type ErrorSource = impls::BoxedErrorSource;
}

pub(crate) type Vote = impls::Vote<LeaderId>;
pub(crate) type LogId = openraft::LogId<Elected>;
pub(crate) type Payload = EntryPayload<Proposal, u64, Member>;
pub(crate) type Entry = impls::Entry<Elected, Payload>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::StoredMembership<Elected, u64, Member>;
/// A snapshot whose data are of type `D`.
pub(crate) type Snapshot<D> = openraft::Snapshot<Elected, u64, Member, D>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<Elected, u64, Member>;

/// An encoded `ticketrail_core::Entry`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proposal(pub(crate) Bytes);

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// One result for each request of an entry; none for an entry without requests.
#[derive(Debug, Default)]
pub(crate) struct Replies(pub(crate) Vec<Result<Reply, Rejection>>);

impl<R> fmt::Debug for Types<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Types")
    }
}

impl<R> Clone for Types<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Types<R> {}

impl<R> Default for Types<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R> PartialEq for Types<R> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<R> Eq for Types<R> {}

impl<R> PartialOrd for Types<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Ord for Types<R> {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl<R> Hash for Types<R> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
