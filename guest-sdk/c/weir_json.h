/* Reads JSON text in place: enough for guests that look at some members of an object. Nothing is allocated, and numbers stay
 * text. For more, bring a JSON library of your own.
 *
 *     static const char *const names[] = {"id", "email"};
 *     weir_bytes values[2];
 *     if (!weir_json_object(message->value, names, values, 2)) return "not a JSON object"; */
#ifndef WEIR_JSON_H
#define WEIR_JSON_H

#include "weir_udf.h"

#define WEIR_JSON_DEPTH_MAX 127

typedef struct weir__json { const uint8_t *at, *end; } weir__json;

static inline int weir__json_peek(const weir__json *json) { return json->at < json->end ? *json->at : -1; }

static inline void weir__json_space(weir__json *json) {
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t')) json->at++;
}

static inline bool weir__json_word(weir__json *json, const char *word) {
    size_t len = strlen(word);
    if ((size_t)(json->end - json->at) < len || memcmp(json->at, word, len) != 0) return false;
    json->at += len;
    return true;
}

static inline bool weir__json_hex(int c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* Past bytes that stand in a string as they are, eight at a time: the lowest high bit that is set is that of the first byte
 * that is a quote, a backslash or a control character. */
static inline const uint8_t *weir__json_plain(const uint8_t *at, const uint8_t *end) {
    const uint64_t ones = 0x0101010101010101u, high = ones << 7;
    while (end - at >= 8) {
        uint64_t word, quote, slash;
        memcpy(&word, at, 8);
        quote = word ^ ones * '"', slash = word ^ ones * '\\';
        uint64_t found = (((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ones * 0x20) & ~word)) & high;
        if (found != 0) break;
        at += 8;
    }
    return at;
}

/* Past a string. */
static inline bool weir__json_string(weir__json *json) {
    if (weir__json_peek(json) != '"') return false;
    for (json->at = weir__json_plain(json->at + 1, json->end); json->at < json->end; json->at++) {
        if (*json->at == '"') {
            json->at++;
            return true;
        }
        if (*json->at < 0x20) return false;
        if (*json->at != '\\') continue;
        json->at++; /* what follows is looked at byte by byte: escapes come in company */
        int c = weir__json_peek(json);
        if (c == 'u') {
            for (int i = 0; i < 4; i++) {
                json->at++;
                if (!weir__json_hex(weir__json_peek(json))) return false;
            }
        } else if (c < 0 || strchr("\"\\/bfnrt", c) == NULL || c == 0) {
            return false;
        }
    }
    return false;
}

static inline size_t weir__json_digits(weir__json *json) {
    const uint8_t *from = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9') json->at++;
    return (size_t)(json->at - from);
}

static inline bool weir__json_number(weir__json *json) {
    if (weir__json_peek(json) == '-') json->at++;
    bool zero = weir__json_peek(json) == '0';
    size_t digits = weir__json_digits(json);
    if (digits == 0 || (zero && digits > 1)) return false;
    if (weir__json_peek(json) == '.') {
        json->at++;
        if (weir__json_digits(json) == 0) return false;
    }
    if (weir__json_peek(json) == 'e' || weir__json_peek(json) == 'E') {
        json->at++;
        if (weir__json_peek(json) == '+' || weir__json_peek(json) == '-') json->at++;
        if (weir__json_digits(json) == 0) return false;
    }
    return true;
}

/* Past a value of any kind. */
static inline bool weir__json_value(weir__json *json, int depth) {
    int c = weir__json_peek(json);
    if (c == '"') return weir__json_string(json);
    if (c == 't') return weir__json_word(json, "true");
    if (c == 'f') return weir__json_word(json, "false");
    if (c == 'n') return weir__json_word(json, "null");
    if (c != '{' && c != '[') return weir__json_number(json);
    if (depth >= WEIR_JSON_DEPTH_MAX) return false;
    int close = c == '{' ? '}' : ']';
    json->at++;
    weir__json_space(json);
    if (weir__json_peek(json) == close) {
        json->at++;
        return true;
    }
    for (;;) {
        if (c == '{') {
            if (!weir__json_string(json)) return false;
            weir__json_space(json);
            if (weir__json_peek(json) != ':') return false;
            json->at++;
            weir__json_space(json);
        }
        if (!weir__json_value(json, depth + 1)) return false;
        weir__json_space(json);
        int next = weir__json_peek(json);
        json->at++;
        if (next == close) return true;
        if (next != ',') return false;
        weir__json_space(json);
    }
}

/* Looks up members of an object by name: each value as it stands, absent if it is not there, the last of several. Names
 * with escapes in the text are not recognized. False if the text is not one JSON object. */
static inline bool weir_json_object(weir_bytes text, const char *const *names, weir_bytes *values, size_t len) {
    for (size_t i = 0; i < len; i++) values[i] = weir_absent();
    if (text.data == NULL) return false;
    weir__json json = {text.data, text.data + text.len};
    weir__json_space(&json);
    if (weir__json_peek(&json) != '{') return false;
    json.at++;
    weir__json_space(&json);
    bool more = weir__json_peek(&json) != '}';
    if (!more) json.at++;
    while (more) {
        const uint8_t *name = json.at + 1;
        if (!weir__json_string(&json)) return false;
        size_t name_len = (size_t)(json.at - name) - 1;
        weir__json_space(&json);
        if (weir__json_peek(&json) != ':') return false;
        json.at++;
        weir__json_space(&json);
        const uint8_t *value = json.at;
        if (!weir__json_value(&json, 1)) return false;
        for (size_t i = 0; i < len; i++)
            if (weir_equal(weir_slice(name, name_len), weir_text(names[i]))) values[i] = weir_slice(value, (size_t)(json.at - value));
        weir__json_space(&json);
        int next = weir__json_peek(&json);
        json.at++;
        if (next != ',' && next != '}') return false;
        more = next == ',';
        weir__json_space(&json);
    }
    weir__json_space(&json);
    return json.at == json.end;
}

/* A whole number that fits. False for anything else. */
static inline bool weir_json_int(weir_bytes value, int64_t *number) {
    uint64_t sum = 0;
    size_t i = value.len > 0 && value.data[0] == '-' ? 1 : 0;
    uint64_t most = i == 1 ? (uint64_t)1 << 63 : INT64_MAX;
    bool negative = i == 1;
    if (value.len == i || (value.data[i] == '0' && value.len > i + 1)) return false;
    for (; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9') return false;
        uint64_t digit = (uint64_t)(value.data[i] - '0');
        if (sum > (most - digit) / 10) return false;
        sum = sum * 10 + digit;
    }
    *number = negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return true;
}

/* What lies between the quotes of a string, escapes as they stand; absent for other values. */
static inline weir_bytes weir_json_inner(weir_bytes value) {
    if (value.len < 2 || value.data[0] != '"') return weir_absent();
    return weir_slice(value.data + 1, value.len - 2);
}

#endif
