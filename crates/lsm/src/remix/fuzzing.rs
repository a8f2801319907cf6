//! Entry points of the REMIX decoders for fuzz targets. Not part of the stable API.

use bolide_base::coding::Decoder;
use bolide_base::{FileIdentity, MAX_SEQUENCE};
use bolide_storage::{MemVfs, Vfs};

use super::Remix;
use super::format::RemixFooter;

/// Decodes `input` as the fields of a footer, in four bytes, and the parts of a REMIX. A decoded REMIX must encode to
/// an equal one, and searches in it must terminate.
pub fn parts(input: &[u8]) {
    let mut decoder = Decoder::new(input);
    let read = (|| {
        let sizes = decoder.u8()?;
        let footer = RemixFooter {
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
            assert!(remix.segments.get(segment).entries() <= remix.segments.layout.width);
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
    let file = vfs.create(path).expect("a memory file system creates files");
    remix.write(&*file, identity).expect("a memory file system accepts writes");
    Remix::read(&*file, "000004.remix", identity).expect("a written REMIX is readable")
}

/// Reads `input` as a whole file: the reader must return a REMIX or an error, and must not panic.
pub fn file(input: &[u8]) {
    let vfs = MemVfs::new();
    let path = std::path::Path::new("000004.remix");
    let file = vfs.create(path).expect("a memory file system creates files");
    file.append(input).expect("a memory file system accepts writes");
    drop(Remix::read(&*file, "000004.remix", FileIdentity { file_number: 4, tag: 3 }));
}
