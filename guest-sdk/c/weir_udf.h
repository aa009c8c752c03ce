/* Write user-defined functions for Weir in C or C++: contract weir:udf@1.1.0, SDK 1.1.0.
 *
 * A transform is one function over a message, an aggregator a handful over an accumulator; WEIR_TRANSFORM or
 * WEIR_AGGREGATOR exports them. README.md beside this file shows both. Everything else in here hides that batches cross
 * the boundary as flat buffers. What an author needs stands in the first half.
 *
 * Buffers are used again from batch to batch: nothing is allocated for a message, and a batch that is forwarded as a whole
 * goes back without being copied. The file compiles natively as well: weir_test.h runs a guest in a unit test. */
#ifndef WEIR_UDF_H
#define WEIR_UDF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that somebody else owns. Absent (a tombstone, no key) is data == NULL; empty is not. */
typedef struct weir_bytes {
    const uint8_t *data;
    size_t len;
} weir_bytes;

/* NULL if all went well, otherwise the reason, which is copied before the next message. */
typedef const char *weir_error;

typedef struct weir_emitter weir_emitter;
typedef struct weir_batch weir_batch;

/* One message: a view, valid during the call that it is handed to. */
typedef struct weir_message {
    weir_bytes key;
    weir_bytes value;
    int64_t event_time_ms; /* since the Unix epoch */
    int64_t received_ms;   /* the only clock there is */
    /* What follows is for weir_attribute and weir_attribute_at. */
    const weir_batch *batch;
    uint32_t row, attributes_from, attributes_to;
} weir_message;

typedef struct weir_attribute_pair {
    weir_bytes name;
    weir_bytes value;
} weir_attribute_pair;

/* A row to be emitted: weir_row_of makes one that is like the message at hand. */
typedef struct weir_row {
    weir_bytes key;
    weir_bytes value;
    int64_t event_time_ms;
    uint8_t route;                         /* 0 is the main output */
    bool without_attributes;               /* leave out the message's own */
    const weir_attribute_pair *attributes; /* in place of those of the same name */
    size_t attributes_len;
} weir_row;

/* Bytes that grow. */
typedef struct weir_buffer {
    uint8_t *data;
    size_t len, cap;
} weir_buffer;

/* A window that fires. */
typedef struct weir_pane {
    weir_bytes key;
    int64_t start_ms, end_ms; /* the end is the first millisecond that is not in it */
    uint32_t firings;         /* how often it has fired before */
    uint8_t timing;           /* 0 early, 1 on time, 2 late */
    int64_t received_ms;
} weir_pane;

/* Names the outputs besides the main one; for configure. */
typedef struct weir_routes {
    weir_buffer names;
    size_t len;
} weir_routes;

/* Called once for each instance with the step's config as JSON text, `null` if there is none. An error refuses it. */
typedef weir_error (*weir_configure)(weir_bytes config, weir_routes *routes);

/* Handles a message: emit any number of rows, forward it, do nothing to filter it, or return an error to reject it (whatever
 * it emitted is undone). What comes out must depend on config and message only. */
typedef weir_error (*weir_transform)(const weir_message *message, weir_emitter *out);

/* Sums up the messages of a key and window. The accumulator is a struct of yours, all bytes zero before the first message. */
typedef struct weir_aggregator {
    size_t accumulator_size;
    weir_configure configure; /* may be NULL */
    /* Takes a message in. After an error, which rejects it, the accumulator must be as before. */
    weir_error (*add)(void *accumulator, const weir_message *message);
    /* Writes an accumulator down; NULL: the bytes of the struct, which must then hold no pointers and no padding. */
    void (*encode)(const void *accumulator, weir_buffer *out);
    /* Takes in what encode wrote of another, whose messages came later. Must be associative. */
    weir_error (*merge)(void *accumulator, weir_bytes encoded);
    /* Makes rows of a window that fires: they have its key, and its last millisecond as event time, unless given others. */
    weir_error (*emit)(const weir_pane *pane, void *accumulator, weir_emitter *out);
    /* Makes an accumulator empty; NULL: sets its bytes to zero. */
    void (*clear)(void *accumulator);
    uint32_t state_version; /* raise it with every change of the encoding */
    /* Writes down anew what an older version wrote; NULL: refuses it. */
    weir_error (*migrate)(uint32_t version, weir_bytes encoded, weir_buffer *out);
} weir_aggregator;

/* Bytes of a C string. */
static inline weir_bytes weir_text(const char *text) {
    weir_bytes bytes = {(const uint8_t *)text, strlen(text)};
    return bytes;
}

static inline weir_bytes weir_slice(const void *data, size_t len) {
    weir_bytes bytes = {(const uint8_t *)data, len};
    return bytes;
}

static inline weir_bytes weir_absent(void) {
    weir_bytes bytes = {NULL, 0};
    return bytes;
}

static inline bool weir_equal(weir_bytes a, weir_bytes b) {
    return a.len == b.len && (a.data == NULL) == (b.data == NULL) && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* A reason with values in it, as printf writes them; kept until the next one. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), unused))
#endif
static weir_error weir_reason(const char *format, ...) {
    static char text[1000];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return text;
}

/* Adds bytes. */
static inline void weir_put(weir_buffer *buffer, const void *data, size_t len) {
    if (len > buffer->cap - buffer->len) {
        size_t cap = buffer->cap * 2 > buffer->len + len ? buffer->cap * 2 : buffer->len + len + 64;
        uint8_t *grown = (uint8_t *)realloc(buffer->data, cap);
        if (grown == NULL) abort();
        buffer->data = grown;
        buffer->cap = cap;
    }
    if (len > 0) memcpy(buffer->data + buffer->len, data, len);
    buffer->len += len;
}

/* Names a route and hands back its number. */
static inline uint8_t weir_add_route(weir_routes *routes, const char *name) {
    if (routes->len == 254) abort(); /* numbers have one byte */
    weir_put(&routes->names, name, strlen(name) + 1);
    return (uint8_t)++routes->len;
}

/* The value of the message's first attribute of this name; absent if there is none. */
static inline weir_bytes weir_attribute(const weir_message *message, const char *name);

/* How many attributes a message has, and each of them. */
static inline size_t weir_attributes_len(const weir_message *message) { return message->attributes_to - message->attributes_from; }
static inline weir_attribute_pair weir_attribute_at(const weir_message *message, size_t i);

/* Emits a row with this value; key, event time and attributes are the message's. */
static inline void weir_emit(weir_emitter *out, const void *value, size_t len);

/* The same piece by piece, written into the output's buffer: any number of weir_write and weir_print, then weir_end. */
static inline void weir_write(weir_emitter *out, const void *data, size_t len);
static inline void weir_end(weir_emitter *out);

/* Passes the message on unchanged. An aggregator passes on its accumulator as it was written down. */
static inline void weir_forward(weir_emitter *out);
static inline void weir_forward_to(weir_emitter *out, uint8_t route);

/* A row like the message at hand, to be changed and emitted. What was written with weir_write is its value if emitted
 * with weir_end_row. */
static inline weir_row weir_row_of(weir_emitter *out);
static inline void weir_emit_row(weir_emitter *out, const weir_row *row);
static inline void weir_end_row(weir_emitter *out, const weir_row *row);

/* Writes a line to the host's log. A module that calls this runs only in a step with `grants: [log]`. */
enum { WEIR_TRACE, WEIR_DEBUG, WEIR_INFO, WEIR_WARN, WEIR_ERROR };
#if defined(__wasm__)
__attribute__((import_module("weir:udf/log@1.1.0"), import_name("log"))) void weir__log(int32_t level, const char *text, size_t len);
static inline void weir_log(int level, const char *line) { weir__log(level, line, strlen(line)); }
#else
static inline void weir_log(int level, const char *line) { fprintf(stderr, "%d: %s\n", level, line); }
#endif

#if defined(__cplusplus)
#include <string_view>
static inline std::string_view weir_view(weir_bytes bytes) { return std::string_view((const char *)bytes.data, bytes.len); }
#endif

/* ---- What crosses the boundary: the records of udf.wit as the canonical ABI lays them out ---- */

typedef struct weir__u8s { uint8_t *data; size_t len; } weir__u8s;
typedef struct weir__u32s { uint32_t *data; size_t len; } weir__u32s;
typedef struct weir__s64s { int64_t *data; size_t len; } weir__s64s;
typedef struct weir__column { weir__u8s bytes; weir__u32s ends; weir__u8s present; } weir__column;
typedef struct weir__attributes { weir__u32s rows; weir__column names, values; } weir__attributes;
struct weir_batch {
    weir__column keys, values;
    weir__s64s event_times;
    weir__attributes attributes;
    int64_t received_ms;
};
typedef struct weir__rejected { weir__u32s rows; weir__column reasons; } weir__rejected;
typedef struct weir__output { weir_batch batch; weir__u32s origins; weir__u8s routes; weir__rejected rejected; } weir__output;
typedef struct weir__groups { weir__u32s rows, ends; } weir__groups;
typedef struct weir__grouped { weir_batch batch; weir__groups groups; } weir__grouped;
typedef struct weir__accumulated { weir__column fragments; weir__rejected rejected; } weir__accumulated;
typedef struct weir__panes {
    weir__column keys;
    weir__s64s starts, ends;
    weir__column accumulators;
    weir__u32s firings;
    weir__u8s timings;
    int64_t received_ms;
} weir__panes;
typedef struct weir__names { weir__u8s *data; size_t len; } weir__names;

/* Results: ok unless is_err. */
typedef struct weir__names_result { uint8_t is_err; union { weir__names ok; weir__u8s err; } u; } weir__names_result;
typedef struct weir__output_result { uint8_t is_err; union { weir__output ok; weir__u8s err; } u; } weir__output_result;
typedef struct weir__accumulated_result { uint8_t is_err; union { weir__accumulated ok; weir__u8s err; } u; } weir__accumulated_result;
typedef struct weir__column_result { uint8_t is_err; union { weir__column ok; weir__u8s err; } u; } weir__column_result;

static inline weir_bytes weir__get(const weir__column *column, size_t row) {
    static const uint8_t empty[1] = {0};
    if (column->ends.len == 0) return weir_absent();
    if (column->present.len > 0 && (column->present.data[row / 8] >> (row % 8) & 1) == 0) return weir_absent();
    size_t start = row == 0 ? 0 : column->ends.data[row - 1], end = column->ends.data[row];
    return weir_slice(start == end ? empty : column->bytes.data + start, end - start);
}

/* ---- Columns that are built row by row ---- */

typedef struct weir__builder {
    weir_buffer bytes, ends, present; /* ends stay empty while all rows are absent, present while none is */
    size_t rows;
} weir__builder;

static inline void weir__put_u32(weir_buffer *buffer, size_t value) {
    uint32_t number = (uint32_t)value;
    weir_put(buffer, &number, sizeof number);
}

static inline size_t weir__end_of(const weir__builder *builder, size_t row) { return ((const uint32_t *)(const void *)builder->ends.data)[row]; }

static inline void weir__reset(weir__builder *builder) {
    builder->bytes.len = builder->ends.len = builder->present.len = 0;
    builder->rows = 0;
}

/* Writes down whether a row is present, for it and, at first, for all before it. */
static inline void weir__mark(weir__builder *builder, bool present, bool before) {
    size_t row = builder->rows;
    if (builder->present.len == 0) {
        for (size_t i = 0; i < row / 8 + 1; i++) weir_put(&builder->present, before ? "\xff" : "\0", 1);
        if (before) builder->present.data[row / 8] = (uint8_t)((1u << (row % 8)) - 1);
    } else if (row % 8 == 0) {
        weir_put(&builder->present, "\0", 1);
    }
    if (present) builder->present.data[row / 8] |= (uint8_t)(1u << (row % 8));
}

/* Ends a present row: all bytes since the last end are its. */
static inline void weir__end_row(weir__builder *builder) {
    if (builder->ends.len == 0 && builder->rows > 0) {
        for (size_t i = 0; i < builder->rows; i++) weir__put_u32(&builder->ends, 0);
        weir__mark(builder, true, false);
    } else if (builder->present.len > 0) {
        weir__mark(builder, true, false);
    }
    weir__put_u32(&builder->ends, builder->bytes.len);
    builder->rows++;
}

static inline void weir__push(weir__builder *builder, weir_bytes row) {
    if (row.data != NULL) {
        weir_put(&builder->bytes, row.data, row.len);
        weir__end_row(builder);
        return;
    }
    if (builder->ends.len > 0) {
        weir__mark(builder, false, true);
        weir__put_u32(&builder->ends, builder->bytes.len);
    }
    builder->rows++;
}

/* Adds rows of a column, in one piece where nothing is absent. */
static inline void weir__push_rows(weir__builder *builder, const weir__column *column, size_t from, size_t to) {
    bool whole = column->ends.len > 0 && column->present.len == 0 && builder->present.len == 0 && builder->ends.len == builder->rows * 4;
    if (!whole) {
        for (size_t row = from; row < to; row++) weir__push(builder, weir__get(column, row));
        return;
    }
    if (from == to) return;
    size_t start = from == 0 ? 0 : column->ends.data[from - 1], base = builder->bytes.len;
    weir_put(&builder->bytes, column->bytes.data + start, column->ends.data[to - 1] - start);
    for (size_t row = from; row < to; row++) weir__put_u32(&builder->ends, column->ends.data[row] - start + base);
    builder->rows += to - from;
}

static inline weir_bytes weir__built(const weir__builder *builder, size_t row) {
    weir__column column = {{builder->bytes.data, builder->bytes.len}, {(uint32_t *)(void *)builder->ends.data, builder->ends.len / 4}, {builder->present.data, builder->present.len}};
    return weir__get(&column, row);
}

static inline void weir__truncate(weir__builder *builder, size_t rows) {
    if (rows >= builder->rows) return;
    builder->rows = rows;
    if (builder->ends.len > rows * 4) builder->ends.len = rows * 4;
    builder->bytes.len = builder->ends.len == 0 ? 0 : weir__end_of(builder, builder->ends.len / 4 - 1);
    if (builder->present.len > 0) {
        builder->present.len = (rows + 7) / 8;
        if (rows % 8 != 0) builder->present.data[rows / 8] &= (uint8_t)((1u << (rows % 8)) - 1);
    }
}

static inline weir__column weir__finish(weir__builder *builder) {
    weir__column column = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    if (builder->ends.len == 0) return column; /* all rows are absent */
    column.bytes.data = builder->bytes.data, column.bytes.len = builder->bytes.len;
    column.ends.data = (uint32_t *)(void *)builder->ends.data, column.ends.len = builder->rows;
    column.present.data = builder->present.data, column.present.len = builder->present.len;
    return column;
}

/* ---- The emitter ---- */

struct weir_emitter {
    const weir_batch *input;
    const weir_message *message;
    size_t run_from, run_to; /* forwarded and not copied yet; behind all rows below */
    weir__builder keys, values, attribute_names, attribute_values, reasons;
    weir_buffer event_times, origins, routes, attribute_rows, rejected_rows;
    bool routed;
};

static inline size_t weir__rows(const weir_emitter *out) { return out->origins.len / 4; }

static inline void weir__put_attribute(weir_emitter *out, weir_bytes name, weir_bytes value) {
    weir__put_u32(&out->attribute_rows, weir__rows(out));
    weir__push(&out->attribute_names, name);
    weir__push(&out->attribute_values, value);
}

static inline weir_attribute_pair weir_attribute_at(const weir_message *message, size_t i) {
    const weir__attributes *all = &message->batch->attributes;
    weir_attribute_pair pair = {weir__get(&all->names, message->attributes_from + i), weir__get(&all->values, message->attributes_from + i)};
    return pair;
}

static inline weir_bytes weir_attribute(const weir_message *message, const char *name) {
    for (size_t i = 0; i < weir_attributes_len(message); i++) {
        weir_attribute_pair pair = weir_attribute_at(message, i);
        if (weir_equal(pair.name, weir_text(name))) return pair.value;
    }
    return weir_absent();
}

/* Ends a row whose key, value and attributes are there. */
static inline void weir__end(weir_emitter *out, int64_t event_time_ms, uint32_t origin, uint8_t route) {
    if (route != 0 && !out->routed) {
        for (size_t i = 0; i < weir__rows(out); i++) weir_put(&out->routes, "\0", 1);
        out->routed = true;
    }
    if (out->routed) weir_put(&out->routes, &route, 1);
    weir_put(&out->event_times, &event_time_ms, sizeof event_time_ms);
    weir__put_u32(&out->origins, origin);
}

static inline weir_message weir__message(const weir_batch *batch, size_t row, size_t *next_attribute) {
    weir_message message = {weir__get(&batch->keys, row), weir__get(&batch->values, row), batch->event_times.data[row], batch->received_ms, batch, (uint32_t)row, 0, 0};
    const weir__u32s *rows = &batch->attributes.rows;
    while (*next_attribute < rows->len && rows->data[*next_attribute] < row) ++*next_attribute;
    message.attributes_from = (uint32_t)*next_attribute;
    while (*next_attribute < rows->len && rows->data[*next_attribute] == row) ++*next_attribute;
    message.attributes_to = (uint32_t)*next_attribute;
    return message;
}

/* Copies the rows that were only forwarded so far. */
static inline void weir__flush(weir_emitter *out) {
    size_t from = out->run_from, to = out->run_to;
    if (from == to) return;
    const weir_batch *in = out->input;
    weir__push_rows(&out->keys, &in->keys, from, to);
    weir__push_rows(&out->values, &in->values, from, to);
    size_t next = 0;
    for (size_t row = from; row < to; row++) {
        if (in->attributes.rows.len > 0) {
            weir_message message = weir__message(in, row, &next);
            for (size_t i = 0; i < weir_attributes_len(&message); i++) {
                weir_attribute_pair pair = weir_attribute_at(&message, i);
                weir__put_attribute(out, pair.name, pair.value);
            }
        }
        weir__end(out, in->event_times.data[row], (uint32_t)row, 0);
    }
    out->run_from = out->run_to = 0;
}

static inline void weir_forward(weir_emitter *out) {
    size_t row = out->message->row;
    if (out->run_from == out->run_to || out->run_to != row) {
        weir__flush(out);
        out->run_from = row;
    }
    out->run_to = row + 1;
}

static inline weir_row weir_row_of(weir_emitter *out) {
    const weir_message *message = out->message;
    weir_row row = {message->key, message->value, message->event_time_ms, 0, false, NULL, 0};
    return row;
}

/* Ends a row whose value is there. */
static inline void weir__end_with(weir_emitter *out, const weir_row *row) {
    weir__push(&out->keys, row->key);
    size_t count = row->without_attributes ? 0 : weir_attributes_len(out->message);
    for (size_t i = 0; i < row->attributes_len; i++) weir__put_attribute(out, row->attributes[i].name, row->attributes[i].value);
    for (size_t i = 0; i < count; i++) {
        weir_attribute_pair pair = weir_attribute_at(out->message, i);
        bool replaced = false;
        for (size_t j = 0; j < row->attributes_len; j++) replaced |= weir_equal(row->attributes[j].name, pair.name);
        if (!replaced) weir__put_attribute(out, pair.name, pair.value);
    }
    weir__end(out, row->event_time_ms, out->message->row, row->route);
}

static inline void weir_write(weir_emitter *out, const void *data, size_t len) {
    weir__flush(out);
    weir_put(&out->values.bytes, data, len);
}

/* Gives up what was written and not ended. */
static inline void weir__unwrite(weir_emitter *out) {
    out->values.bytes.len = out->values.ends.len == 0 ? 0 : weir__end_of(&out->values, out->values.ends.len / 4 - 1);
}

static inline void weir_end_row(weir_emitter *out, const weir_row *row) {
    weir__flush(out);
    weir__end_row(&out->values);
    weir__end_with(out, row);
}

static inline void weir_end(weir_emitter *out) {
    weir_row row = weir_row_of(out);
    weir_end_row(out, &row);
}

static inline void weir_emit_row(weir_emitter *out, const weir_row *row) {
    weir__flush(out);
    weir__unwrite(out);
    weir__push(&out->values, row->value);
    weir__end_with(out, row);
}

static inline void weir_emit(weir_emitter *out, const void *value, size_t len) {
    weir_row row = weir_row_of(out);
    row.value = weir_slice(value, len);
    if (value == NULL) row.value = weir_text(""); /* empty; for a tombstone use weir_emit_row */
    weir_emit_row(out, &row);
}

static inline void weir_forward_to(weir_emitter *out, uint8_t route) {
    if (route == 0) {
        weir_forward(out);
        return;
    }
    weir_row row = weir_row_of(out);
    row.route = route;
    weir_emit_row(out, &row);
}

/* Like weir_write, as printf writes. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), unused))
#endif
static void weir_print(weir_emitter *out, const char *format, ...) {
    char text[512], *long_text = text;
    va_list values;
    va_start(values, format);
    int len = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (len < 0) return;
    if ((size_t)len >= sizeof text) {
        long_text = (char *)malloc((size_t)len + 1);
        if (long_text == NULL) abort();
        va_start(values, format);
        vsnprintf(long_text, (size_t)len + 1, format, values);
        va_end(values);
    }
    weir_write(out, long_text, (size_t)len);
    if (long_text != text) free(long_text);
}

/* Begins a batch. */
static inline void weir__begin(weir_emitter *out, const weir_batch *input) {
    weir__builder *builders[] = {&out->keys, &out->values, &out->attribute_names, &out->attribute_values, &out->reasons};
    for (size_t i = 0; i < 5; i++) weir__reset(builders[i]);
    out->event_times.len = out->origins.len = out->routes.len = out->attribute_rows.len = out->rejected_rows.len = 0;
    out->run_from = out->run_to = 0;
    out->routed = false;
    out->input = input;
}

/* Undoes what the message at hand emitted, and rejects it. */
static inline void weir__reject(weir_emitter *out, weir_error reason) {
    size_t row = out->message->row, kept = weir__rows(out);
    if (out->run_from < out->run_to && out->run_to == row + 1) out->run_to = row;
    /* Only the message at hand emits with its own number, so its rows are the last ones. */
    while (kept > 0 && ((const uint32_t *)(const void *)out->origins.data)[kept - 1] == row) kept--;
    weir__truncate(&out->keys, kept);
    weir__truncate(&out->values, kept);
    out->event_times.len = kept * 8;
    out->origins.len = kept * 4;
    if (out->routed) out->routes.len = kept;
    size_t attributes = out->attribute_rows.len / 4;
    while (attributes > 0 && ((const uint32_t *)(const void *)out->attribute_rows.data)[attributes - 1] >= kept) attributes--;
    out->attribute_rows.len = attributes * 4;
    weir__truncate(&out->attribute_names, attributes);
    weir__truncate(&out->attribute_values, attributes);
    weir__put_u32(&out->rejected_rows, row);
    weir__push(&out->reasons, weir_text(reason));
}

static inline weir__rejected weir__rejections(weir_buffer *rows, weir__builder *reasons) {
    weir__rejected rejected = {{(uint32_t *)(void *)rows->data, rows->len / 4}, weir__finish(reasons)};
    return rejected;
}

static inline weir__output weir__output_of(weir_emitter *out) {
    weir__output output;
    memset(&output, 0, sizeof output);
    if (weir__rows(out) == 0 && out->rejected_rows.len == 0 && out->run_from == 0 && out->run_to == out->input->event_times.len) {
        output.batch = *out->input; /* all was forwarded: the input goes back as it is */
        return output;
    }
    weir__flush(out);
    output.batch.keys = weir__finish(&out->keys);
    output.batch.values = weir__finish(&out->values);
    output.batch.event_times.data = (int64_t *)(void *)out->event_times.data;
    output.batch.event_times.len = out->event_times.len / 8;
    output.batch.attributes.rows.data = (uint32_t *)(void *)out->attribute_rows.data;
    output.batch.attributes.rows.len = out->attribute_rows.len / 4;
    output.batch.attributes.names = weir__finish(&out->attribute_names);
    output.batch.attributes.values = weir__finish(&out->attribute_values);
    output.batch.received_ms = out->input->received_ms;
    output.origins.data = (uint32_t *)(void *)out->origins.data, output.origins.len = weir__rows(out);
    output.routes.data = out->routes.data, output.routes.len = out->routed ? out->routes.len : 0;
    output.rejected = weir__rejections(&out->rejected_rows, &out->reasons);
    return output;
}

/* ---- Running a guest over what the host hands in ---- */

static inline weir__u8s weir__error_bytes(weir_error error) {
    weir__u8s bytes = {(uint8_t *)(uintptr_t)error, strlen(error)};
    return bytes;
}

/* Calls configure. Names and their list live as long as the instance. */
static inline weir__names_result weir__run_configure(weir_configure configure, weir_bytes config) {
    static weir_routes routes;
    static weir__u8s names[254];
    weir__names_result result;
    memset(&result, 0, sizeof result);
    routes.len = routes.names.len = 0;
    weir_error error = configure == NULL ? NULL : configure(config, &routes);
    if (error != NULL) {
        result.is_err = 1;
        result.u.err = weir__error_bytes(error);
        return result;
    }
    uint8_t *name = routes.names.data;
    for (size_t i = 0; i < routes.len; i++) {
        names[i].data = name, names[i].len = strlen((const char *)name);
        name += names[i].len + 1;
    }
    result.u.ok.data = names, result.u.ok.len = routes.len;
    return result;
}

static inline weir__output weir__run_transform(weir_transform transform, const weir_batch *input) {
    static weir_emitter out;
    size_t next = 0;
    weir__begin(&out, input);
    for (size_t row = 0; row < input->event_times.len; row++) {
        weir_message message = weir__message(input, row, &next);
        out.message = &message;
        weir_error error = transform(&message, &out);
        if (error != NULL) weir__reject(&out, error);
        else weir__unwrite(&out);
    }
    return weir__output_of(&out);
}

static inline void *weir__accumulator(const weir_aggregator *aggregator) {
    static void *accumulator;
    if (accumulator == NULL) {
        accumulator = calloc(1, aggregator->accumulator_size);
        if (accumulator == NULL) abort();
    }
    if (aggregator->clear != NULL) aggregator->clear(accumulator);
    else memset(accumulator, 0, aggregator->accumulator_size);
    return accumulator;
}

static inline void weir__encode(const weir_aggregator *aggregator, const void *accumulator, weir__builder *column) {
    if (aggregator->encode != NULL) aggregator->encode(accumulator, &column->bytes);
    else weir_put(&column->bytes, accumulator, aggregator->accumulator_size);
    weir__end_row(column);
}

static int weir__by_row(const void *left, const void *right) {
    uint32_t a = ((const uint32_t *)left)[0], b = ((const uint32_t *)right)[0];
    return (a > b) - (a < b);
}

static inline weir__accumulated weir__run_accumulate(const weir_aggregator *aggregator, const weir_batch *input, const weir__groups *groups) {
    static weir__builder fragments, found, reasons;
    static weir_buffer faults, rows; /* faults: pairs of a row and the place of its reason among those found */
    weir__reset(&fragments), weir__reset(&found), weir__reset(&reasons);
    faults.len = rows.len = 0;
    size_t start = 0;
    for (size_t group = 0; group < groups->ends.len; group++) {
        void *accumulator = weir__accumulator(aggregator);
        bool took = false;
        for (; start < groups->ends.data[group]; start++) {
            uint32_t row = groups->rows.data[start];
            size_t low = 0, high = input->attributes.rows.len;
            while (low < high) {
                size_t middle = (low + high) / 2;
                if (input->attributes.rows.data[middle] < row) low = middle + 1;
                else high = middle;
            }
            weir_message message = weir__message(input, row, &low);
            weir_error error = aggregator->add(accumulator, &message);
            took |= error == NULL;
            if (error == NULL) continue;
            weir__put_u32(&faults, row);
            weir__put_u32(&faults, found.rows);
            weir__push(&found, weir_text(error));
        }
        if (took) weir__encode(aggregator, accumulator, &fragments);
        else weir__push(&fragments, weir_absent());
    }
    /* Rejected rows must ascend, whatever the order of the groups. */
    if (faults.len > 0) qsort(faults.data, faults.len / 8, 8, weir__by_row);
    for (size_t i = 0; i < faults.len / 8; i++) {
        const uint32_t *fault = (const uint32_t *)(const void *)faults.data + 2 * i;
        weir__put_u32(&rows, fault[0]);
        weir__push(&reasons, weir__built(&found, fault[1]));
    }
    weir__accumulated accumulated = {weir__finish(&fragments), weir__rejections(&rows, &reasons)};
    return accumulated;
}

static inline weir_error weir__run_merge(const weir_aggregator *aggregator, const weir__column *fragments, const weir__u32s *ends, weir__column *merged) {
    static weir__builder column;
    weir__reset(&column);
    size_t i = 0;
    for (size_t list = 0; list < ends->len; list++) {
        if (ends->data[list] - i == 1) { /* what is alone means the same as it is */
            weir__push(&column, weir__get(fragments, i++));
            continue;
        }
        void *accumulator = weir__accumulator(aggregator);
        for (; i < ends->data[list]; i++) {
            weir_error error = aggregator->merge(accumulator, weir__get(fragments, i));
            if (error != NULL) return error;
        }
        weir__encode(aggregator, accumulator, &column);
    }
    *merged = weir__finish(&column);
    return NULL;
}

static inline weir__output weir__run_emit(const weir_aggregator *aggregator, const weir__panes *panes) {
    static weir_emitter out;
    static weir_buffer times;
    times.len = 0;
    for (size_t i = 0; i < panes->ends.len; i++) {
        int64_t last = panes->ends.data[i] == INT64_MIN ? INT64_MIN : panes->ends.data[i] - 1;
        weir_put(&times, &last, sizeof last);
    }
    weir_batch input;
    memset(&input, 0, sizeof input);
    input.keys = panes->keys, input.values = panes->accumulators, input.received_ms = panes->received_ms;
    input.event_times.data = (int64_t *)(void *)times.data, input.event_times.len = panes->ends.len;
    size_t next = 0;
    weir__begin(&out, &input);
    for (size_t row = 0; row < panes->ends.len; row++) {
        weir_message message = weir__message(&input, row, &next);
        weir_pane pane = {message.key, panes->starts.data[row], panes->ends.data[row], panes->firings.data[row], panes->timings.data[row], panes->received_ms};
        out.message = &message;
        void *accumulator = weir__accumulator(aggregator);
        weir_error error = aggregator->merge(accumulator, message.value);
        if (error == NULL) error = aggregator->emit(&pane, accumulator, &out);
        if (error != NULL) weir__reject(&out, error);
        else weir__unwrite(&out);
    }
    return weir__output_of(&out);
}

static inline weir_error weir__run_migrate(const weir_aggregator *aggregator, uint32_t version, const weir__column *old, weir__column *migrated) {
    static weir__builder column;
    weir__reset(&column);
    if (version != aggregator->state_version && aggregator->migrate == NULL)
        return weir_reason("accumulators of version %u cannot be read: the module writes version %u", version, aggregator->state_version);
    for (size_t row = 0; row < old->ends.len; row++) {
        weir_bytes encoded = weir__get(old, row);
        if (version == aggregator->state_version) {
            weir__push(&column, encoded);
            continue;
        }
        weir_error error = aggregator->migrate(version, encoded, &column.bytes);
        if (error != NULL) return error;
        weir__end_row(&column);
    }
    *migrated = weir__finish(&column);
    return NULL;
}

/* ---- Exports ---- */

#if defined(__cplusplus)
#define WEIR__C extern "C"
#else
#define WEIR__C
#endif

#if defined(__wasm__)
#define WEIR__EXPORT(name) WEIR__C __attribute__((export_name(name)))

/* What the host hands in lies in an arena that is used again once the answer has been read. */
typedef struct weir__chunk { struct weir__chunk *before; size_t cap, used; } weir__chunk;
static weir__chunk *weir__arena;

static inline void *weir__alloc(size_t size) {
    size = (size + 7) & ~(size_t)7;
    if (weir__arena == NULL || size > weir__arena->cap - weir__arena->used) {
        size_t cap = weir__arena == NULL ? 65536 : weir__arena->cap * 2;
        if (cap < size) cap = size;
        weir__chunk *chunk = (weir__chunk *)malloc(sizeof(weir__chunk) + 8 + cap);
        if (chunk == NULL) abort();
        chunk->before = weir__arena, chunk->cap = cap, chunk->used = 0;
        weir__arena = chunk;
    }
    uint8_t *start = (uint8_t *)(((uintptr_t)(weir__arena + 1) + 7) & ~(uintptr_t)7);
    weir__arena->used += size;
    return start + weir__arena->used - size;
}

/* Keeps the newest chunk, which is the largest. */
static inline void weir__free_all(void) {
    if (weir__arena == NULL) return;
    for (weir__chunk *chunk = weir__arena->before; chunk != NULL;) {
        weir__chunk *before = chunk->before;
        free(chunk);
        chunk = before;
    }
    weir__arena->before = NULL;
    weir__arena->used = 0;
}

#define WEIR__SHARED(CONFIGURE)                                                                                          \
    WEIR__EXPORT("cabi_realloc") void *weir__cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {         \
        (void)align;                                                                                                     \
        void *fresh = weir__alloc(size);                                                                                 \
        if (old != NULL) memcpy(fresh, old, old_size < size ? old_size : size);                                            \
        return fresh;                                                                                                    \
    }                                                                                                                    \
    WEIR__EXPORT("configure") weir__names_result *weir__export_configure(uint8_t *config, size_t len) {                    \
        static weir__names_result result;                                                                                \
        result = weir__run_configure(CONFIGURE, weir_slice(config, len));                                                  \
        return &result;                                                                                                  \
    }                                                                                                                    \
    WEIR__EXPORT("cabi_post_configure") void weir__post_configure(void *result) { (void)result, weir__free_all(); }

#define WEIR_TRANSFORM(CONFIGURE, TRANSFORM)                                                                             \
    WEIR__SHARED(CONFIGURE)                                                                                              \
    WEIR__EXPORT("transform") weir__output_result *weir__export_transform(weir_batch *input) {                             \
        static weir__output_result result;                                                                               \
        result.u.ok = weir__run_transform(TRANSFORM, input);                                                               \
        return &result;                                                                                                  \
    }                                                                                                                    \
    WEIR__EXPORT("cabi_post_transform") void weir__post_transform(void *result) { (void)result, weir__free_all(); }        \
    struct weir__once

#define WEIR__COLUMN_RESULT(CALL)                                                                                        \
    static weir__column_result result;                                                                                   \
    weir_error error = CALL;                                                                                             \
    result.is_err = error != NULL;                                                                                       \
    if (error != NULL) result.u.err = weir__error_bytes(error);                                                          \
    return &result;

#define WEIR_AGGREGATOR(AGGREGATOR)                                                                                      \
    WEIR__SHARED((AGGREGATOR).configure)                                                                                 \
    WEIR__EXPORT("accumulate") weir__accumulated_result *weir__export_accumulate(weir__grouped *input) {                   \
        static weir__accumulated_result result;                                                                          \
        result.u.ok = weir__run_accumulate(&(AGGREGATOR), &input->batch, &input->groups);                                  \
        return &result;                                                                                                  \
    }                                                                                                                    \
    WEIR__EXPORT("merge") weir__column_result *weir__export_merge(uint8_t *bytes, size_t bytes_len, uint32_t *ends,          \
        size_t ends_len, uint8_t *present, size_t present_len, uint32_t *lists, size_t lists_len) {                        \
        weir__column fragments = {{bytes, bytes_len}, {ends, ends_len}, {present, present_len}};                           \
        weir__u32s list_ends = {lists, lists_len};                                                                       \
        WEIR__COLUMN_RESULT(weir__run_merge(&(AGGREGATOR), &fragments, &list_ends, &result.u.ok))                          \
    }                                                                                                                    \
    WEIR__EXPORT("emit") weir__output_result *weir__export_emit(weir__panes *panes) {                                      \
        static weir__output_result result;                                                                               \
        result.u.ok = weir__run_emit(&(AGGREGATOR), panes);                                                                \
        return &result;                                                                                                  \
    }                                                                                                                    \
    WEIR__EXPORT("state-version") uint32_t weir__export_state_version(void) { return (AGGREGATOR).state_version; }         \
    WEIR__EXPORT("migrate") weir__column_result *weir__export_migrate(uint32_t version, uint8_t *bytes, size_t bytes_len,    \
        uint32_t *ends, size_t ends_len, uint8_t *present, size_t present_len) {                                           \
        weir__column old = {{bytes, bytes_len}, {ends, ends_len}, {present, present_len}};                                 \
        WEIR__COLUMN_RESULT(weir__run_migrate(&(AGGREGATOR), version, &old, &result.u.ok))                                 \
    }                                                                                                                    \
    WEIR__EXPORT("cabi_post_accumulate") void weir__post_accumulate(void *result) { (void)result, weir__free_all(); }      \
    WEIR__EXPORT("cabi_post_merge") void weir__post_merge(void *result) { (void)result, weir__free_all(); }                \
    WEIR__EXPORT("cabi_post_emit") void weir__post_emit(void *result) { (void)result, weir__free_all(); }                  \
    WEIR__EXPORT("cabi_post_migrate") void weir__post_migrate(void *result) { (void)result, weir__free_all(); }            \
    struct weir__once

#if !defined(__cplusplus)
_Static_assert(sizeof(weir_batch) == 120 && sizeof(weir__output_result) == 176 && sizeof(weir__panes) == 88, "the layout of the contract");
#endif
#else
/* Natively there is nothing to export. */
#define WEIR_TRANSFORM(CONFIGURE, TRANSFORM) struct weir__once
#define WEIR_AGGREGATOR(AGGREGATOR) struct weir__once
#endif

#endif
