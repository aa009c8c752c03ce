//! Passthrough: what a message costs without any work.

const weir = @import("weir");

const Passthrough = struct {
    pub fn init(_: struct {}) weir.Error!Passthrough {
        return .{};
    }

    pub fn transform(_: *Passthrough, _: weir.Message, out: *weir.Emitter) weir.Error!void {
        try out.forward();
    }
};

comptime {
    weir.exportTransform(Passthrough);
}
