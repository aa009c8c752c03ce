//! Write user-defined functions for Weir in Zig: contract weir:udf@1.1.0, SDK 1.1.0.
//!
//! A transform is a struct with `init` and `transform`, an aggregator one with `init`, `add`, `encode`, `merge` and `emit`;
//! `exportTransform` and `exportAggregator` make a module of it. README.md beside this file shows both. `testing` runs them natively.
//!
//! Buffers are used again from batch to batch: nothing is allocated for a message, and a batch that is forwarded as a whole
//! goes back without being copied.

const std = @import("std");
const builtin = @import("builtin");
const abi = @import("abi.zig");
const column = @import("column.zig");
const runner = @import("run.zig");

pub const testing = @import("testing.zig");
/// Looks up members of a JSON object in place.
pub const json = @import("json.zig");
pub const Emitter = @import("emitter.zig").Emitter;
pub const Row = @import("emitter.zig").Row;

/// Bytes that grow: what `encode` and `migrate` write to.
pub const Buffer = column.Bytes;

/// What a message or a configuration can be refused with: see `reject`.
pub const Error = error{ Rejected, OutOfMemory };

/// For buffers that outlive a message.
pub const allocator = column.gpa;

/// An attribute: the name is UTF-8; an absent value is not an empty one.
pub const Attribute = struct { name: []const u8, value: ?[]const u8 };

/// One message: a view, valid during the call that it is handed to.
pub const Message = struct {
    /// Null: there is none.
    key: ?[]const u8,
    /// Null: a tombstone, which is not the same as empty.
    value: ?[]const u8,
    /// Milliseconds since the Unix epoch.
    event_time_ms: i64,
    /// When the host received the message. The only clock there is.
    received_ms: i64,
    row: u32,
    batch: *const abi.Batch,
    attributes_from: usize,
    attributes_to: usize,

    pub fn attributesLen(self: Message) usize {
        return self.attributes_to - self.attributes_from;
    }

    pub fn attributeAt(self: Message, i: usize) Attribute {
        const all = &self.batch.attributes;
        return .{ .name = all.names.get(self.attributes_from + i) orelse "", .value = all.values.get(self.attributes_from + i) };
    }

    /// The value of the first attribute of this name.
    pub fn attribute(self: Message, name: []const u8) ?[]const u8 {
        for (0..self.attributesLen()) |i| {
            const found = self.attributeAt(i);
            if (std.mem.eql(u8, found.name, name)) return found.value;
        }
        return null;
    }
};

/// Why a window fires.
pub const Timing = enum(u8) { early, on_time, late };

/// A window that fires.
pub const Pane = struct {
    key: ?[]const u8,
    start_ms: i64,
    /// The first millisecond that is not in it.
    end_ms: i64,
    /// How often it has fired before.
    firings: u32,
    timing: Timing,
    received_ms: i64,
};

var reason_text: [1000]u8 = undefined;
var reason_len: usize = 0;

/// The reason of the last `reject`.
pub fn lastReason() []const u8 {
    return reason_text[0..reason_len];
}

/// Refuses a message, a pane, a configuration or state with a reason: `return weir.reject("id: expected a number", .{})`.
pub fn reject(comptime format: []const u8, values: anytype) Error {
    const text = std.fmt.bufPrint(&reason_text, format, values) catch reason_text[0..];
    reason_len = text.len;
    return error.Rejected;
}

var scratch_arena: std.heap.ArenaAllocator = .init(column.gpa);

/// Memory that is free again at the next message.
pub fn scratch() std.mem.Allocator {
    return scratch_arena.allocator();
}

/// Takes back what came from `scratch`.
pub fn resetScratch() void {
    _ = scratch_arena.reset(.retain_capacity);
}

/// Reads JSON into a type; null if the text is something else. Members that the type does not have are left out.
pub fn parse(comptime T: type, text: []const u8) ?T {
    return std.json.parseFromSliceLeaky(T, scratch(), text, .{ .ignore_unknown_fields = true }) catch null;
}

/// How much a line of the log matters.
pub const Level = enum(u32) { trace, debug, info, warn, err };

const host_log = struct {
    extern "weir:udf/log@1.1.0" fn log(level: u32, text: [*]const u8, len: usize) void;
};

/// Writes a line to the host's log. A module that calls this runs only in a step with `grants: [log]`.
pub fn log(level: Level, line: []const u8) void {
    if (comptime builtin.cpu.arch.isWasm()) {
        host_log.log(@intFromEnum(level), line.ptr, line.len);
    } else {
        std.debug.print("{s}: {s}\n", .{ @tagName(level), line });
    }
}

/// Makes a module of a transform. To be called once, in a `comptime` block of the root file.
///
///     pub const routes = [_][]const u8{"large"};      // optional; numbered from 1, 0 is the main output
///     pub fn init(config: Config) weir.Error!Self     // Config: a struct of yours, read from JSON
///     pub fn transform(self: *Self, message: weir.Message, out: *weir.Emitter) weir.Error!void
pub fn exportTransform(comptime T: type) void {
    const Exports = struct {
        var slot: ?T = null;
        var result: abi.Result(abi.Output) = undefined;

        fn configure(ptr: [*]const u8, len: usize) callconv(.c) *const abi.Result(abi.List(abi.List(u8))) {
            return runner.configure(T, &slot, ptr[0..len]);
        }
        fn transform(input: *const abi.Batch) callconv(.c) *const abi.Result(abi.Output) {
            result = runner.answer(abi.Output, runner.transform(T, &slot, input));
            return &result;
        }
    };
    exportShared(&Exports.configure);
    @export(&Exports.transform, .{ .name = "transform" });
    @export(&abi.postReturn, .{ .name = "cabi_post_transform" });
}

/// Makes a module of an aggregator. To be called once, in a `comptime` block of the root file.
///
///     pub const routes, pub fn init                    // as for transforms
///     pub const Accumulator = struct { ... };          // `.{}` is one without messages
///     pub const state_version: u32 = 1;                // optional; raise it with every change of `encode`
///     pub fn add(self: *Self, accumulator: *Accumulator, message: weir.Message) weir.Error!void
///     pub fn encode(self: *Self, accumulator: *const Accumulator, out: *weir.Buffer) weir.Error!void
///     pub fn merge(self: *Self, accumulator: *Accumulator, encoded: []const u8) weir.Error!void
///     pub fn emit(self: *Self, pane: weir.Pane, accumulator: *Accumulator, out: *weir.Emitter) weir.Error!void
///     pub fn migrate(self: *Self, version: u32, encoded: []const u8, out: *weir.Buffer) weir.Error!void   // optional
///
/// After an error of `add` the accumulator must be as before; `merge` must be associative; a row of `emit` has the window's key, and its
/// last millisecond as event time, unless it is given others.
pub fn exportAggregator(comptime T: type) void {
    const Exports = struct {
        var slot: ?T = null;
        var accumulated: abi.Result(abi.Accumulated) = undefined;
        var columns: abi.Result(abi.Column) = undefined;
        var result: abi.Result(abi.Output) = undefined;

        fn configure(ptr: [*]const u8, len: usize) callconv(.c) *const abi.Result(abi.List(abi.List(u8))) {
            return runner.configure(T, &slot, ptr[0..len]);
        }
        fn accumulate(input: *const abi.Grouped) callconv(.c) *const abi.Result(abi.Accumulated) {
            accumulated = runner.answer(abi.Accumulated, runner.accumulate(T, &slot, &input.batch, &input.groups));
            return &accumulated;
        }
        fn merge(bytes: usize, bytes_len: usize, ends: usize, ends_len: usize, present: usize, present_len: usize, lists: usize, lists_len: usize) callconv(.c) *const abi.Result(abi.Column) {
            const fragments: abi.Column = .at(bytes, bytes_len, ends, ends_len, present, present_len);
            columns = runner.answer(abi.Column, runner.merge(T, &slot, &fragments, abi.List(u32).at(lists, lists_len).slice()));
            return &columns;
        }
        fn emit(panes: *const abi.Panes) callconv(.c) *const abi.Result(abi.Output) {
            result = runner.answer(abi.Output, runner.emit(T, &slot, panes));
            return &result;
        }
        fn stateVersion() callconv(.c) u32 {
            return runner.stateVersion(T);
        }
        fn migrate(version: u32, bytes: usize, bytes_len: usize, ends: usize, ends_len: usize, present: usize, present_len: usize) callconv(.c) *const abi.Result(abi.Column) {
            const old: abi.Column = .at(bytes, bytes_len, ends, ends_len, present, present_len);
            columns = runner.answer(abi.Column, runner.migrate(T, &slot, version, &old));
            return &columns;
        }
    };
    exportShared(&Exports.configure);
    @export(&Exports.accumulate, .{ .name = "accumulate" });
    @export(&Exports.merge, .{ .name = "merge" });
    @export(&Exports.emit, .{ .name = "emit" });
    @export(&Exports.stateVersion, .{ .name = "state-version" });
    @export(&Exports.migrate, .{ .name = "migrate" });
    for ([_][]const u8{ "accumulate", "merge", "emit", "migrate" }) |name| {
        @export(&abi.postReturn, .{ .name = "cabi_post_" ++ name });
    }
}

fn exportShared(comptime configure: anytype) void {
    @export(configure, .{ .name = "configure" });
    @export(&abi.postReturn, .{ .name = "cabi_post_configure" });
    @export(&abi.realloc, .{ .name = "cabi_realloc" });
}

test {
    _ = @import("tests.zig");
    _ = json;
}
