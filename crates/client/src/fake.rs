//! A fake server for tests. It sends one scripted response per connection, byte for byte, and
//! records the requests.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::{Client, Target};

/// The server's response to a request.
#[derive(Debug)]
pub enum Answer {
    /// Writes these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Writes these bytes and keeps the connection open until the client closes it.
    Hang(Vec<u8>),
    /// Writes these bytes, and then zeros until the client stops reading.
    Endless(Vec<u8>),
}

impl Answer {
    /// Creates a response with a status and a JSON body.
    pub fn json(status: &str, body: &impl Serialize) -> Self {
        let body = serde_json::to_string(body).expect("serialises");
        Self::text(status, &body)
    }

    /// Creates a response with a status and a body.
    pub fn text(status: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n");
        Self::Bytes(format!("{head}connection: close\r\n\r\n{body}").into_bytes())
    }
}

/// A running test server: its address, and the requests it has received.
#[derive(Debug)]
pub struct Fake {
    /// The server's address.
    pub url: String,
    requests: Receiver<String>,
}

impl Fake {
    /// Starts a server that sends these responses, one per connection. If `answers` is empty,
    /// nothing listens on the server's address.
    pub fn new(answers: Vec<Answer>) -> Self {
        let (count, mut answers) = (answers.len(), answers.into_iter());
        Self::start(count, move |_| answers.next())
    }

    /// Starts a server that calls `answer` for each request and sends back the response it returns.
    /// `answer` receives the request in the same form as returned by [`Self::request`].
    pub fn serving(mut answer: impl FnMut(&str) -> Answer + Send + 'static) -> Self {
        Self::start(usize::MAX, move |request| Some(answer(request)))
    }

    fn start(
        count: usize,
        mut answer: impl FnMut(&str) -> Option<Answer> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, requests) = channel();
        if count == 0 {
            // Close the listener before any client connects. Closing it later would reset the
            // connection instead of refusing it.
            drop(listener);
            return Self {
                url: format!("http://{address}"),
                requests,
            };
        }
        thread::spawn(move || {
            for _ in 0..count {
                let Ok((mut stream, _)) = listener.accept() else {
                    return;
                };
                let request = read_request(&mut stream);
                let Some(answer) = answer(&request) else {
                    return;
                };
                if sender.send(request).is_err() {
                    return;
                }
                serve(stream, &answer);
            }
        });
        Self {
            url: format!("http://{address}"),
            requests,
        }
    }

    /// Returns a client with the token `secret`.
    pub fn client(&self, timeout: Duration) -> Client {
        let target = Target {
            url: self.url.clone(),
            token: Some("secret".to_owned()),
            ..Target::default()
        };
        Client::new(&target, timeout).expect("a good target")
    }

    /// Returns the next request: its head as received, and its JSON, from the body or a header.
    pub fn request(&self) -> String {
        self.requests
            .recv_timeout(Duration::from_secs(10))
            .expect("a request")
    }

    /// Returns the next request, if one has arrived.
    pub fn try_request(&self) -> Option<String> {
        self.requests.try_recv().ok()
    }
}

fn serve(mut stream: TcpStream, answer: &Answer) {
    let (Answer::Bytes(bytes) | Answer::Hang(bytes) | Answer::Endless(bytes)) = answer;
    let mut open = stream.write_all(bytes).is_ok();
    match answer {
        Answer::Bytes(_) => {}
        Answer::Hang(_) => {
            let mut rest = [0; 64];
            while stream.read(&mut rest).is_ok_and(|n| n > 0) {}
        }
        Answer::Endless(_) => {
            while open {
                open = stream.write_all(&[b' '; 8192]).is_ok();
            }
        }
    }
    drop(stream.shutdown(Shutdown::Both));
}

/// Reads the request head, and the body if the head specifies a body length. Otherwise, takes the
/// JSON from a header.
fn read_request(stream: &mut TcpStream) -> String {
    let mut got = Vec::new();
    let mut byte = [0];
    while !got.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
        got.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&got).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the body");
    let text = String::from_utf8_lossy(&got).into_owned();
    let in_header = text
        .lines()
        .find_map(|line| line.strip_prefix("loudou-body: "));
    got.extend(if length == 0 {
        in_header.unwrap_or_default().as_bytes()
    } else {
        &body
    });
    String::from_utf8(got).expect("the client writes UTF-8")
}
