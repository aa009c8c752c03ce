//! Questions over plain HTTP to what a test started on this machine.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Asks `http://HOST:PORT` and returns the body of the answer; panics with the answer unless it is a 2xx.
pub fn ask(origin: &str, method: &str, path: &str, body: &str) -> String {
    let (status, answer) = try_ask(origin, method, path, body).unwrap_or_else(|e| panic!("{method} {origin}{path}: {e}"));
    assert!((200..300).contains(&status), "{method} {origin}{path}: {status} {answer}");
    answer
}

/// Status and body of an answer, whatever the status.
pub fn try_ask(origin: &str, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let host = origin.trim_start_matches("http://");
    send(origin, method, path, &[("host", host), ("content-type", "application/json")], body.as_bytes())
}

/// The same with these headers and no others but the body's length.
pub fn send(origin: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(origin.trim_start_matches("http://"))?;
    // 1.0: the answer ends with the connection and comes in one piece.
    let mut head = format!("{method} {path} HTTP/1.0\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    write!(stream, "{head}\r\n")?;
    // Whoever refuses a request need not read the rest of it.
    let _ = stream.write_all(body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let wrong = || std::io::Error::other(format!("not HTTP: {answer}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(wrong)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
    Ok((status, body.to_string()))
}
