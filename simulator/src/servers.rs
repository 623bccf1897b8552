//! The real sockets of a rehearsal's machines: snapd, k8sd, the API server, and the clock.
//!
//! A server only passes requests on; what they are answered is the engine's business. Its socket is there exactly while
//! the model says so.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming as HyperBody};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::cluster::TlsMaterial;
use crate::fleet::Fleet;
use crate::time::{EPOCH, SimTime};
use crate::wire::{MachineId, Request, Response, Service};

/// A request that came in, and where its answer goes.
#[derive(Debug)]
pub struct Incoming {
    /// The machine.
    pub machine: MachineId,
    /// Its server.
    pub service: Service,
    /// The request.
    pub request: Request,
    /// The answer; none closes the connection.
    pub reply: oneshot::Sender<Option<Response>>,
}

/// All servers of all machines.
#[derive(Debug)]
pub struct Servers {
    incoming: mpsc::UnboundedSender<Incoming>,
    open: BTreeMap<(MachineId, Service), Open>,
    clocks: BTreeMap<MachineId, JoinHandle<()>>,
    now: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Open {
    task: JoinHandle<()>,
    socket: Option<PathBuf>,
    certificate: String,
}

/// Where the sockets of a machine are.
fn socket(root: &Path, service: Service) -> Option<PathBuf> {
    match service {
        Service::Snapd => Some(root.join("run/snapd.socket")),
        Service::K8sd => Some(root.join("var/snap/k8s/common/var/lib/k8sd/state/control.socket")),
        Service::Kubernetes => None,
    }
}

impl Servers {
    /// No servers; requests will come out of the receiver.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Incoming>) {
        let (incoming, receiver) = mpsc::unbounded_channel();
        let servers =
            Self { incoming, open: BTreeMap::new(), clocks: BTreeMap::new(), now: Arc::new(AtomicU64::new(0)) };
        (servers, receiver)
    }

    /// Opens and closes servers, so that they are there as the models say.
    ///
    /// # Errors
    ///
    /// A socket can't be bound.
    pub async fn sync(&mut self, fleet: &Fleet, now: SimTime) -> io::Result<()> {
        self.now.store(now.0, Ordering::Relaxed);
        for (id, machine) in &fleet.machines {
            if !self.clocks.contains_key(id) {
                let listener = UnixListener::bind(machine.root.join("run/clock.sock"))?;
                self.clocks.insert(*id, tokio::spawn(tell_time(listener, Arc::clone(&self.now))));
            }
            for service in [Service::Snapd, Service::K8sd, Service::Kubernetes] {
                let tls = if service == Service::Kubernetes { fleet.cluster.tls(*id) } else { None };
                let wanted = fleet.is_open(*id, service, now) && (service != Service::Kubernetes || tls.is_some());
                let certificate = tls.as_ref().map(|tls| tls.certificate_chain_pem.clone()).unwrap_or_default();
                let key = (*id, service);
                if self.open.get(&key).is_some_and(|open| !wanted || open.certificate != certificate) {
                    self.close(key).await;
                }
                if wanted && !self.open.contains_key(&key) {
                    let socket = socket(&machine.root, service);
                    let task = self.serve(*id, service, socket.as_deref(), tls).await?;
                    self.open.insert(key, Open { task, socket, certificate });
                }
            }
        }
        let gone = |(machine, _): &(MachineId, Service)| !fleet.machines.contains_key(machine);
        let gone: Vec<_> = self.open.keys().copied().filter(gone).collect();
        for key in gone {
            self.close(key).await;
        }
        Ok(())
    }

    async fn close(&mut self, key: (MachineId, Service)) {
        let Some(open) = self.open.remove(&key) else { return };
        if let Some(socket) = &open.socket {
            let _ = std::fs::remove_file(socket);
        }
        open.task.abort();
        let _ = open.task.await;
    }

    async fn serve(
        &self,
        machine: MachineId,
        service: Service,
        socket: Option<&Path>,
        tls: Option<TlsMaterial>,
    ) -> io::Result<JoinHandle<()>> {
        let incoming = self.incoming.clone();
        match (socket, tls) {
            (Some(socket), _) => {
                if let Some(parent) = socket.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                let listener = UnixListener::bind(socket)?;
                Ok(tokio::spawn(async move {
                    let mut connections = JoinSet::new();
                    while let Ok((stream, _)) = listener.accept().await {
                        connections.spawn(converse(stream, machine, service, false, incoming.clone()));
                    }
                }))
            }
            (None, Some(tls)) => {
                let acceptor = acceptor(&tls)?;
                let listener = TcpListener::bind(tls.address).await?;
                Ok(tokio::spawn(async move {
                    let mut connections = JoinSet::new();
                    while let Ok((stream, _)) = listener.accept().await {
                        let (acceptor, incoming) = (acceptor.clone(), incoming.clone());
                        connections.spawn(async move {
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            let shown = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
                            converse(stream, machine, service, shown, incoming).await;
                        });
                    }
                }))
            }
            (None, None) => Ok(tokio::spawn(async {})),
        }
    }
}

/// The time, in milliseconds since the Unix epoch, to whoever connects.
async fn tell_time(listener: UnixListener, now: Arc<AtomicU64>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let epoch = u64::try_from(EPOCH).unwrap_or(0) * 1000;
        let text = (epoch + now.load(Ordering::Relaxed)).to_string();
        let _ = stream.write_all(text.as_bytes()).await;
    }
}

fn acceptor(tls: &TlsMaterial) -> io::Result<TlsAcceptor> {
    let bad = |error: &dyn std::fmt::Display| io::Error::other(format!("the API server's certificate: {error}"));
    let pem = |text: &str| -> io::Result<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().map_err(|error| bad(&error))
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in pem(&tls.client_ca_pem)? {
        roots.add(authority).map_err(|error| bad(&error))?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| bad(&error))?;
    let key = PrivateKeyDer::from_pem_slice(tls.key_pem.as_bytes()).map_err(|error| bad(&error))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?
        .with_client_cert_verifier(clients)
        .with_single_cert(pem(&tls.certificate_chain_pem)?, key)
        .map_err(|error| bad(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Passes the requests of one connection on.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    machine: MachineId,
    service: Service,
    client_certificate: bool,
    incoming: mpsc::UnboundedSender<Incoming>,
) {
    let pass_on = |request: hyper::Request<HyperBody>| {
        let incoming = incoming.clone();
        async move {
            let request = read(request, client_certificate).await.ok_or(Closed)?;
            let (reply, answer) = oneshot::channel();
            incoming.send(Incoming { machine, service, request, reply }).map_err(|_| Closed)?;
            let response = answer.await.ok().flatten().ok_or(Closed)?;
            Ok::<_, Closed>(write(response))
        }
    };
    let _ =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(pass_on)).await;
}

/// The connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed")]
struct Closed;

async fn read(request: hyper::Request<HyperBody>, client_certificate: bool) -> Option<Request> {
    let (head, body) = request.into_parts();
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    Some(Request {
        method: head.method.to_string(),
        path: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        content_type: head.headers.get(hyper::header::CONTENT_TYPE).map(text),
        headers: head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect(),
        body: body.collect().await.ok()?.to_bytes().to_vec(),
        client_certificate,
    })
}

fn write(response: Response) -> hyper::Response<Full<Bytes>> {
    let body = Full::new(Bytes::from(response.body));
    let mut answer = hyper::Response::new(body);
    *answer.status_mut() =
        hyper::StatusCode::from_u16(response.status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = hyper::header::HeaderValue::from_static(response.content_type);
    answer.headers_mut().insert(hyper::header::CONTENT_TYPE, content_type);
    answer
}
