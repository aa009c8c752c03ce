//! Who may ask: the token, and that no page of another origin makes a browser ask for it. Owns both checks; neither the
//! token nor anything made from it is ever told or logged.

use std::path::Path;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::answers::Refusal;
use crate::error::{Error, Result};

/// A shorter token could be guessed.
const TOKEN_CHARS_MIN: usize = 16;

/// What a request must carry as `authorization: Bearer …`. Only its digest is kept.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    fn new(text: &str) -> Result<Token> {
        if text.len() < TOKEN_CHARS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::config(
                "the token is too short or has characters that no header takes: use 16 or more visible ASCII characters, as from `openssl rand -hex 16`",
            ));
        }
        Ok(Token(Sha256::digest(text).into()))
    }

    /// Takes the same time wherever a difference is: digests are compared, and all of them.
    fn is(&self, text: &str) -> bool {
        let other: [u8; 32] = Sha256::digest(text).into();
        self.0.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

/// The text of the token: in the file, or else in `WEIR_TOKEN`.
pub fn token_text(file: Option<&Path>) -> Result<Option<String>> {
    let text =
        match file {
            Some(path) => Some(std::fs::read_to_string(path).map_err(|e| {
                Error::config("cannot read the token: correct --token-file").with("path", path.display()).because(e)
            })?),
            None => std::env::var("WEIR_TOKEN").ok().filter(|text| !text.is_empty()),
        };
    Ok(text.map(|text| text.trim().to_string()))
}

/// The token that requests must carry, if there is one.
pub fn token(file: Option<&Path>) -> Result<Option<Token>> {
    token_text(file)?.map(|text| Token::new(&text)).transpose()
}

/// Lets a request through that carries the token, or every one where there is none.
pub async fn authorized(State(token): State<Option<Token>>, request: Request, next: Next) -> Response {
    let carried =
        |headers: &HeaderMap| Some(headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?.to_string());
    match &token {
        Some(token) if !carried(request.headers()).is_some_and(|text| token.is(&text)) => {
            let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "the request carries no token, or a wrong one");
            ([(header::WWW_AUTHENTICATE, "Bearer")], refusal).into_response()
        }
        // Without a token the server is on loopback. A foreign name that leads here is a page that rebinds its name.
        None if !request.headers().get(header::HOST).is_none_or(|host| host.to_str().is_ok_and(is_loopback)) => {
            Refusal::new(StatusCode::FORBIDDEN, "the host in the request is not this machine").into_response()
        }
        _ => next.run(request).await,
    }
}

fn is_loopback(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = without_port.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses what a page of another origin has a browser send: it may not even be read here, let alone be carried out.
pub async fn same_origin(request: Request, next: Next) -> Response {
    if crosses(request.headers()) {
        return Refusal::new(StatusCode::FORBIDDEN, "requests from pages of other origins are refused").into_response();
    }
    next.run(request).await
}

fn crosses(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = text("sec-fetch-site")
        && !["same-origin", "none"].contains(&site)
    {
        return true;
    }
    let host = text("host").unwrap_or_default();
    text("origin").is_some_and(|origin| origin.split_once("://").is_none_or(|(_, at)| at != host))
}

/// The answer where nothing is.
pub async fn no_such_path() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "no such path: /v1/openapi.json lists what there is")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_enough_and_fits_a_header() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is("0123456789abcdef"));
        for wrong in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.is(wrong), "{wrong}");
        }
        for bad in ["tiny", "with a space inside", "with-a-newline-\ninside", "nicht-ascii-äöüß-äöüß"] {
            let error = Token::new(bad).err().unwrap().to_string();
            assert!(error.contains("16 or more") && !error.contains(bad), "{error}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for host in ["localhost", "localhost:9100", "127.0.0.1:9100", "127.8.8.8", "[::1]:9100", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:9100", "127.0.0.1.evil.example", "10.0.0.1:9100", "[::2]:1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_origin_is_told_from_our_own() {
        let headers = |pairs: &[(&'static str, &str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        let host = ("host", "127.0.0.1:9100");
        for ours in [
            headers(&[host]),
            headers(&[host, ("origin", "http://127.0.0.1:9100"), ("sec-fetch-site", "same-origin")]),
            headers(&[host, ("sec-fetch-site", "none")]),
        ] {
            assert!(!crosses(&ours), "{ours:?}");
        }
        for foreign in [
            headers(&[host, ("origin", "http://evil.example")]),
            headers(&[host, ("origin", "null")]),
            headers(&[host, ("origin", "http://127.0.0.1:9101")]),
            headers(&[host, ("sec-fetch-site", "cross-site")]),
            headers(&[host, ("sec-fetch-site", "same-site")]),
            headers(&[("origin", "http://evil.example")]),
        ] {
            assert!(crosses(&foreign), "{foreign:?}");
        }
    }
}
