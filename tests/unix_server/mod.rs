//! A server on a Unix socket that answers as it is told, and remembers what it was asked.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;

use k8s_charm::machine::Root;
use serde_json::Value;
use tempfile::TempDir;

/// So much of a body is kept.
const KEPT: usize = 64 * 1024;

/// A request as it came in.
#[derive(Clone)]
pub(crate) struct Request {
    /// `GET /v2/snaps/k8s`.
    pub(crate) call: String,
    pub(crate) content_type: String,
    /// The body's beginning.
    pub(crate) body: Vec<u8>,
    /// The body's length.
    pub(crate) length: u64,
}

impl Request {
    pub(crate) fn json(&self) -> Value {
        assert_eq!((self.content_type.as_str(), self.length), ("application/json", self.body.len() as u64));
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Default)]
struct Book {
    answers: HashMap<String, Vec<u8>>,
    /// Said to whatever comes.
    always: Option<Vec<u8>>,
    requests: Vec<Request>,
}

/// A machine with such a server.
pub(crate) struct UnixServer {
    root: Root,
    book: Arc<Mutex<Book>>,
    _directory: TempDir,
}

impl UnixServer {
    /// Listens at this path of a machine of its own.
    pub(crate) fn at(socket: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::of_charm_dir(&directory.path().join("var/lib/juju/agents/unit-k8s-0/charm"));
        let socket = root.path(socket);
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(socket).unwrap();
        let book = Arc::new(Mutex::new(Book::default()));
        let shared = Arc::clone(&book);
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &shared);
            }
        });
        Self { root, book, _directory: directory }
    }

    /// Answers this call so.
    pub(crate) fn answers(&self, call: &str, status: u64, body: &[u8]) {
        let mut answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend(body);
        self.book.lock().unwrap().answers.insert(call.to_owned(), answer);
    }

    /// Says this to every call; nothing: hangs up.
    pub(crate) fn always_says(&self, answer: &str) {
        self.book.lock().unwrap().always = Some(answer.into());
    }

    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    /// The calls so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.book.lock().unwrap().requests.iter().map(|request| request.call.clone()).collect()
    }

    pub(crate) fn last(&self) -> Request {
        self.book.lock().unwrap().requests.last().unwrap().clone()
    }
}

fn serve(mut stream: UnixStream, book: &Mutex<Book>) {
    let request = read(&mut stream);
    let mut book = book.lock().unwrap();
    let answer = book.always.clone().unwrap_or_else(|| {
        book.answers.get(&request.call).unwrap_or_else(|| panic!("nobody expects {}", request.call)).clone()
    });
    book.requests.push(request);
    drop(book);
    stream.write_all(&answer).unwrap();
}

fn read(stream: &mut UnixStream) -> Request {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    let length: u64 = header("content-length").map_or(0, |text| text.parse().unwrap());
    let (mut body, mut left, mut piece) = (Vec::new(), length, vec![0; KEPT]);
    while left > 0 {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "the body is cut off");
        left -= read as u64;
        body.extend(piece[..read].iter().take(KEPT - body.len()));
    }
    let call = head.split(" HTTP/1.1").next().unwrap().to_owned();
    Request { call, content_type: header("content-type").unwrap_or_default(), body, length }
}
