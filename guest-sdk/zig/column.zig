//! Columns of byte strings that are built row by row, and the allocator of everything that is kept.

const std = @import("std");
const builtin = @import("builtin");
const abi = @import("abi.zig");

pub const gpa = if (builtin.cpu.arch.isWasm()) std.heap.wasm_allocator else std.heap.page_allocator;

pub const Error = error{OutOfMemory};

/// Bytes that grow.
pub const Bytes = struct {
    list: std.ArrayList(u8) = .empty,

    pub fn write(self: *Bytes, bytes: []const u8) Error!void {
        try self.list.appendSlice(gpa, bytes);
    }

    pub fn print(self: *Bytes, comptime format: []const u8, values: anytype) Error!void {
        try self.list.print(gpa, format, values);
    }

    /// A whole number in its bytes, the lowest first.
    pub fn writeInt(self: *Bytes, comptime T: type, value: T) Error!void {
        var bytes: [@sizeOf(T)]u8 = undefined;
        std.mem.writeInt(T, &bytes, value, .little);
        try self.write(&bytes);
    }
};

/// A column that grows. Ends stay empty while all rows are absent, `present` while none is.
pub const Builder = struct {
    bytes: Bytes = .{},
    ends: std.ArrayList(u32) = .empty,
    present: std.ArrayList(u8) = .empty,
    rows: usize = 0,

    pub fn reset(self: *Builder) void {
        self.bytes.list.clearRetainingCapacity();
        self.ends.clearRetainingCapacity();
        self.present.clearRetainingCapacity();
        self.rows = 0;
    }

    pub fn push(self: *Builder, row: ?[]const u8) Error!void {
        if (row) |bytes| {
            try self.bytes.write(bytes);
            return self.endRow();
        }
        if (self.ends.items.len > 0) {
            try self.mark(false, true);
            try self.ends.append(gpa, self.end());
        }
        self.rows += 1;
    }

    /// Ends a present row: all bytes since the last end are its.
    pub fn endRow(self: *Builder) Error!void {
        if (self.ends.items.len == 0 and self.rows > 0) {
            try self.ends.appendNTimes(gpa, 0, self.rows);
            try self.mark(true, false);
        } else if (self.present.items.len > 0) {
            try self.mark(true, false);
        }
        try self.ends.append(gpa, self.end());
        self.rows += 1;
    }

    /// Gives up bytes of a row that was not ended.
    pub fn undoRow(self: *Builder) void {
        self.bytes.list.shrinkRetainingCapacity(self.lastEnd());
    }

    /// Adds rows of a column, in one piece where nothing is absent.
    pub fn pushRows(self: *Builder, from: *const abi.Column, first: usize, last: usize) Error!void {
        if (first == last) return;
        const whole = from.ends.len > 0 and from.present.len == 0 and self.present.items.len == 0 and self.ends.items.len == self.rows;
        if (!whole) {
            for (first..last) |row| try self.push(from.get(row));
            return;
        }
        const ends = from.ends.slice();
        const start: u32 = if (first == 0) 0 else ends[first - 1];
        const base = self.end();
        try self.bytes.write(from.bytes.slice()[start..ends[last - 1]]);
        for (try self.ends.addManyAsSlice(gpa, last - first), ends[first..last]) |*to, at| to.* = at - start + base;
        self.rows += last - first;
    }

    pub fn truncate(self: *Builder, rows: usize) void {
        if (rows >= self.rows) return;
        self.rows = rows;
        if (self.ends.items.len > rows) self.ends.shrinkRetainingCapacity(rows);
        self.undoRow();
        if (self.present.items.len > 0) {
            self.present.shrinkRetainingCapacity((rows + 7) / 8);
            if (rows % 8 != 0) self.present.items[rows / 8] &= below(rows);
        }
    }

    pub fn finish(self: *const Builder) abi.Column {
        if (self.ends.items.len == 0) return .{};
        return .{ .bytes = .of(self.bytes.list.items), .ends = .of(self.ends.items), .present = .of(self.present.items) };
    }

    fn end(self: *const Builder) u32 {
        return @intCast(self.bytes.list.items.len);
    }

    fn lastEnd(self: *const Builder) usize {
        const ends = self.ends.items;
        return if (ends.len == 0) 0 else ends[ends.len - 1];
    }

    /// The bits of a byte that stand for rows before this one.
    fn below(row: usize) u8 {
        return (@as(u8, 1) << @intCast(row % 8)) - 1;
    }

    /// Writes down whether the next row is present and, at first, all before it.
    fn mark(self: *Builder, present: bool, before: bool) Error!void {
        const row = self.rows;
        if (self.present.items.len == 0) {
            try self.present.appendNTimes(gpa, if (before) 0xff else 0, row / 8 + 1);
            if (before) self.present.items[row / 8] = below(row);
        } else if (row % 8 == 0) {
            try self.present.append(gpa, 0);
        }
        if (present) self.present.items[row / 8] |= @as(u8, 1) << @intCast(row % 8);
    }
};
