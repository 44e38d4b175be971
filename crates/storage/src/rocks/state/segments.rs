//! A range of keys, cut where the family of its keys changes.

use ticketrail_core::Family;

/// A range of keys of one family.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    pub(super) family: Family,
    pub(super) from: &'a [u8],
    pub(super) to: &'a [u8],
}

const BODY_FROM: &[u8] = &[Family::BODY_TAG];
const BODY_TO: &[u8] = &[Family::BODY_TAG + 1];

/// The parts of `from <= key < to`, in order; none is empty.
pub(super) fn segments<'a>(from: &'a [u8], to: &'a [u8]) -> impl Iterator<Item = Segment<'a>> {
    let cut = |family, low: &'a [u8], high: &'a [u8]| Segment { family, from: from.max(low), to: to.min(high) };
    [
        cut(Family::Data, b"", BODY_FROM),
        cut(Family::Body, BODY_FROM, BODY_TO),
        Segment { family: Family::Data, from: from.max(BODY_TO), to },
    ]
    .into_iter()
    .filter(|segment| segment.from < segment.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_in_one_segment_of_its_family() {
        let all: Vec<Segment<'_>> = segments(b"", b"zz").collect();
        assert_eq!(all.len(), 3);
        for key in [&b""[..], b"a", b"aZ", b"b", b"b\xff", b"c", b"m|1"] {
            let holds: Vec<_> = all.iter().filter(|segment| segment.from <= key && key < segment.to).collect();
            assert_eq!(holds.len(), 1, "{key:?}");
            assert_eq!(holds[0].family, Family::of(key), "{key:?}");
        }
        let one: Vec<Segment<'_>> = segments(b"m|1", b"m|2").collect();
        assert_eq!(one, [Segment { family: Family::Data, from: b"m|1", to: b"m|2" }]);
        assert_eq!(segments(b"m", b"m").count(), 0);
        assert_eq!(segments(b"z", b"a").count(), 0);
        let two: Vec<Segment<'_>> = segments(b"b5", b"d").collect();
        assert_eq!(two[0], Segment { family: Family::Body, from: b"b5", to: b"c" });
        assert_eq!(two[1], Segment { family: Family::Data, from: b"c", to: b"d" });
    }
}
