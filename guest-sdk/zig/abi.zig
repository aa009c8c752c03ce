//! What crosses the boundary: the records of udf.wit as the canonical ABI lays them out, and the memory that the host writes to.

const std = @import("std");
const gpa = @import("column.zig").gpa;

/// A list as it is passed: pointer and length.
pub fn List(comptime T: type) type {
    return extern struct {
        ptr: ?[*]T = null,
        len: usize = 0,

        const Self = @This();

        pub fn slice(self: Self) []T {
            return if (self.ptr) |ptr| ptr[0..self.len] else &.{};
        }

        pub fn of(items: []const T) Self {
            return .{ .ptr = if (items.len == 0) null else @constCast(items.ptr), .len = items.len };
        }

        pub fn at(address: usize, len: usize) Self {
            return .{ .ptr = if (len == 0) null else @ptrFromInt(address), .len = len };
        }
    };
}

/// Byte strings, any of which may be absent.
pub const Column = extern struct {
    bytes: List(u8) = .{},
    ends: List(u32) = .{},
    present: List(u8) = .{},

    pub fn at(bytes: usize, bytes_len: usize, ends: usize, ends_len: usize, present: usize, present_len: usize) Column {
        return .{ .bytes = .at(bytes, bytes_len), .ends = .at(ends, ends_len), .present = .at(present, present_len) };
    }

    /// A row; null if it is absent.
    pub fn get(self: *const Column, row: usize) ?[]const u8 {
        if (self.ends.len == 0) return null;
        if (self.present.len > 0 and (self.present.slice()[row / 8] >> @intCast(row % 8)) & 1 == 0) return null;
        const ends = self.ends.slice();
        const start = if (row == 0) 0 else ends[row - 1];
        return self.bytes.slice()[start..ends[row]];
    }
};

pub const Attributes = extern struct { rows: List(u32) = .{}, names: Column = .{}, values: Column = .{} };

pub const Batch = extern struct {
    keys: Column = .{},
    values: Column = .{},
    event_times: List(i64) = .{},
    attributes: Attributes = .{},
    received_ms: i64 = 0,
};

pub const Rejected = extern struct { rows: List(u32) = .{}, reasons: Column = .{} };

pub const Output = extern struct { batch: Batch = .{}, origins: List(u32) = .{}, routes: List(u8) = .{}, rejected: Rejected = .{} };

pub const Groups = extern struct { rows: List(u32) = .{}, ends: List(u32) = .{} };

/// The parameters of `accumulate`, which are too many to be passed one by one.
pub const Grouped = extern struct { batch: Batch, groups: Groups };

pub const Accumulated = extern struct { fragments: Column = .{}, rejected: Rejected = .{} };

pub const Panes = extern struct {
    keys: Column = .{},
    starts: List(i64) = .{},
    ends: List(i64) = .{},
    accumulators: Column = .{},
    firings: List(u32) = .{},
    timings: List(u8) = .{},
    received_ms: i64 = 0,
};

pub fn Result(comptime T: type) type {
    return extern struct { is_err: u8, u: extern union { ok: T, err: List(u8) } };
}

/// What the host hands in lies here until the answer has been read.
var arena: std.heap.ArenaAllocator = .init(gpa);

pub fn realloc(old: ?[*]u8, old_size: usize, alignment: usize, new_size: usize) callconv(.c) ?[*]u8 {
    _ = alignment;
    if (new_size == 0) return @ptrFromInt(8);
    const fresh = arena.allocator().alignedAlloc(u8, .@"8", new_size) catch @trap();
    if (old) |from| @memcpy(fresh[0..@min(old_size, new_size)], from[0..@min(old_size, new_size)]);
    return fresh.ptr;
}

pub fn postReturn(result: ?*anyopaque) callconv(.c) void {
    _ = result;
    _ = arena.reset(.retain_capacity);
}

comptime {
    if (@sizeOf(usize) == 4) {
        std.debug.assert(@sizeOf(Batch) == 120 and @sizeOf(Result(Output)) == 176 and @sizeOf(Panes) == 88);
    }
}
