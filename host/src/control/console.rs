//! The console: one page with its script, style and plots, all held in the binary. Owns how they are served; what they show
//! is asked of the control API like anybody else would.

use axum::Router;
use axum::http::header;
use axum::routing::get;

use super::Shared;

/// Path, type and content of each file.
const FILES: [(&str, &str, &str); 6] = [
    ("/", "text/html; charset=utf-8", include_str!("../../console/index.html")),
    ("/console/console.css", "text/css; charset=utf-8", include_str!("../../console/console.css")),
    ("/console/console.js", "text/javascript; charset=utf-8", include_str!("../../console/console.js")),
    ("/console/uPlot.js", "text/javascript; charset=utf-8", include_str!("../../console/uplot/uPlot.iife.min.js")),
    ("/console/uPlot.css", "text/css; charset=utf-8", include_str!("../../console/uplot/uPlot.min.css")),
    ("/favicon.ico", "image/svg+xml", include_str!("../../console/icon.svg")),
];

/// What a browser may load for the page: nothing from elsewhere, no script in the page itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// Serves the files. They tell nothing of the pipeline, so that they need no token: the page asks for it.
pub fn router() -> Router<Shared> {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        let headers = [
            (header::CONTENT_TYPE, kind),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            // The next version of the host brings another page.
            (header::CACHE_CONTROL, "no-cache"),
        ];
        router.route(path, get(move || async move { (headers, content) }))
    })
}
