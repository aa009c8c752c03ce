/* Orders in C: checks orders, masks e-mail addresses, and tells large orders from small ones. */
#include "weir_json.h"

/* The amount in cents from which an order is large. */
static int64_t large_from = 10000;
static uint8_t large;

static weir_error configure(weir_bytes config, weir_routes *routes) {
    static const char *const names[] = {"large_from"};
    weir_bytes value;
    large = weir_add_route(routes, "large");
    if (weir_equal(config, weir_text("null"))) return NULL;
    if (!weir_json_object(config, names, &value, 1)) return "config: expected an object";
    if (value.data != NULL && (!weir_json_int(value, &large_from) || large_from < 1))
        return "config: large_from: expected a whole number of at least 1";
    return NULL;
}

enum { ID, DELETED, EMAIL, AMOUNT, TS, NOTE, FIELDS };
static const char *const names[FIELDS] = {"id", "deleted", "email", "amount", "ts", "note"};

static bool given(weir_bytes value) { return value.data != NULL && !weir_equal(value, weir_text("null")); }

static weir_error transform(const weir_message *message, weir_emitter *out) {
    if (message->value.data == NULL) {
        weir_forward(out);
        return NULL;
    }
    weir_bytes in[FIELDS];
    if (!weir_json_object(message->value, names, in, FIELDS)) return "not a JSON object";
    weir_row row = weir_row_of(out);
    int64_t id, amount;
    if (!weir_json_int(in[ID], &id)) return "id: expected a whole number";
    row.key = in[ID];
    bool deleted = weir_equal(in[DELETED], weir_text("true"));
    if (given(in[DELETED]) && !deleted && !weir_equal(in[DELETED], weir_text("false"))) return "deleted: expected true or false";
    if (deleted) {
        row.value = weir_absent(); /* a tombstone */
        weir_emit_row(out, &row);
        return NULL;
    }
    weir_bytes email = weir_json_inner(in[EMAIL]), note = weir_json_inner(in[NOTE]);
    const uint8_t *at = email.len < 2 ? NULL : (const uint8_t *)memchr(email.data, '@', email.len);
    if (at == NULL || at == email.data || email.data[0] == '\\') return "email: expected an address";
    if (!weir_json_int(in[AMOUNT], &amount) || amount < 0) return "amount: expected a whole number of cents";
    if (given(in[TS]) && !weir_json_int(in[TS], &row.event_time_ms)) return "ts: expected milliseconds";
    if (given(in[NOTE]) && note.data == NULL) return "note: expected a text";

    weir_bytes size = weir_text(amount >= large_from ? "large" : "small");
    weir_attribute_pair attribute = {weir_text("size"), size};
    row.attributes = &attribute, row.attributes_len = 1;
    row.route = amount >= large_from ? large : 0;
    weir_write(out, "{\"id\":", 6);
    weir_write(out, in[ID].data, in[ID].len);
    weir_write(out, ",\"email\":\"", 10);
    weir_write(out, email.data, 1);
    weir_write(out, "***", 3);
    weir_write(out, at, (size_t)(email.data + email.len - at));
    weir_write(out, "\",\"amount\":", 11);
    weir_write(out, in[AMOUNT].data, in[AMOUNT].len);
    weir_write(out, ",\"size\":\"", 9);
    weir_write(out, size.data, size.len);
    weir_write(out, "\",\"note\":\"", 10);
    weir_write(out, note.data, note.len);
    weir_write(out, "\"}", 2);
    weir_end_row(out, &row);
    return NULL;
}

WEIR_TRANSFORM(configure, transform);
