//! Runs a guest natively, as the host would run the module, in `zig test`.

const std = @import("std");
const abi = @import("abi.zig");
const column = @import("column.zig");
const runner = @import("run.zig");
const weir = @import("weir.zig");
const messageAt = @import("emitter.zig").messageAt;

/// A message to be handed in.
pub const Input = struct {
    /// Null: a tombstone.
    value: ?[]const u8 = null,
    key: ?[]const u8 = null,
    event_time_ms: i64 = 0,
    attributes: []const weir.Attribute = &.{},
};

/// What came out; valid until the next run.
pub const Results = struct {
    output: abi.Output,
    routes: []const []const u8,
    /// What `add` rejected; `rejected` looks here, too.
    not_added: abi.Rejected = .{},

    pub fn len(self: Results) usize {
        return self.output.batch.event_times.len;
    }

    pub fn value(self: Results, row: usize) ?[]const u8 {
        return self.output.batch.values.get(row);
    }

    pub fn key(self: Results, row: usize) ?[]const u8 {
        return self.output.batch.keys.get(row);
    }

    pub fn eventTimeMs(self: Results, row: usize) i64 {
        return self.output.batch.event_times.slice()[row];
    }

    /// The message that a row was made of, by its place.
    pub fn origin(self: Results, row: usize) usize {
        return if (self.output.origins.len == 0) row else self.output.origins.slice()[row];
    }

    /// The name of a row's route; null: the main output.
    pub fn route(self: Results, row: usize) ?[]const u8 {
        const number = if (self.output.routes.len == 0) 0 else self.output.routes.slice()[row];
        return if (number == 0) null else self.routes[number - 1];
    }

    pub fn attribute(self: Results, row: usize, name: []const u8) ?[]const u8 {
        var next: usize = 0;
        return messageAt(&self.output.batch, row, &next).attribute(name);
    }

    /// Why a message was rejected, by its place; null if it was not.
    pub fn rejected(self: Results, message: usize) ?[]const u8 {
        for ([_]abi.Rejected{ self.output.rejected, self.not_added }) |some| {
            for (some.rows.slice(), 0..) |row, i| {
                if (row == message) return some.reasons.get(i);
            }
        }
        return null;
    }
};

fn routesOf(comptime T: type) []const []const u8 {
    return if (@hasDecl(T, "routes")) &T.routes else &.{};
}

const Batch = struct {
    keys: column.Builder = .{},
    values: column.Builder = .{},
    names: column.Builder = .{},
    attribute_values: column.Builder = .{},
    rows: std.ArrayList(u32) = .empty,
    times: std.ArrayList(i64) = .empty,

    fn of(messages: []const Input) !abi.Batch {
        var self: Batch = .{};
        for (messages, 0..) |message, row| {
            try self.keys.push(message.key);
            try self.values.push(message.value);
            try self.times.append(column.gpa, message.event_time_ms);
            for (message.attributes) |attribute| {
                try self.rows.append(column.gpa, @intCast(row));
                try self.names.push(attribute.name);
                try self.attribute_values.push(attribute.value);
            }
        }
        return .{
            .keys = self.keys.finish(),
            .values = self.values.finish(),
            .event_times = .of(self.times.items),
            .attributes = .{ .rows = .of(self.rows.items), .names = self.names.finish(), .values = self.attribute_values.finish() },
        };
    }
};

/// Why a configuration is refused; null if it is not.
pub fn refusal(comptime T: type, config: []const u8) ?[]const u8 {
    var slot: ?T = null;
    const result = runner.configure(T, &slot, config);
    return if (result.is_err == 0) null else result.u.err.slice();
}

fn configured(comptime T: type, config: []const u8) !T {
    var slot: ?T = null;
    const result = runner.configure(T, &slot, config);
    if (result.is_err != 0) {
        std.debug.print("the configuration was refused: {s}\n", .{result.u.err.slice()});
        return error.Refused;
    }
    return slot.?;
}

/// Hands messages to a transform, as one batch.
pub fn transform(comptime T: type, config: []const u8, messages: []const Input) !Results {
    var slot: ?T = try configured(T, config);
    const batch = try column.gpa.create(abi.Batch);
    batch.* = try Batch.of(messages);
    return .{ .output = try runner.transform(T, &slot, batch), .routes = routesOf(T) };
}

/// Hands messages to an aggregator as one window (the first minute of 1970) of the first message's key, and fires it: once with all in one
/// batch, and then with each in a batch of its own, merged at once and one by one. All must give the same rows.
pub fn aggregate(comptime T: type, config: []const u8, messages: []const Input) !Results {
    var slot: ?T = try configured(T, config);
    const key = if (messages.len == 0) null else messages[0].key;
    const whole, const not_added = try accumulate(T, &slot, messages);
    var results: Results = .{ .output = .{}, .routes = routesOf(T), .not_added = not_added };
    const all = whole orelse return results;
    var pieces: std.ArrayList([]const u8) = .empty;
    var sum: ?[]const u8 = null;
    for (messages) |message| {
        const piece, _ = try accumulate(T, &slot, &.{message});
        const one = piece orelse continue;
        try pieces.append(column.gpa, one);
        sum = if (sum) |before| try join(T, &slot, &.{ before, one }) else one;
    }
    const expected = try copyOf(try fire(T, &slot, key, all));
    for ([_][]const u8{ try join(T, &slot, pieces.items), sum.? }) |other| {
        const found = try fire(T, &slot, key, other);
        try std.testing.expectEqual(expected.len, found.batch.event_times.len);
        for (expected, 0..) |value, row| try std.testing.expectEqualDeep(value, found.batch.values.get(row));
    }
    results.output = try fire(T, &slot, key, all);
    return results;
}

fn accumulate(comptime T: type, slot: *?T, messages: []const Input) !struct { ?[]const u8, abi.Rejected } {
    const batch = try Batch.of(messages);
    const rows = try column.gpa.alloc(u32, messages.len);
    for (rows, 0..) |*row, i| row.* = @intCast(i);
    const ends = [_]u32{@intCast(messages.len)};
    const done = try runner.accumulate(T, slot, &batch, &.{ .rows = .of(rows), .ends = .of(&ends) });
    const fragment = if (done.fragments.get(0)) |bytes| try column.gpa.dupe(u8, bytes) else null;
    var reasons: column.Builder = .{};
    for (0..done.rejected.rows.len) |i| try reasons.push(done.rejected.reasons.get(i));
    const rejected_rows = try column.gpa.dupe(u32, done.rejected.rows.slice());
    return .{ fragment, .{ .rows = .of(rejected_rows), .reasons = reasons.finish() } };
}

fn join(comptime T: type, slot: *?T, pieces: []const []const u8) ![]const u8 {
    var list: column.Builder = .{};
    for (pieces) |piece| try list.push(piece);
    const merged = try runner.merge(T, slot, &list.finish(), &.{@intCast(pieces.len)});
    return column.gpa.dupe(u8, merged.get(0) orelse "");
}

fn fire(comptime T: type, slot: *?T, key: ?[]const u8, accumulator: []const u8) !abi.Output {
    var keys: column.Builder = .{};
    var accumulators: column.Builder = .{};
    try keys.push(key);
    try accumulators.push(accumulator);
    const static = struct {
        const starts = [_]i64{0};
        const ends = [_]i64{60_000};
        const firings = [_]u32{0};
        const timings = [_]u8{1};
    };
    return runner.emit(T, slot, &.{
        .keys = keys.finish(),
        .starts = .of(&static.starts),
        .ends = .of(&static.ends),
        .accumulators = accumulators.finish(),
        .firings = .of(&static.firings),
        .timings = .of(&static.timings),
    });
}

fn copyOf(output: abi.Output) ![]?[]const u8 {
    const values = try column.gpa.alloc(?[]const u8, output.batch.event_times.len);
    for (values, 0..) |*value, row| value.* = if (output.batch.values.get(row)) |bytes| try column.gpa.dupe(u8, bytes) else null;
    return values;
}
