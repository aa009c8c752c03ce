"""Passthrough: what a message costs without any work."""

from weir_udf import transformer


@transformer
def passthrough(message, out):
    out.forward()
