//! A snap's file as the body of a `multipart/form-data` request, read from disk piece by piece.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};

use crate::unix_http::Body;

/// What separates the parts; no snap holds this line, its content is compressed.
const BOUNDARY: &str = "k8s-charm-snap-upload-4f1d9c0b7e2a";

/// So much of the file is in memory at a time, in bytes.
const PIECE: usize = 64 * 1024;

/// The `Content-Type` that goes with [`of_file`].
pub(super) fn content_type() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

/// The form `classic`, `dangerous`, `snap` (snapd `daemon/api_sideload_n_try.go`), with the file as `snap`.
pub(super) fn of_file(path: &Path, classic: bool) -> io::Result<Body> {
    let file = File::open(path)?;
    let left = file.metadata()?.len();
    let name: String = path.file_name().map_or_else(String::new, |name| {
        name.to_string_lossy().chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect()
    });
    let head = format!(
        "{dangerous}{classic}--{BOUNDARY}\r\n\
         Content-Disposition: form-data; name=\"snap\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n",
        dangerous = field("dangerous", true),
        classic = field("classic", classic),
    );
    let tail = format!("\r\n--{BOUNDARY}--\r\n");
    Ok(Form { head: Some(head.into()), file, left, tail: Some(tail.into()) }.boxed())
}

fn field(name: &str, value: bool) -> String {
    format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
}

struct Form {
    head: Option<Bytes>,
    file: File,
    left: u64,
    tail: Option<Bytes>,
}

impl Form {
    /// The next piece of the file, never past the length that was announced.
    fn piece(&mut self) -> io::Result<Bytes> {
        let mut piece = vec![0; usize::try_from(self.left).map_or(PIECE, |left| left.min(PIECE))];
        self.file.read_exact(&mut piece)?;
        self.left -= piece.len() as u64;
        Ok(piece.into())
    }
}

impl HttpBody for Form {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = if let Some(head) = self.head.take() {
            Some(Ok(head))
        } else if self.left > 0 {
            // A disk's read is no wait that a reactor could help with, and nothing else runs meanwhile.
            Some(self.piece())
        } else {
            self.tail.take().map(Ok)
        };
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.tail.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let of = |part: &Option<Bytes>| part.as_ref().map_or(0, |bytes| bytes.len() as u64);
        SizeHint::with_exact(of(&self.head) + self.left + of(&self.tail))
    }
}
