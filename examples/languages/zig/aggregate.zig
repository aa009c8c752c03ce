//! Totals in Zig: how many messages of a key and window there are, and the sum of one of their fields.

const std = @import("std");
const weir = @import("weir");

const Totals = struct {
    field: []const u8,

    pub const Accumulator = struct { count: i64 = 0, sum: i64 = 0 };

    pub fn init(config: struct { field: []const u8 = "" }) weir.Error!Totals {
        if (config.field.len == 0) return weir.reject("config: field: name the field to sum up", .{});
        return .{ .field = config.field };
    }

    pub fn add(self: *Totals, total: *Accumulator, message: weir.Message) weir.Error!void {
        const value = weir.parse(std.json.Value, message.value orelse "") orelse .null;
        if (value != .object) return weir.reject("not a JSON object", .{});
        const number = value.object.get(self.field) orelse .null;
        if (number != .integer) return weir.reject("{s}: expected a whole number", .{self.field});
        total.count += 1;
        total.sum += number.integer;
    }

    pub fn encode(_: *Totals, total: *const Accumulator, out: *weir.Buffer) weir.Error!void {
        try out.writeInt(i64, total.count);
        try out.writeInt(i64, total.sum);
    }

    pub fn merge(_: *Totals, total: *Accumulator, encoded: []const u8) weir.Error!void {
        if (encoded.len != 16) return weir.reject("not a total", .{});
        total.count += std.mem.readInt(i64, encoded[0..8], .little);
        total.sum += std.mem.readInt(i64, encoded[8..16], .little);
    }

    pub fn emit(_: *Totals, _: weir.Pane, total: *Accumulator, out: *weir.Emitter) weir.Error!void {
        try out.print("{{\"count\":{d},\"sum\":{d}}}", .{ total.count, total.sum });
        try out.end();
    }
};

comptime {
    weir.exportAggregator(Totals);
}

test "messages are counted and summed up" {
    const results = try weir.testing.aggregate(Totals, "{\"field\":\"amount\"}", &.{
        .{ .value = "{\"amount\":5}", .key = "k" }, .{ .value = "{\"amount\":\"x\"}", .key = "k" }, .{ .value = "{\"amount\":-7}", .key = "k" },
        .{ .value = "{\"amount\":1}", .key = "k" }, .{ .key = "k" },
    });
    try std.testing.expectEqualStrings("{\"count\":3,\"sum\":-1}", results.value(0).?);
    try std.testing.expectEqualStrings("k", results.key(0).?);
    try std.testing.expectEqual(59_999, results.eventTimeMs(0));
    try std.testing.expectEqualStrings("amount: expected a whole number", results.rejected(1).?);
    try std.testing.expectEqualStrings("not a JSON object", results.rejected(4).?);
}

test "a field must be named" {
    try std.testing.expectEqualStrings("config: field: name the field to sum up", weir.testing.refusal(Totals, "null").?);
}
