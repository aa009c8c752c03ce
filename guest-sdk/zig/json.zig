//! Reads JSON text in place: for guests that look at some members of an object. Nothing is allocated, numbers stay text, and the whole text is
//! checked. It is several times faster than `std.json`, which `weir.parse` uses.

const std = @import("std");

const depth_max = 127;

/// The values of some members of an object as they stand; null: not there. The last one counts if there are several. Names with
/// escapes in the text are not recognized. Null if the text is not one JSON object.
pub fn members(comptime names: []const []const u8, text: []const u8) ?[names.len]?[]const u8 {
    var values: [names.len]?[]const u8 = @splat(null);
    var cursor: Cursor = .{ .text = text };
    cursor.space();
    if (!cursor.take('{')) return null;
    cursor.space();
    if (!cursor.take('}')) {
        while (true) {
            const name = cursor.name() orelse return null;
            const start = cursor.at;
            if (!cursor.value(1)) return null;
            inline for (names, 0..) |known, i| {
                if (std.mem.eql(u8, known, name)) values[i] = text[start..cursor.at];
            }
            cursor.space();
            if (cursor.take('}')) break;
            if (!cursor.take(',')) return null;
            cursor.space();
        }
    }
    cursor.space();
    return if (cursor.at == text.len) values else null;
}

/// A whole number; null for anything else.
pub fn int(comptime T: type, value: ?[]const u8) ?T {
    const text = value orelse return null;
    const digits = if (std.mem.startsWith(u8, text, "-")) text[1..] else text;
    if (digits.len == 0 or (digits[0] == '0' and digits.len > 1)) return null;
    for (digits) |digit| if (!std.ascii.isDigit(digit)) return null;
    return std.fmt.parseInt(T, text, 10) catch null;
}

/// What lies between the quotes of a string, escapes as they stand; null for other values.
pub fn inner(value: ?[]const u8) ?[]const u8 {
    const text = value orelse return null;
    return if (text.len >= 2 and text[0] == '"') text[1 .. text.len - 1] else null;
}

/// Whether a value is there and not `null`.
pub fn given(value: ?[]const u8) bool {
    return value != null and !std.mem.eql(u8, value.?, "null");
}

const Cursor = struct {
    text: []const u8,
    at: usize = 0,

    fn peek(self: *const Cursor) u8 {
        // No byte of a valid text is 0.
        return if (self.at < self.text.len) self.text[self.at] else 0;
    }

    fn take(self: *Cursor, byte: u8) bool {
        if (self.peek() != byte) return false;
        self.at += 1;
        return true;
    }

    fn space(self: *Cursor) void {
        while (switch (self.peek()) {
            ' ', '\n', '\r', '\t' => true,
            else => false,
        }) self.at += 1;
    }

    /// Past a member's name and colon.
    fn name(self: *Cursor) ?[]const u8 {
        const start = self.at + 1;
        if (!self.string()) return null;
        const found = self.text[start .. self.at - 1];
        self.space();
        if (!self.take(':')) return null;
        self.space();
        return found;
    }

    fn string(self: *Cursor) bool {
        if (!self.take('"')) return false;
        self.plain();
        while (self.at < self.text.len) {
            const byte = self.text[self.at];
            self.at += 1;
            switch (byte) {
                '"' => return true,
                0...0x1f => return false,
                '\\' => {
                    const escape = self.peek();
                    self.at += 1;
                    switch (escape) {
                        '"', '\\', '/', 'b', 'f', 'n', 'r', 't' => {},
                        'u' => for (0..4) |_| {
                            if (!std.ascii.isHex(self.peek())) return false;
                            self.at += 1;
                        },
                        else => return false,
                    }
                },
                else => {},
            }
        }
        return false;
    }

    /// Past bytes that stand in a string as they are, sixteen at a time.
    fn plain(self: *Cursor) void {
        const Bytes = @Vector(16, u8);
        while (self.at + 16 <= self.text.len) : (self.at += 16) {
            const bytes: Bytes = self.text[self.at..][0..16].*;
            const quote = bytes == @as(Bytes, @splat('"'));
            const slash = bytes == @as(Bytes, @splat('\\'));
            const control = bytes < @as(Bytes, @splat(0x20));
            if (@reduce(.Or, quote) or @reduce(.Or, slash) or @reduce(.Or, control)) return;
        }
    }

    fn digits(self: *Cursor) usize {
        const from = self.at;
        while (std.ascii.isDigit(self.peek())) self.at += 1;
        return self.at - from;
    }

    fn number(self: *Cursor) bool {
        _ = self.take('-');
        const zero = self.peek() == '0';
        const whole = self.digits();
        if (whole == 0 or (zero and whole > 1)) return false;
        if (self.take('.') and self.digits() == 0) return false;
        if (self.peek() | 0x20 == 'e') {
            self.at += 1;
            _ = self.take('+') or self.take('-');
            if (self.digits() == 0) return false;
        }
        return true;
    }

    fn word(self: *Cursor, comptime text: []const u8) bool {
        if (!std.mem.startsWith(u8, self.text[self.at..], text)) return false;
        self.at += text.len;
        return true;
    }

    /// Past a value of any kind.
    fn value(self: *Cursor, depth: usize) bool {
        return switch (self.peek()) {
            '"' => self.string(),
            't' => self.word("true"),
            'f' => self.word("false"),
            'n' => self.word("null"),
            '{', '[' => |open| self.container(open, depth),
            else => self.number(),
        };
    }

    fn container(self: *Cursor, open: u8, depth: usize) bool {
        const close = open + 2; // of both kinds
        if (depth >= depth_max) return false;
        self.at += 1;
        self.space();
        if (self.take(close)) return true;
        while (true) {
            if (open == '{' and self.name() == null) return false;
            if (!self.value(depth + 1)) return false;
            self.space();
            if (self.take(close)) return true;
            if (!self.take(',')) return false;
            self.space();
        }
    }
};

test "what is JSON is told from what is not" {
    const names = [_][]const u8{ "a", "b" };
    const found = members(&names, " {\"b\":[1,{\"x\":\"\\u00e9\\n\"}],\"a\":\"a long text with \\\"quotes\\\" in it\",\"c\":-1.5e+3 ,\"a\":2} ").?;
    try std.testing.expectEqualStrings("2", found[0].?);
    try std.testing.expectEqualStrings("[1,{\"x\":\"\\u00e9\\n\"}]", found[1].?);
    try std.testing.expectEqual(null, members(&names, "{}").?[0]);
    for ([_][]const u8{ "", "[]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":01}", "{\"a\":\"\\x\"}", "{\"a\":\"\n\"}", "{\"a\":1} x", "{\"a\":tru}", "{\"a\":1.}", "{a:1}" }) |bad| {
        try std.testing.expectEqual(null, members(&names, bad));
    }
    const open: [200]u8 = @splat('[');
    const close: [200]u8 = @splat(']');
    try std.testing.expectEqual(null, members(&names, "{\"a\":" ++ open ++ close ++ "}"));
}

test "whole numbers are read exactly or not at all" {
    try std.testing.expectEqual(-9223372036854775808, int(i64, "-9223372036854775808").?);
    for ([_]?[]const u8{ null, "", "-", "01", "1.0", "9223372036854775808", "+1", "1_0", "\"1\"" }) |bad| try std.testing.expectEqual(null, int(i64, bad));
}
