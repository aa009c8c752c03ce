//! Orders in Zig: checks orders, masks e-mail addresses, and tells large orders from small ones.

const std = @import("std");
const weir = @import("weir");

const json = weir.json;
const names = [_][]const u8{ "id", "deleted", "email", "amount", "ts", "note" };

const Orders = struct {
    large_from: i64,

    pub const routes = [_][]const u8{"large"};

    pub fn init(config: struct { large_from: i64 = 10_000 }) weir.Error!Orders {
        if (config.large_from < 1) return weir.reject("config: large_from: expected a whole number of at least 1", .{});
        return .{ .large_from = config.large_from };
    }

    pub fn transform(self: *Orders, message: weir.Message, out: *weir.Emitter) weir.Error!void {
        const text = message.value orelse return out.forward();
        const id, const deleted, const address, const cents, const ts, const note_text = json.members(&names, text) orelse return weir.reject("not a JSON object", .{});
        if (json.int(i64, id) == null) return weir.reject("id: expected a whole number", .{});
        var row = out.row();
        row.key = id;
        const gone = json.given(deleted) and std.mem.eql(u8, deleted.?, "true");
        if (json.given(deleted) and !gone and !std.mem.eql(u8, deleted.?, "false")) return weir.reject("deleted: expected true or false", .{});
        if (gone) {
            row.value = null; // a tombstone
            return out.emitRow(row);
        }
        const email = json.inner(address) orelse "";
        const at = std.mem.indexOfScalar(u8, email, '@') orelse 0;
        if (at == 0 or email[0] == '\\') return weir.reject("email: expected an address", .{});
        const amount = json.int(i64, cents) orelse -1;
        if (amount < 0) return weir.reject("amount: expected a whole number of cents", .{});
        if (json.given(ts)) row.event_time_ms = json.int(i64, ts) orelse return weir.reject("ts: expected milliseconds", .{});
        const note = json.inner(note_text) orelse if (json.given(note_text)) return weir.reject("note: expected a text", .{}) else "";

        const large = amount >= self.large_from;
        const size = if (large) "large" else "small";
        row.route = @intFromBool(large);
        row.attributes = &.{.{ .name = "size", .value = size }};
        // Texts are copied with the escapes that they came with.
        for ([_][]const u8{ "{\"id\":", id.?, ",\"email\":\"", email[0..1], "***", email[at..], "\",\"amount\":", cents.?, ",\"size\":\"", size, "\",\"note\":\"", note, "\"}" }) |piece| {
            try out.write(piece);
        }
        try out.endRow(row);
    }
};

comptime {
    weir.exportTransform(Orders);
}

test "orders are masked and sized" {
    const results = try weir.testing.transform(Orders, "{\"large_from\":500}", &.{
        .{ .value = "{\"id\":1,\"email\":\"ann@example.com\",\"amount\":499,\"ts\":7,\"note\":\"é <b>\"}", .attributes = &.{.{ .name = "trace", .value = "t1" }} },
        .{ .value = "{\"id\":2,\"email\":\"bob@example.com\",\"amount\":500}" },
        .{ .value = "{\"id\":3,\"deleted\":true}" },
        .{},
    });
    try std.testing.expectEqualStrings("{\"id\":1,\"email\":\"a***@example.com\",\"amount\":499,\"size\":\"small\",\"note\":\"é <b>\"}", results.value(0).?);
    try std.testing.expectEqualStrings("1", results.key(0).?);
    try std.testing.expectEqual(7, results.eventTimeMs(0));
    try std.testing.expectEqualStrings("small", results.attribute(0, "size").?);
    try std.testing.expectEqualStrings("t1", results.attribute(0, "trace").?);
    try std.testing.expectEqual(null, results.route(0));
    try std.testing.expectEqualStrings("large", results.route(1).?);
    try std.testing.expectEqual(null, results.value(2));
    try std.testing.expectEqualStrings("3", results.key(2).?);
    try std.testing.expectEqual(null, results.value(3));
}

test "what is no order is rejected" {
    const results = try weir.testing.transform(Orders, "null", &.{
        .{ .value = "x" },           .{ .value = "[]" },       .{ .value = "{}" },
        .{ .value = "{\"id\":\"1\"}" }, .{ .value = "{\"id\":1}" }, .{ .value = "{\"id\":1,\"email\":\"a@b\",\"amount\":-1}" },
    });
    for ([_][]const u8{
        "not a JSON object",          "not a JSON object",          "id: expected a whole number",
        "id: expected a whole number", "email: expected an address", "amount: expected a whole number of cents",
    }, 0..) |reason, i| try std.testing.expectEqualStrings(reason, results.rejected(i).?);
}

test "a wrong limit is refused" {
    const refusal = weir.testing.refusal(Orders, "{\"large_from\":0}").?;
    try std.testing.expectEqualStrings("config: large_from: expected a whole number of at least 1", refusal);
}
