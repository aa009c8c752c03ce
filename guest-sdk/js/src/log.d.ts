// Lines in the host's log. A module that imports this runs only in a step with `grants: [log]`. Natively, lines go to
// standard error. Lines past the step's `limits.log` of one call are dropped: don't log for each message.

/** For whoever looks into a fault. */
export function debug(...words: unknown[]): void;
/** Worth knowing in normal operation. */
export function info(...words: unknown[]): void;
/** Works on, though something looks wrong. */
export function warn(...words: unknown[]): void;
/** Something failed. */
export function error(...words: unknown[]): void;
