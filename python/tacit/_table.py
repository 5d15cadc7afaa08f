# SPDX-License-Identifier: Apache-2.0
# Written by scripts/make_python_table.py from include/tacit/tacit.h.
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint,
                    c_uint64, c_void_p)

VERSION = (0, 2, 0)
STATUSES = {0: "OK", 1: "PENDING", -1: "E_USAGE", -2: "E_CONFIG", -3: "E_DATA", -4: "E_PEER", -5: "E_NUMERICS", -6: "E_MEMORY", -7: "E_IO", -8: "E_UNSUPPORTED", -9: "E_INTERNAL"}
ALL_TENSORS = c_size_t(-1).value

# tacit_list_kind
LIST_OPTIONS = 0
LIST_STRATEGIES = 1
LIST_CODECS = 2
LIST_CONTROLLERS = 3
LIST_OPTIMIZERS = 4

# tacit_type
F32 = 0
BF16 = 1
F16 = 2

# tacit_log_level
LOG_DEBUG = 0
LOG_INFO = 1
LOG_WARN = 2
LOG_ERROR = 3

# tacit_collective
ALL_REDUCE = 0
REDUCE_SCATTER = 1
ALL_GATHER = 2

# constants
VALUE_BYTES = 512
DECAY = 1

tacit_log_callback = CFUNCTYPE(None, c_void_p, c_int, c_char_p)

tacit_failure_callback = CFUNCTYPE(None, c_void_p, c_int, c_char_p)

tacit_wait_callback = CFUNCTYPE(c_int, c_void_p)


class tacit_store(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("context", c_void_p),
        ("set", CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)),
        ("get", CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_size_t), c_double)),
    ]


class tacit_job_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("parameters", c_void_p),
        ("gradients", c_void_p),
        ("steps", c_int64),
        ("threads", c_int),
        ("own_optimizer", c_bool),
        ("gradients_only", c_bool),
        ("by_units", c_bool),
    ]


class tacit_step(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("number", c_int64),
        ("skipped", c_bool),
        ("norm", c_double),
        ("lr", c_double),
        ("wait_s", c_double),
        ("factor", c_double),
        ("gain", c_double),
        ("kept", c_double),
    ]


class tacit_part(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("offset", c_size_t),
        ("floats", c_size_t),
        ("parameters", c_void_p),
        ("gradients", c_void_p),
    ]


class tacit_blob(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("bytes", c_void_p),
        ("count", c_size_t),
        ("own", c_bool),
        ("loaded", c_bool),
        ("room", CFUNCTYPE(c_void_p, c_void_p, c_size_t)),
        ("context", c_void_p),
    ]


class tacit_counters(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("steps", c_int64),
        ("skipped", c_int64),
        ("wait_s", c_double),
        ("bytes_sent", c_uint64),
        ("bytes_received", c_uint64),
        ("messages_sent", c_uint64),
        ("messages_received", c_uint64),
        ("away_sent", c_uint64),
        ("away_received", c_uint64),
        ("factor", c_double),
        ("gain", c_double),
        ("kept", c_double),
    ]


FUNCTIONS = {  # name: (result, arguments)
    "tacit_error_text": (c_char_p, []),
    "tacit_status_name": (c_char_p, [c_int]),
    "tacit_status_text": (c_char_p, [c_int]),
    "tacit_status_exit_code": (c_int, [c_int]),
    "tacit_version": (c_char_p, []),
    "tacit_settings_create": (c_int, [POINTER(c_void_p)]),
    "tacit_settings_set": (c_int, [c_void_p, c_char_p]),
    "tacit_settings_file": (c_int, [c_void_p, c_char_p]),
    "tacit_settings_get": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "tacit_list": (c_bool, [c_int, c_size_t, POINTER(c_char_p), POINTER(c_char_p)]),
    "tacit_settings_destroy": (None, [c_void_p]),
    "tacit_open": (c_int, [c_void_p, POINTER(c_void_p)]),
    "tacit_open_self": (c_int, [c_void_p, POINTER(c_void_p)]),
    "tacit_open_family": (c_int, [c_char_p, c_void_p, c_void_p, POINTER(c_void_p)]),
    "tacit_open_store": (c_int, [c_void_p, c_int, c_int, POINTER(tacit_store), POINTER(c_void_p)]),
    "tacit_rank": (c_int, [c_void_p]),
    "tacit_size": (c_int, [c_void_p]),
    "tacit_close": (c_int, [c_void_p]),
    "tacit_layout_create": (c_int, [POINTER(c_void_p)]),
    "tacit_layout_add": (c_int, [c_void_p, c_char_p, c_int, POINTER(c_size_t), c_uint]),
    "tacit_layout_next_unit": (c_int, [c_void_p]),
    "tacit_layout_floats": (c_size_t, [c_void_p]),
    "tacit_layout_offset": (c_int, [c_void_p, c_size_t, POINTER(c_size_t)]),
    "tacit_layout_destroy": (None, [c_void_p]),
    "tacit_job_open": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(tacit_job_options), POINTER(c_void_p)]),
    "tacit_job_parameters": (c_void_p, [c_void_p]),
    "tacit_job_gradients": (c_void_p, [c_void_p]),
    "tacit_job_start": (c_int, [c_void_p]),
    "tacit_job_close": (c_int, [c_void_p]),
    "tacit_job_ready": (c_int, [c_void_p, c_size_t]),
    "tacit_job_ready_from": (c_int, [c_void_p, c_size_t, c_void_p, c_int, c_double]),
    "tacit_job_ready_list": (c_int, [c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_void_p), c_int, c_double]),
    "tacit_job_finish": (c_int, [c_void_p, POINTER(tacit_step)]),
    "tacit_job_settle": (c_int, [c_void_p, POINTER(tacit_step)]),
    "tacit_job_stepped": (c_int, [c_void_p]),
    "tacit_job_part": (c_bool, [c_void_p, c_size_t, POINTER(tacit_part)]),
    "tacit_job_wait": (c_int, [c_void_p, c_size_t, c_double]),
    "tacit_job_set_lr": (c_int, [c_void_p, c_double]),
    "tacit_job_average": (c_int, [c_void_p, POINTER(c_double)]),
    "tacit_job_revert": (c_int, [c_void_p]),
    "tacit_job_save": (c_int, [c_void_p, c_char_p, c_int, POINTER(tacit_blob), c_size_t]),
    "tacit_job_load": (c_int, [c_void_p, c_char_p, POINTER(tacit_blob), c_size_t, POINTER(c_bool)]),
    "tacit_job_state": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)]),
    "tacit_job_restore": (c_int, [c_void_p, c_void_p, c_size_t]),
    "tacit_job_counters": (c_int, [c_void_p, POINTER(tacit_counters)]),
    "tacit_log_to": (c_int, [tacit_log_callback, c_void_p, c_int]),
    "tacit_comm_log_to": (c_int, [c_void_p, tacit_log_callback, c_void_p, c_int]),
    "tacit_on_failure": (c_int, [c_void_p, tacit_failure_callback, c_void_p]),
    "tacit_on_wait": (c_int, [tacit_wait_callback, c_void_p]),
    "tacit_job_need": (c_int, [c_void_p, c_size_t]),
    "tacit_job_release": (c_int, [c_void_p, c_size_t]),
    "tacit_job_write": (c_int, [c_void_p, c_size_t]),
    "tacit_channel_open": (c_int, [c_void_p, c_void_p, c_int, c_size_t, POINTER(c_void_p)]),
    "tacit_channel_start": (c_int, [c_void_p, c_void_p, c_void_p, c_int, c_double]),
    "tacit_channel_wait": (c_int, [c_void_p, c_double]),
    "tacit_channel_state": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)]),
    "tacit_channel_restore": (c_int, [c_void_p, c_void_p, c_size_t]),
    "tacit_channel_close": (c_int, [c_void_p]),
}
