//! Collects what a guest makes of a batch, in the buffers that go back to the host.

const std = @import("std");
const abi = @import("abi.zig");
const column = @import("column.zig");
const weir = @import("weir.zig");

const gpa = column.gpa;
const Error = column.Error;

/// A row to be emitted: `Emitter.row` makes one that is like the message at hand.
pub const Row = struct {
    key: ?[]const u8,
    value: ?[]const u8,
    event_time_ms: i64,
    /// 0 is the main output, n the n-th of `routes`.
    route: u8 = 0,
    /// Leave out the message's own attributes.
    without_attributes: bool = false,
    /// In place of those of the same name.
    attributes: []const weir.Attribute = &.{},
};

/// Takes what becomes of the message at hand.
pub const Emitter = struct {
    input: *const abi.Batch = undefined,
    message: *const weir.Message = undefined,
    /// Rows that were forwarded and not copied yet; they follow all rows below.
    run_from: usize = 0,
    run_to: usize = 0,
    keys: column.Builder = .{},
    values: column.Builder = .{},
    event_times: std.ArrayList(i64) = .empty,
    attribute_rows: std.ArrayList(u32) = .empty,
    attribute_names: column.Builder = .{},
    attribute_values: column.Builder = .{},
    origins: std.ArrayList(u32) = .empty,
    /// Empty as long as all rows are main.
    routes: std.ArrayList(u8) = .empty,
    rejected_rows: std.ArrayList(u32) = .empty,
    reasons: column.Builder = .{},

    /// Emits a row with this value; key, event time and attributes are the message's.
    pub fn emit(self: *Emitter, value: []const u8) Error!void {
        var changed = self.row();
        changed.value = value;
        try self.emitRow(changed);
    }

    /// The same piece by piece, written into the output's buffer: any number of `write` and `print`, then `end` or `endRow`.
    pub fn write(self: *Emitter, bytes: []const u8) Error!void {
        try self.flush();
        try self.values.bytes.write(bytes);
    }

    /// Like `write`, formatted.
    pub fn print(self: *Emitter, comptime format: []const u8, values: anytype) Error!void {
        try self.flush();
        try self.values.bytes.print(format, values);
    }

    /// Emits what was written.
    pub fn end(self: *Emitter) Error!void {
        try self.endRow(self.row());
    }

    /// Emits what was written, with everything else as in the row.
    pub fn endRow(self: *Emitter, changed: Row) Error!void {
        try self.flush();
        try self.values.endRow();
        try self.finishRow(changed);
    }

    /// Passes the message on unchanged. An aggregator passes on its accumulator as it was written down.
    pub fn forward(self: *Emitter) Error!void {
        const at = self.message.row;
        if (self.run_from == self.run_to or self.run_to != at) {
            try self.flush();
            self.run_from = at;
        }
        self.run_to = at + 1;
    }

    /// The same, to a route.
    pub fn forwardTo(self: *Emitter, route: u8) Error!void {
        if (route == 0) return self.forward();
        var changed = self.row();
        changed.route = route;
        try self.emitRow(changed);
    }

    /// A row like the message at hand, to be changed and emitted.
    pub fn row(self: *const Emitter) Row {
        return .{ .key = self.message.key, .value = self.message.value, .event_time_ms = self.message.event_time_ms };
    }

    pub fn emitRow(self: *Emitter, changed: Row) Error!void {
        try self.flush();
        self.values.undoRow();
        try self.values.push(changed.value);
        try self.finishRow(changed);
    }

    fn finishRow(self: *Emitter, changed: Row) Error!void {
        try self.keys.push(changed.key);
        for (changed.attributes) |attribute| try self.putAttribute(attribute);
        const kept = if (changed.without_attributes) 0 else self.message.attributesLen();
        for (0..kept) |i| {
            const own = self.message.attributeAt(i);
            for (changed.attributes) |attribute| {
                if (std.mem.eql(u8, attribute.name, own.name)) break;
            } else try self.putAttribute(own);
        }
        try self.put(changed.event_time_ms, self.message.row, changed.route);
    }

    fn putAttribute(self: *Emitter, attribute: weir.Attribute) Error!void {
        try self.attribute_rows.append(gpa, @intCast(self.origins.items.len));
        try self.attribute_names.push(attribute.name);
        try self.attribute_values.push(attribute.value);
    }

    fn put(self: *Emitter, event_time_ms: i64, origin: u32, route: u8) Error!void {
        if (route != 0 or self.routes.items.len > 0) {
            try self.routes.appendNTimes(gpa, 0, self.origins.items.len - self.routes.items.len);
            try self.routes.append(gpa, route);
        }
        try self.event_times.append(gpa, event_time_ms);
        try self.origins.append(gpa, origin);
    }

    /// Copies the rows that were only forwarded so far.
    fn flush(self: *Emitter) Error!void {
        const from, const to = .{ self.run_from, self.run_to };
        if (from == to) return;
        try self.keys.pushRows(&self.input.keys, from, to);
        try self.values.pushRows(&self.input.values, from, to);
        var next: usize = 0;
        for (from..to) |at| {
            if (self.input.attributes.rows.len > 0) {
                const message = messageAt(self.input, at, &next);
                for (0..message.attributesLen()) |i| try self.putAttribute(message.attributeAt(i));
            }
            try self.put(self.input.event_times.slice()[at], @intCast(at), 0);
        }
        self.run_from = 0;
        self.run_to = 0;
    }

    pub fn begin(self: *Emitter, input: *const abi.Batch) void {
        inline for (.{ &self.keys, &self.values, &self.attribute_names, &self.attribute_values, &self.reasons }) |builder| builder.reset();
        inline for (.{ &self.event_times, &self.attribute_rows, &self.origins, &self.routes, &self.rejected_rows }) |list| list.clearRetainingCapacity();
        self.run_from = 0;
        self.run_to = 0;
        self.input = input;
    }

    /// Undoes what the message at hand emitted, and rejects it.
    pub fn reject(self: *Emitter, reason: []const u8) Error!void {
        const at = self.message.row;
        if (self.run_from < self.run_to and self.run_to == at + 1) self.run_to = at;
        // Only the message at hand emits with its own number, so its rows are the last ones.
        var kept = self.origins.items.len;
        while (kept > 0 and self.origins.items[kept - 1] == at) kept -= 1;
        self.keys.truncate(kept);
        self.values.truncate(kept);
        self.values.undoRow();
        self.event_times.shrinkRetainingCapacity(kept);
        self.origins.shrinkRetainingCapacity(kept);
        self.routes.shrinkRetainingCapacity(@min(kept, self.routes.items.len));
        var attributes = self.attribute_rows.items.len;
        while (attributes > 0 and self.attribute_rows.items[attributes - 1] >= kept) attributes -= 1;
        self.attribute_rows.shrinkRetainingCapacity(attributes);
        self.attribute_names.truncate(attributes);
        self.attribute_values.truncate(attributes);
        try self.rejected_rows.append(gpa, at);
        try self.reasons.push(reason);
    }

    pub fn finish(self: *Emitter) Error!abi.Output {
        const forwarded = self.origins.items.len == 0 and self.run_from == 0 and self.run_to == self.input.event_times.len;
        // All was forwarded: the input goes back as it is.
        if (forwarded and self.rejected_rows.items.len == 0) return .{ .batch = self.input.* };
        try self.flush();
        return .{
            .batch = .{
                .keys = self.keys.finish(),
                .values = self.values.finish(),
                .event_times = .of(self.event_times.items),
                .attributes = .{
                    .rows = .of(self.attribute_rows.items),
                    .names = self.attribute_names.finish(),
                    .values = self.attribute_values.finish(),
                },
                .received_ms = self.input.received_ms,
            },
            .origins = .of(self.origins.items),
            .routes = .of(self.routes.items),
            .rejected = .{ .rows = .of(self.rejected_rows.items), .reasons = self.reasons.finish() },
        };
    }
};

/// The message of a row. `next` is the first attribute that may be its own: 0 at first.
pub fn messageAt(batch: *const abi.Batch, row: usize, next: *usize) weir.Message {
    const rows = batch.attributes.rows.slice();
    while (next.* < rows.len and rows[next.*] < row) next.* += 1;
    const from = next.*;
    while (next.* < rows.len and rows[next.*] == row) next.* += 1;
    return .{
        .key = batch.keys.get(row),
        .value = batch.values.get(row),
        .event_time_ms = batch.event_times.slice()[row],
        .received_ms = batch.received_ms,
        .row = @intCast(row),
        .batch = batch,
        .attributes_from = from,
        .attributes_to = next.*,
    };
}
