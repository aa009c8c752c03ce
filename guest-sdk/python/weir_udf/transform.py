"""Transformers: what the decorators make of a function or class, and how it is run over batches."""

import json

from .columns import Output
from .message import Emitter, Message, reason_of

ROUTES_MAX = 254


class Module:
    """What a file exports: at most one of these, which the decorators note here."""

    kind = None
    built = None


def register(kind, built):
    """Notes what the file exports."""
    Module.kind, Module.built = kind, built
    return built


def configured(make, config):
    """Makes an instance with a step's config as JSON text. Raises ValueError with a text for whoever wrote the pipeline file."""
    settings = json.loads(config) if config.strip() else None
    try:
        return make({} if settings is None else settings)
    except Exception as error:
        raise ValueError(reason_of(error)) from error


def numbered(routes):
    """The contract's number of each route: main is 0."""
    if len(routes) > ROUTES_MAX:
        raise ValueError(f"the module names {len(routes)} routes: at most {ROUTES_MAX} are possible")
    return {name: number for number, name in enumerate(routes, 1)}


class _Function:
    """A plain function as a class without configuration."""

    def __init__(self, transform):
        self.transform = transform


def _maker(made, method):
    """How an instance is made of what was decorated."""
    if isinstance(made, type):
        return made if made.__init__ is not object.__init__ else lambda config: _without_config(made(), config)
    return lambda config: _without_config(_Function(made) if method == "transform" else _BatchFunction(made), config)


def _without_config(built, config):
    if config:
        raise ValueError(f"config: {next(iter(config))}: no such setting" if isinstance(config, dict) else "config: expected none")
    return built


class _BatchFunction:
    def __init__(self, transform_batch):
        self.transform_batch = transform_batch


class Transformer:
    """The exports of a transformer."""

    def __init__(self, make, routes):
        self._make, self._routes, self._run = make, list(routes), None

    def configure(self, config):
        """Makes the instance; returns the names of its routes."""
        built = configured(self._make, config)
        routes = list(getattr(built, "routes", self._routes))
        numbers = numbered(routes)
        if hasattr(built, "transform_batch"):
            self._run = built.transform_batch
        else:
            transform = built.transform
            self._run = lambda batch: _each(transform, batch, numbers)
        return routes

    def transform(self, batch) -> Output:
        """Handles a batch."""
        if self._run is None:
            raise ValueError("transform was called before configure")
        return self._run(batch)


def _each(transform, batch, numbers):
    message = Message(batch)
    out = Emitter(batch, message, numbers)
    for row in range(len(batch.event_times)):
        message.row = row
        try:
            transform(message, out)
        except Exception as error:
            out.reject(reason_of(error))
    return out.output()


def transformer(made=None, *, routes=()):
    """Makes the file a transformer: decorates a function `(message, out)`, or a class with a method `transform(message, out)`.

    `routes` names outputs besides the main one, at most 254, which sinks name in `from`. An instance may have `routes` itself,
    where they depend on its configuration.
    """
    if made is None:
        return lambda made: transformer(made, routes=routes)
    made.weir = register("transformer", Transformer(_maker(made, "transform"), routes))
    return made


def batch_transformer(made=None, *, routes=()):
    """Makes the file a transformer of whole batches: decorates a function `(batch)` or a class with a method
    `transform_batch(batch)`; either returns an `Output`."""
    if made is None:
        return lambda made: batch_transformer(made, routes=routes)
    made.weir = register("transformer", Transformer(_maker(made, "transform_batch"), routes))
    return made
