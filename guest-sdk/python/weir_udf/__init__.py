"""Write user-defined functions for Weir in Python.

A transform is a function over a message, or a class where there is something to configure:

    from weir_udf import transformer

    @transformer
    def shout(message, out):
        out.emit(message.value.upper())

    @transformer(routes=["large"])
    class Orders:
        def __init__(self, config):
            self.limit = config.get("limit", 100)

        def transform(self, message, out):
            ...

What it does with a message says what becomes of it: emit any number of rows, forward it unchanged, raise an exception to
reject it (it goes to the dead letters with the exception's text, and what it emitted is undone), or do nothing to drop it.

`config` is the step's, as Python values; a step without one has an empty dict. An exception in `__init__` refuses the
configuration: the pipeline does not start, and its author reads the text.

An instance may be thrown away at any time between two batches, several run side by side, and after a failure parts of a batch
are handled again: what comes out must depend on the configuration and the message only. Caches are fine.

`aggregator` makes an aggregator of a class, `batch_transformer` gives whole batches to those who want the last bit of speed,
`weir_udf.testing` runs all of them natively, and `weir-udf build FILE.py` makes the module.
"""

from .aggregate import Pane, aggregator
from .columns import ABSENT, Attributes, Batch, Column, Output, Rejected
from .message import Emitter, Message
from .transform import batch_transformer, transformer

__version__ = "1.1.0"
__all__ = [
    "ABSENT",
    "Attributes",
    "Batch",
    "Column",
    "Emitter",
    "Message",
    "Output",
    "Pane",
    "Rejected",
    "aggregator",
    "batch_transformer",
    "transformer",
]
