//! Misbehaves on command: tests of the host run it to see that each misbehaviour ends as stated. It
//! speaks to the host past the SDK, which would not let it answer wrongly, and imports the log, so its
//! step needs `grants: [log]`.
//!
//! The value of a message, which may stand in quotes as JSON text does, is a command, with a number behind it where the table says so. Messages whose
//! value begins with anything else pass unchanged, as does a tombstone.
//!
//! | command | what it does |
//! |---|---|
//! | `ok` | passes |
//! | `panic` | panics |
//! | `loop` | never returns |
//! | `stack` | calls itself without end: out of bounds, since its own stack ends at address 0 |
//! | `oom` | allocates without end |
//! | `grow` N | allocates N MiB (20) that it never frees, and passes |
//! | `spin` N | counts to N million (1), and passes |
//! | `err` | `transform` returns an error |
//! | `reject` | rejects this message |
//! | `drop` | filters this message |
//! | `route` N | sends this message to route N (1) |
//! | `log-flood` N | logs N (1000) lines of 1 KiB, and passes |
//! | `stamp` N | answers with `{"id":N,"version":"VERSION-00000000"}` |
//! | `huge-output` N | answers with one value of N MiB (80) |
//! | `many-rows` N | answers with N (2000000) rows |
//! | `bad-ends`, `bad-ends-order`, `bad-ends-count` | an end beyond the bytes; ends that descend; one end too many |
//! | `bad-present` | one byte too many in the bitmap |
//! | `bad-origins`, `bad-origins-count` | an origin beyond the input; one origin too many |
//! | `bad-identity` | one row too many, without origins |
//! | `bad-routes`, `bad-routes-count` | a route that was never named; one route too many |
//! | `bad-rejected`, `bad-rejected-order` | a rejected row beyond the input; rejected rows that descend |
//! | `rejected-and-emitted` | a row that is both rejected and an origin |
//! | `bad-reasons` | a rejected row with two reasons |
//! | `bad-attributes`, `bad-attribute-name` | an attribute of a row beyond the output; a name that is not UTF-8 |
//!
//! The version is written into the module once, as it stands there. Whoever puts other characters in its place has other
//! versions of the module without building them; one that begins with `VERSION-BAD` panics at each hundredth `stamp`.
//!
//! ```yaml
//! config: {on: configure, do: panic}     # also: loop, stack, oom, err, log-flood, many-routes, bad-routes
//! config: {routes: [left, right]}        # names that configure returns
//! ```

#[cfg_attr(not(target_arch = "wasm32"), allow(dead_code))]
mod command;
#[cfg(target_arch = "wasm32")]
mod guest;
