# The host, with the guests that come with it. Built in one stage, run in another without any compiler.
FROM rust:1.95-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends libssl-dev pkg-config \
 && rm -rf /var/lib/apt/lists/* \
 && rustup target add wasm32-unknown-unknown
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/target \
    CARGO_TARGET_DIR=/target cargo build --locked --profile dist --workspace \
 && CARGO_TARGET_DIR=/target WEIR_UDF_OUT=/out/udfs udfs/build \
 && cp /target/dist/weir /out/weir

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libssl3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home --home-dir /var/lib/weir weir \
 && install -d -o weir -g weir /var/lib/weir
COPY --from=build /out/weir /usr/bin/weir
COPY --from=build /out/udfs /usr/share/weir/udfs
USER 10001
WORKDIR /var/lib/weir
# State, and the cache of compiled modules: the only folder that is written.
VOLUME /var/lib/weir
ENV WEIR_CACHE_DIR=/var/lib/weir/cache WEIR_LOG_FORMAT=json WEIR_UDFS=/usr/share/weir/udfs
ENTRYPOINT ["/usr/bin/weir"]
CMD ["--help"]
