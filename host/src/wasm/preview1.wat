;; WASI preview 1 for the sandbox, as an adapter of wit-component: what stock Go and C libraries need to start, and
;; nothing of the outside. Deterministic: no environment, no arguments, no files, no entropy, no time.
;;
;; Must not call the host for anything but output: a runtime may come here from within `cabi_realloc`, where the
;; component model forbids it (a panic's output is worth the risk, time is not).
(module
  (import "env" "memory" (memory 0))
  (import "weir:preview1/stdio@1.0.0" "write" (func $write (param i32 i32 i32)))

  ;; Nanoseconds since 1970, so that a program that takes it for the real time is wrong at first sight. Moves on a
  ;; little whenever it is read, and by what is slept, so that waiting ends.
  (global $now (mut i64) (i64.const 0))
  (global $random (mut i64) (i64.const -7046029254386353131))

  (func (export "sched_yield") (result i32) i32.const 0)
  (func (export "proc_exit") (param i32) unreachable)

  ;; Arguments and environment: none.
  (func $none (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    i32.const 0)
  (export "args_sizes_get" (func $none))
  (export "environ_sizes_get" (func $none))
  (func $nothing (param i32 i32) (result i32) i32.const 0)
  (export "args_get" (func $nothing))
  (export "environ_get" (func $nothing))

  (func (export "clock_res_get") (param $clock i32) (param $out i32) (result i32)
    (i64.store (local.get $out) (i64.const 1000))
    i32.const 0)
  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $out i32) (result i32)
    (global.set $now (i64.add (global.get $now) (i64.const 1000)))
    (i64.store (local.get $out) (global.get $now))
    i32.const 0)

  ;; xorshift from a fixed seed: the same numbers in every instance.
  (func (export "random_get") (param $at i32) (param $length i32) (result i32)
    (local $x i64)
    (local.set $x (global.get $random))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $length)))
      (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))))
      (local.set $x (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 7))))
      (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 17))))
      (i64.store8 (local.get $at) (local.get $x))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $length (i32.sub (local.get $length) (i32.const 1)))
      (br $next)))
    (global.set $random (local.get $x))
    i32.const 0)

  ;; Every subscription fires at once; one to a relative time moves the clock on by it.
  (func (export "poll_oneoff") (param $in i32) (param $event i32) (param $left i32) (param $out i32) (result i32)
    (i32.store (local.get $out) (local.get $left))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $left)))
      (i64.store (local.get $event) (i64.load (local.get $in)))
      (i64.store offset=8 (local.get $event) (i64.const 0))
      (i64.store offset=16 (local.get $event) (i64.const 0))
      (i64.store offset=24 (local.get $event) (i64.const 0))
      (i32.store8 offset=10 (local.get $event) (i32.load8_u offset=8 (local.get $in)))
      (if (i32.eqz (i32.load8_u offset=8 (local.get $in))) (then
        (if (i32.and (i32.load16_u offset=40 (local.get $in)) (i32.const 1))
          (then
            (if (i64.gt_u (i64.load offset=24 (local.get $in)) (global.get $now))
              (then (global.set $now (i64.load offset=24 (local.get $in))))))
          (else (global.set $now (i64.add (global.get $now) (i64.load offset=24 (local.get $in))))))))
      (local.set $in (i32.add (local.get $in) (i32.const 48)))
      (local.set $event (i32.add (local.get $event) (i32.const 32)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br $next)))
    i32.const 0)

  ;; Standard output (1) and standard error (2) go to the host; other files don't exist (8: bad file descriptor).
  (func (export "fd_write") (param $fd i32) (param $parts i32) (param $left i32) (param $out i32) (result i32)
    (local $sum i32)
    (if (i32.gt_u (i32.sub (local.get $fd) (i32.const 1)) (i32.const 1)) (then (return (i32.const 8))))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $left)))
      (call $write (local.get $fd) (i32.load (local.get $parts)) (i32.load offset=4 (local.get $parts)))
      (local.set $sum (i32.add (local.get $sum) (i32.load offset=4 (local.get $parts))))
      (local.set $parts (i32.add (local.get $parts) (i32.const 8)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br $next)))
    (i32.store (local.get $out) (local.get $sum))
    i32.const 0)

  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) i32.const 8)
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) i32.const 8)
  (func (export "fd_close") (param i32) (result i32) i32.const 8)
  (func (export "fd_datasync") (param i32) (result i32) i32.const 8)
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) i32.const 8)
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) i32.const 8)
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) i32.const 8)
  (func (export "fd_filestat_get") (param i32 i32) (result i32) i32.const 8)
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) i32.const 8)
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) i32.const 8)
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) i32.const 8)
  (func (export "fd_prestat_get") (param i32 i32) (result i32) i32.const 8)
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) i32.const 8)
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) i32.const 8)
  (func (export "fd_read") (param i32 i32 i32 i32) (result i32) i32.const 8)
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) i32.const 8)
  (func (export "fd_renumber") (param i32 i32) (result i32) i32.const 8)
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) i32.const 8)
  (func (export "fd_sync") (param i32) (result i32) i32.const 8)
  (func (export "fd_tell") (param i32 i32) (result i32) i32.const 8)
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) i32.const 8)
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) i32.const 8)
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) i32.const 8)
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) i32.const 8)
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) i32.const 8)
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) i32.const 8)
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) i32.const 8)
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) i32.const 8)
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) i32.const 8)
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) i32.const 8)
)
