/* Totals in C: how many messages of a key and window there are, and the sum of one of their fields. */
#include "weir_json.h"

static char field[256];

typedef struct total {
    int64_t count, sum;
} total;

static weir_error configure(weir_bytes config, weir_routes *routes) {
    static const char *const names[] = {"field"};
    weir_bytes value;
    (void)routes;
    bool object = weir_json_object(config, names, &value, 1);
    weir_bytes name = weir_json_inner(value);
    if (!object || name.len == 0 || name.len >= sizeof field) return "config: field: name the field to sum up";
    memcpy(field, name.data, name.len);
    return NULL;
}

static weir_error add(void *accumulator, const weir_message *message) {
    total *t = (total *)accumulator;
    const char *const names[] = {field};
    weir_bytes value;
    int64_t number;
    if (!weir_json_object(message->value, names, &value, 1)) return "not a JSON object";
    if (!weir_json_int(value, &number)) return weir_reason("%s: expected a whole number", field);
    t->count++;
    t->sum += number;
    return NULL;
}

static weir_error merge(void *accumulator, weir_bytes encoded) {
    total *t = (total *)accumulator, other;
    if (encoded.len != sizeof other) return "not a total";
    memcpy(&other, encoded.data, sizeof other);
    t->count += other.count;
    t->sum += other.sum;
    return NULL;
}

static weir_error emit(const weir_pane *pane, void *accumulator, weir_emitter *out) {
    const total *t = (const total *)accumulator;
    (void)pane;
    weir_print(out, "{\"count\":%lld,\"sum\":%lld}", (long long)t->count, (long long)t->sum);
    weir_end(out);
    return NULL;
}

/* Without `encode`, the bytes of the struct are what the host keeps. */
static const weir_aggregator totals = {sizeof(total), configure, add, NULL, merge, emit, NULL, 1, NULL};

WEIR_AGGREGATOR(totals);
