//! The decoders of a REMIX, opened to fuzz targets. Not part of the API: names may change.

use bolide_base::coding::Decoder;
use bolide_base::{FileIdentity, MAX_SEQUENCE};
use bolide_storage::{MemVfs, Vfs};

use super::Remix;
use super::format::Footer;

/// Reads `input` as the parts of a REMIX, behind three bytes of lengths and a footer whose numbers it chooses. What
/// decodes must encode to the same REMIX, and searches in it must end.
pub fn parts(input: &[u8]) {
    let mut decoder = Decoder::new(input);
    let read = (|| {
        let sizes = decoder.u8()?;
        let footer = Footer {
            width: 16 << (sizes & 3),
            flags: u32::from(sizes >> 2 & 3),
            offset_bytes: u32::from(sizes >> 4 & 3) + 1,
            runs: u32::from(decoder.u8()? % 65),
            entries: decoder.u8()?.into(),
            segments: decoder.u8()?.into(),
            parts: [0; 3],
        };
        let tables = decoder.bytes()?;
        let segments = decoder.bytes()?;
        Some((footer, tables, segments.to_vec(), decoder.rest()))
    })();
    let Some((footer, tables, segments, anchors)) = read else { return };
    if let Ok(remix) = footer.remix(tables, segments, anchors) {
        for segment in 0..=remix.segments() {
            let key = remix.anchors.key(segment);
            let through = remix.anchors.count_through(&key, MAX_SEQUENCE);
            assert!(through <= remix.segments());
            assert!(remix.segments.get(segment).entries() <= remix.segments.shape.width);
            for run in 0..remix.runs() {
                let _ = remix.segments.get(segment).offset(run);
            }
        }
        let again = round_trip(&remix);
        assert_eq!(again.segments, remix.segments);
        assert_eq!(again.tables, remix.tables);
        assert_eq!(again.anchors.encode(), remix.anchors.encode());
    }
}

fn round_trip(remix: &Remix) -> Remix {
    let identity = FileIdentity { file_number: 4, tag: 3 };
    let vfs = MemVfs::new();
    let path = std::path::Path::new("000004.remix");
    let file = vfs.create(path).expect("memory takes files");
    remix.write(&*file, identity).expect("memory takes writes");
    Remix::read(&*file, "000004.remix", identity).expect("what was written is read")
}

/// Reads `input` as a whole file: it must be refused or read, never more.
pub fn file(input: &[u8]) {
    let vfs = MemVfs::new();
    let path = std::path::Path::new("000004.remix");
    let file = vfs.create(path).expect("memory takes files");
    file.append(input).expect("memory takes writes");
    drop(Remix::read(&*file, "000004.remix", FileIdentity { file_number: 4, tag: 3 }));
}
