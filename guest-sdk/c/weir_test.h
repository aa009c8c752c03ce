/* Runs a guest natively in a unit test: no WebAssembly needed. Include the guest's source, then this.
 *
 *     #include "transform.c"
 *     #include "weir_test.h"
 *
 *     int main(void) {
 *         weir_test_configure(configure, "null");
 *         weir_test_message in[] = {{.value = "hello"}};
 *         weir_test_transform(transform, in, 1);
 *         WEIR_CHECK_TEXT(weir_test_value(0), "hello");
 *     }
 *
 * Results stay until the next run. A broken check names its line and ends the program. */
#ifndef WEIR_TEST_H
#define WEIR_TEST_H

#include "weir_udf.h"

/* A message to be handed in: a value of NULL is a tombstone. */
typedef struct weir_test_message {
    const char *value;
    const char *key;
    int64_t event_time_ms;
    const char *attribute_name; /* at most one */
    const char *attribute_value;
} weir_test_message;

static weir__output weir__test_output;
static size_t weir__test_rows_in;
static weir__names weir__test_routes;
static weir__accumulated weir__test_accumulated;

#define WEIR_CHECK(condition) weir__check((condition), #condition, __FILE__, __LINE__)
#define WEIR_CHECK_TEXT(bytes, text) weir__check_text((bytes), (text), __FILE__, __LINE__)

static inline void weir__check(bool ok, const char *what, const char *file, int line) {
    if (ok) return;
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    exit(1);
}

/* A text of NULL: absent. */
static inline void weir__check_text(weir_bytes found, const char *expected, const char *file, int line) {
    weir_bytes wanted = expected == NULL ? weir_absent() : weir_text(expected);
    if (weir_equal(found, wanted)) return;
    fprintf(stderr, "%s:%d: found %.*s\n  expected %s\n", file, line, found.data == NULL ? 8 : (int)found.len,
            found.data == NULL ? "(absent)" : (const char *)found.data, expected == NULL ? "(absent)" : expected);
    exit(1);
}

static inline weir_bytes weir__test_text(const char *text) { return text == NULL ? weir_absent() : weir_text(text); }

/* Calls configure: what it refused with, absent if it did not. */
static inline weir_bytes weir_test_configure(weir_configure configure, const char *config) {
    weir__names_result result = weir__run_configure(configure, weir_text(config));
    if (result.is_err) return weir_slice(result.u.err.data, result.u.err.len);
    weir__test_routes = result.u.ok;
    return weir_absent();
}

static inline weir_batch weir__test_batch(const weir_test_message *messages, size_t len) {
    static weir__builder keys, values, names, attribute_values;
    static weir_buffer times, rows;
    weir_batch batch;
    memset(&batch, 0, sizeof batch);
    weir__reset(&keys), weir__reset(&values), weir__reset(&names), weir__reset(&attribute_values);
    times.len = rows.len = 0;
    for (size_t i = 0; i < len; i++) {
        weir__push(&keys, weir__test_text(messages[i].key));
        weir__push(&values, weir__test_text(messages[i].value));
        weir_put(&times, &messages[i].event_time_ms, sizeof(int64_t));
        if (messages[i].attribute_name == NULL) continue;
        weir__put_u32(&rows, i);
        weir__push(&names, weir_text(messages[i].attribute_name));
        weir__push(&attribute_values, weir__test_text(messages[i].attribute_value));
    }
    batch.keys = weir__finish(&keys), batch.values = weir__finish(&values);
    batch.event_times.data = (int64_t *)(void *)times.data, batch.event_times.len = len;
    batch.attributes.rows.data = (uint32_t *)(void *)rows.data, batch.attributes.rows.len = rows.len / 4;
    batch.attributes.names = weir__finish(&names), batch.attributes.values = weir__finish(&attribute_values);
    return batch;
}

/* Hands messages in as one batch; the number of rows that came out. */
static inline size_t weir_test_transform(weir_transform transform, const weir_test_message *messages, size_t len) {
    static weir_batch batch;
    batch = weir__test_batch(messages, len);
    weir__test_output = weir__run_transform(transform, &batch);
    weir__test_rows_in = len;
    return weir__test_output.batch.event_times.len;
}

static inline weir_bytes weir_test_value(size_t row) { return weir__get(&weir__test_output.batch.values, row); }
static inline weir_bytes weir_test_key(size_t row) { return weir__get(&weir__test_output.batch.keys, row); }
static inline int64_t weir_test_event_time_ms(size_t row) { return weir__test_output.batch.event_times.data[row]; }

/* The message that a row was made of, by its place. */
static inline size_t weir_test_origin(size_t row) {
    return weir__test_output.origins.len == 0 ? row : weir__test_output.origins.data[row];
}

/* The name of a row's route; absent: the main output. */
static inline weir_bytes weir_test_route(size_t row) {
    uint8_t route = weir__test_output.routes.len == 0 ? 0 : weir__test_output.routes.data[row];
    if (route == 0) return weir_absent();
    WEIR_CHECK(route <= weir__test_routes.len);
    return weir_slice(weir__test_routes.data[route - 1].data, weir__test_routes.data[route - 1].len);
}

/* A row's attribute. */
static inline weir_bytes weir_test_attribute(size_t row, const char *name) {
    size_t next = 0;
    weir_message message = weir__message(&weir__test_output.batch, row, &next);
    return weir_attribute(&message, name);
}

/* Why a message was rejected, by its place among those handed in; absent if it was not. */
static inline weir_bytes weir_test_rejected(size_t message) {
    for (size_t i = 0; i < weir__test_output.rejected.rows.len; i++)
        if (weir__test_output.rejected.rows.data[i] == message) return weir__get(&weir__test_output.rejected.reasons, i);
    return weir_absent();
}

/* ---- Aggregators ---- */

/* Keeps a column, whose bytes are the guest's own buffers. */
static inline weir__column weir__test_keep(const weir__column *column, size_t rows, weir__builder *into) {
    weir__reset(into);
    for (size_t row = 0; row < rows; row++) weir__push(into, weir__get(column, row));
    return weir__finish(into);
}

static inline void weir__test_emit(const weir_aggregator *aggregator, weir__column accumulator) {
    static const int64_t start = 0, end = 60000;
    static const uint32_t firings = 0;
    static const uint8_t timing = 1;
    static weir__panes panes;
    memset(&panes, 0, sizeof panes);
    panes.accumulators = accumulator;
    panes.starts.data = (int64_t *)(uintptr_t)&start, panes.ends.data = (int64_t *)(uintptr_t)&end;
    panes.firings.data = (uint32_t *)(uintptr_t)&firings, panes.timings.data = (uint8_t *)(uintptr_t)&timing;
    panes.starts.len = panes.ends.len = panes.firings.len = panes.timings.len = 1;
    weir__test_output = weir__run_emit(aggregator, &panes);
}

static inline weir__column weir__test_accumulate(const weir_aggregator *aggregator, const weir_test_message *messages, size_t len, weir__builder *into) {
    static weir_buffer rows;
    static weir_batch batch;
    uint32_t end = (uint32_t)len;
    weir__groups groups = {{NULL, len}, {&end, 1}};
    rows.len = 0;
    for (size_t i = 0; i < len; i++) weir__put_u32(&rows, i);
    groups.rows.data = (uint32_t *)(void *)rows.data;
    batch = weir__test_batch(messages, len);
    weir__test_accumulated = weir__run_accumulate(aggregator, &batch, &groups);
    return weir__test_keep(&weir__test_accumulated.fragments, 1, into);
}

/* Hands messages in as one window of one key and fires it: once with all in one batch, and then with each in a batch of its own,
 * merged one by one and all at once. All must give the same row. The number of rows that came out. */
static inline size_t weir_test_aggregate(const weir_aggregator *aggregator, const weir_test_message *messages, size_t len) {
    static weir__builder whole, piece, pieces, sum, expected, reasons;
    static weir_buffer rejected;
    weir__column column = weir__test_accumulate(aggregator, messages, len, &whole);
    weir__rejected faults = weir__test_accumulated.rejected;
    weir__reset(&reasons), rejected.len = 0;
    for (size_t i = 0; i < faults.rows.len; i++) {
        weir__put_u32(&rejected, faults.rows.data[i]);
        weir__push(&reasons, weir__get(&faults.reasons, i));
    }
    memset(&weir__test_output, 0, sizeof weir__test_output);
    if (column.ends.len > 0) {
        weir__test_emit(aggregator, column);
        size_t rows = weir__test_output.batch.event_times.len;
        weir__test_keep(&weir__test_output.batch.values, rows, &expected);
        weir__reset(&pieces), weir__reset(&sum);
        for (size_t i = 0; i < len; i++) {
            weir__column one = weir__test_accumulate(aggregator, messages + i, 1, &piece);
            if (one.ends.len == 0) continue;
            weir__push(&pieces, weir__get(&one, 0));
            weir__builder both;
            memset(&both, 0, sizeof both);
            if (sum.rows > 0) weir__push(&both, weir__built(&sum, 0));
            weir__push(&both, weir__get(&one, 0));
            weir__column list = weir__finish(&both), merged;
            uint32_t count = (uint32_t)both.rows;
            weir__u32s ends = {&count, 1};
            WEIR_CHECK(weir__run_merge(aggregator, &list, &ends, &merged) == NULL);
            weir__test_keep(&merged, 1, &sum);
            free(both.bytes.data), free(both.ends.data), free(both.present.data);
        }
        uint32_t count = (uint32_t)pieces.rows;
        weir__u32s ends = {&count, 1};
        weir__column list = weir__finish(&pieces), merged;
        WEIR_CHECK(weir__run_merge(aggregator, &list, &ends, &merged) == NULL);
        merged = weir__test_keep(&merged, 1, &piece);
        const weir__column ways[] = {weir__finish(&sum), merged, column};
        for (size_t way = 0; way < 3; way++) {
            weir__test_emit(aggregator, ways[way]);
            WEIR_CHECK(weir__test_output.batch.event_times.len == rows);
            for (size_t row = 0; row < rows; row++) {
                bool merging_changes_nothing = weir_equal(weir_test_value(row), weir__built(&expected, row));
                WEIR_CHECK(merging_changes_nothing);
            }
        }
    }
    weir__test_output.rejected = weir__rejections(&rejected, &reasons);
    return weir__test_output.batch.event_times.len;
}

#endif
