"""Lines in the host's log. A module that imports this runs only in a step with `grants: [log]`; natively, lines go to standard
error. Lines past the step's `limits.log` of one call are dropped: don't log for each message."""

import sys

try:
    from wit_world.imports import log as _host
except ImportError:
    _host = None


def _write(level, text):
    if _host is None:
        print(f"{level}: {text}", file=sys.stderr)
    else:
        _host.log(_host.Level[level], text)


def debug(text):
    """For whoever looks into a fault."""
    _write("DEBUG", text)


def info(text):
    """Worth knowing in normal operation."""
    _write("INFO", text)


def warn(text):
    """Works on, though something looks wrong."""
    _write("WARN", text)


def error(text):
    """Something failed."""
    _write("ERROR", text)
