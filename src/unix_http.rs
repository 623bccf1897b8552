//! HTTP/1.1 over a Unix socket: what snapd's and k8sd's REST APIs are spoken over.
//!
//! One connection a request; nothing is repeated by itself (whether a call may be repeated is its caller's knowledge).

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use hyperlocal::{UnixConnector, Uri};

/// The longest path that fits into the kernel's `sockaddr_un` with its final zero (`unix(7)`: 108 bytes).
const LONGEST_SOCKET_PATH: usize = 107;

/// The largest answer that is read; snapd's list of all changes of a busy machine is about 1 MB.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// There is no socket, or nobody listens: the request was never sent.
    #[error("cannot connect to {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The connection ended without an answer: whether the request was carried out is not known.
    #[error("no answer from {}", path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer within the call's limit: whether the request was carried out is not known.
    #[error("no answer from {} within {} s", path.display(), limit.as_secs())]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// The limit.
        limit: Duration,
    },
}

impl TransportError {
    /// Whether the request cannot have reached the other side.
    pub fn never_sent(&self) -> bool {
        matches!(self, Self::Connect { .. })
    }
}

/// An answer: its status and its whole body.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body as it came.
    pub body: Bytes,
}

/// A request's body: nothing, JSON, or a stream.
pub type Body = BoxBody<Bytes, std::io::Error>;

/// A body of bytes that are at hand.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// A client of one socket.
#[derive(Debug, Clone)]
pub struct UnixHttp {
    socket: PathBuf,
}

impl UnixHttp {
    /// A client of the socket at this path, which need not exist yet and may be longer than the kernel takes.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends one request and reads the whole answer, within the limit.
    ///
    /// `path` is the path and query, `/v2/snaps/k8s`.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Body,
        limit: Duration,
    ) -> Result<Answer, TransportError> {
        match tokio::time::timeout(limit, self.exchange(method, path, content_type, body)).await {
            Ok(result) => result,
            Err(_) => Err(TransportError::TimedOut { path: self.socket.clone(), limit }),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Body,
    ) -> Result<Answer, TransportError> {
        let no_answer = |source: Box<dyn std::error::Error + Send + Sync>| TransportError::NoAnswer {
            path: self.socket.clone(),
            source,
        };
        let connect = |source| TransportError::Connect { path: self.socket.clone(), source };
        let reachable = ReachableSocket::new(&self.socket).map_err(connect)?;
        let uri: hyper::Uri = Uri::new(reachable.path(), path).into();
        let request = hyper::Request::builder()
            .method(method)
            .uri(uri)
            .header(hyper::header::HOST, "localhost")
            .header(hyper::header::CONTENT_TYPE, content_type)
            .body(body)
            .map_err(|error| no_answer(Box::new(error)))?;
        let client: Client<UnixConnector, Body> = Client::builder(TokioExecutor::new()).build(UnixConnector);
        let response = client
            .request(request)
            .await
            .map_err(|error| if error.is_connect() { connect(io_cause(&error)) } else { no_answer(Box::new(error)) })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await.map_err(no_answer)?;
        Ok(Answer { status, body: body.to_bytes() })
    }
}

/// The kernel's own error at the end of a chain of causes.
fn io_cause(error: &(dyn std::error::Error + 'static)) -> std::io::Error {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.raw_os_error().map_or_else(|| io.kind().into(), std::io::Error::from_raw_os_error);
        }
        next = error.source();
    }
    std::io::ErrorKind::NotConnected.into()
}

/// A name for a socket that the kernel takes whatever the path's length: through its open directory.
///
/// Useful wherever a socket lies deep below a rehearsal's root; also for servers that bind one.
#[derive(Debug)]
pub struct ReachableSocket {
    path: PathBuf,
    _directory: Option<std::fs::File>,
}

impl ReachableSocket {
    /// A short name of this path, good while the value lives.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        if path.as_os_str().len() <= LONGEST_SOCKET_PATH {
            return Ok(Self { path: path.to_owned(), _directory: None });
        }
        let directory = std::fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
        let name = path.file_name().unwrap_or(OsStr::new(""));
        let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(Self { path: short, _directory: Some(directory) })
    }

    /// The name to connect to or to bind.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
