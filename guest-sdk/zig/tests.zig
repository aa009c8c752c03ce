//! The SDK's own tests: every mixture of commands gives the same rows as message by message.

const std = @import("std");
const weir = @import("weir.zig");

/// Does what the message says, command after command.
const Puppet = struct {
    pub const routes = [_][]const u8{ "left", "right" };

    pub fn init(_: struct {}) weir.Error!Puppet {
        return .{};
    }

    pub fn transform(_: *Puppet, message: weir.Message, out: *weir.Emitter) weir.Error!void {
        for (message.value orelse "f") |command| switch (command) {
            'f' => try out.forward(),
            'l' => try out.forwardTo(1),
            'e' => try out.emit("emitted"),
            'w' => {
                try out.write("wri");
                try out.print("t{s}", .{"ten"});
                try out.end();
            },
            'x' => try out.write("never ended"),
            't' => try out.emitRow(.{ .key = null, .value = null, .event_time_ms = 9, .without_attributes = true }),
            'r' => {
                var row = out.row();
                row.value = "right";
                row.route = 2;
                row.attributes = &.{.{ .name = "a", .value = null }};
                try out.emitRow(row);
            },
            else => return weir.reject("cannot {c}", .{command}),
        };
    }
};

test "every mixture of commands gives the same rows as message by message" {
    var random: std.Random.DefaultPrng = .init(7);
    const draw = random.random();
    for (0..300) |seed| {
        var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
        defer arena.deinit();
        const memory = arena.allocator();
        const commands = if (seed % 3 == 0) "fffffff!" else "fflrewtx!";
        const messages = try memory.alloc(weir.testing.Input, draw.uintLessThan(usize, 30));
        for (messages, 0..) |*message, i| {
            const text = try memory.alloc(u8, draw.uintLessThan(usize, 4));
            for (text) |*command| command.* = commands[draw.uintLessThan(usize, commands.len)];
            message.* = .{ .value = text, .event_time_ms = @intCast(i) };
            if (i % 3 == 0) message.key = try std.fmt.allocPrint(memory, "k{d}", .{i});
            if (i % 5 == 0) message.attributes = &.{ .{ .name = "a", .value = "1" }, .{ .name = "b", .value = "2" } };
        }
        const whole = try weir.testing.transform(Puppet, "null", messages);
        var kept: std.ArrayList([]const u8) = .empty;
        for (0..whole.len()) |row| try kept.append(memory, try shown(memory, whole, row, whole.origin(row)));
        const reasons = try memory.alloc(?[]const u8, messages.len);
        for (reasons, 0..) |*reason, i| reason.* = if (whole.rejected(i)) |text| try memory.dupe(u8, text) else null;
        var at: usize = 0;
        for (messages, 0..) |message, i| {
            const alone = try weir.testing.transform(Puppet, "null", &.{message});
            try std.testing.expectEqualDeep(alone.rejected(0), reasons[i]);
            for (0..alone.len()) |row| {
                try std.testing.expectEqualStrings(try shown(memory, alone, row, i), kept.items[at]);
                at += 1;
            }
        }
        try std.testing.expectEqual(kept.items.len, at);
    }
}

fn shown(memory: std.mem.Allocator, results: weir.testing.Results, row: usize, origin: usize) ![]const u8 {
    return std.fmt.allocPrint(memory, "{d} {?s} {?s} {d} {?s} {?s} {?s}", .{
        origin,               results.key(row),            results.value(row), results.eventTimeMs(row),
        results.route(row),   results.attribute(row, "a"), results.attribute(row, "b"),
    });
}

test "a configuration of the wrong kind is refused" {
    try std.testing.expectEqualStrings("config: a setting that is not known", weir.testing.refusal(Puppet, "{\"x\":1}").?);
    try std.testing.expectEqual(null, weir.testing.refusal(Puppet, "{}"));
}
