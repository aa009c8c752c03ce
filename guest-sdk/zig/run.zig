//! Runs a guest over what the host hands in.

const std = @import("std");
const abi = @import("abi.zig");
const column = @import("column.zig");
const weir = @import("weir.zig");
const emitter = @import("emitter.zig");

const gpa = column.gpa;

/// An answer as it crosses the boundary.
pub fn answer(comptime T: type, result: weir.Error!T) abi.Result(T) {
    if (result) |ok| return .{ .is_err = 0, .u = .{ .ok = ok } } else |err| {
        if (err == error.OutOfMemory) @trap();
        return .{ .is_err = 1, .u = .{ .err = .of(weir.lastReason()) } };
    }
}

const Names = abi.List(abi.List(u8));

/// Makes the guest of its configuration. What `init` allocates lives as long as the instance.
pub fn configure(comptime T: type, slot: *?T, text: []const u8) *const abi.Result(Names) {
    const static = struct {
        var names: [254]abi.List(u8) = undefined;
        var result: abi.Result(Names) = undefined;
    };
    static.result = answer(Names, make(T, slot, text, &static.names));
    return &static.result;
}

fn make(comptime T: type, slot: *?T, text: []const u8, names: []abi.List(u8)) weir.Error!Names {
    const Config = @FieldType(std.meta.ArgsTuple(@TypeOf(T.init)), "0");
    const given = if (std.mem.eql(u8, text, "null")) "{}" else text;
    // Kept, since the configuration may point into it.
    const kept = try gpa.dupe(u8, given);
    const config = std.json.parseFromSliceLeaky(Config, gpa, kept, .{}) catch |err| return switch (err) {
        error.OutOfMemory => error.OutOfMemory,
        error.UnknownField => weir.reject("config: a setting that is not known", .{}),
        error.MissingField => weir.reject("config: a setting is missing", .{}),
        else => weir.reject("config: a setting of the wrong kind ({s})", .{@errorName(err)}),
    };
    slot.* = try T.init(config);
    const routes: []const []const u8 = if (@hasDecl(T, "routes")) &T.routes else &.{};
    for (routes, 0..) |name, i| names[i] = .of(name);
    return .of(names[0..routes.len]);
}

fn guest(comptime T: type, slot: *?T) weir.Error!*T {
    if (slot.*) |*ready| return ready;
    return weir.reject("the module was called before configure", .{});
}

pub fn transform(comptime T: type, slot: *?T, input: *const abi.Batch) weir.Error!abi.Output {
    const self = try guest(T, slot);
    const static = struct {
        var out: emitter.Emitter = .{};
    };
    const out = &static.out;
    out.begin(input);
    var next: usize = 0;
    for (0..input.event_times.len) |row| {
        const message = emitter.messageAt(input, row, &next);
        out.message = &message;
        weir.resetScratch();
        self.transform(message, out) catch |err| {
            if (err == error.OutOfMemory) return error.OutOfMemory;
            try out.reject(weir.lastReason());
            continue;
        };
        out.values.undoRow();
    }
    return out.finish();
}

const Fault = struct { row: u32, reason: usize };

fn before(_: void, left: Fault, right: Fault) bool {
    return left.row < right.row;
}

pub fn accumulate(comptime T: type, slot: *?T, input: *const abi.Batch, groups: *const abi.Groups) weir.Error!abi.Accumulated {
    const self = try guest(T, slot);
    const static = struct {
        var fragments: column.Builder = .{};
        var found: column.Builder = .{};
        var reasons: column.Builder = .{};
        var faults: std.ArrayList(Fault) = .empty;
        var rows: std.ArrayList(u32) = .empty;
    };
    inline for (.{ &static.fragments, &static.found, &static.reasons }) |builder| builder.reset();
    static.faults.clearRetainingCapacity();
    static.rows.clearRetainingCapacity();
    const attribute_rows = input.attributes.rows.slice();
    var start: usize = 0;
    for (groups.ends.slice()) |end| {
        var accumulator: T.Accumulator = .{};
        var took = false;
        for (groups.rows.slice()[start..end]) |row| {
            var next = std.sort.lowerBound(u32, attribute_rows, row, order);
            weir.resetScratch();
            if (self.add(&accumulator, emitter.messageAt(input, row, &next))) {
                took = true;
            } else |err| {
                if (err == error.OutOfMemory) return error.OutOfMemory;
                try static.faults.append(gpa, .{ .row = row, .reason = static.found.rows });
                try static.found.push(weir.lastReason());
            }
        }
        start = end;
        if (took) {
            try self.encode(&accumulator, &static.fragments.bytes);
            try static.fragments.endRow();
        } else try static.fragments.push(null);
    }
    // Rejected rows must ascend, whatever the order of the groups.
    std.sort.pdq(Fault, static.faults.items, {}, before);
    const reasons = static.found.finish();
    for (static.faults.items) |fault| {
        try static.rows.append(gpa, fault.row);
        try static.reasons.push(reasons.get(fault.reason));
    }
    return .{ .fragments = static.fragments.finish(), .rejected = .{ .rows = .of(static.rows.items), .reasons = static.reasons.finish() } };
}

fn order(wanted: u32, row: u32) std.math.Order {
    return std.math.order(wanted, row);
}

pub fn merge(comptime T: type, slot: *?T, fragments: *const abi.Column, ends: []const u32) weir.Error!abi.Column {
    const self = try guest(T, slot);
    const static = struct {
        var merged: column.Builder = .{};
    };
    static.merged.reset();
    var start: usize = 0;
    for (ends) |end| {
        if (end - start == 1) { // what is alone means the same as it is
            try static.merged.push(fragments.get(start));
        } else {
            var accumulator: T.Accumulator = .{};
            weir.resetScratch();
            for (start..end) |i| try self.merge(&accumulator, fragments.get(i) orelse "");
            try self.encode(&accumulator, &static.merged.bytes);
            try static.merged.endRow();
        }
        start = end;
    }
    return static.merged.finish();
}

pub fn emit(comptime T: type, slot: *?T, panes: *const abi.Panes) weir.Error!abi.Output {
    const self = try guest(T, slot);
    const static = struct {
        var out: emitter.Emitter = .{};
        var times: std.ArrayList(i64) = .empty;
        var input: abi.Batch = .{};
    };
    static.times.clearRetainingCapacity();
    for (panes.ends.slice()) |end| try static.times.append(gpa, end -| 1);
    static.input = .{ .keys = panes.keys, .values = panes.accumulators, .event_times = .of(static.times.items), .received_ms = panes.received_ms };
    const out = &static.out;
    out.begin(&static.input);
    var next: usize = 0;
    for (0..panes.ends.len) |row| {
        const message = emitter.messageAt(&static.input, row, &next);
        out.message = &message;
        weir.resetScratch();
        one(T, self, panes, row, message, out) catch |err| {
            if (err == error.OutOfMemory) return error.OutOfMemory;
            try out.reject(weir.lastReason());
            continue;
        };
        out.values.undoRow();
    }
    return out.finish();
}

fn one(comptime T: type, self: *T, panes: *const abi.Panes, row: usize, message: weir.Message, out: *emitter.Emitter) weir.Error!void {
    var accumulator: T.Accumulator = .{};
    try self.merge(&accumulator, message.value orelse "");
    const pane: weir.Pane = .{
        .key = message.key,
        .start_ms = panes.starts.slice()[row],
        .end_ms = panes.ends.slice()[row],
        .firings = panes.firings.slice()[row],
        .timing = switch (panes.timings.slice()[row]) {
            0 => .early,
            2 => .late,
            else => .on_time,
        },
        .received_ms = panes.received_ms,
    };
    try self.emit(pane, &accumulator, out);
}

pub fn stateVersion(comptime T: type) u32 {
    return if (@hasDecl(T, "state_version")) T.state_version else 1;
}

pub fn migrate(comptime T: type, slot: *?T, version: u32, old: *const abi.Column) weir.Error!abi.Column {
    const self = try guest(T, slot);
    const static = struct {
        var migrated: column.Builder = .{};
    };
    if (version == stateVersion(T)) return old.*;
    static.migrated.reset();
    if (!@hasDecl(T, "migrate")) {
        return weir.reject("accumulators of version {d} cannot be read: the module writes version {d}", .{ version, stateVersion(T) });
    } else {
        for (0..old.ends.len) |row| {
            try self.migrate(version, old.get(row) orelse "", &static.migrated.bytes);
            try static.migrated.endRow();
        }
        return static.migrated.finish();
    }
}
